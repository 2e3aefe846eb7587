//! Decodes values to JSON text, as the API server would write it: fields in the order of the Go structs, map entries in
//! the order of the bytes. The schema bounds the recursion, because no message contains itself, and [`MAX_OBJECT`]
//! bounds the text.

use super::{
    place::{ValueRef, entry_parts, locate, map_value, number, one, resolve},
    schema::{self, Field, Message, ValueType},
    time,
    wire::{FieldNumbers, Records, WireType, single},
};
use crate::{Error, MAX_OBJECT, TypeMeta, Value, json};
use base64::{Engine, engine::general_purpose::STANDARD};
use std::{borrow::Cow, ops::Range};

/// A scalar in JSON.
enum Scalar<'a> {
    Bool(bool),
    Number(i64),
    Text(Cow<'a, str>),
}

/// Decodes the whole object, with the kind and the apiVersion of a type first.
pub(crate) fn object(bytes: &[u8], message: &'static Message, type_meta: Option<&TypeMeta>) -> Result<String, Error> {
    let mut out = Vec::with_capacity(2 * bytes.len());
    out.push(b'{');
    for (name, text) in type_meta.into_iter().flat_map(|of| [("kind", &of.kind), ("apiVersion", &of.api_version)]) {
        member(name, &mut out);
        json::write_string(text, &mut out);
    }
    members(bytes, message, 0..bytes.len(), &mut out)?;
    out.push(b'}');
    String::from_utf8(out).map_err(|_| Error::malformed(0, "text that is not UTF-8"))
}

/// Decodes a value to JSON text.
pub(crate) fn json(bytes: &[u8], node: &ValueRef) -> Result<String, Error> {
    let mut out = Vec::new();
    write_value(bytes, node, &mut out)?;
    String::from_utf8(out).map_err(|_| Error::malformed(0, "text that is not UTF-8"))
}

/// Decodes a value to the cell of a column, none if it is null.
pub(crate) fn cell<'a>(bytes: &'a [u8], node: &ValueRef) -> Result<Option<Cow<'a, str>>, Error> {
    Ok(match node {
        ValueRef::Null => None,
        ValueRef::Json(at) => json::read::cell(bytes, at.clone())?,
        ValueRef::One { kind, at } => match scalar(bytes, *kind, at)? {
            Some(Scalar::Text(text)) => Some(text),
            Some(Scalar::Number(number)) => Some(Cow::Owned(number.to_string())),
            Some(Scalar::Bool(value)) => Some(Cow::Borrowed(if value { "true" } else { "false" })),
            None => Some(Cow::Owned(json(bytes, node)?)),
        },
        _ => Some(Cow::Owned(json(bytes, node)?)),
    })
}

/// Decodes a value to a [`Value`].
pub(crate) fn value(bytes: &[u8], node: &ValueRef) -> Result<Value, Error> {
    Ok(match node {
        ValueRef::Null => Value::Null,
        ValueRef::Json(at) => json::read::value(bytes, at.clone())?,
        ValueRef::One { kind, at } => match scalar(bytes, *kind, at)? {
            Some(Scalar::Text(text)) => Value::Text(text.into_owned()),
            Some(Scalar::Number(number)) => Value::Number(number.to_string()),
            Some(Scalar::Bool(value)) => Value::Boolean(value),
            None => Value::Json(json(bytes, node)?),
        },
        _ => Value::Json(json(bytes, node)?),
    })
}

/// Returns the text of a string, or none for values that are not strings in JSON.
pub(crate) fn text<'a>(bytes: &'a [u8], node: &ValueRef) -> Result<Option<Cow<'a, str>>, Error> {
    match node {
        ValueRef::Json(at) if bytes.get(at.start) == Some(&b'"') => json::read::cell(bytes, at.clone()),
        ValueRef::One { kind, at } => Ok(match scalar(bytes, *kind, at)? {
            Some(Scalar::Text(text)) => Some(text),
            _ => None,
        }),
        _ => Ok(None),
    }
}

/// Returns the text of a span.
pub(crate) fn utf8(bytes: &[u8], at: Range<usize>) -> Result<&str, Error> {
    json::read::raw(bytes, at)
}

fn write_value(bytes: &[u8], node: &ValueRef, out: &mut Vec<u8>) -> Result<(), Error> {
    match node {
        ValueRef::Null => out.extend_from_slice(b"null"),
        ValueRef::Json(at) => out.extend_from_slice(bytes.get(at.clone()).unwrap_or_default()),
        ValueRef::List { field, at } => list(bytes, field, at, out)?,
        ValueRef::Map { field, at } => map(bytes, field, at, out)?,
        ValueRef::One { kind: ValueType::Message(number), at } => {
            out.push(b'{');
            members(bytes, schema::message(*number), at.clone(), out)?;
            out.push(b'}');
        }
        ValueRef::One { kind, at } => match scalar(bytes, *kind, at)? {
            Some(Scalar::Text(text)) => json::write_string(&text, out),
            Some(Scalar::Number(number)) => out.extend_from_slice(number.to_string().as_bytes()),
            Some(Scalar::Bool(value)) => out.extend_from_slice(if value { b"true" } else { b"false" }),
            None => out.extend_from_slice(b"null"),
        },
    }
    if out.len() > MAX_OBJECT {
        return Err(Error::TooLarge { limit: MAX_OBJECT });
    }
    Ok(())
}

