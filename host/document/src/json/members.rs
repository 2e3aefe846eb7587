//! Members of an object and elements of an array, one after another. The caller steps over each value, so that a
//! walk passes every byte once. Nothing is kept.

use super::token::{self, Quoted};
use crate::Error;

/// The members of one object.
pub(crate) struct Members<'a> {
    bytes: &'a [u8],
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
    pub(crate) fn new(bytes: &'a [u8], at: usize) -> Self {
        Members {
            bytes,
            at: at + 1,
            last: at + 1,
            first: true,
        }
    }

    /// The next member. Its value must be stepped over with [`Members::past`] before the next call.
    #[inline(always)]
    pub(crate) fn next(&mut self) -> Result<Option<Member>, Error> {
        let mut at = token::space(self.bytes, self.at);
        match self.bytes.get(at) {
            Some(b'}') => {
                self.at = at + 1;
                return Ok(None);
            }
            Some(b',') if !self.first => at = token::space(self.bytes, at + 1),
            _ if self.first => {}
            _ => return Err(Error::malformed(at, "expected a comma or }")),
        }
        self.first = false;
        let key = token::quoted(self.bytes, at)?;
        let colon = token::space(self.bytes, key.after());
        if self.bytes.get(colon) != Some(&b':') {
            return Err(Error::malformed(colon, "expected a colon"));
        }
        Ok(Some(Member {
            key,
            value: token::space(self.bytes, colon + 1),
        }))
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
    bytes: &'a [u8],
    at: usize,
    first: bool,
}

impl<'a> Elements<'a> {
    /// Of the array whose `[` is at `at`.
    pub(crate) fn new(bytes: &'a [u8], at: usize) -> Self {
        Elements {
            bytes,
            at: at + 1,
            first: true,
        }
    }

    /// Where the next element begins. It must be stepped over with [`Elements::past`] before the next call.
    #[inline(always)]
    pub(crate) fn next(&mut self) -> Result<Option<usize>, Error> {
        let mut at = token::space(self.bytes, self.at);
        match self.bytes.get(at) {
            Some(b']') => {
                self.at = at + 1;
                return Ok(None);
            }
            Some(b',') if !self.first => at = token::space(self.bytes, at + 1),
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
