//! Edits. A walk collects splices, and one new buffer is built from them. An edit that changes nothing builds none.
//! Memory: the old bytes, the new bytes, and 32 bytes per changed row.

mod cut;

use super::{
    decode,
    encode::{self, JsonText},
    object::Object,
    place::{FieldSlot, ValueRef, entry, entry_parts, one, resolve},
    schema::{self, Cardinality, Field, ValueType},
    splice::Splices,
    walk::{Enclosing, Gap, Relation, Visit},
    wire::{Records, put_bytes},
};
use crate::{
    Error, MAX_OBJECT, Path, Value,
    json::{self, marked::Marked, scan::Marks},
    path::Segment,
    rows::RowSet,
};
use bytes::Bytes;
use cut::Cut;

/// Sets the value in the rows. Returns the new bytes, or none if nothing changes. An object grows to `limit` bytes at most.
pub(crate) fn set(
    object: &Object,
    path: &Path,
    rows: RowSet<'_>,
    value: &Value,
    limit: usize,
) -> Result<Option<Bytes>, Error> {
    let value = json::edit::json_text(value, path.segments().len(), limit)?;
    let marks = Marks::of(&value);
    let mut set = Set {
        writer: ValueWriter { path, value: Marked::new(&value, &marks), splices: Splices::default() },
        rows,
        row: 0,
    };
    object.visit(path.segments(), &mut set)?;
    rows.check_length(set.row)?;
    finish(object, set.writer.splices, limit)
}

/// Appends an element to the arrays.
pub(crate) fn append(object: &Object, path: &Path, value: &Value, limit: usize) -> Result<Option<Bytes>, Error> {
    let element = json::edit::json_text(value, path.segments().len() + 1, limit)?;
    let list = [b"[", element.as_slice(), b"]"].concat();
    let marks = Marks::of(&list);
    let writer = ValueWriter { path, value: Marked::new(&list, &marks), splices: Splices::default() };
    let element_marks = Marks::of(&element);
    let mut append = Append { writer, element: Marked::new(&element, &element_marks) };
    object.visit(path.segments(), &mut append)?;
    finish(object, append.writer.splices, limit)
}

/// Removes members or elements in the rows. Returns the number of removed values.
pub(crate) fn remove(object: &Object, path: &Path, rows: RowSet<'_>) -> Result<(u32, Option<Bytes>), Error> {
    if path.segments().is_empty() {
        return Ok((0, None));
    }
    cut(object, path, path.segments(), rows, |row| rows.has(row))
}

/// Removes the elements of the last `[*]` that are not selected.
pub(crate) fn retain(object: &Object, path: &Path, keep: RowSet<'_>) -> Result<Option<Bytes>, Error> {
    let rows = path.rows_in().and_then(|before| path.segments().get(..=before.len()));
    let rows = rows.ok_or_else(|| Error::NoWildcard { path: path.clone() })?;
    cut(object, path, rows, keep, |row| !keep.has(row)).map(|(_, bytes)| bytes)
}

fn cut(
    object: &Object,
    path: &Path,
    segments: &[Segment],
    rows: RowSet<'_>,
    goes: impl Fn(usize) -> bool,
) -> Result<(u32, Option<Bytes>), Error> {
    let mut cut = Cut { path, goes, row: 0, count: 0, splices: Splices::default() };
    object.visit(segments, &mut cut)?;
    rows.check_length(cut.row)?;
    Ok((cut.count, finish(object, cut.splices, MAX_OBJECT)?))
}

fn finish(object: &Object, splices: Splices, limit: usize) -> Result<Option<Bytes>, Error> {
    if splices.is_empty() { Ok(None) } else { splices.apply(object.bytes(), limit).map(Some) }
}

fn invalid(source: Error) -> Error {
    Error::InvalidValue { source: Box::new(source) }
}

/// The value to write where another value is, or is missing.
struct ValueWriter<'a> {
    path: &'a Path,
    /// The value as validated JSON text.
    value: Marked<'a>,
    splices: Splices,
}

