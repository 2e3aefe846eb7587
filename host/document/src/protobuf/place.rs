//! Values as spans of the bytes, and the values that JSON would contain for them. Nothing is stored or copied.

use super::{
    schema::{Cardinality, Field, STRINGS, ValueType},
    time,
    wire::{Record, Records, WireType, single, varint},
};
use crate::{Error, json};
use std::ops::Range;

/// A value as a span of the bytes. An empty span is the zero value.
#[derive(Debug, Clone)]
pub(crate) enum ValueRef {
    Null,
    /// One value without its length.
    One {
        kind: ValueType,
        at: Range<usize>,
    },
    /// All records of the field in the message with this span. Only the list in a map's entry may have none.
    List {
        field: &'static Field,
        at: Range<usize>,
    },
    /// All entries of a map in the message with this span, at least one.
    Map {
        field: &'static Field,
        at: Range<usize>,
    },
    /// JSON text.
    Json(Range<usize>),
}

/// The length of a message that contains an edited span. It changes with the size of the message.
#[derive(Debug, Clone)]
pub(crate) struct EnclosingLength {
    pub(crate) length_at: usize,
    pub(crate) payload: Range<usize>,
}

impl From<&Record> for EnclosingLength {
    fn from(record: &Record) -> Self {
        EnclosingLength { length_at: record.length_at, payload: record.value.clone() }
    }
}

/// The position of a field in a message, even if the field is missing.
#[derive(Debug, Clone)]
pub(crate) struct FieldSlot {
    pub(crate) field: &'static Field,
    /// The innermost existing message around the field.
    pub(crate) within: Range<usize>,
    /// The number of missing inlined messages around the field, counted from the innermost.
    pub(crate) missing: usize,
}

impl FieldSlot {
    /// Returns the span of the message that contains the field's records, or an empty span if it is missing.
    pub(crate) fn values(&self) -> Range<usize> {
        if self.missing == 0 { self.within.clone() } else { self.within.end..self.within.end }
    }
}

/// Returns the position of a field: its innermost existing message. Appends the lengths of the messages that JSON
/// inlines.
#[inline]
pub(crate) fn locate(
    bytes: &[u8],
    field: &'static Field,
    at: Range<usize>,
    enclosing: &mut Vec<EnclosingLength>,
) -> Result<FieldSlot, Error> {
    let mut within = at;
    for (i, number) in field.outer.iter().enumerate() {
        let Some(record) = single(bytes, within.clone(), *number, WireType::Bytes, field.name)? else {
            return Ok(FieldSlot { field, within, missing: field.outer.len() - i });
        };
        enclosing.push(EnclosingLength::from(&record));
        within = record.value;
    }
    Ok(FieldSlot { field, within, missing: 0 })
}

/// Returns the value that JSON contains for a field, or none if JSON omits it. Appends the length of an existing
/// message.
#[inline]
pub(crate) fn resolve(
    bytes: &[u8],
    field: &'static Field,
    at: Range<usize>,
) -> Result<(Option<ValueRef>, Option<EnclosingLength>), Error> {
    let empty = if field.omit_empty { None } else { Some(ValueRef::Null) };
    if field.cardinality != Cardinality::One {
        let node = match Records::new(bytes, at.clone()).of(field.number)? {
            None => empty,
            Some(_) if field.cardinality == Cardinality::Map => Some(ValueRef::Map { field, at }),
            Some(_) => Some(ValueRef::List { field, at }),
        };
        return Ok((node, None));
    }
    let record = single(bytes, at.clone(), field.number, field.wire(), field.name)?;
    let value = match &record {
        None if field.pointer || field.kind == ValueType::Bytes => return Ok((empty, None)),
        None => at.end..at.end,
        Some(record) => record.value.clone(),
    };
    let node = one(bytes, field.kind, value)?;
    let omitted = match &node {
        ValueRef::One { kind, at } => field.omit_empty && !field.pointer && is_zero(bytes, *kind, at),
        ValueRef::Null => field.omit_zero && !field.pointer,
        _ => false,
    };
    Ok((if omitted { None } else { Some(node) }, record.as_ref().map(EnclosingLength::from)))
}

