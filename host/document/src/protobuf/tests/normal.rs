//! A model of typed JSON: the object as the Go types would write it after reading it, by the rules of encoding/json
//! alone. It does not depend on wire formats.

use crate::{
    TypeMeta,
    protobuf::schema::{self, Field, Kind, Message, Shape},
};
use serde_json::{Map, Value, json};

/// Returns the object as Go would write it.
pub(super) fn object(type_meta: &TypeMeta, value: &Value) -> Value {
    let mut out = Map::new();
    out.insert("kind".into(), type_meta.kind.clone().into());
    out.insert("apiVersion".into(), type_meta.api_version.clone().into());
    members(schema::find(type_meta).unwrap(), value, &mut out);
    Value::Object(out)
}

fn members(message: &Message, value: &Value, out: &mut Map<String, Value>) {
    for field in &message.fields {
        let given = value.get(field.name).filter(|value| !value.is_null());
        let written = match given {
            Some(value) => of_field(field, value),
            None if field.pointer || field.shape != Shape::One || matches!(field.kind, Kind::Bytes | Kind::Raw) => {
                Value::Null
            }
            None => zero(field.kind),
        };
        let left_out = match &written {
            Value::Null => {
                field.omit_empty && (field.pointer || field.shape != Shape::One || field.kind == Kind::Bytes)
                    || field.omit_zero
            }
            Value::Object(_) if field.shape == Shape::One => false,
            Value::Array(list) => field.omit_empty && list.is_empty(),
            Value::Object(map) => field.omit_empty && map.is_empty(),
            _ if field.pointer || matches!(field.kind, Kind::Quantity | Kind::IntOrString) => false,
            scalar => field.omit_empty && [json!(""), json!(0), json!(false)].contains(scalar),
        };
        if !left_out {
            let empty = field.shape != Shape::One && written.as_array().is_some_and(|list| list.is_empty())
                || field.shape == Shape::Map && written.as_object().is_some_and(|map| map.is_empty());
            out.insert(field.name.into(), if empty { Value::Null } else { written });
        }
    }
}

fn of_field(field: &Field, value: &Value) -> Value {
    let one = |value: &Value| if value.is_null() { zero(field.kind) } else { of_value(field.kind, value) };
    match (field.shape, value) {
        (Shape::List, Value::Array(list)) => Value::Array(list.iter().map(one).collect()),
        (Shape::Map, Value::Object(map)) => {
            Value::Object(map.iter().map(|(key, value)| (key.clone(), one(value))).collect())
        }
        _ => of_value(field.kind, value),
    }
}

fn of_value(kind: Kind, value: &Value) -> Value {
    match kind {
        Kind::Message(number) => {
            let mut out = Map::new();
            members(schema::message(number), value, &mut out);
            Value::Object(out)
        }
        _ => value.clone(),
    }
}

fn zero(kind: Kind) -> Value {
    match kind {
        Kind::Bool => json!(false),
        Kind::Int32 | Kind::Int64 | Kind::IntOrString => json!(0),
        Kind::Text | Kind::Bytes => json!(""),
        Kind::Quantity => json!("0"),
        Kind::Strings | Kind::Time | Kind::MicroTime | Kind::Raw => Value::Null,
        Kind::Message(_) => of_value(kind, &json!({})),
    }
}
