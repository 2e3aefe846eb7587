//! Edits: one walk that collects splices, then one new buffer. An edit that changes nothing makes none.
//! Memory: the old bytes, the new ones, and 32 bytes for each row that changes.

mod cut;

use super::{
    encode::{self, Text},
    object::Object,
    place::{Frame, Node, Slot, entry, entry_parts, one, resolve},
    schema::{self, Field, Kind, Shape},
    spell,
    splice::Splices,
    walk::{Gap, Spot, Visit},
    wire::{Records, put_bytes},
};
use crate::{
    Error, Path, Value,
    json::{self, marked::Marked, scan::Marks},
    path::Step,
    rows::Rows,
};
use bytes::Bytes;
use cut::Cut;

/// Sets the value in the rows; the new bytes, or none if nothing changes.
pub(crate) fn set(object: &Object, path: &Path, rows: Rows<'_>, value: &Value) -> Result<Option<Bytes>, Error> {
    let value = json::edit::spell(value, path.steps().len())?;
    let marks = Marks::of(&value);
    let mut set =
        Set { make: Make { path, value: Marked::new(&value, &marks), splices: Splices::default() }, rows, row: 0 };
    object.visit(path.steps(), &mut set)?;
    rows.fit(set.row)?;
    finish(object, set.make.splices)
}

/// Adds an element to the arrays.
pub(crate) fn append(object: &Object, path: &Path, value: &Value) -> Result<Option<Bytes>, Error> {
    let element = json::edit::spell(value, path.steps().len() + 1)?;
    let list = [b"[", element.as_slice(), b"]"].concat();
    let marks = Marks::of(&list);
    let make = Make { path, value: Marked::new(&list, &marks), splices: Splices::default() };
    let element_marks = Marks::of(&element);
    let mut append = Append { make, element: Marked::new(&element, &element_marks) };
    object.visit(path.steps(), &mut append)?;
    finish(object, append.make.splices)
}

/// Removes members or elements of the rows; says how many there were.
pub(crate) fn remove(object: &Object, path: &Path, rows: Rows<'_>) -> Result<(u32, Option<Bytes>), Error> {
    let Some((last, before)) = path.steps().split_last() else {
        return Ok((0, None));
    };
    cut(object, path, before, last, rows, |row| rows.has(row))
}

/// Cuts the elements of the last `[*]` whose bit is 0.
pub(crate) fn retain(object: &Object, path: &Path, keep: Rows<'_>) -> Result<Option<Bytes>, Error> {
    let before = path.rows_in().ok_or_else(|| Error::NoWildcard { path: path.clone() })?;
    cut(object, path, before, &Step::Every, keep, |row| !keep.has(row)).map(|(_, bytes)| bytes)
}

fn cut(
    object: &Object,
    path: &Path,
    before: &[Step],
    last: &Step,
    rows: Rows<'_>,
    goes: impl Fn(usize) -> bool,
) -> Result<(u32, Option<Bytes>), Error> {
    let mut cut = Cut { object, path, last, goes, row: 0, count: 0, splices: Splices::default() };
    object.visit(before, &mut cut)?;
    rows.fit(cut.row)?;
    Ok((cut.count, finish(object, cut.splices)?))
}

fn finish(object: &Object, splices: Splices) -> Result<Option<Bytes>, Error> {
    if splices.is_empty() { Ok(None) } else { splices.apply(object.bytes()).map(Some) }
}

fn invalid(source: Error) -> Error {
    Error::InvalidValue { source: Box::new(source) }
}

/// What is put where something was, or was missing.
struct Make<'a> {
    path: &'a Path,
    /// As JSON text, validated.
    value: Marked<'a>,
    splices: Splices,
}

