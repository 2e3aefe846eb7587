//! Converts between JSON trees and protobuf, with prost.

use super::{
    typed::Root,
    types::{Field, Kind, Message, Shape, TYPES},
};
use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::Bytes;
use k8s_openapi::jiff::Timestamp;
use prost_reflect::{
    DynamicMessage, FieldDescriptor, Kind as Wire, MapKey, ReflectMessage, Value, prost::Message as _,
};
use serde_json::{Value as Tree, json};

/// Encodes an object.
pub(crate) fn encode(root: &Root, object: &Tree) -> Bytes {
    to_message(root.message(), object).encode_to_vec().into()
}

/// Decodes an object.
pub(crate) fn decode(root: &Root, bytes: &Bytes) -> Tree {
    let message = DynamicMessage::decode(root.message().descriptor.clone(), bytes.clone()).unwrap();
    let mut object = to_tree(root.message(), &message);
    object["apiVersion"] = json!(root.type_meta.api_version);
    object["kind"] = json!(root.type_meta.kind);
    object
}

fn to_message(of: &Message, object: &Tree) -> DynamicMessage {
    let mut message = DynamicMessage::new(of.descriptor.clone());
    for field in &of.fields {
        let Some(tree) = object.get(&field.name).filter(|tree| !tree.is_null()) else { continue };
        let value = match (field.shape, tree) {
            (Shape::List, Tree::Array(list)) => Value::List(list.iter().map(|tree| to_value(field, tree)).collect()),
            (Shape::Map, Tree::Object(map)) => {
                let entry = |(key, tree): (&String, &Tree)| (MapKey::String(key.clone()), to_value(field, tree));
                Value::Map(map.iter().map(entry).collect())
            }
            _ => to_value(field, tree),
        };
        let holder = field
            .outer
            .iter()
            .fold(&mut message, |message, outer| message.get_field_mut(outer).as_message_mut().unwrap());
        holder.set_field(&field.descriptor, value);
    }
    message
}

fn to_value(field: &Field, tree: &Tree) -> Value {
    let text = || tree.as_str().unwrap().to_owned();
    let int32 = || Value::I32(tree.as_i64().unwrap().try_into().unwrap());
    match &field.kind {
        Kind::Bool => Value::Bool(tree.as_bool().unwrap()),
        Kind::Int32 => int32(),
        Kind::Int64 => Value::I64(tree.as_i64().unwrap()),
        Kind::Text => Value::String(text()),
        Kind::Bytes => Value::Bytes(STANDARD.decode(text()).unwrap().into()),
        Kind::Time => wrapped(field, &[(1, Value::I64(text().parse::<Timestamp>().unwrap().as_second()))]),
        Kind::Quantity => wrapped(field, &[(1, Value::String(text()))]),
        Kind::Either if tree.is_string() => wrapped(field, &[(1, Value::I64(1)), (3, Value::String(text()))]),
        Kind::Either => wrapped(field, &[(1, Value::I64(0)), (2, int32())]),
        Kind::Raw => wrapped(field, &[(1, Value::Bytes(tree.to_string().into()))]),
        Kind::Message(name) => Value::Message(to_message(&TYPES[name], tree)),
    }
}

/// Returns a message that represents one value.
fn wrapped(field: &Field, values: &[(u32, Value)]) -> Value {
    let descriptor = match value_field(&field.descriptor).kind() {
        Wire::Message(descriptor) => descriptor,
        other => panic!("{other:?} is no message"),
    };
    let mut message = DynamicMessage::new(descriptor);
    values.iter().for_each(|(number, value)| message.set_field_by_number(*number, value.clone()));
    Value::Message(message)
}

fn value_field(field: &FieldDescriptor) -> FieldDescriptor {
    match field.kind() {
        Wire::Message(entry) if field.is_map() => entry.map_entry_value_field(),
        _ => field.clone(),
    }
}

fn to_tree(of: &Message, message: &DynamicMessage) -> Tree {
    assert_known(message);
    let member = |field: &Field| Some((field.name.clone(), field_tree(field, &field.outer, message)?));
    Tree::Object(of.fields.iter().filter_map(member).collect())
}

/// Returns the value of a field inside the `outer` messages.
fn field_tree(field: &Field, outer: &[FieldDescriptor], message: &DynamicMessage) -> Option<Tree> {
    if let [first, rest @ ..] = outer {
        let value = message.has_field(first).then(|| message.get_field(first))?;
        let inner = value.as_message().unwrap();
        assert_known(inner);
        return field_tree(field, rest, inner);
    }
    let value = message.has_field(&field.descriptor).then(|| message.get_field(&field.descriptor))?;
    Some(match value.as_ref() {
        Value::List(list) => list.iter().map(|value| of_value(&field.kind, value)).collect(),
        Value::Map(map) => {
            let entry = |(key, value): (&MapKey, _)| (key.as_str().unwrap().to_owned(), of_value(&field.kind, value));
            Tree::Object(map.iter().map(entry).collect())
        }
        value => of_value(&field.kind, value),
    })
}

fn of_value(kind: &Kind, value: &Value) -> Tree {
    match (kind, value) {
        (_, Value::Bool(value)) => json!(value),
        (_, Value::I32(value)) => json!(value),
        (_, Value::I64(value)) => json!(value),
        (_, Value::String(value)) => json!(value),
        (_, Value::Bytes(value)) => json!(STANDARD.encode(value)),
        (Kind::Message(name), Value::Message(message)) => to_tree(&TYPES[name], message),
        (kind, Value::Message(message)) => {
            assert_known(message);
            unwrapped(kind, message)
        }
        (_, other) => panic!("{other:?} is no value"),
    }
}

/// Returns the value that a message represents.
fn unwrapped(kind: &Kind, message: &DynamicMessage) -> Tree {
    let part = |number| message.get_field_by_number(number).unwrap().into_owned();
    match kind {
        // Go's zero time.
        Kind::Time if !message.has_field_by_number(1) => Tree::Null,
        Kind::Time => json!(Timestamp::from_second(part(1).as_i64().unwrap()).unwrap().to_string()),
        Kind::Quantity => json!(part(1).as_str().unwrap()),
        Kind::Either if part(1).as_i64() == Some(1) => json!(part(3).as_str().unwrap()),
        Kind::Either => json!(part(2).as_i32().unwrap()),
        Kind::Raw => serde_json::from_slice(part(1).as_bytes().unwrap()).unwrap(),
        _ => panic!("{:?} stands for no value", message.descriptor()),
    }
}

/// Checks that the engine writes no unknown fields.
fn assert_known(message: &DynamicMessage) {
    assert!(message.unknown_fields().next().is_none(), "{message:?}");
}
