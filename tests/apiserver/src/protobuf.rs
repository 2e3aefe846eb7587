//! Decodes request bodies in Kubernetes' protobuf. Typed clients and kubectl's typed commands (`create configmap`,
//! `auth can-i`, …) send nothing else. Objects are decoded by the schema of `weir_document`. It lacks messages that
//! are never stored (reviews, options), so they have their own tables here.
//!
//! One table of fields per message; unknown fields are skipped. Memory: the decoded object. The tables bound the
//! nesting.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Map, Value};
use weir_document::Document;
use weir_document::protobuf::Envelope;

/// The content of a field.
#[derive(Clone, Copy)]
enum FieldContent {
    Text,
    Number,
    Message(&'static [MessageField]),
    List(&'static FieldContent),
}

/// Number, JSON name, content.
type MessageField = (u64, &'static str, FieldContent);

/// A value on the wire.
enum WireValue<'a> {
    Varint(u64),
    Length(&'a [u8]),
}

use FieldContent::{List, Message, Number, Text};

#[rustfmt::skip]
mod tables {
    use super::{MessageField, List, Message, Number, Text};

    const META: &[MessageField] = &[(1, "name", Text), (3, "namespace", Text)];
    const RESOURCE: &[MessageField] = &[
        (1, "namespace", Text), (2, "verb", Text), (3, "group", Text), (4, "version", Text), (5, "resource", Text),
        (6, "subresource", Text), (7, "name", Text),
    ];
    const PATH: &[MessageField] = &[(1, "path", Text), (2, "verb", Text)];
    const PLAIN: &[MessageField] = &[(1, "metadata", Message(META))];
    const SELF_REVIEW: &[MessageField] = &[
        (1, "metadata", Message(META)),
        (2, "spec", Message(&[(1, "resourceAttributes", Message(RESOURCE)), (2, "nonResourceAttributes", Message(PATH))])),
    ];
    const REVIEW: &[MessageField] = &[
        (1, "metadata", Message(META)),
        (2, "spec", Message(&[
            (1, "resourceAttributes", Message(RESOURCE)), (2, "nonResourceAttributes", Message(PATH)), (3, "user", Text),
            (4, "groups", List(&Text)),
        ])),
    ];
    const TOKEN: &[MessageField] = &[
        (1, "metadata", Message(META)),
        (2, "spec", Message(&[(1, "audiences", List(&Text)), (4, "expirationSeconds", Number)])),
    ];
    const DELETE: &[MessageField] = &[
        (1, "gracePeriodSeconds", Number), (2, "preconditions", Message(&[(1, "uid", Text), (2, "resourceVersion", Text)])),
        (4, "propagationPolicy", Text), (5, "dryRun", List(&Text)),
    ];

    pub(super) fn of(kind: &str) -> Option<&'static [MessageField]> {
        Some(match kind {
            "SelfSubjectReview" => PLAIN,
            "SelfSubjectAccessReview" => SELF_REVIEW,
            "SubjectAccessReview" | "LocalSubjectAccessReview" => REVIEW,
            "TokenRequest" => TOKEN,
            "DeleteOptions" => DELETE,
            _ => return None,
        })
    }
}

/// An object with its envelope. The error text names the part that cannot be decoded.
pub(crate) fn object(bytes: &Bytes) -> Result<Value, String> {
    let envelope = Envelope::open(bytes.clone()).map_err(|error| error.to_string())?;
    let type_meta = envelope.type_meta();
    if let Some(document) = Document::protobuf(envelope.object(), Arc::new(type_meta.clone())) {
        let json = document.to_json().map_err(|error| error.to_string())?;
        return serde_json::from_str(&json).map_err(|error| error.to_string());
    }
    let kind = &type_meta.kind;
    let table = tables::of(kind).ok_or_else(|| format!("{kind:?} is not known in protobuf here"))?;
    let mut object = message(table, &envelope.object()).ok_or("the object is broken")?;
    if let Some(object) = object.as_object_mut() {
        object.insert("apiVersion".into(), type_meta.api_version.clone().into());
        object.insert("kind".into(), kind.clone().into());
    }
    Ok(object)
}

fn message(table: &[MessageField], mut bytes: &[u8]) -> Option<Value> {
    let mut object = Map::new();
    while !bytes.is_empty() {
        let (number, wire) = field(&mut bytes)?;
        let Some((_, name, holds)) = table.iter().find(|(known, ..)| *known == number) else {
            continue;
        };
        match (holds, wire) {
            (List(inner), Some(wire)) => {
                let list = object.entry(*name).or_insert_with(|| Value::Array(Vec::new()));
                list.as_array_mut()?.push(value(inner, &wire)?);
            }
            (holds, Some(wire)) => {
                let value = value(holds, &wire)?;
                // Go writes required fields even when they are empty; JSON omits them.
                if value != "" {
                    object.insert((*name).into(), value);
                }
            }
            (_, None) => {}
        }
    }
    Some(Value::Object(object))
}

fn value(holds: &FieldContent, wire: &WireValue<'_>) -> Option<Value> {
    Some(match (holds, wire) {
        (Text, WireValue::Length(bytes)) => std::str::from_utf8(bytes).ok()?.into(),
        (Message(table), WireValue::Length(bytes)) => message(table, bytes)?,
        (Number, WireValue::Varint(number)) => number.cast_signed().into(),
        _ => return None,
    })
}

/// The next field. Fixed-width fields are skipped as `None`, as no table names one.
fn field<'a>(bytes: &mut &'a [u8]) -> Option<(u64, Option<WireValue<'a>>)> {
    let tag = varint(bytes)?;
    let wire = match tag & 7 {
        0 => Some(WireValue::Varint(varint(bytes)?)),
        2 => {
            let length = usize::try_from(varint(bytes)?).ok()?;
            let (taken, rest) = bytes.split_at_checked(length)?;
            *bytes = rest;
            Some(WireValue::Length(taken))
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
    use weir_document::TypeMeta;
    use weir_document::protobuf::from_json;

    use super::*;

    fn options() -> Bytes {
        let preconditions = b"\x0a\x01u\x12\x017";
        let mut raw = vec![1 << 3, 30, 2 << 3 | 2, u8::try_from(preconditions.len()).unwrap()];
        raw.extend_from_slice(preconditions);
        raw.extend_from_slice(b"\x22\x00\x7a\x03new\x2a\x03All");
        Envelope::seal(&TypeMeta { api_version: "v1".into(), kind: "DeleteOptions".into() }, &raw)
    }

    #[test]
    fn a_stored_kind_reads_as_its_json() {
        let expected = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "cm", "labels": {"l": "v"}}, "data": {"k": ""},
            "binaryData": {"b": "AAE="}, "immutable": true,
        });
        let type_meta = TypeMeta { api_version: "v1".into(), kind: "ConfigMap".into() };
        let bytes = Envelope::seal(&type_meta, &from_json(&type_meta, &expected.to_string()).unwrap());
        let mut found = object(&bytes).unwrap();
        found["metadata"].as_object_mut().unwrap().shift_remove("creationTimestamp");
        assert_eq!(found, expected);
    }

    #[test]
    fn options_read_by_their_table_and_without_what_it_lacks() {
        let expected = json!({
            "apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 30,
            "preconditions": {"uid": "u", "resourceVersion": "7"}, "dryRun": ["All"],
        });
        assert_eq!(object(&options()), Ok(expected));
    }

    #[test]
    fn cut_bytes_never_read_as_the_whole() {
        let envelope = Envelope::open(options()).unwrap();
        let whole = object(&options());
        let raw = envelope.object();
        for end in 0..raw.len() {
            let cut = Envelope::seal(envelope.type_meta(), &raw[..end]);
            assert_ne!(object(&cut), whole, "{end}");
        }
    }
}
