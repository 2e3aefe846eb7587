//! Message types with their JSON names, from the published `.proto` files. Two facts are missing there: which messages
//! JSON inlines is listed by hand, and which fields are pointers comes from the engine's table.

use super::typed::KINDS;
use prost_reflect::{Cardinality, DescriptorPool, FieldDescriptor, Kind as Wire, MessageDescriptor};
use serde_json::{Map, Value as Tree, json};
use std::{collections::HashMap, path::Path, sync::LazyLock};
use weir_document::TypeMeta;

/// A message type.
pub(crate) struct Message {
    pub(crate) descriptor: MessageDescriptor,
    pub(crate) fields: Vec<Field>,
}

/// One field by its JSON name.
pub(crate) struct Field {
    pub(crate) name: String,
    /// The messages around it that JSON inlines, outermost first.
    pub(crate) outer: Vec<FieldDescriptor>,
    pub(crate) descriptor: FieldDescriptor,
    pub(crate) shape: Shape,
    pub(crate) kind: Kind,
    /// Whether zero and missing are different values.
    pub(crate) pointer: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    One,
    List,
    Map,
}

/// The JSON form of a value.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Kind {
    Bool,
    Int32,
    Int64,
    Text,
    Bytes,
    Time,
    Quantity,
    Either,
    Raw,
    /// A message, by its full name.
    Message(String),
}

/// All messages that the kinds contain, by full name.
pub(crate) static TYPES: LazyLock<HashMap<String, Message>> = LazyLock::new(|| {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("proto");
    let files = ["k8s.io/api/core/v1/generated.proto", "k8s.io/api/discovery/v1/generated.proto"];
    let pool = DescriptorPool::from_file_descriptor_set(protox::compile(files, [root]).unwrap()).unwrap();
    let table = Table::parse();
    let mut types = HashMap::new();
    let mut queue: Vec<(String, usize)> =
        KINDS.iter().map(|root| (root.name.to_owned(), table.kinds[&*root.type_meta])).collect();
    while let Some((name, number)) = queue.pop() {
        if types.contains_key(&name) {
            continue;
        }
        let descriptor = pool.get_message_by_name(&name).unwrap();
        let mut fields = fields(&descriptor);
        let known = &table.messages[number];
        assert_eq!(fields.len(), known.len(), "{name}: the engine's table has other fields");
        for field in &mut fields {
            let known = known.get(&*field.name).unwrap_or_else(|| panic!("{name}: {} is not in the table", field.name));
            field.pointer = known.pointer;
            if let Kind::Message(name) = &field.kind {
                queue.push((name.clone(), known.message.unwrap()));
            }
        }
        types.insert(name, Message { descriptor, fields });
    }
    types
});

/// Returns whether the Go types embed this message, so that JSON contains its fields directly.
fn is_inlined(field: &FieldDescriptor) -> bool {
    matches!(
        (field.parent_message().name(), field.name()),
        ("Volume", "volumeSource")
            | ("Probe", "handler")
            | ("EphemeralContainer", "ephemeralContainerCommon")
            | (_, "localObjectReference")
    )
}

fn fields(descriptor: &MessageDescriptor) -> Vec<Field> {
    descriptor.fields().flat_map(field).collect()
}

/// Returns a field, or the fields of an inlined message.
fn field(descriptor: FieldDescriptor) -> Vec<Field> {
    if let (true, Wire::Message(inner)) = (is_inlined(&descriptor), descriptor.kind()) {
        let mut fields = fields(&inner);
        fields.iter_mut().for_each(|field| field.outer.insert(0, descriptor.clone()));
        return fields;
    }
    let (shape, kind) = match descriptor.kind() {
        Wire::Message(entry) if descriptor.is_map() => (Shape::Map, entry.map_entry_value_field().kind()),
        kind if descriptor.cardinality() == Cardinality::Repeated => (Shape::List, kind),
        kind => (Shape::One, kind),
    };
    let kind = match kind {
        Wire::Bool => Kind::Bool,
        Wire::Int32 => Kind::Int32,
        Wire::Int64 => Kind::Int64,
        Wire::String => Kind::Text,
        Wire::Bytes => Kind::Bytes,
        Wire::Message(message) => match message.full_name() {
            "k8s.io.apimachinery.pkg.apis.meta.v1.Time" => Kind::Time,
            "k8s.io.apimachinery.pkg.api.resource.Quantity" => Kind::Quantity,
            "k8s.io.apimachinery.pkg.util.intstr.IntOrString" => Kind::Either,
            "k8s.io.apimachinery.pkg.apis.meta.v1.FieldsV1" => Kind::Raw,
            name => Kind::Message(name.to_owned()),
        },
        other => panic!("{descriptor:?}: {other:?} is new"),
    };
    vec![Field { name: descriptor.name().to_owned(), outer: Vec::new(), descriptor, shape, kind, pointer: false }]
}

