//! The visitors of reads. A column is bounded by 31 bits of text, all other results by the object.

use super::{
    decode,
    object::Object,
    place::{ValueRef, entry, entry_parts, map_value},
    schema::ValueType,
    walk::{Enclosing, Gap, Relation, Visit},
    wire::Records,
};
use crate::{
    Error,
    json::{
        marked::Marked,
        members::Elements,
        read::{Fingerprint, MemberNames},
        scan::Marks,
        walk,
    },
    path::Segment,
};
use std::ops::Range;

/// Calls a function for each row with its value, or none if it is absent.
struct RowVisitor<F>(F);

impl<F: FnMut(&[u8], Option<ValueRef>) -> Result<(), Error>> Visit for RowVisitor<F> {
    const MAKES: bool = false;
    const ENCLOSING: bool = false;

    fn value(&mut self, within: Enclosing<'_>, node: ValueRef, _: Relation) -> Result<(), Error> {
        (self.0)(within.bytes, Some(node))
    }

    fn absent(&mut self, within: Enclosing<'_>, _: &[Segment], _: Gap) -> Result<(), Error> {
        (self.0)(within.bytes, None)
    }
}

fn rows(
    object: &Object,
    segments: &[Segment],
    row: impl FnMut(&[u8], Option<ValueRef>) -> Result<(), Error>,
) -> Result<(), Error> {
    object.visit(segments, &mut RowVisitor(row))
}

/// Returns the value at a path without `[*]`.
pub(crate) fn one(object: &Object, segments: &[Segment]) -> Result<Option<ValueRef>, Error> {
    let mut found = None;
    rows(object, segments, |_, node| {
        found = node;
        Ok(())
    })?;
    Ok(found)
}

/// Returns the value of a map's entry by a key that is not a segment: labels and annotations.
pub(crate) fn pick(object: &Object, segments: &[Segment], key: &str) -> Result<Option<ValueRef>, Error> {
    match one(object, segments)? {
        Some(ValueRef::Map { field, at }) => match entry(object.bytes(), field, at, key)? {
            Some((_, value)) => map_value(object.bytes(), field, value).map(Some),
            None => Ok(None),
        },
        _ => Ok(None),
    }
}

/// Calls a function with the cell of each row, none for missing and null.
pub(crate) fn cells(
    object: &Object,
    segments: &[Segment],
    mut cell: impl FnMut(Option<&str>) -> Result<(), Error>,
) -> Result<(), Error> {
    rows(object, segments, |bytes, node| match node {
        None => cell(None),
        Some(ValueRef::One { kind: ValueType::Text, at }) => cell(Some(decode::utf8(bytes, at)?)),
        Some(node) => cell(decode::cell(bytes, &node)?.as_deref()),
    })
}

/// Returns the sizes of arrays, 0 for other values.
pub(crate) fn lengths(object: &Object, segments: &[Segment]) -> Result<Vec<u32>, Error> {
    let mut lengths = Vec::new();
    rows(object, segments, |bytes, node| {
        let mut count = 0;
        match node {
            Some(ValueRef::List { field, at }) => {
                let mut records = Records::new(bytes, at);
                while records.of(field.number)?.is_some() {
                    count += 1;
                }
            }
            Some(ValueRef::Json(at)) if bytes.get(at.start) == Some(&b'[') => {
                let json = bytes.get(at).unwrap_or_default();
                let marks = Marks::of(json);
                let text = Marked::new(json, &marks);
                let mut elements = Elements::new(text, 0);
                while let Some(at) = elements.next()? {
                    elements.past(text.value_end(at)?);
                    count += 1;
                }
            }
            _ => {}
        }
        lengths.push(count);
        Ok(())
    })?;
    Ok(lengths)
}

/// Returns the member names of one object: of a message in the order of its schema, of a map in the order of the bytes.
pub(crate) fn keys(object: &Object, segments: &[Segment]) -> Result<Vec<String>, Error> {
    let mut keys = Vec::new();
    if segments.is_empty() {
        let bytes = object.bytes();
        message_keys(bytes, object.message(), 0..bytes.len(), &mut keys)?;
        return Ok(keys);
    }
    rows(object, segments, |bytes, node| {
        match node {
            Some(ValueRef::Map { field, at }) => {
                let mut records = Records::new(bytes, at);
                let mut seen = std::collections::HashSet::<_, foldhash::fast::RandomState>::default();
                while let Some(record) = records.of(field.number)? {
                    let key = decode::utf8(bytes, entry_parts(bytes, field, &record)?.0)?;
                    if !seen.insert(key) {
                        return Err(Error::DuplicateKey { key: key.to_owned(), offset: record.start });
                    }
                    keys.push(key.to_owned());
                }
            }
            Some(ValueRef::One { kind: ValueType::Message(number), at }) => {
                message_keys(bytes, super::schema::message(number), at, &mut keys)?;
            }
            Some(ValueRef::Json(at)) => {
                let json = bytes.get(at).unwrap_or_default();
                let mut found = MemberNames::default();
                walk::Visit::value(&mut found, Marked::new(json, &Marks::of(json)), 0)?;
                keys = found.0;
            }
            _ => {}
        }
        Ok(())
    })?;
    Ok(keys)
}

fn message_keys(
    bytes: &[u8],
    message: &'static super::schema::Message,
    at: Range<usize>,
    keys: &mut Vec<String>,
) -> Result<(), Error> {
    for field in &message.fields {
        if decode::field_value(bytes, field, at.clone())?.is_some() {
            keys.push(field.name.to_owned());
        }
    }
    Ok(())
}

/// Adds all rows to a fingerprint. The result equals that of the JSON object.
pub(crate) fn fingerprint(object: &Object, segments: &[Segment], fingerprint: &mut Fingerprint) -> Result<(), Error> {
    rows(object, segments, |bytes, node| {
        match node {
            None => fingerprint.absent_row(),
            Some(node) => match decode::text(bytes, &node)? {
                Some(text) => fingerprint.text(&text),
                None => fingerprint.spelt(decode::json(bytes, &node)?.as_bytes()),
            },
        }
        Ok(())
    })
}

/// Returns all rows in JSON spelling, none for missing and null.
pub(crate) fn spelt_rows(object: &Object, segments: &[Segment]) -> Result<Vec<Option<String>>, Error> {
    let mut spelt = Vec::new();
    rows(object, segments, |bytes, node| {
        spelt.push(match node {
            None | Some(ValueRef::Null) => None,
            Some(node) => Some(decode::json(bytes, &node)?),
        });
        Ok(())
    })?;
    Ok(spelt)
}
