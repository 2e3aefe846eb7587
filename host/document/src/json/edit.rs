//! Edits. A walk collects splices, and one new buffer is built from them. An edit that changes nothing builds none.
//! Memory: the old bytes, the new bytes, and 16 bytes per changed row.

use super::{
    check,
    equal::equal,
    marked::Marked,
    members::{Elements, Members},
    object::Object,
    splice::{Cutter, Splices, TextId},
    string, token,
    walk::{Gap, Visit},
};
use crate::{Error, MAX_OBJECT, Path, Value, path::Segment, rows::RowSet};
use bytes::Bytes;

/// The maximum length of a number that an edit writes.
const MAX_NUMBER: usize = 64;

/// Sets the value in the rows. Returns the new bytes, or none if nothing changes. An object grows to `limit` bytes at most.
pub(crate) fn set(
    object: &Object,
    path: &Path,
    rows: RowSet<'_>,
    value: &Value,
    limit: usize,
) -> Result<Option<Bytes>, Error> {
    let mut writer = ValueWriter::new(path, json_text(value, path.segments().len(), limit)?);
    let whole = writer.whole();
    let mut set = Set { writer, whole, rows, row: 0 };
    object.visit(path.segments(), &mut set)?;
    rows.check_length(set.row)?;
    finish(object, &set.writer.splices, limit)
}

/// Appends an element to the arrays.
pub(crate) fn append(object: &Object, path: &Path, value: &Value, limit: usize) -> Result<Option<Bytes>, Error> {
    let element = json_text(value, path.segments().len() + 1, limit)?;
    let mut writer = ValueWriter::new(path, [b"[", element.as_slice(), b"]"].concat());
    let first = writer.splices.text(element.clone());
    let next = writer.splices.text([b",", element.as_slice()].concat());
    let mut append = Append { writer, first, next };
    object.visit(path.segments(), &mut append)?;
    finish(object, &append.writer.splices, limit)
}

/// Removes members or elements in the rows. Returns the number of removed values.
pub(crate) fn remove(object: &Object, path: &Path, rows: RowSet<'_>) -> Result<(u32, Option<Bytes>), Error> {
    let Some((last, before)) = path.segments().split_last() else {
        return Ok((0, None));
    };
    cut(object, before, last, rows, |row| rows.has(row))
}

/// Removes the elements of the last `[*]` that are not selected.
pub(crate) fn retain(object: &Object, path: &Path, keep: RowSet<'_>) -> Result<Option<Bytes>, Error> {
    let before = path.rows_in().ok_or_else(|| Error::NoWildcard { path: path.clone() })?;
    let Some(spans) = object.spans(before) else {
        return cut(object, before, &Segment::Wildcard, keep, |row| !keep.has(row)).map(|(_, bytes)| bytes);
    };
    // The array has been walked already, when a column was read.
    let (mut cutter, mut splices) = (Cutter::default(), Splices::default());
    let elements = spans.iter();
    keep.check_length(elements.len())?;
    for (row, at) in elements.enumerate() {
        cutter.item(at, !keep.has(row), &mut splices);
    }
    cutter.finish(&mut splices);
    finish(object, &splices, MAX_OBJECT)
}

fn cut(
    object: &Object,
    before: &[Segment],
    last: &Segment,
    rows: RowSet<'_>,
    goes: impl Fn(usize) -> bool,
) -> Result<(u32, Option<Bytes>), Error> {
    let mut cut = Cut { last, goes, row: 0, count: 0, splices: Splices::default() };
    object.visit(before, &mut cut)?;
    rows.check_length(cut.row)?;
    Ok((cut.count, finish(object, &cut.splices, MAX_OBJECT)?))
}

fn finish(object: &Object, splices: &Splices, limit: usize) -> Result<Option<Bytes>, Error> {
    if splices.is_empty() {
        return Ok(None);
    }
    splices.apply(object.bytes(), limit).map(Some)
}

