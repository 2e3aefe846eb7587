//! Values by their place in the bytes, and what JSON would show of them. Nothing is kept, nothing is copied.

use super::{
    schema::{Field, Kind, Shape, TEXTS},
    time,
    wire::{Record, Records, Wire, single, varint},
};
use crate::{Error, json};
use std::ops::Range;

/// A value by its place in the bytes. A span that is empty stands for zero.
#[derive(Debug, Clone)]
pub(crate) enum Node {
    Null,
    /// One value without its length.
    One {
        kind: Kind,
        at: Range<usize>,
    },
    /// All records of the field in the message with this span; there is at least one.
    List {
        field: &'static Field,
        at: Range<usize>,
    },
    /// The same for the entries of a map.
    Map {
        field: &'static Field,
        at: Range<usize>,
    },
    /// JSON text.
    Json(Range<usize>),
}

/// A length that encloses a place: it changes with what it encloses.
#[derive(Debug, Clone)]
pub(crate) struct Frame {
    pub(crate) length_at: usize,
    pub(crate) payload: Range<usize>,
}

impl From<&Record> for Frame {
    fn from(record: &Record) -> Self {
        Frame { length_at: record.length_at, payload: record.value.clone() }
    }
}

/// A field's place in a message, whether or not something is there.
#[derive(Debug, Clone)]
pub(crate) struct Slot {
    pub(crate) field: &'static Field,
    /// The innermost message that is there.
    pub(crate) within: Range<usize>,
    /// How many of the inlined messages round the field are missing, counted from the innermost.
    pub(crate) missing: usize,
}

impl Slot {
    /// The message that holds the field's records; empty if it is missing.
    pub(crate) fn values(&self) -> Range<usize> {
        if self.missing == 0 { self.within.clone() } else { self.within.end..self.within.end }
    }
}

/// Where a field of a message is: its innermost enclosing message. Adds the lengths of those that JSON inlines.
#[inline]
pub(crate) fn locate(
    bytes: &[u8],
    field: &'static Field,
    at: Range<usize>,
    frames: &mut Vec<Frame>,
) -> Result<Slot, Error> {
    let mut within = at;
    for (i, number) in field.outer.iter().enumerate() {
        let Some(record) = single(bytes, within.clone(), *number, Wire::Bytes, field.name)? else {
            return Ok(Slot { field, within, missing: field.outer.len() - i });
        };
        frames.push(Frame::from(&record));
        within = record.value;
    }
    Ok(Slot { field, within, missing: 0 })
}

/// What JSON would show of a field; none if it would leave it out. With the length of a message that is in the bytes.
#[inline]
pub(crate) fn resolve(
    bytes: &[u8],
    field: &'static Field,
    at: Range<usize>,
) -> Result<(Option<Node>, Option<Frame>), Error> {
    let empty = if field.omit_empty { None } else { Some(Node::Null) };
    if field.shape != Shape::One {
        let node = match Records::new(bytes, at.clone()).of(field.number)? {
            None => empty,
            Some(_) if field.shape == Shape::Map => Some(Node::Map { field, at }),
            Some(_) => Some(Node::List { field, at }),
        };
        return Ok((node, None));
    }
    let record = single(bytes, at.clone(), field.number, field.wire(), field.name)?;
    let value = match &record {
        None if field.pointer || field.kind == Kind::Bytes => return Ok((empty, None)),
        None => at.end..at.end,
        Some(record) => record.value.clone(),
    };
    let node = one(bytes, field.kind, value)?;
    let omitted = match &node {
        Node::One { kind, at } => field.omit_empty && !field.pointer && is_zero(bytes, *kind, at),
        Node::Null => field.omit_zero && !field.pointer,
        _ => false,
    };
    Ok((if omitted { None } else { Some(node) }, record.as_ref().map(Frame::from)))
}

/// One value by its span. A zero time and raw JSON that is not there are null.
#[inline]
pub(crate) fn one(bytes: &[u8], kind: Kind, at: Range<usize>) -> Result<Node, Error> {
    match kind {
        Kind::Raw => {
            let text = single(bytes, at, 1, Wire::Bytes, "raw")?.map(|record| record.value);
            match text.filter(|text| !text.is_empty()) {
                None => Ok(Node::Null),
                Some(text) => {
                    let json = bytes.get(text.clone()).unwrap_or_default();
                    let inner = json::check::whole(json)?;
                    if inner.is_empty() || json.get(inner.start) == Some(&b'n') {
                        return Ok(Node::Null);
                    }
                    Ok(Node::Json(text.start + inner.start..text.start + inner.end))
                }
            }
        }
        Kind::Time | Kind::MicroTime if time::read(bytes, at.clone())?.is_none() => Ok(Node::Null),
        Kind::Texts => match Records::new(bytes, at.clone()).of(1)? {
            None => Ok(Node::Null),
            Some(_) => Ok(Node::List { field: &TEXTS, at }),
        },
        _ => Ok(Node::One { kind, at }),
    }
}

fn is_zero(bytes: &[u8], kind: Kind, at: &Range<usize>) -> bool {
    match kind {
        Kind::Text | Kind::Bytes => at.is_empty(),
        Kind::Bool | Kind::Int32 | Kind::Int64 => number(bytes, at) == 0,
        _ => false,
    }
}

/// The number with this span; 0 for an empty one.
pub(crate) fn number(bytes: &[u8], at: &Range<usize>) -> u64 {
    varint(bytes, at.start, at.end).map_or(0, |(value, _)| value)
}

/// The entry of a map by its key, and its value's span if it has one.
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

/// Key and value of a map's entry; empty spans for what is missing.
pub(crate) fn entry_parts(
    bytes: &[u8],
    field: &'static Field,
    record: &Record,
) -> Result<(Range<usize>, Range<usize>), Error> {
    record.written_as(Wire::Bytes)?;
    let (mut key, mut value) = (None, None);
    let mut parts = Records::new(bytes, record.value.clone());
    while let Some(part) = parts.next()? {
        let (slot, wire) = match part.number {
            1 => (&mut key, Wire::Bytes),
            2 => (&mut value, field.wire()),
            _ => continue,
        };
        part.written_as(wire)?;
        if slot.replace(part.value).is_some() {
            return Err(Error::DuplicateKey { key: "a map's entry".to_owned(), offset: part.start });
        }
    }
    let none = record.value.end..record.value.end;
    Ok((key.unwrap_or_else(|| none.clone()), value.unwrap_or(none)))
}

/// The value of a map's entry.
pub(crate) fn map_value(bytes: &[u8], field: &'static Field, at: Range<usize>) -> Result<Node, Error> {
    one(bytes, field.kind, at)
}
