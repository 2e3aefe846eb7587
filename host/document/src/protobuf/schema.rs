//! The protobuf fields of the built-in kinds: their names in JSON, and the rules by which JSON omits them.
//!
//! The table is generated from the published Go types (`schema/`, `make schema-check`). It is parsed once per process,
//! takes about 300 KB and never changes.

use crate::TypeMeta;
use std::{collections::HashMap, sync::LazyLock};

static TABLE: LazyLock<SchemaTable> =
    LazyLock::new(|| SchemaTable::parse(include_str!("../../schema/kubernetes.schema")));

static EMPTY: Message = Message { fields: Vec::new() };

/// The list in a value of type [`ValueType::Strings`].
pub(crate) static STRINGS: Field = Field {
    name: "",
    outer: Vec::new(),
    number: 1,
    cardinality: Cardinality::List,
    kind: ValueType::Text,
    pointer: false,
    omit_empty: false,
    omit_zero: false,
};

#[derive(Default)]
struct SchemaTable {
    version: &'static str,
    kinds: HashMap<(&'static str, &'static str), u16, foldhash::fast::RandomState>,
    /// Kinds by apiVersion and resource.
    resources: HashMap<&'static str, HashMap<&'static str, &'static str, foldhash::fast::RandomState>>,
    messages: Vec<Message>,
}

/// A message type.
#[derive(Debug)]
pub(crate) struct Message {
    /// In the order of the Go struct, which is the order in JSON.
    pub(crate) fields: Vec<Field>,
}

/// One field by its JSON name.
#[derive(Debug)]
pub(crate) struct Field {
    pub(crate) name: &'static str,
    /// The field numbers of the messages around it that JSON inlines, outermost first.
    pub(crate) outer: Vec<u32>,
    pub(crate) number: u32,
    pub(crate) cardinality: Cardinality,
    pub(crate) kind: ValueType,
    /// Whether zero and missing are different values.
    pub(crate) pointer: bool,
    /// Whether JSON omits the field if it is missing, empty or, unless it is a pointer, a zero scalar.
    pub(crate) omit_empty: bool,
    /// Whether JSON omits the field if it is the zero time.
    pub(crate) omit_zero: bool,
}

/// The number of values of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cardinality {
    One,
    List,
    /// A map with string keys: records of {1 key, 2 value}.
    Map,
}

/// The type of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ValueType {
    Bool,
    Int32,
    Int64,
    Text,
    /// Base64 in JSON.
    Bytes,
    /// {1 repeated string}, a list in JSON.
    Strings,
    /// {1 seconds, 2 nanoseconds}, RFC 3339 with whole seconds in JSON.
    Time,
    /// As [`ValueType::Time`], with microseconds.
    MicroTime,
    /// {1 string}
    Quantity,
    /// {1 type, 2 number, 3 string}.
    IntOrString,
    /// {1 JSON text}: RawExtension, FieldsV1.
    Raw,
    /// A message type, by its index in the table.
    Message(u16),
}

/// Returns the release of Kubernetes that the table was generated from: `v1.37.2`.
pub fn version() -> &'static str {
    TABLE.version
}

/// Returns whether objects of a kind can be read as protobuf. Request others as JSON.
pub fn has(type_meta: &TypeMeta) -> bool {
    find(type_meta).is_some()
}

/// Returns the kind of a resource if its objects can be read as protobuf: `v1`, `services` gives Service.
pub fn kind_of(api_version: &str, resource: &str) -> Option<&'static str> {
    TABLE.resources.get(api_version)?.get(resource).copied()
}

/// Returns the message type of a kind.
pub(crate) fn find(type_meta: &TypeMeta) -> Option<&'static Message> {
    let number = TABLE.kinds.get(&(type_meta.api_version.as_str(), type_meta.kind.as_str()))?;
    Some(message(*number))
}

/// Returns a message type by its index. INVARIANT: indexes come from the table, which is checked when it is parsed.
pub(crate) fn message(number: u16) -> &'static Message {
    TABLE.messages.get(usize::from(number)).unwrap_or(&EMPTY)
}

impl Message {
    /// Returns the field of this JSON name.
    pub(crate) fn field(&self, name: &str) -> Option<&Field> {
        self.fields.iter().find(|field| field.name == name)
    }

    /// Returns whether the type has this field number at the level of `outer`.
    pub(crate) fn knows(&self, outer: &[u32], number: u32) -> bool {
        self.fields.iter().any(|field| {
            let rest = field.outer.strip_prefix(outer);
            rest.is_some_and(|rest| rest.first().copied().unwrap_or(field.number) == number)
        })
    }
}

