//! Request bodies in Kubernetes' protobuf: kubectl's typed commands (`create configmap`, `auth can-i`, …) send nothing
//! else. Only the kinds that they send are known; answers are always JSON, which these clients take.
//!
//! A table of fields per message; unknown fields are skipped. Memory: the decoded object; nesting is as deep as the table.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value};

/// What a field holds.
#[derive(Clone, Copy)]
enum Holds {
    Text,
    /// Base64 in JSON.
    Bytes,
    Number,
    Bool,
    Message(&'static [Field]),
    /// A map whose values are the inner field.
    Map(&'static Holds),
    List(&'static Holds),
}

/// Number, JSON name, content.
type Field = (u64, &'static str, Holds);

/// A value on the wire.
enum Wire<'a> {
    Varint(u64),
    Length(&'a [u8]),
}

use Holds::{Bool, Bytes, List, Message, Number, Text};

const MAGIC: &[u8] = b"k8s\0";
const TEXTS: Holds = Holds::Map(&Text);
const BLOBS: Holds = Holds::Map(&Bytes);

#[rustfmt::skip]
mod tables {
    use super::{BLOBS, Bool, Field, List, Message, Number, TEXTS, Text};

    pub(super) const UNKNOWN: &[Field] = &[(1, "typeMeta", Message(&[(1, "apiVersion", Text), (2, "kind", Text)])), (2, "raw", super::Bytes)];
    const META: &[Field] = &[
        (1, "name", Text), (2, "generateName", Text), (3, "namespace", Text), (5, "uid", Text), (6, "resourceVersion", Text),
        (11, "labels", TEXTS), (12, "annotations", TEXTS), (14, "finalizers", List(&Text)),
    ];
    const RESOURCE: &[Field] = &[
        (1, "namespace", Text), (2, "verb", Text), (3, "group", Text), (4, "version", Text), (5, "resource", Text),
        (6, "subresource", Text), (7, "name", Text),
    ];
    const PATH: &[Field] = &[(1, "path", Text), (2, "verb", Text)];
    const NAMESPACE: &[Field] = &[(1, "metadata", Message(META)), (2, "spec", Message(&[(1, "finalizers", List(&Text))]))];
    const CONFIG_MAP: &[Field] = &[(1, "metadata", Message(META)), (2, "data", TEXTS), (3, "binaryData", BLOBS), (4, "immutable", Bool)];
    const SECRET: &[Field] = &[(1, "metadata", Message(META)), (2, "data", BLOBS), (3, "type", Text), (5, "immutable", Bool)];
    const PLAIN: &[Field] = &[(1, "metadata", Message(META))];
    const SELF_REVIEW: &[Field] = &[
        (1, "metadata", Message(META)),
        (2, "spec", Message(&[(1, "resourceAttributes", Message(RESOURCE)), (2, "nonResourceAttributes", Message(PATH))])),
    ];
    const REVIEW: &[Field] = &[
        (1, "metadata", Message(META)),
        (2, "spec", Message(&[
            (1, "resourceAttributes", Message(RESOURCE)), (2, "nonResourceAttributes", Message(PATH)), (3, "user", Text),
            (4, "groups", List(&Text)),
        ])),
    ];
    const TOKEN: &[Field] = &[
        (1, "metadata", Message(META)),
        (2, "spec", Message(&[(1, "audiences", List(&Text)), (4, "expirationSeconds", Number)])),
    ];
    const DELETE: &[Field] = &[
        (1, "gracePeriodSeconds", Number), (2, "preconditions", Message(&[(1, "uid", Text), (2, "resourceVersion", Text)])),
        (4, "propagationPolicy", Text), (5, "dryRun", List(&Text)),
    ];

    pub(super) fn of(kind: &str) -> Option<&'static [Field]> {
        Some(match kind {
            "Namespace" => NAMESPACE,
            "ConfigMap" => CONFIG_MAP,
            "Secret" => SECRET,
            "ServiceAccount" | "SelfSubjectReview" => PLAIN,
            "SelfSubjectAccessReview" => SELF_REVIEW,
            "SubjectAccessReview" | "LocalSubjectAccessReview" => REVIEW,
            "TokenRequest" => TOKEN,
            "DeleteOptions" => DELETE,
            _ => return None,
        })
    }
}

/// An object with its envelope; the text says what was not understood.
pub(crate) fn object(bytes: &[u8]) -> Result<Value, String> {
    let envelope = bytes.strip_prefix(MAGIC).ok_or("not Kubernetes' protobuf")?;
    let envelope = message(tables::UNKNOWN, envelope).ok_or("the envelope is broken")?;
    let text = |pointer: &str| envelope.pointer(pointer).and_then(Value::as_str);
    let kind = text("/typeMeta/kind").unwrap_or("");
    let table = tables::of(kind).ok_or_else(|| format!("{kind:?} is not known in protobuf here"))?;
    let raw = STANDARD.decode(text("/raw").unwrap_or("")).map_err(|error| error.to_string())?;
    let mut object = message(table, &raw).ok_or("the object is broken")?;
    if let Some(object) = object.as_object_mut() {
        object.insert("apiVersion".into(), text("/typeMeta/apiVersion").unwrap_or("").into());
        object.insert("kind".into(), kind.into());
    }
    Ok(object)
}

fn message(table: &[Field], mut bytes: &[u8]) -> Option<Value> {
    let mut object = Map::new();
    while !bytes.is_empty() {
        let (number, wire) = field(&mut bytes)?;
        let Some((_, name, holds)) = table.iter().find(|(known, ..)| *known == number) else {
            continue;
        };
        match (holds, wire) {
            (Holds::Map(inner), Some(Wire::Length(entry))) => {
                let (key, value) = entry_of(inner, entry)?;
                let map = object.entry(*name).or_insert_with(|| Value::Object(Map::new()));
                map.as_object_mut()?.insert(key, value);
            }
            (List(inner), Some(wire)) => {
                let list = object.entry(*name).or_insert_with(|| Value::Array(Vec::new()));
                list.as_array_mut()?.push(value(inner, &wire)?);
            }
            (holds, Some(wire)) => {
                let value = value(holds, &wire)?;
                // Go writes required fields even when they are empty; JSON leaves them out.
                if value != "" {
                    object.insert((*name).into(), value);
                }
            }
            (_, None) => {}
        }
    }
    Some(Value::Object(object))
}

fn value(holds: &Holds, wire: &Wire<'_>) -> Option<Value> {
    Some(match (holds, wire) {
        (Text, Wire::Length(bytes)) => std::str::from_utf8(bytes).ok()?.into(),
        (Bytes, Wire::Length(bytes)) => STANDARD.encode(bytes).into(),
        (Message(table), Wire::Length(bytes)) => message(table, bytes)?,
        (Number, Wire::Varint(number)) => number.cast_signed().into(),
        (Bool, Wire::Varint(number)) => (*number != 0).into(),
        _ => return None,
    })
}

fn entry_of(inner: &Holds, mut bytes: &[u8]) -> Option<(String, Value)> {
    let mut key = String::new();
    let mut found = Value::from("");
    while !bytes.is_empty() {
        match field(&mut bytes)? {
            (1, Some(Wire::Length(text))) => key = String::from_utf8(text.to_vec()).ok()?,
            (2, Some(wire)) => found = value(inner, &wire)?,
            _ => {}
        }
    }
    Some((key, found))
}

/// The next field; fixed-width ones, which no table names, are skipped as `None`.
fn field<'a>(bytes: &mut &'a [u8]) -> Option<(u64, Option<Wire<'a>>)> {
    let tag = varint(bytes)?;
    let wire = match tag & 7 {
        0 => Some(Wire::Varint(varint(bytes)?)),
        2 => {
            let length = usize::try_from(varint(bytes)?).ok()?;
            let (taken, rest) = bytes.split_at_checked(length)?;
            *bytes = rest;
            Some(Wire::Length(taken))
        }
        wide @ (1 | 5) => {
            *bytes = bytes.get(if wide == 1 { 8 } else { 4 }..)?;
            None
        }
        _ => return None,
    };
    Some((tag >> 3, wire))
}

fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0_u64;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        number |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
        let mut out = vec![number << 3 | 2, u8::try_from(bytes.len()).unwrap()];
        out.extend_from_slice(bytes);
        out
    }

    fn config_map() -> Vec<u8> {
        let meta = [field(1, b"cm"), field(3, b""), field(11, &[field(1, b"l"), field(2, b"v")].concat())].concat();
        let raw =
            [field(1, &meta), field(2, &[field(1, b"k"), field(2, b"")].concat()), vec![4 << 3, 1], field(15, b"new")]
                .concat();
        let kind = [field(1, b"v1"), field(2, b"ConfigMap")].concat();
        [MAGIC.to_vec(), field(1, &kind), field(2, &raw)].concat()
    }

    #[test]
    fn a_protobuf_object_reads_as_its_json() {
        let expected = json!({
            "metadata": {"name": "cm", "labels": {"l": "v"}}, "data": {"k": ""}, "immutable": true,
            "apiVersion": "v1", "kind": "ConfigMap",
        });
        assert_eq!(object(&config_map()), Ok(expected));
    }

    #[test]
    fn cut_bytes_never_read_as_the_whole() {
        let bytes = config_map();
        let whole = object(&bytes);
        for end in 0..bytes.len() {
            assert_ne!(object(&bytes[..end]), whole, "{end}");
        }
    }
}