fn members(bytes: &[u8], message: &'static Message, at: Range<usize>, out: &mut Vec<u8>) -> Result<(), Error> {
    // Most fields of a message are missing. One pass finds that out for all of them.
    let present = FieldNumbers::of(bytes, at.clone())?;
    for field in &message.fields {
        let outermost = field.outer.first().copied().unwrap_or(field.number);
        let at = if present.may_contain(outermost) { at.clone() } else { at.end..at.end };
        if let Some(node) = field_value(bytes, field, at)? {
            member(field.name, out);
            write_value(bytes, &node, out)?;
        }
    }
    Ok(())
}

/// Returns the value that JSON contains for a field.
pub(crate) fn field_value(bytes: &[u8], field: &'static Field, at: Range<usize>) -> Result<Option<ValueRef>, Error> {
    let mut enclosing = Vec::new();
    let slot = locate(bytes, field, at, &mut enclosing)?;
    Ok(resolve(bytes, field, slot.values())?.0)
}

/// Writes a name with its colon, after a comma if it is not the first.
fn member(name: &str, out: &mut Vec<u8>) {
    if !out.ends_with(b"{") {
        out.push(b',');
    }
    json::write_string(name, out);
    out.push(b':');
}

fn list(bytes: &[u8], field: &'static Field, at: &Range<usize>, out: &mut Vec<u8>) -> Result<(), Error> {
    let mut records = Records::new(bytes, at.clone());
    out.push(b'[');
    while let Some(record) = records.of(field.number)? {
        record.written_as(field.wire())?;
        if !out.ends_with(b"[") {
            out.push(b',');
        }
        write_value(bytes, &one(bytes, field.kind, record.value)?, out)?;
    }
    out.push(b']');
    Ok(())
}

fn map(bytes: &[u8], field: &'static Field, at: &Range<usize>, out: &mut Vec<u8>) -> Result<(), Error> {
    let mut records = Records::new(bytes, at.clone());
    let mut seen = std::collections::HashSet::<_, foldhash::fast::RandomState>::default();
    out.push(b'{');
    while let Some(record) = records.of(field.number)? {
        let (key, at) = entry_parts(bytes, field, &record)?;
        let key = utf8(bytes, key)?;
        if !seen.insert(key) {
            return Err(Error::DuplicateKey { key: key.to_owned(), offset: record.start });
        }
        member(key, out);
        write_value(bytes, &map_value(bytes, field, at)?, out)?;
    }
    out.push(b'}');
    Ok(())
}

fn scalar<'a>(bytes: &'a [u8], kind: ValueType, at: &Range<usize>) -> Result<Option<Scalar<'a>>, Error> {
    Ok(Some(match kind {
        ValueType::Bool => Scalar::Bool(number(bytes, at) != 0),
        // Like Go, which reads the low 32 bits.
        ValueType::Int32 => Scalar::Number(i64::from(number(bytes, at) as i32)),
        ValueType::Int64 => Scalar::Number(number(bytes, at) as i64),
        ValueType::Text => Scalar::Text(Cow::Borrowed(utf8(bytes, at.clone())?)),
        ValueType::Bytes => Scalar::Text(Cow::Owned(STANDARD.encode(bytes.get(at.clone()).unwrap_or_default()))),
        ValueType::Time | ValueType::MicroTime => match time::read(bytes, at.clone())? {
            Some(time) => Scalar::Text(Cow::Owned(time.to_json_text(kind == ValueType::MicroTime))),
            None => return Ok(None),
        },
        ValueType::Quantity => match part(bytes, at, 1, WireType::Bytes)? {
            Some(at) if !at.is_empty() => Scalar::Text(Cow::Borrowed(utf8(bytes, at)?)),
            _ => Scalar::Text(Cow::Borrowed("0")),
        },
        ValueType::IntOrString => {
            let which = part(bytes, at, 1, WireType::Varint)?.map_or(0, |at| number(bytes, &at));
            match which {
                0 => Scalar::Number(i64::from(
                    part(bytes, at, 2, WireType::Varint)?.map_or(0, |at| number(bytes, &at)) as i32,
                )),
                1 => match part(bytes, at, 3, WireType::Bytes)? {
                    Some(at) => Scalar::Text(Cow::Borrowed(utf8(bytes, at)?)),
                    None => Scalar::Text(Cow::Borrowed("")),
                },
                _ => return Err(Error::malformed(at.start, "neither a number nor a text")),
            }
        }
        ValueType::Strings | ValueType::Raw | ValueType::Message(_) => return Ok(None),
    }))
}

fn part(bytes: &[u8], at: &Range<usize>, number: u32, wire: WireType) -> Result<Option<Range<usize>>, Error> {
    Ok(single(bytes, at.clone(), number, wire, "a part of a value")?.map(|record| record.value))
}
