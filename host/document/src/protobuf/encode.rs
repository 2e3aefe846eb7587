//! Encodes JSON values as protobuf by the schema, for edits. A field that the schema lacks is an error and is never
//! dropped. The schema bounds the recursion. Memory is one buffer per level.

use super::{
    schema::{self, Cardinality, Field, Message, ValueType},
    time::Time,
    wire::{Records, put_bytes, put_number, put_varint},
};
use crate::{
    Error, json,
    json::marked::Marked,
    json::members::{Elements, Members},
    json::token,
};
use base64::{Engine, engine::general_purpose::STANDARD};
use std::borrow::Cow;

/// A JSON text and the position of a value in it. INVARIANT: the text is valid JSON, which the caller has checked.
#[derive(Clone, Copy)]
pub(crate) struct JsonText<'a> {
    pub(crate) text: Marked<'a>,
    pub(crate) at: usize,
}

/// A field and its value.
type Member<'a> = (&'static Field, JsonText<'a>);

/// Encodes a whole object. Keeps the records of `old` that the schema does not know, including those of nested messages
/// that are not list elements.
pub(crate) fn object(message: &'static Message, json: JsonText<'_>, old: &[u8]) -> Result<Vec<u8>, Error> {
    let mut out = Vec::new();
    self::message(message, json, Some(old), &mut out)?;
    Ok(out)
}

/// Encodes all records of a field, without the messages around it that JSON inlines. Returns no records for null.
pub(crate) fn field(field: &'static Field, json: JsonText<'_>, old: Option<&[u8]>) -> Result<Vec<u8>, Error> {
    let mut out = Vec::new();
    if json.is_null() {
        return Ok(out);
    }
    match field.cardinality {
        Cardinality::One => record(field, json, old.and_then(|old| inner(old, field.number)), &mut out)?,
        Cardinality::List => {
            json.expect(b'[', "expected an array")?;
            let mut elements = Elements::new(json.text, json.at);
            while let Some(at) = elements.next()? {
                record(field, JsonText { at, ..json }, None, &mut out)?;
                elements.past(json.text.value_end(at)?);
            }
        }
        Cardinality::Map => {
            json.expect(b'{', "expected an object")?;
            for (key, value) in json.members()? {
                entry(field, &key, value, &mut out)?;
            }
        }
    }
    Ok(out)
}

/// Encodes one record: the field's single value, or an element of its list.
pub(crate) fn record(
    field: &'static Field,
    json: JsonText<'_>,
    old: Option<&[u8]>,
    out: &mut Vec<u8>,
) -> Result<(), Error> {
    value(field.kind, field.number, json, old, out)
}

/// Encodes one entry of a map.
pub(crate) fn entry(field: &'static Field, key: &str, json: JsonText<'_>, out: &mut Vec<u8>) -> Result<(), Error> {
    let mut inner = Vec::new();
    put_bytes(1, key.as_bytes(), &mut inner);
    value(field.kind, 2, json, None, &mut inner)?;
    put_bytes(field.number, &inner, out);
    Ok(())
}

/// Wraps records in the messages that JSON inlines, outermost first.
pub(crate) fn wrap(outer: &[u32], records: Vec<u8>) -> Vec<u8> {
    outer.iter().rev().fold(records, |records, number| {
        let mut out = Vec::with_capacity(records.len() + 8);
        put_bytes(*number, &records, &mut out);
        out
    })
}

/// Encodes a value as one record. Null is the zero value.
fn value(kind: ValueType, number: u32, json: JsonText<'_>, old: Option<&[u8]>, out: &mut Vec<u8>) -> Result<(), Error> {
    let mut payload = Vec::new();
    let null = json.is_null();
    match kind {
        ValueType::Bool => {
            let value = !null && json.boolean()?;
            put_number(number, u64::from(value), out);
            return Ok(());
        }
        ValueType::Int32 => {
            let value = if null { 0 } else { json.int32()? };
            put_number(number, i64::from(value) as u64, out);
            return Ok(());
        }
        ValueType::Int64 => {
            let value = if null { 0 } else { json.integer()? };
            put_number(number, value as u64, out);
            return Ok(());
        }
        _ if null => {}
        ValueType::Text => payload.extend_from_slice(json.text()?.as_bytes()),
        ValueType::Bytes => {
            let decoded = STANDARD.decode(json.text()?.as_bytes());
            payload = decoded.map_err(|_| json.refuse("expected base64"))?;
        }
        ValueType::Strings => {
            json.expect(b'[', "expected an array")?;
            payload = self::field(&schema::STRINGS, json, None)?;
        }
        ValueType::Time | ValueType::MicroTime => {
            let time = Time::parse(&json.text()?).ok_or_else(|| json.refuse("expected a time"))?;
            time.encode(kind == ValueType::MicroTime, &mut payload);
        }
        ValueType::Quantity => put_bytes(1, json.quantity()?.as_bytes(), &mut payload),
        ValueType::IntOrString => {
            let number = json.first() != Some(b'"');
            put_number(1, u64::from(!number), &mut payload);
            put_number(2, if number { i64::from(json.int32()?) as u64 } else { 0 }, &mut payload);
            put_bytes(3, if number { Cow::Borrowed("") } else { json.text()? }.as_bytes(), &mut payload);
        }
        ValueType::Raw => {
            let end = json.text.value_end(json.at)?;
            put_bytes(1, json.text.bytes.get(json.at..end).unwrap_or_default(), &mut payload);
        }
        ValueType::Message(number) => message(schema::message(number), json, old, &mut payload)?,
    }
    put_varint(u64::from(number) << 3 | 2, out);
    put_varint(payload.len() as u64, out);
    out.extend_from_slice(&payload);
    Ok(())
}