/// Validates the value and returns its JSON text. The value may be nested `depth` levels deep, and has at most `limit` bytes.
pub(crate) fn json_text(value: &Value, depth: usize, limit: usize) -> Result<Vec<u8>, Error> {
    let invalid = |source| Error::InvalidValue { source: Box::new(source) };
    Ok(match value {
        Value::Null => b"null".to_vec(),
        Value::Boolean(true) => b"true".to_vec(),
        Value::Boolean(false) => b"false".to_vec(),
        Value::Number(number) => {
            let bytes = number.as_bytes();
            let is_number = bytes.len() <= MAX_NUMBER
                && matches!(bytes.first(), Some(b'-' | b'0'..=b'9'))
                && token::scalar(bytes, 0).map_err(invalid)? == bytes.len();
            if !is_number {
                return Err(invalid(Error::malformed(0, "expected a number of at most 64 bytes")));
            }
            bytes.to_vec()
        }
        Value::Text(text) => {
            let length = string::written_length(text);
            if length > limit {
                return Err(Error::TooLarge { limit });
            }
            let mut written = Vec::with_capacity(length);
            string::write_string(text, &mut written);
            written
        }
        Value::Json(text) => {
            let at = check::whole_below(text.as_bytes(), depth).map_err(invalid)?;
            text.as_bytes().get(at).unwrap_or_default().to_vec()
        }
    })
}

/// The text to insert where a value is missing: the value, inside the objects that are missing too.
struct ValueWriter<'a> {
    path: &'a Path,
    value: Vec<u8>,
    splices: Splices,
    /// The texts so far, by the number of missing segments and their context. Most rows miss the same segments.
    texts: Vec<(usize, InsertContext, TextId)>,
}

/// The context of an inserted member.
#[derive(Clone, Copy, PartialEq, Eq)]
enum InsertContext {
    /// It is the only member of an existing object.
    Alone,
    /// It follows other members.
    Comma,
    /// Its object is inserted too.
    Braces,
}

impl<'a> ValueWriter<'a> {
    fn new(path: &'a Path, value: Vec<u8>) -> Self {
        ValueWriter { path, value, splices: Splices::default(), texts: Vec::new() }
    }

    fn whole(&mut self) -> TextId {
        self.splices.text(self.value.clone())
    }

    /// Fills a gap. It never creates array elements: such a row stays as it is.
    fn fill(&mut self, rest: &[Segment], gap: Gap) -> Result<(), Error> {
        if rest.iter().any(|segment| !matches!(segment, Segment::Name(_))) {
            return Ok(());
        }
        let (at, context) = match gap {
            Gap::Member { at, empty: true } => (at..at, InsertContext::Alone),
            Gap::Member { at, empty: false } => (at..at, InsertContext::Comma),
            Gap::Null { at } => (at, InsertContext::Braces),
            Gap::Element => return Ok(()),
            Gap::Other { at } => {
                return Err(Error::NotAnObject { path: self.path.clone(), offset: at });
            }
        };
        let known = self.texts.iter().find(|(missing, as_well, _)| (*missing, *as_well) == (rest.len(), context));
        let text = match known {
            Some((_, _, text)) => *text,
            None => {
                let text = self.splices.text(self.write(rest, context));
                self.texts.push((rest.len(), context, text));
                text
            }
        };
        self.splices.put(at, text);
        Ok(())
    }

    fn write(&self, rest: &[Segment], context: InsertContext) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.value.len() + 64);
        let mut closing = 0;
        match context {
            InsertContext::Alone => {}
            InsertContext::Comma => out.push(b','),
            InsertContext::Braces => {
                out.push(b'{');
                closing += 1;
            }
        }
        for (i, segment) in rest.iter().enumerate() {
            let Segment::Name(name) = segment else { continue };
            if i > 0 {
                out.push(b'{');
                closing += 1;
            }
            string::write_string(name, &mut out);
            out.push(b':');
        }
        out.extend_from_slice(&self.value);
        out.extend(std::iter::repeat_n(b'}', closing));
        out
    }
}

struct Set<'a> {
    writer: ValueWriter<'a>,
    whole: TextId,
    rows: RowSet<'a>,
    row: usize,
}

impl Visit for Set<'_> {
    fn value(&mut self, text: Marked<'_>, at: usize) -> Result<usize, Error> {
        let end = check::checked_end(text.bytes, at)?;
        if self.rows.has(self.row) && !same(text.bytes.get(at..end).unwrap_or_default(), &self.writer.value) {
            self.writer.splices.put(at..end, self.whole);
        }
        self.row += 1;
        Ok(end)
    }

    fn absent(&mut self, rest: &[Segment], gap: Gap) -> Result<(), Error> {
        if self.rows.has(self.row) {
            self.writer.fill(rest, gap)?;
        }
        self.row += 1;
        Ok(())
    }
}