/// The facts about a field from the engine's table.
struct FieldFacts {
    pointer: bool,
    message: Option<usize>,
}

/// The relevant part of the engine's table.
struct Table {
    kinds: HashMap<TypeMeta, usize>,
    messages: Vec<HashMap<&'static str, FieldFacts>>,
}

impl Table {
    fn parse() -> Table {
        let mut table = Table { kinds: HashMap::new(), messages: Vec::new() };
        for line in include_str!("../../../host/document/schema/kubernetes.schema").lines() {
            match *line.split(' ').collect::<Vec<_>>() {
                ["kind", api_version, kind, number] => {
                    let type_meta = TypeMeta { api_version: api_version.into(), kind: kind.into() };
                    table.kinds.insert(type_meta, number.parse().unwrap());
                }
                ["message", _] => table.messages.push(HashMap::new()),
                [name, _, _, kind, presence] => {
                    let known = FieldFacts { pointer: presence.contains('p'), message: kind.parse().ok() };
                    table.messages.last_mut().unwrap().insert(name, known);
                }
                _ => {}
            }
        }
        table
    }
}

/// Removes what is equivalent to missing: null, empty lists and maps, and zero values of fields that are not pointers.
/// Keeps unknown members. apiVersion and kind are not part of the message.
pub(crate) fn normal(message: &Message, object: &Tree) -> Tree {
    let mut out = Map::new();
    for (name, value) in object.as_object().unwrap() {
        let Some(field) = message.fields.iter().find(|field| field.name == *name) else {
            if name != "apiVersion" && name != "kind" {
                out.insert(name.clone(), value.clone());
            }
            continue;
        };
        let value = match (field.shape, value) {
            (Shape::List, Tree::Array(list)) => list.iter().map(|one| normal_value(&field.kind, one)).collect(),
            (Shape::Map, Tree::Object(map)) => {
                Tree::Object(map.iter().map(|(key, one)| (key.clone(), normal_value(&field.kind, one))).collect())
            }
            (_, value) => normal_value(&field.kind, value),
        };
        let missing = value.is_null()
            || field.shape != Shape::One && (value == json!([]) || value == json!({}))
            || field.shape == Shape::One && !field.pointer && is_zero(&field.kind, &value);
        if !missing {
            out.insert(name.clone(), value);
        }
    }
    Tree::Object(out)
}

fn normal_value(kind: &Kind, value: &Tree) -> Tree {
    match kind {
        Kind::Message(name) if value.is_object() => normal(&TYPES[name], value),
        _ => value.clone(),
    }
}

fn is_zero(kind: &Kind, value: &Tree) -> bool {
    *value
        == match kind {
            Kind::Bool => json!(false),
            Kind::Int32 | Kind::Int64 | Kind::Either => json!(0),
            Kind::Text | Kind::Bytes => json!(""),
            Kind::Quantity => json!("0"),
            Kind::Time | Kind::Raw => Tree::Null,
            Kind::Message(_) => json!({}),
        }
}

/// Returns the path of the first difference of two trees, because whole objects are too large for a failure message.
pub(crate) fn difference(left: &Tree, right: &Tree) -> Option<String> {
    let missing = Tree::Null;
    let below = |name: &str, left: &Tree, right: &Tree| difference(left, right).map(|at| format!(".{name}{at}"));
    match (left, right) {
        (Tree::Object(a), Tree::Object(b)) => a
            .keys()
            .chain(b.keys())
            .find_map(|key| below(key, a.get(key).unwrap_or(&missing), b.get(key).unwrap_or(&missing))),
        (Tree::Array(a), Tree::Array(b)) if a.len() == b.len() => {
            a.iter().zip(b).enumerate().find_map(|(i, (a, b))| below(&i.to_string(), a, b))
        }
        _ if left == right => None,
        _ => Some(format!(": {left} / {right}")),
    }
}