impl ValueWriter<'_> {
    fn text(&self) -> JsonText<'_> {
        JsonText { text: self.value, at: 0 }
    }

    fn not_in_schema(&self) -> Error {
        Error::NotInSchema { path: self.path.clone() }
    }

    /// Fills a gap. It never creates list elements: such a row stays as it is.
    fn fill(&mut self, within: Enclosing<'_>, rest: &[Segment], gap: Gap) -> Result<(), Error> {
        let bytes = within.bytes;
        if rest.iter().any(|segment| !matches!(segment, Segment::Name(_))) {
            return Ok(());
        }
        match (gap, rest) {
            (Gap::Field(slot), [_, below @ ..]) => {
                let records = self.records(slot.field, below)?;
                let (old, _) = resolve(bytes, slot.field, slot.values())?;
                let (new, _) = resolve(&records, slot.field, 0..records.len())?;
                // The value would read as it does now: absent, or an empty message.
                if self.same(bytes, old.as_ref(), &records, new)? {
                    return Ok(());
                }
                self.put_field(within, &slot, &records)
            }
            (Gap::Key { field, map }, [Segment::Name(key), below @ ..]) => {
                let record = self.entry(field, key, below)?;
                self.splices.put(within.lengths, map.end..map.end, &record);
                Ok(())
            }
            (Gap::Other { at }, _) => Err(Error::NotAnObject { path: self.path.clone(), offset: at }),
            (Gap::Unknown, _) => Err(self.not_in_schema()),
            _ => Ok(()),
        }
    }

    /// Returns the records of a field that contain the value at the segments below it.
    fn records(&self, field: &'static Field, below: &[Segment]) -> Result<Vec<u8>, Error> {
        let Some((segment, rest)) = below.split_first() else {
            return encode::field(field, self.text(), None).map_err(invalid);
        };
        let Segment::Name(name) = segment else {
            return Err(self.not_in_schema());
        };
        match (field.cardinality, field.kind) {
            (Cardinality::One, ValueType::Message(number)) => {
                let inner = schema::message(number).field(name).ok_or_else(|| self.not_in_schema())?;
                let records = encode::wrap(&inner.outer, self.records(inner, rest)?);
                let mut out = Vec::with_capacity(records.len() + 8);
                put_bytes(field.number, &records, &mut out);
                Ok(out)
            }
            (Cardinality::Map, _) => self.entry(field, name, rest),
            _ => Err(self.not_in_schema()),
        }
    }

    fn entry(&self, field: &'static Field, key: &str, below: &[Segment]) -> Result<Vec<u8>, Error> {
        // No map of the schema has messages as values.
        if !below.is_empty() {
            return Err(self.not_in_schema());
        }
        let mut out = Vec::new();
        encode::entry(field, key, self.text(), &mut out).map_err(invalid)?;
        Ok(out)
    }

    /// Replaces all records of a field, or appends records to its message.
    fn put_field(&mut self, within: Enclosing<'_>, slot: &FieldSlot, records: &[u8]) -> Result<(), Error> {
        if replace_field(within, slot, records, &mut self.splices)? || records.is_empty() {
            return Ok(());
        }
        let outer = slot.field.outer.len() - slot.missing.min(slot.field.outer.len());
        let records = encode::wrap(slot.field.outer.get(outer..).unwrap_or_default(), records.to_vec());
        let end = slot.within.end;
        self.splices.put(within.lengths, end..end, &records);
        Ok(())
    }

    /// Returns whether an existing value would read the same after the edit.
    fn same(&self, bytes: &[u8], old: Option<&ValueRef>, new: &[u8], node: Option<ValueRef>) -> Result<bool, Error> {
        match (old, node) {
            (None, None) => Ok(true),
            (Some(old), Some(node)) => {
                let (old, new) = (decode::json(bytes, old), decode::json(new, &node)?);
                // A value that cannot be read always differs.
                Ok(old.is_ok_and(|old| old == new || json::equal(old.as_bytes(), new.as_bytes()).unwrap_or(false)))
            }
            _ => Ok(false),
        }
    }
}

/// Replaces the first record of a field with `records` and removes the others. Returns whether there was a record.
fn replace_field(
    within: Enclosing<'_>,
    slot: &FieldSlot,
    records: &[u8],
    splices: &mut Splices,
) -> Result<bool, Error> {
    let mut first = true;
    let mut all = Records::new(within.bytes, slot.values());
    while let Some(record) = all.of(slot.field.number)? {
        splices.put(within.lengths, record.whole(), if first { records } else { &[] });
        first = false;
    }
    Ok(!first)
}

struct Set<'a> {
    writer: ValueWriter<'a>,
    rows: RowSet<'a>,
    row: usize,
}

impl Set<'_> {
    fn next_row(&mut self) -> bool {
        self.row += 1;
        self.rows.has(self.row - 1)
    }
}

