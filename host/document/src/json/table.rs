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

/// The table of the object itself, and those of its members that are objects: each made when it is first asked for.
#[derive(Debug)]
pub(crate) struct Index {
    pub(crate) top: Table,
    below: OnceLock<Box<[OnceLock<Table>]>>,
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
        let top = Table::of(Marked::new(bytes, &marks), at)?;
        Ok(Index { top, below: OnceLock::new(), marks: keep_marks.then_some(marks), spans: OnceLock::new() })
    }

    /// The table of the value of member `i`; none if that is no object.
    pub(crate) fn below(&self, text: Marked<'_>, i: usize) -> Result<Option<&Table>, Error> {
        let Some(at) = self.top.slots.get(i).map(|slot| slot.value()).filter(|at| text.bytes.get(*at) == Some(&b'{'))
        else {
            return Ok(None);
        };
        let below = self.below.get_or_init(|| self.top.slots.iter().map(|_| OnceLock::new()).collect());
        let Some(cell) = below.get(i) else { return Ok(None) };
        if let Some(table) = cell.get() {
            return Ok(Some(table));
        }
        let table = Table::of(text, at)?;
        Ok(Some(cell.get_or_init(|| table)))
    }
}

impl Table {
    /// Of the object whose `{` is at `at`.
    pub(crate) fn of(text: Marked<'_>, at: usize) -> Result<Table, Error> {
        if text.bytes.get(at) != Some(&b'{') {
            return Err(Error::malformed(at, "expected an object"));
        }
        let mut slots = Vec::with_capacity(8);
        let mut members = Members::new(text, at);
        while let Some(member) = members.next()? {
            let end = text.value_end(member.value)?;
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