impl Make<'_> {
    fn text(&self) -> Text<'_> {
        Text { text: self.value, at: 0 }
    }

    fn not_in_schema(&self) -> Error {
        Error::NotInSchema { path: self.path.clone() }
    }

    /// Fills a gap. Elements of lists are never made: such a row stays as it is.
    fn fill(&mut self, bytes: &[u8], rest: &[Step], gap: Gap, frames: &[Frame]) -> Result<(), Error> {
        if rest.iter().any(|step| !matches!(step, Step::Name(_))) {
            return Ok(());
        }
        match (gap, rest) {
            (Gap::Field(slot), [_, below @ ..]) => {
                let records = self.records(slot.field, below)?;
                let (old, _) = resolve(bytes, slot.field, slot.values())?;
                let (new, _) = resolve(&records, slot.field, 0..records.len())?;
                // It would read as it does now: left out, or a message with nothing in it.
                if self.same(bytes, old.as_ref(), &records, new)? {
                    return Ok(());
                }
                self.put_field(bytes, &slot, records, frames)
            }
            (Gap::Key { field, within }, [Step::Name(key), below @ ..]) => {
                let record = self.entry(field, key, below)?;
                self.splices.put(frames, within.end..within.end, &record);
                Ok(())
            }
            (Gap::Other { at }, _) => Err(Error::NotAnObject { path: self.path.clone(), offset: at }),
            (Gap::Unknown, _) => Err(self.not_in_schema()),
            _ => Ok(()),
        }
    }

    /// The records of a field that leads to the value by the steps below it.
    fn records(&self, field: &'static Field, below: &[Step]) -> Result<Vec<u8>, Error> {
        let Some((step, rest)) = below.split_first() else {
            return encode::field(field, self.text(), None).map_err(invalid);
        };
        let Step::Name(name) = step else {
            return Err(self.not_in_schema());
        };
        match (field.shape, field.kind) {
            (Shape::One, Kind::Message(number)) => {
                let inner = schema::message(number).field(name).ok_or_else(|| self.not_in_schema())?;
                let records = encode::wrap(&inner.outer, self.records(inner, rest)?);
                let mut out = Vec::with_capacity(records.len() + 8);
                put_bytes(field.number, &records, &mut out);
                Ok(out)
            }
            (Shape::Map, _) => self.entry(field, name, rest),
            _ => Err(self.not_in_schema()),
        }
    }

    fn entry(&self, field: &'static Field, key: &str, below: &[Step]) -> Result<Vec<u8>, Error> {
        // No map of the schema has messages as values.
        if !below.is_empty() {
            return Err(self.not_in_schema());
        }
        let mut out = Vec::new();
        encode::entry(field, key, self.text(), &mut out).map_err(invalid)?;
        Ok(out)
    }

    /// Puts records in the place of all that a field has, or after the others of its message.
    fn put_field(&mut self, bytes: &[u8], slot: &Slot, records: Vec<u8>, frames: &[Frame]) -> Result<(), Error> {
        let outer = slot.field.outer.len() - slot.missing.min(slot.field.outer.len());
        let records = if records.is_empty() {
            records
        } else {
            encode::wrap(slot.field.outer.get(outer..).unwrap_or_default(), records)
        };
        if !cut_field(bytes, slot, &records, frames, &mut self.splices)? && !records.is_empty() {
            let end = slot.within.end;
            self.splices.put(frames, end..end, &records);
        }
        Ok(())
    }

    /// Whether a value that is there would read the same after the edit.
    fn same(&self, bytes: &[u8], old: Option<&Node>, new: &[u8], node: Option<Node>) -> Result<bool, Error> {
        match (old, node) {
            (None, None) => Ok(true),
            (Some(old), Some(node)) => {
                let (old, new) = (spell::json(bytes, old), spell::json(new, &node)?);
                // A value that cannot be read is never the same.
                Ok(old.is_ok_and(|old| old == new || json::equal(old.as_bytes(), new.as_bytes()).unwrap_or(false)))
            }
            _ => Ok(false),
        }
    }
}

/// Puts `records` in the place of a field's first record and cuts the others; whether there was one.
fn cut_field(
    bytes: &[u8],
    slot: &Slot,
    records: &[u8],
    frames: &[Frame],
    splices: &mut Splices,
) -> Result<bool, Error> {
    let mut first = true;
    let mut all = Records::new(bytes, slot.values());
    while let Some(record) = all.of(slot.field.number)? {
        splices.put(frames, record.whole(), if first { records } else { &[] });
        first = false;
    }
    Ok(!first)
}

