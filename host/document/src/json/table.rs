//! The first two levels of an object as spans: most reads begin with the same one or two names, and the table lets them
//! start where those lead. 16 bytes a member; made at the first read.

use super::{
    members::Members,
    string,
    token::{self, Quoted},
};
use crate::Error;

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

/// The table of the object itself, and those of its members that are objects: made in the same pass.
#[derive(Debug)]
pub(crate) struct Index {
    pub(crate) top: Table,
    below: Vec<Option<Table>>,
}

const ESCAPED: u32 = 1 << 31;

impl Index {
    /// Of the object whose `{` is at `at`.
    pub(crate) fn build(bytes: &[u8], at: usize) -> Result<Index, Error> {
        let mut below = Vec::with_capacity(8);
        let top = Table::build(bytes, at, |at| {
            if bytes.get(at) != Some(&b'{') {
                below.push(None);
                return token::value_end(bytes, at);
            }
            let table = Table::of(bytes, at)?;
            let end = table.end;
            below.push(Some(table));
            Ok(end)
        })?;
        Ok(Index { top, below })
    }

    /// The table of the value of member `i`; none if that is no object.
    pub(crate) fn below(&self, i: usize) -> Option<&Table> {
        self.below.get(i)?.as_ref()
    }
}

impl Table {
    /// Of the object whose `{` is at `at`.
    pub(crate) fn of(bytes: &[u8], at: usize) -> Result<Table, Error> {
        Table::build(bytes, at, |at| token::value_end(bytes, at))
    }

    /// `past` steps over the values.
    fn build(bytes: &[u8], at: usize, mut past: impl FnMut(usize) -> Result<usize, Error>) -> Result<Table, Error> {
        if bytes.get(at) != Some(&b'{') {
            return Err(Error::malformed(at, "expected an object"));
        }
        let mut slots = Vec::with_capacity(8);
        let mut members = Members::new(bytes, at);
        while let Some(member) = members.next()? {
            let end = past(member.value)?;
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
