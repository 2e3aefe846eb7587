//! Members of an object and elements of an array, one after another. The caller steps over each value, so that a
//! walk passes every byte once. Nothing is kept.

use super::{
    marked::Marked,
    token::{self, Quoted},
};
use crate::Error;

/// The members of one object.
pub(crate) struct Members<'a> {
    text: Marked<'a>,
    /// After the opening brace, then after the last value; after the closing brace once there is no more.
    at: usize,
    /// Where a new last member would go: after the last value.
    last: usize,
    first: bool,
}

/// One member: its key, and where its value begins.
#[derive(Clone, Copy)]
pub(crate) struct Member {
    pub(crate) key: Quoted,
    pub(crate) value: usize,
}

impl<'a> Members<'a> {
    /// Of the object whose `{` is at `at`.
    pub(crate) fn new(text: Marked<'a>, at: usize) -> Self {
        Members { text, at: at + 1, last: at + 1, first: true }
    }

    /// The next member. Its value must be stepped over with [`Members::past`] before the next call.
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

    /// The value of the last member ends at `end`.
    #[inline(always)]
    pub(crate) fn past(&mut self, end: usize) {
        self.at = end;
        self.last = end;
    }

    /// The position after the object, once there is no more.
    pub(crate) fn end(&self) -> usize {
        self.at
    }

    /// Where one more member goes, once there is no more.
    pub(crate) fn last(&self) -> usize {
        self.last
    }

    /// Whether there was no member.
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
    /// Of the array whose `[` is at `at`.
    pub(crate) fn new(text: Marked<'a>, at: usize) -> Self {
        Elements { text, at: at + 1, first: true }
    }

    /// Where the next element begins. It must be stepped over with [`Elements::past`] before the next call.
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

    /// The last element ends at `end`.
    #[inline(always)]
    pub(crate) fn past(&mut self, end: usize) {
        self.at = end;
    }

    /// The position after the array, once there is no more.
    pub(crate) fn end(&self) -> usize {
        self.at
    }
}