fn message(message: &'static Message, json: JsonText<'_>, old: Option<&[u8]>, out: &mut Vec<u8>) -> Result<(), Error> {
    json.expect(b'{', "expected an object")?;
    let mut given: Vec<Option<JsonText<'_>>> = vec![None; message.fields.len()];
    for (name, value) in json.members()? {
        match message.fields.iter().position(|field| field.name == name) {
            Some(i) => {
                if let Some(slot) = given.get_mut(i) {
                    *slot = Some(value);
                }
            }
            // Nested objects, such as the claims of a StatefulSet, have these in JSON and not in protobuf.
            None if name == "apiVersion" || name == "kind" => {}
            None => return Err(value.refuse("a member that the schema lacks")),
        }
    }
    let members: Vec<Member<'_>> = std::iter::zip(&message.fields, given)
        .filter_map(|(field, value)| Some((field, value?)))
        .filter(|(_, value)| !value.is_null())
        .collect();
    level(message, &mut Vec::new(), &members, old, out)
}

/// Encodes the fields of one level. The fields of an inlined message become one record. The recursion is as deep as
/// JSON inlines, which is two.
fn level(
    of: &'static Message,
    outer: &mut Vec<u32>,
    members: &[Member<'_>],
    old: Option<&[u8]>,
    out: &mut Vec<u8>,
) -> Result<(), Error> {
    let depth = outer.len();
    let mut rest = members;
    while let Some((first, value)) = rest.first() {
        let Some(inlined) = first.outer.get(depth).copied() else {
            out.extend(field(first, *value, old)?);
            rest = rest.get(1..).unwrap_or_default();
            continue;
        };
        // The fields of one struct are consecutive in the table.
        let length = rest.iter().take_while(|(field, _)| field.outer.get(depth) == Some(&inlined)).count();
        let (these, others) = rest.split_at(length.min(rest.len()));
        outer.push(inlined);
        let mut payload = Vec::new();
        level(of, outer, these, old.and_then(|old| inner(old, inlined)), &mut payload)?;
        outer.pop();
        put_bytes(inlined, &payload, out);
        rest = others;
    }
    if let Some(old) = old {
        let mut records = Records::new(old, 0..old.len());
        while let Some(record) = records.next()? {
            if !of.knows(outer, record.number) {
                out.extend_from_slice(old.get(record.whole()).unwrap_or_default());
            }
        }
    }
    Ok(())
}

/// Returns the message in the single record of a field number.
fn inner(old: &[u8], number: u32) -> Option<&[u8]> {
    let record = super::wire::single(old, 0..old.len(), number, super::wire::WireType::Bytes, "").ok()??;
    old.get(record.value)
}

impl<'a> JsonText<'a> {
    pub(crate) fn is_null(self) -> bool {
        self.first() == Some(b'n')
    }

    fn first(self) -> Option<u8> {
        self.text.bytes.get(self.at).copied()
    }

    fn refuse(self, reason: &'static str) -> Error {
        Error::malformed(self.at, reason)
    }

    fn expect(self, first: u8, reason: &'static str) -> Result<(), Error> {
        if self.first() == Some(first) { Ok(()) } else { Err(self.refuse(reason)) }
    }

    fn boolean(self) -> Result<bool, Error> {
        match self.first() {
            Some(b't') => Ok(true),
            Some(b'f') => Ok(false),
            _ => Err(self.refuse("expected true or false")),
        }
    }

    fn integer(self) -> Result<i64, Error> {
        let integer = if matches!(self.first(), Some(b'-' | b'0'..=b'9')) { self.scalar()?.parse().ok() } else { None };
        integer.ok_or_else(|| self.refuse("expected a whole number of 64 bits"))
    }

    fn int32(self) -> Result<i32, Error> {
        i32::try_from(self.integer()?).map_err(|_| self.refuse("expected a whole number of 32 bits"))
    }

    fn quantity(self) -> Result<Cow<'a, str>, Error> {
        let text = match self.first() {
            Some(b'"') => self.text()?,
            Some(b'-' | b'0'..=b'9') => Cow::Borrowed(self.scalar()?),
            _ => return Err(self.refuse("expected a quantity")),
        };
        let part = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'+' | b'-');
        let begins =
            text.bytes().next().is_some_and(|byte| byte.is_ascii_digit() || matches!(byte, b'.' | b'+' | b'-'));
        if begins && text.bytes().all(part) { Ok(text) } else { Err(self.refuse("expected a quantity")) }
    }

    fn scalar(self) -> Result<&'a str, Error> {
        json::read::raw(self.text.bytes, self.at..token::scalar(self.text.bytes, self.at)?)
    }

    fn text(self) -> Result<Cow<'a, str>, Error> {
        self.expect(b'"', "expected a string")?;
        json::string::text(self.text.bytes, self.text.quoted(self.at)?)
    }

    /// Returns the members of an object. A repeated name is an error.
    fn members(self) -> Result<Vec<(Cow<'a, str>, JsonText<'a>)>, Error> {
        let mut all = Vec::new();
        let mut seen = std::collections::HashSet::<_, foldhash::fast::RandomState>::default();
        let mut members = Members::new(self.text, self.at);
        while let Some(member) = members.next()? {
            let name = json::string::text(self.text.bytes, member.key)?;
            if !seen.insert(name.clone()) {
                return Err(Error::DuplicateKey { key: name.into_owned(), offset: member.key.start });
            }
            all.push((name, JsonText { text: self.text, at: member.value }));
            members.past(self.text.value_end(member.value)?);
        }
        Ok(all)
    }
}
