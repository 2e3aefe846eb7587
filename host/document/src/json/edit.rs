//! Edits: one walk that collects splices, then one new buffer. An edit that changes nothing makes none.
//! Memory: the old bytes, the new ones, and 16 bytes for each row that changes.

use super::{
    check,
    equal::equal,
    marked::Marked,
    members::{Elements, Members},
    object::Object,
    splice::{Cutter, Splices, Text},
    string, token,
    walk::{Gap, Visit},
};
use crate::{Error, MAX_EDITED, Path, Value, path::Step, rows::Rows};
use bytes::Bytes;

/// The longest number an edit may write.
const MAX_NUMBER: usize = 64;

/// Sets the value in the rows; the new bytes, or none if nothing changes.
pub(crate) fn set(object: &Object, path: &Path, rows: Rows<'_>, value: &Value) -> Result<Option<Bytes>, Error> {
    let mut make = Make::new(path, spell(value, path.steps().len())?);
    let whole = make.whole();
    let mut set = Set { make, whole, rows, row: 0 };
    object.visit(path.steps(), &mut set)?;
    rows.fit(set.row)?;
    finish(object, &set.make.splices)
}

/// Adds an element to the arrays.
pub(crate) fn append(object: &Object, path: &Path, value: &Value) -> Result<Option<Bytes>, Error> {
    let element = spell(value, path.steps().len() + 1)?;
    let mut make = Make::new(path, [b"[", element.as_slice(), b"]"].concat());
    let first = make.splices.text(element.clone());
    let next = make.splices.text([b",", element.as_slice()].concat());
    let mut append = Append { make, first, next };
    object.visit(path.steps(), &mut append)?;
    finish(object, &append.make.splices)
}

/// Removes members or elements of the rows; says how many there were.
pub(crate) fn remove(object: &Object, path: &Path, rows: Rows<'_>) -> Result<(u32, Option<Bytes>), Error> {
    let Some((last, before)) = path.steps().split_last() else {
        return Ok((0, None));
    };
    cut(object, before, last, rows, |row| rows.has(row))
}

/// Cuts the elements of the last `[*]` whose bit is 0.
pub(crate) fn retain(object: &Object, path: &Path, keep: Rows<'_>) -> Result<Option<Bytes>, Error> {
    let before = path.rows_in().ok_or_else(|| Error::NoWildcard { path: path.clone() })?;
    let Some(spans) = object.spans(before) else {
        return cut(object, before, &Step::Every, keep, |row| !keep.has(row)).map(|(_, bytes)| bytes);
    };
    // A column was read before: the array has been walked.
    let (mut cutter, mut splices) = (Cutter::default(), Splices::default());
    let elements = spans.iter();
    keep.fit(elements.len())?;
    for (row, at) in elements.enumerate() {
        cutter.item(at, !keep.has(row), &mut splices);
    }
    cutter.finish(&mut splices);
    finish(object, &splices)
}

fn cut(
    object: &Object,
    before: &[Step],
    last: &Step,
    rows: Rows<'_>,
    goes: impl Fn(usize) -> bool,
) -> Result<(u32, Option<Bytes>), Error> {
    let mut cut = Cut { last, goes, row: 0, count: 0, splices: Splices::default() };
    object.visit(before, &mut cut)?;
    rows.fit(cut.row)?;
    Ok((cut.count, finish(object, &cut.splices)?))
}

fn finish(object: &Object, splices: &Splices) -> Result<Option<Bytes>, Error> {
    if splices.is_empty() {
        return Ok(None);
    }
    splices.apply(object.bytes()).map(Some)
}

/// The value as it will stand in the bytes, validated; it may stand `depth` levels deep.
pub(crate) fn spell(value: &Value, depth: usize) -> Result<Vec<u8>, Error> {
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
            if length > MAX_EDITED {
                return Err(Error::TooLarge { limit: MAX_EDITED });
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

/// What is put where something was missing: the value with the objects round it that are missing too.
struct Make<'a> {
    path: &'a Path,
    value: Vec<u8>,
    splices: Splices,
    /// Texts made so far, by how many steps are missing and what is round them: rows mostly miss the same.
    made: Vec<(usize, Round, Text)>,
}

/// What is round a made member.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Round {
    /// It is the only one of an object that is there.
    Alone,
    /// It follows others.
    Comma,
    /// Its object is made as well.
    Braces,
}