/// Returns one value by its span. A zero time is null, and so is missing raw JSON.
#[inline]
pub(crate) fn one(bytes: &[u8], kind: ValueType, at: Range<usize>) -> Result<ValueRef, Error> {
    match kind {
        ValueType::Raw => {
            let text = single(bytes, at, 1, WireType::Bytes, "raw")?.map(|record| record.value);
            match text.filter(|text| !text.is_empty()) {
                None => Ok(ValueRef::Null),
                Some(text) => {
                    let json = bytes.get(text.clone()).unwrap_or_default();
                    let inner = json::check::whole(json)?;
                    if inner.is_empty() || json.get(inner.start) == Some(&b'n') {
                        return Ok(ValueRef::Null);
                    }
                    Ok(ValueRef::Json(text.start + inner.start..text.start + inner.end))
                }
            }
        }
        ValueType::Time | ValueType::MicroTime if time::read(bytes, at.clone())?.is_none() => Ok(ValueRef::Null),
        // Go reads a message without records as an empty list, not as null.
        ValueType::Strings => Ok(ValueRef::List { field: &STRINGS, at }),
        _ => Ok(ValueRef::One { kind, at }),
    }
}

fn is_zero(bytes: &[u8], kind: ValueType, at: &Range<usize>) -> bool {
    match kind {
        ValueType::Text | ValueType::Bytes => at.is_empty(),
        ValueType::Bool | ValueType::Int32 | ValueType::Int64 => number(bytes, at) == 0,
        _ => false,
    }
}

/// Returns the number with this span, 0 for an empty one.
pub(crate) fn number(bytes: &[u8], at: &Range<usize>) -> u64 {
    varint(bytes, at.start, at.end).map_or(0, |(value, _)| value)
}

/// Returns the entry of a map with this key, and the span of its value if it has one.
pub(crate) fn entry(
    bytes: &[u8],
    field: &'static Field,
    at: Range<usize>,
    key: &str,
) -> Result<Option<(Record, Range<usize>)>, Error> {
    let mut records = Records::new(bytes, at);
    let mut found = None;
    while let Some(record) = records.of(field.number)? {
        let (its_key, value) = entry_parts(bytes, field, &record)?;
        if bytes.get(its_key) == Some(key.as_bytes()) {
            if found.is_some() {
                return Err(Error::DuplicateKey { key: key.to_owned(), offset: record.start });
            }
            found = Some((record, value));
        }
    }
    Ok(found)
}

/// Returns the spans of key and value of a map's entry, empty ones for missing parts.
pub(crate) fn entry_parts(
    bytes: &[u8],
    field: &'static Field,
    record: &Record,
) -> Result<(Range<usize>, Range<usize>), Error> {
    record.written_as(WireType::Bytes)?;
    let (mut key, mut value) = (None, None);
    let mut parts = Records::new(bytes, record.value.clone());
    while let Some(part) = parts.next()? {
        let (slot, wire) = match part.number {
            1 => (&mut key, WireType::Bytes),
            2 => (&mut value, field.wire()),
            _ => continue,
        };
        part.written_as(wire)?;
        if slot.replace(part.value).is_some() {
            return Err(Error::DuplicateKey { key: "map entry".to_owned(), offset: part.start });
        }
    }
    let none = record.value.end..record.value.end;
    Ok((key.unwrap_or_else(|| none.clone()), value.unwrap_or(none)))
}

/// Returns the record of the value in a map's entry.
pub(crate) fn entry_value(bytes: &[u8], record: &Record) -> Result<Option<Record>, Error> {
    Records::new(bytes, record.value.clone()).of(2)
}

/// Returns the value of a map's entry.
pub(crate) fn map_value(bytes: &[u8], field: &'static Field, at: Range<usize>) -> Result<ValueRef, Error> {
    one(bytes, field.kind, at)
}
