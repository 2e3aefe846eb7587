//! Random objects of the message types, and random edits of them.

use super::{
    edit::{Edit, Kind},
    typed::Root,
    types::{Field, Kind as Of, Message, Shape, TYPES},
};
use serde_json::{Map, Value as Tree, json};
use weir_document::Value;

const KEYS: [&str; 3] = ["a", "x.io/y", "zone"];

/// Protected members of the metadata. Edits use `metadata.name` as their representative.
const PROTECTED: [&str; 5] = ["namespace", "uid", "resourceVersion", "labels", "ownerReferences"];

/// Makes choices from a number. proptest provides the seed, and need not shrink the content of an object.
pub(crate) struct Random(pub(crate) u64);

const ALL: [Kind; 6] = [Kind::Set, Kind::SetRows, Kind::Remove, Kind::RemoveRows, Kind::Retain, Kind::Append];

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % limit.max(1)
    }

    fn of<T: Clone>(&mut self, list: &[T]) -> T {
        list[self.below(list.len())].clone()
    }
}

/// Returns a whole object with apiVersion and kind.
pub(crate) fn object(random: &mut Random, root: &Root) -> Tree {
    let mut object = message(random, root.message(), 6);
    object["apiVersion"] = json!(root.type_meta.api_version);
    object["kind"] = json!(root.type_meta.kind);
    object
}

/// Returns a message in which `full` of ten fields are present, and fewer on each level below.
fn message(random: &mut Random, of: &Message, full: usize) -> Tree {
    let mut out = Map::new();
    for field in &of.fields {
        if field.name == "metadata" || field.name == "spec" || random.below(10) < full {
            out.insert(field.name.clone(), whole(random, field, full));
        }
    }
    Tree::Object(out)
}

/// Returns the complete value of a field.
fn whole(random: &mut Random, field: &Field, full: usize) -> Tree {
    let less = full.saturating_sub(1).max(1);
    match field.shape {
        Shape::One => value(random, &field.kind, less),
        Shape::List => (0..random.below(4)).map(|_| value(random, &field.kind, less)).collect(),
        Shape::Map => {
            let keys = &KEYS[..random.below(4)];
            Tree::Object(keys.iter().map(|key| ((*key).to_owned(), value(random, &field.kind, less))).collect())
        }
    }
}

fn value(random: &mut Random, kind: &Of, full: usize) -> Tree {
    match kind {
        Of::Bool => json!(random.below(2) == 0),
        Of::Int32 => random.of(&[json!(0), json!(80), json!(-1), json!(i32::MIN), json!(i32::MAX)]),
        Of::Int64 => random.of(&[json!(0), json!(1), json!(i64::MIN), json!(i64::MAX)]),
        Of::Text => random.of(&[json!(""), json!("a"), json!("10.0.0.1"), json!("ü\"\n"), json!("x".repeat(130))]),
        Of::Bytes => random.of(&[json!(""), json!("AAECAw==")]),
        Of::Time => random.of(&[json!("2024-02-29T01:02:03Z"), json!("1969-12-31T23:59:59Z")]),
        Of::Quantity => random.of(&[json!("0"), json!("250m"), json!("1Gi")]),
        Of::Either => random.of(&[json!(0), json!(8080), json!("http"), json!("")]),
        Of::Raw => json!({"f:spec": {"x": [1, "a", null]}}),
        Of::Message(name) => message(random, &TYPES[name], full),
    }
}

/// Returns an edit, mostly with a value of the right type.
pub(crate) fn edit(random: &mut Random, root: &Root) -> Edit {
    let kind = random.of(&ALL);
    let appends = matches!(kind, Kind::Append);
    let mut tries = random.of(&[1, 30, 30, 30]);
    let (expression, target) = loop {
        let (expression, target) = path(random, root.message());
        let fits = match kind {
            Kind::Append => matches!(target, Some((field, true)) if field.shape == Shape::List),
            Kind::Retain => expression.contains("[*]"),
            _ => true,
        };
        // An array cannot be created where protobuf has JSON text.
        let sayable = !appends || target.is_none_or(|(field, _)| field.kind != Of::Raw);
        tries -= 1;
        if sayable && (fits || tries <= 0) {
            break (expression, target);
        }
    };
    let tree = match target {
        // Occasionally of another type. The typed object accepts any text for a quantity, but no number.
        Some((field, _)) if field.kind != Of::Quantity && random.below(8) == 0 => {
            random.of(&[json!(true), json!(1.5), json!("a"), json!({"nothing": 1})])
        }
        Some((_, true)) if !appends && random.below(6) == 0 => Tree::Null,
        Some((field, true)) if !appends => whole(random, field, 4),
        Some((field, _)) => value(random, &field.kind, 4),
        None => json!("a"),
    };
    let bits = (0..8).map(|_| random.below(256) as u8).collect();
    Edit::new(kind, expression, bits, false, written(&tree))
}

fn written(tree: &Tree) -> Value {
    match tree {
        Tree::Null => Value::Null,
        Tree::Bool(value) => Value::Boolean(*value),
        Tree::Number(number) => Value::Number(number.to_string()),
        Tree::String(text) => Value::Text(text.clone()),
        other => Value::Json(other.to_string()),
    }
}

/// Returns a path by the types, its last field, and whether it selects all of that field. Occasionally returns a path
/// that leads nowhere.
fn path(random: &mut Random, root: &'static Message) -> (String, Option<(&'static Field, bool)>) {
    let mut path = String::new();
    let mut message = root;
    loop {
        let fields: Vec<_> = message.fields.iter().filter(|field| !is_protected(message, field)).collect();
        let field = random.of(&fields);
        path += &format!("['{}']", field.name);
        let stop = random.below(5) == 0;
        let mut whole = true;
        match field.shape {
            Shape::One => {}
            _ if stop => return (path, Some((field, true))),
            Shape::List => {
                path += random.of(&["[*]", "[*]", "[*]", "[0]", "[1]"]);
                whole = false;
            }
            Shape::Map => {
                path += &format!("['{}']", random.of(&KEYS));
                whole = false;
            }
        }
        match &field.kind {
            Of::Message(name) if !stop => message = &TYPES[name],
            // Edits cannot change JSON inside protobuf.
            _ if field.kind != Of::Raw && random.below(12) == 0 => {
                return (path + random.of(&["['nothing']", "[*]", "[0]['x']"]), None);
            }
            _ => return (path, Some((field, whole))),
        }
    }
}

/// Only the root's own metadata is protected. No other message here contains an ObjectMeta, except a volume's claim
/// template.
fn is_protected(message: &Message, field: &Field) -> bool {
    message.descriptor.name() == "ObjectMeta" && PROTECTED.contains(&&*field.name)
}