impl<'a> Make<'a> {
    fn new(path: &'a Path, value: Vec<u8>) -> Self {
        Make { path, value, splices: Splices::default(), made: Vec::new() }
    }

    fn whole(&mut self) -> Text {
        self.splices.text(self.value.clone())
    }

    /// Fills a gap. Elements of arrays are never made: such a row stays as it is.
    fn fill(&mut self, rest: &[Step], gap: Gap) -> Result<(), Error> {
        if rest.iter().any(|step| !matches!(step, Step::Name(_))) {
            return Ok(());
        }
        let (at, round) = match gap {
            Gap::Member { at, empty: true } => (at..at, Round::Alone),
            Gap::Member { at, empty: false } => (at..at, Round::Comma),
            Gap::Null { at } => (at, Round::Braces),
            Gap::Element => return Ok(()),
            Gap::Other { at } => {
                return Err(Error::NotAnObject { path: self.path.clone(), offset: at });
            }
        };
        let known = self.made.iter().find(|(missing, as_well, _)| (*missing, *as_well) == (rest.len(), round));
        let text = match known {
            Some((_, _, text)) => *text,
            None => {
                let text = self.splices.text(self.write(rest, round));
                self.made.push((rest.len(), round, text));
                text
            }
        };
        self.splices.put(at, text);
        Ok(())
    }

    fn write(&self, rest: &[Step], round: Round) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.value.len() + 64);
        let mut closing = 0;
        match round {
            Round::Alone => {}
            Round::Comma => out.push(b','),
            Round::Braces => {
                out.push(b'{');
                closing += 1;
            }
        }
        for (i, step) in rest.iter().enumerate() {
            let Step::Name(name) = step else { continue };
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
    make: Make<'a>,
    whole: Text,
    rows: Rows<'a>,
    row: usize,
}

impl Visit for Set<'_> {
    fn value(&mut self, text: Marked<'_>, at: usize) -> Result<usize, Error> {
        let end = check::checked_end(text.bytes, at)?;
        if self.rows.has(self.row) && !same(text.bytes.get(at..end).unwrap_or_default(), &self.make.value) {
            self.make.splices.put(at..end, self.whole);
        }
        self.row += 1;
        Ok(end)
    }

    fn absent(&mut self, rest: &[Step], gap: Gap) -> Result<(), Error> {
        if self.rows.has(self.row) {
            self.make.fill(rest, gap)?;
        }
        self.row += 1;
        Ok(())
    }
}

/// Whether the value that is there needs no edit: the same value, if spelt otherwise. Numbers are their spelling. A
/// repeated key has no one meaning, so that such a value is never the same.
fn same(old: &[u8], new: &[u8]) -> bool {
    old == new || equal(old, new).unwrap_or(false)
}

struct Append<'a> {
    make: Make<'a>,
    first: Text,
    next: Text,
}

impl Visit for Append<'_> {
    fn value(&mut self, text: Marked<'_>, at: usize) -> Result<usize, Error> {
        if text.bytes.get(at) != Some(&b'[') {
            let end = check::checked_end(text.bytes, at)?;
            if text.bytes.get(at) != Some(&b'n') {
                return Err(Error::NotAnArray { path: self.make.path.clone(), offset: at });
            }
            let whole = self.make.whole();
            self.make.splices.put(at..end, whole);
            return Ok(end);
        }
        let mut elements = Elements::new(text, at);
        let (mut last, mut written) = (at + 1, self.first);
        while let Some(at) = elements.next()? {
            last = text.value_end(at)?;
            written = self.next;
            elements.past(last);
        }
        self.make.splices.put(last..last, written);
        Ok(elements.end())
    }

    fn absent(&mut self, rest: &[Step], gap: Gap) -> Result<(), Error> {
        self.make.fill(rest, gap)
    }
}

/// Cuts by the last step of a path, in the containers that the steps before it lead to.
struct Cut<'a, F> {
    last: &'a Step,
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
            (Step::Name(name), Some(b'{')) => self.members(text, at, name),
            (Step::Index(index), Some(b'[')) => self.elements(text, at, Some(*index)),
            (Step::Every, Some(b'[')) => self.elements(text, at, None),
            _ => {
                self.absent(&[], Gap::Element)?;
                text.value_end(at)
            }
        }
    }

    fn absent(&mut self, _: &[Step], _: Gap) -> Result<(), Error> {
        // A row without the thing, unless its rows would be the elements that are not there.
        if *self.last != Step::Every {
            self.row += 1;
        }
        Ok(())
    }
}