impl Visit for Set<'_> {
    const MAKES: bool = true;
    const ENCLOSING: bool = true;

    fn value(&mut self, within: Enclosing<'_>, node: ValueRef, relation: Relation) -> Result<(), Error> {
        let bytes = within.bytes;
        // Decodes the value completely, as for JSON. A value that cannot be decoded is an error in every row.
        decode::json(bytes, &node)?;
        if !self.next_row() {
            return Ok(());
        }
        let writer = &mut self.writer;
        match relation {
            Relation::Root | Relation::Inside => Err(writer.not_in_schema()),
            Relation::Field(slot) => {
                let records = encode::field(slot.field, writer.text(), None).map_err(invalid)?;
                let (new, _) = resolve(&records, slot.field, 0..records.len())?;
                if !writer.same(bytes, Some(&node), &records, new)? {
                    writer.put_field(within, &slot, &records)?;
                }
                Ok(())
            }
            Relation::Element { field, record } => {
                let mut new = Vec::new();
                encode::record(field, writer.text(), None, &mut new).map_err(invalid)?;
                let mut records = Records::new(&new, 0..new.len());
                let value = records.next()?.map(|record| one(&new, field.kind, record.value)).transpose()?;
                if !writer.same(bytes, Some(&node), &new, value)? {
                    writer.splices.put(within.lengths, record, &new);
                }
                Ok(())
            }
            Relation::Entry { field, record } => {
                let whole = Records::new(bytes, record.clone()).next()?;
                let Some(whole) = whole else { return Ok(()) };
                let (key, _) = entry_parts(bytes, field, &whole)?;
                let key = decode::utf8(bytes, key)?;
                let new = writer.entry(field, key, &[])?;
                let value = entry(&new, field, 0..new.len(), key)?.map(|(_, value)| value);
                let value = value.map(|value| one(&new, field.kind, value)).transpose()?;
                if !writer.same(bytes, Some(&node), &new, value)? {
                    writer.splices.put(within.lengths, record, &new);
                }
                Ok(())
            }
        }
    }

    fn absent(&mut self, within: Enclosing<'_>, rest: &[Segment], gap: Gap) -> Result<(), Error> {
        if !self.next_row() {
            return Ok(());
        }
        self.writer.fill(within, rest, gap)
    }
}

struct Append<'a> {
    writer: ValueWriter<'a>,
    element: Marked<'a>,
}

impl Visit for Append<'_> {
    const MAKES: bool = true;
    const ENCLOSING: bool = true;

    fn value(&mut self, within: Enclosing<'_>, node: ValueRef, relation: Relation) -> Result<(), Error> {
        let bytes = within.bytes;
        let (field, at) = match (node, &relation) {
            (_, Relation::Root | Relation::Inside) => return Err(self.writer.not_in_schema()),
            (ValueRef::Null, Relation::Field(slot)) if slot.field.cardinality == Cardinality::List => {
                let records = self.writer.records(slot.field, &[])?;
                return self.writer.put_field(within, slot, &records);
            }
            // The strings of a map entry's value, which is a nested message.
            (ValueRef::List { .. }, Relation::Entry { .. }) => return Err(self.writer.not_in_schema()),
            (ValueRef::List { field, at }, _) => (field, at),
            (ValueRef::Json(at) | ValueRef::One { at, .. } | ValueRef::Map { at, .. }, _) => {
                return Err(Error::NotAnArray { path: self.writer.path.clone(), offset: at.start });
            }
            (ValueRef::Null, _) => return Err(Error::NotAnArray { path: self.writer.path.clone(), offset: 0 }),
        };
        let mut new = Vec::new();
        encode::record(field, JsonText { text: self.element, at: 0 }, None, &mut new).map_err(invalid)?;
        let mut records = Records::new(bytes, at);
        let mut last = None;
        while let Some(record) = records.of(field.number)? {
            last = Some(record.value.end);
        }
        if let Some(last) = last {
            self.writer.splices.put(within.lengths, last..last, &new);
        }
        Ok(())
    }

    fn absent(&mut self, within: Enclosing<'_>, rest: &[Segment], gap: Gap) -> Result<(), Error> {
        if let (Gap::Field(slot), [_]) = (&gap, rest)
            && slot.field.cardinality != Cardinality::List
        {
            return Err(Error::NotAnArray { path: self.writer.path.clone(), offset: slot.within.start });
        }
        self.writer.fill(within, rest, gap)
    }
}
