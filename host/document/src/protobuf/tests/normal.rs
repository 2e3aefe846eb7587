//! A model of typed JSON: the object as the Go types would write it after reading it, by the rules of encoding/json
//! alone. It does not depend on wire formats.

use crate::{
    TypeMeta,
    protobuf::schema::{self, Cardinality, Field, Message, ValueType},
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
            None if field.pointer
                || field.cardinality != Cardinality::One
                || matches!(field.kind, ValueType::Bytes | ValueType::Raw) =>
            {
                Value::Null
            }
            None => zero(field.kind),
        };
        let left_out = match &written {
            Value::Null => {
                field.omit_empty
                    && (field.pointer || field.cardinality != Cardinality::One || field.kind == ValueType::Bytes)
                    || field.omit_zero
            }
            Value::Object(_) if field.cardinality == Cardinality::One => false,
            Value::Array(list) => field.omit_empty && list.is_empty(),
            Value::Object(map) => field.omit_empty && map.is_empty(),
            _ if field.pointer || matches!(field.kind, ValueType::Quantity | ValueType::IntOrString) => false,
            scalar => field.omit_empty && [json!(""), json!(0), json!(false)].contains(scalar),
        };
        if !left_out {
            let empty = field.cardinality != Cardinality::One && written.as_array().is_some_and(|list| list.is_empty())
                || field.cardinality == Cardinality::Map && written.as_object().is_some_and(|map| map.is_empty());
            out.insert(field.name.into(), if empty { Value::Null } else { written });
        }
    }
}

fn of_field(field: &Field, value: &Value) -> Value {
    let one = |value: &Value| if value.is_null() { zero(field.kind) } else { of_value(field.kind, value) };
    match (field.cardinality, value) {
        (Cardinality::List, Value::Array(list)) => Value::Array(list.iter().map(one).collect()),
        (Cardinality::Map, Value::Object(map)) => {
            Value::Object(map.iter().map(|(key, value)| (key.clone(), one(value))).collect())
        }
        _ => of_value(field.kind, value),
    }
}

fn of_value(kind: ValueType, value: &Value) -> Value {
    match kind {
        ValueType::Message(number) => {
            let mut out = Map::new();
            members(schema::message(number), value, &mut out);
            Value::Object(out)
        }
        _ => value.clone(),
    }
}

fn zero(kind: ValueType) -> Value {
    match kind {
        ValueType::Bool => json!(false),
        ValueType::Int32 | ValueType::Int64 | ValueType::IntOrString => json!(0),
        ValueType::Text | ValueType::Bytes => json!(""),
        ValueType::Quantity => json!("0"),
        ValueType::Strings | ValueType::Time | ValueType::MicroTime | ValueType::Raw => Value::Null,
        ValueType::Message(_) => of_value(kind, &json!({})),
    }
}
