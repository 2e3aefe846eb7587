//! The first two levels of an object as spans: most reads begin with the same one or two names, and the table lets them
//! start where those lead. 16 bytes a member; made at the first read of each.

use super::{marked::Marked, members::Members, scan::Marks, spans::Spans, string, token::Quoted};
use crate::Error;
use std::sync::OnceLock;

/// The members of one object.
#[derive(Debug, Clone, Default)]
pub(crate) struct Table {
    slots: Vec<Slot>,
    /// Where one more member goes.
    pub(crate) last: usize,
    /// The position after the object.
    pub(crate) end: usize,
}

/// One member. Positions fit: an object has at most 31 bits of them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Slot {
    key_start: u32,
    /// The top bit: with escapes.
    key_end: u32,
    value_start: u32,
    value_end: u32,
}

/// The table of the object itself, and those of its members that are objects: all made in one pass.
#[derive(Debug)]
pub(crate) struct Index {
    pub(crate) top: Table,
    /// For each member, if it is an object.
    below: Vec<Option<Table>>,
    /// Of the whole object, if they are kept.
    pub(crate) marks: Option<Marks>,
    /// Of the first array that a column was read from.
    pub(crate) spans: OnceLock<Spans>,
}

const ESCAPED: u32 = 1 << 31;

impl Index {
    /// Of the object whose `{` is at `at`.
    pub(crate) fn build(bytes: &[u8], at: usize, keep_marks: bool) -> Result<Index, Error> {
        let marks = Marks::of(bytes);
        let text = Marked::new(bytes, &marks);
        let mut below = Vec::with_capacity(8);
        let top = Table::collect(text, at, |value| {
            let table = if bytes.get(value) == Some(&b'{') { Some(Table::of(text, value)?) } else { None };
            let end = table.as_ref().map(|table| table.end);
            below.push(table);
            end.map_or_else(|| text.value_end(value), Ok)
        })?;
        Ok(Index { top, below, marks: keep_marks.then_some(marks), spans: OnceLock::new() })
    }

    /// The table of the value of member `i`; none if that is no object.
    pub(crate) fn below(&self, i: usize) -> Option<&Table> {
        self.below.get(i)?.as_ref()
    }
}

impl Table {
    /// Of the object whose `{` is at `at`.
    pub(crate) fn of(text: Marked<'_>, at: usize) -> Result<Table, Error> {
        Table::collect(text, at, |value| text.value_end(value))
    }

    /// The same, with a function that steps over each value.
    fn collect(
        text: Marked<'_>,
        at: usize,
        mut value_end: impl FnMut(usize) -> Result<usize, Error>,
    ) -> Result<Table, Error> {
        if text.bytes.get(at) != Some(&b'{') {
            return Err(Error::malformed(at, "expected an object"));
        }
        let mut slots = Vec::with_capacity(8);
        let mut members = Members::new(text, at);
        while let Some(member) = members.next()? {
            let end = value_end(member.value)?;
            members.past(end);
            slots.push(Slot {
                key_start: narrow(member.key.start),
                key_end: narrow(member.key.end) | if member.key.plain { 0 } else { ESCAPED },
                value_start: narrow(member.value),
                value_end: narrow(end),
            });
        }
        Ok(Table { slots, last: members.last(), end: members.end() })
    }

    /// The member of this name and its number. Twice is an error.
    pub(crate) fn find(&self, bytes: &[u8], name: &str) -> Result<Option<(usize, Slot)>, Error> {
        let mut found = None;
        for (i, slot) in self.slots.iter().enumerate() {
            let key = slot.key();
            if string::is(bytes, key, name)? && found.replace((i, *slot)).is_some() {
                return Err(Error::DuplicateKey { key: name.to_owned(), offset: key.start });
            }
        }
        Ok(found)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }
}

impl Slot {
    fn key(self) -> Quoted {
        Quoted {
            start: self.key_start as usize,
            end: (self.key_end & !ESCAPED) as usize,
            plain: self.key_end & ESCAPED == 0,
        }
    }

    pub(crate) fn value(self) -> usize {
        self.value_start as usize
    }

    pub(crate) fn value_end(self) -> usize {
        self.value_end as usize
    }
}

/// INVARIANT: `Object` refuses bytes beyond 31 bits before a table is built.
fn narrow(position: usize) -> u32 {
    u32::try_from(position).unwrap_or(ESCAPED - 1)
}
