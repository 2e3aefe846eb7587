//! Iterates over the members of an object and the elements of an array. The caller skips each value, so that a walk
//! passes every byte once. Keeps no state of its own.

use super::{
    marked::Marked,
    token::{self, Quoted},
};
use crate::Error;

/// The members of one object.
pub(crate) struct Members<'a> {
    text: Marked<'a>,
    /// After the opening brace, then after the previous value, then after the closing brace.
    at: usize,
    /// The position for a new last member: after the last value.
    last: usize,
    first: bool,
}

/// One member: its key and the start of its value.
#[derive(Clone, Copy)]
pub(crate) struct Member {
    pub(crate) key: Quoted,
    pub(crate) value: usize,
}

impl<'a> Members<'a> {
    /// Creates an iterator over the object whose `{` is at `at`.
    pub(crate) fn new(text: Marked<'a>, at: usize) -> Self {
        Members { text, at: at + 1, last: at + 1, first: true }
    }

    /// Returns the next member. Skip its value with [`Members::past`] before the next call.
    #[inline(always)]
    pub(crate) fn next(&mut self) -> Result<Option<Member>, Error> {
        let mut at = token::space(self.text.bytes, self.at);
        match self.text.bytes.get(at) {
            Some(b'}') => {
                self.at = at + 1;
                return Ok(None);
            }
            Some(b',') if !self.first => at = token::space(self.text.bytes, at + 1),
            _ if self.first => {}
            _ => return Err(Error::malformed(at, "expected a comma or }")),
        }
        self.first = false;
        let key = self.text.quoted(at)?;
        let colon = token::space(self.text.bytes, key.after());
        if self.text.bytes.get(colon) != Some(&b':') {
            return Err(Error::malformed(colon, "expected a colon"));
        }
        Ok(Some(Member { key, value: token::space(self.text.bytes, colon + 1) }))
    }

    /// Skips the value of the current member, which ends at `end`.
    #[inline(always)]
    pub(crate) fn past(&mut self, end: usize) {
        self.at = end;
        self.last = end;
    }

    /// Returns the position after the object, once all members have been returned.
    pub(crate) fn end(&self) -> usize {
        self.at
    }

    /// Returns the position for another member, once all members have been returned.
    pub(crate) fn last(&self) -> usize {
        self.last
    }

    /// Returns whether there was no member.
    pub(crate) fn is_empty(&self) -> bool {
        self.first
    }
}

/// The elements of one array.
pub(crate) struct Elements<'a> {
    text: Marked<'a>,
    at: usize,
    first: bool,
}

impl<'a> Elements<'a> {
    /// Creates an iterator over the array whose `[` is at `at`.
    pub(crate) fn new(text: Marked<'a>, at: usize) -> Self {
        Elements { text, at: at + 1, first: true }
    }

    /// Returns the start of the next element. Skip it with [`Elements::past`] before the next call.
    #[inline(always)]
    pub(crate) fn next(&mut self) -> Result<Option<usize>, Error> {
        let mut at = token::space(self.text.bytes, self.at);
        match self.text.bytes.get(at) {
            Some(b']') => {
                self.at = at + 1;
                return Ok(None);
            }
            Some(b',') if !self.first => at = token::space(self.text.bytes, at + 1),
            _ if self.first => {}
            _ => return Err(Error::malformed(at, "expected a comma or ]")),
        }
        self.first = false;
        Ok(Some(at))
    }

    /// Skips the current element, which ends at `end`.
    #[inline(always)]
    pub(crate) fn past(&mut self, end: usize) {
        self.at = end;
    }

    /// Returns the position after the array, once all elements have been returned.
    pub(crate) fn end(&self) -> usize {
        self.at
    }
}