impl SchemaTable {
    /// Parses lines of `kind <apiVersion> <kind> <message>`, `resource <apiVersion> <resource> <kind>`, `message <name>`, and the
    /// message's fields.
    fn parse(text: &'static str) -> SchemaTable {
        let mut table = SchemaTable::default();
        for line in text.lines() {
            let words: Vec<&'static str> = line.split(' ').collect();
            match *words {
                ["kubernetes", version] => table.version = version,
                ["kind", api_version, kind, number] => {
                    if let Ok(number) = number.parse() {
                        table.kinds.insert((api_version, kind), number);
                    }
                }
                ["resource", api_version, resource, kind] => {
                    table.resources.entry(api_version).or_default().insert(resource, kind);
                }
                ["message", _] => table.messages.push(Message { fields: Vec::new() }),
                [name, numbers, cardinality, kind, presence] => {
                    if let (Some(message), Some(field)) =
                        (table.messages.last_mut(), Field::parse(name, numbers, cardinality, kind, presence))
                    {
                        message.fields.push(field);
                    }
                }
                _ => {}
            }
        }
        table
    }
}

impl Field {
    fn parse(name: &'static str, numbers: &str, cardinality: &str, kind: &str, presence: &str) -> Option<Field> {
        let mut outer = numbers.split('.').map(|number| number.parse().ok()).collect::<Option<Vec<u32>>>()?;
        let number = outer.pop()?;
        let cardinality = match cardinality {
            "one" => Cardinality::One,
            "list" => Cardinality::List,
            "map" => Cardinality::Map,
            _ => return None,
        };
        let kind = match kind {
            "bool" => ValueType::Bool,
            "int32" => ValueType::Int32,
            "int64" => ValueType::Int64,
            "text" => ValueType::Text,
            "bytes" => ValueType::Bytes,
            "texts" => ValueType::Strings,
            "time" => ValueType::Time,
            "micro" => ValueType::MicroTime,
            "quantity" => ValueType::Quantity,
            "either" => ValueType::IntOrString,
            "raw" => ValueType::Raw,
            message => ValueType::Message(message.parse().ok()?),
        };
        let has = |flag| presence.contains(flag);
        Some(Field {
            name,
            outer,
            number,
            cardinality,
            kind,
            pointer: has('p'),
            omit_empty: has('o'),
            omit_zero: has('z'),
        })
    }

    /// Returns the wire type of a value.
    pub(crate) fn wire(&self) -> super::wire::WireType {
        match self.kind {
            ValueType::Bool | ValueType::Int32 | ValueType::Int64 => super::wire::WireType::Varint,
            _ => super::wire::WireType::Bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_the_table_parses() {
        let text = include_str!("../../schema/kubernetes.schema");
        let fields: usize = TABLE.messages.iter().map(|message| message.fields.len()).sum();
        assert_eq!(text.lines().count(), 1 + 2 * TABLE.kinds.len() + TABLE.messages.len() + fields);
        assert!(version().starts_with("v1."));
        assert_eq!(TABLE.resources.values().map(HashMap::len).sum::<usize>(), TABLE.kinds.len());
        assert_eq!(kind_of("networking.k8s.io/v1", "networkpolicies"), Some("NetworkPolicy"));
        assert_eq!(kind_of("v1", "endpoints"), Some("Endpoints"));
        assert_eq!(kind_of("v1", "endpointslices"), None);
        for number in TABLE.kinds.values() {
            assert!(usize::from(*number) < TABLE.messages.len());
        }
    }

    /// The assumptions of walks, reads and edits.
    #[test]
    fn the_table_keeps_the_assumptions_of_the_code() {
        for (at, message) in TABLE.messages.iter().enumerate() {
            for (i, field) in message.fields.iter().enumerate() {
                let place = (at, field.name);
                if let ValueType::Message(number) = field.kind {
                    assert!(usize::from(number) < TABLE.messages.len(), "{place:?}");
                }
                assert!(!field.omit_zero || field.kind == ValueType::Time, "{place:?}");
                assert!(field.cardinality == Cardinality::One || !field.pointer, "{place:?}");
                assert!(field.kind != ValueType::Strings || field.cardinality == Cardinality::Map, "{place:?}");
                assert!(
                    field.cardinality != Cardinality::Map || !matches!(field.kind, ValueType::Message(_)),
                    "{place:?}"
                );
                let twice = message.fields[..i].iter().any(|other| {
                    other.name == field.name || (&other.outer, other.number) == (&field.outer, field.number)
                });
                assert!(!twice, "{place:?}");
            }
        }
    }

    /// Recursion over a type ends.
    #[test]
    fn no_message_holds_itself() {
        fn depth(number: u16, left: usize) -> usize {
            assert!(left > 0);
            let below = message(number).fields.iter().filter_map(|field| match field.kind {
                ValueType::Message(number) => Some(depth(number, left - 1)),
                _ => None,
            });
            1 + below.max().unwrap_or(0)
        }
        for number in TABLE.kinds.values() {
            depth(*number, 32);
        }
    }

    #[test]
    fn kinds_are_found_by_version() {
        let type_meta = |api_version: &str, kind: &str| TypeMeta { api_version: api_version.into(), kind: kind.into() };
        assert!(has(&type_meta("v1", "Service")));
        assert!(has(&type_meta("discovery.k8s.io/v1", "EndpointSlice")));
        assert!(!has(&type_meta("apps.openyurt.io/v1beta2", "NodePool")));
        let pod = find(&type_meta("v1", "Pod")).unwrap();
        assert!(pod.knows(&[], 1) && !pod.knows(&[], 9));
    }
}