/// Returns whether the existing value already equals the new one, in any spelling of objects and strings. Numbers are
/// compared by spelling. A value with a repeated key equals nothing, because its meaning is ambiguous.
fn same(old: &[u8], new: &[u8]) -> bool {
    old == new || equal(old, new).unwrap_or(false)
}

struct Append<'a> {
    writer: ValueWriter<'a>,
    first: TextId,
    next: TextId,
}

impl Visit for Append<'_> {
    fn value(&mut self, text: Marked<'_>, at: usize) -> Result<usize, Error> {
        if text.bytes.get(at) != Some(&b'[') {
            let end = check::checked_end(text.bytes, at)?;
            if text.bytes.get(at) != Some(&b'n') {
                return Err(Error::NotAnArray { path: self.writer.path.clone(), offset: at });
            }
            let whole = self.writer.whole();
            self.writer.splices.put(at..end, whole);
            return Ok(end);
        }
        let mut elements = Elements::new(text, at);
        let (mut last, mut written) = (at + 1, self.first);
        while let Some(at) = elements.next()? {
            last = text.value_end(at)?;
            written = self.next;
            elements.past(last);
        }
        self.writer.splices.put(last..last, written);
        Ok(elements.end())
    }

    fn absent(&mut self, rest: &[Segment], gap: Gap) -> Result<(), Error> {
        self.writer.fill(rest, gap)
    }
}

/// Removes what the last segment of a path selects, in the containers that the segments before it select.
struct Cut<'a, F> {
    last: &'a Segment,
    goes: F,
    row: usize,
    count: u32,
    splices: Splices,
}

impl<F: Fn(usize) -> bool> Cut<'_, F> {
    fn members(&mut self, text: Marked<'_>, at: usize, name: &str) -> Result<usize, Error> {
        let goes = self.next_row();
        let mut cutter = Cutter::default();
        let mut members = Members::new(text, at);
        let mut found = false;
        while let Some(member) = members.next()? {
            let end = text.value_end(member.value)?;
            let this = string::is(text.bytes, member.key, name)?;
            if this && std::mem::replace(&mut found, true) {
                return Err(Error::DuplicateKey { key: name.to_owned(), offset: member.key.start });
            }
            cutter.item(member.key.start - 1..end, this && goes, &mut self.splices);
            members.past(end);
        }
        self.count += cutter.finish(&mut self.splices);
        Ok(members.end())
    }

    fn elements(&mut self, text: Marked<'_>, at: usize, only: Option<usize>) -> Result<usize, Error> {
        let row_goes = only.is_some() && self.next_row();
        let mut cutter = Cutter::default();
        let mut elements = Elements::new(text, at);
        let mut i = 0;
        while let Some(at) = elements.next()? {
            let end = text.value_end(at)?;
            let goes = match only {
                Some(index) => row_goes && i == index,
                None => self.next_row(),
            };
            cutter.item(at..end, goes, &mut self.splices);
            elements.past(end);
            i += 1;
        }
        self.count += cutter.finish(&mut self.splices);
        Ok(elements.end())
    }

    fn next_row(&mut self) -> bool {
        let goes = (self.goes)(self.row);
        self.row += 1;
        goes
    }
}

impl<F: Fn(usize) -> bool> Visit for Cut<'_, F> {
    fn value(&mut self, text: Marked<'_>, at: usize) -> Result<usize, Error> {
        match (self.last, text.bytes.get(at)) {
            (Segment::Name(name), Some(b'{')) => self.members(text, at, name),
            (Segment::Index(index), Some(b'[')) => self.elements(text, at, Some(*index)),
            (Segment::Wildcard, Some(b'[')) => self.elements(text, at, None),
            _ => {
                self.absent(&[], Gap::Element)?;
                text.value_end(at)
            }
        }
    }

    fn absent(&mut self, _: &[Segment], _: Gap) -> Result<(), Error> {
        // The row exists, but has nothing to remove. If the rows are the missing elements themselves, there is no row.
        if *self.last != Segment::Wildcard {
            self.row += 1;
        }
        Ok(())
    }
}