struct Set<'a> {
    make: Make<'a>,
    rows: Rows<'a>,
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
    const FRAMES: bool = true;

    fn value(&mut self, bytes: &[u8], node: Node, spot: Spot, frames: &[Frame]) -> Result<(), Error> {
        // Read in full, as JSON is: what cannot be read is an error of every row.
        spell::json(bytes, &node)?;
        if !self.next_row() {
            return Ok(());
        }
        let make = &mut self.make;
        match spot {
            Spot::Root | Spot::Inside => Err(make.not_in_schema()),
            Spot::Field(slot) => {
                let records = encode::field(slot.field, make.text(), None).map_err(invalid)?;
                let (new, _) = resolve(&records, slot.field, 0..records.len())?;
                if !make.same(bytes, Some(&node), &records, new)? {
                    make.put_field(bytes, &slot, records, frames)?;
                }
                Ok(())
            }
            Spot::Element { field, record } => {
                let mut new = Vec::new();
                encode::record(field, make.text(), None, &mut new).map_err(invalid)?;
                let mut records = Records::new(&new, 0..new.len());
                let value = records.next()?.map(|record| one(&new, field.kind, record.value)).transpose()?;
                if !make.same(bytes, Some(&node), &new, value)? {
                    make.splices.put(frames, record, &new);
                }
                Ok(())
            }
            Spot::Entry { field, record } => {
                let whole = Records::new(bytes, record.clone()).next()?;
                let Some(whole) = whole else { return Ok(()) };
                let (key, _) = entry_parts(bytes, field, &whole)?;
                let key = spell::utf8(bytes, key)?;
                let new = make.entry(field, key, &[])?;
                let value = entry(&new, field, 0..new.len(), key)?.map(|(_, value)| value);
                let value = value.map(|value| one(&new, field.kind, value)).transpose()?;
                if !make.same(bytes, Some(&node), &new, value)? {
                    make.splices.put(frames, record, &new);
                }
                Ok(())
            }
        }
    }

    fn absent(&mut self, bytes: &[u8], rest: &[Step], gap: Gap, frames: &[Frame]) -> Result<(), Error> {
        if !self.next_row() {
            return Ok(());
        }
        self.make.fill(bytes, rest, gap, frames)
    }
}

struct Append<'a> {
    make: Make<'a>,
    element: Marked<'a>,
}

impl Visit for Append<'_> {
    const MAKES: bool = true;
    const FRAMES: bool = true;

    fn value(&mut self, bytes: &[u8], node: Node, spot: Spot, frames: &[Frame]) -> Result<(), Error> {
        let (field, at) = match (node, &spot) {
            (_, Spot::Root | Spot::Inside) => return Err(self.make.not_in_schema()),
            (Node::Null, Spot::Field(slot)) if slot.field.shape == Shape::List => {
                let records = self.make.records(slot.field, &[])?;
                return self.make.put_field(bytes, slot, records, frames);
            }
            // The texts of a map's entry, which is a message in a message.
            (Node::List { .. }, Spot::Entry { .. }) => return Err(self.make.not_in_schema()),
            (Node::List { field, at }, _) => (field, at),
            (Node::Json(at) | Node::One { at, .. } | Node::Map { at, .. }, _) => {
                return Err(Error::NotAnArray { path: self.make.path.clone(), offset: at.start });
            }
            (Node::Null, _) => return Err(Error::NotAnArray { path: self.make.path.clone(), offset: 0 }),
        };
        let mut new = Vec::new();
        encode::record(field, Text { text: self.element, at: 0 }, None, &mut new).map_err(invalid)?;
        let mut records = Records::new(bytes, at);
        let mut last = None;
        while let Some(record) = records.of(field.number)? {
            last = Some(record.value.end);
        }
        if let Some(last) = last {
            self.make.splices.put(frames, last..last, &new);
        }
        Ok(())
    }

    fn absent(&mut self, bytes: &[u8], rest: &[Step], gap: Gap, frames: &[Frame]) -> Result<(), Error> {
        if let (Gap::Field(slot), [_]) = (&gap, rest)
            && slot.field.shape != Shape::List
        {
            return Err(Error::NotAnArray { path: self.make.path.clone(), offset: slot.within.start });
        }
        self.make.fill(bytes, rest, gap, frames)
    }
}
