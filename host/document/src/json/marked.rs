//! A text whose quotes, backslashes and brackets are marked: strings and containers end where the next mark is, so that
//! nothing between is looked at again, however often a text is walked. Memory: half of the text, as long as the marks
//! are kept.

use super::{
    scan::{self, BLOCK, Marks},
    token::{self, Quoted},
};
use crate::Error;
use std::ops::Deref;

/// A text with its marks. Positions that are asked for are outside of strings, or an opening quote.
#[derive(Clone, Copy)]
pub(crate) struct Marked<'a> {
    pub(crate) bytes: &'a [u8],
    marks: &'a Marks,
}

impl Deref for Marked<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.bytes
    }
}

impl<'a> Marked<'a> {
    /// INVARIANT: the marks are those of the bytes. Others would lead to other positions, which every use checks.
    pub(crate) fn new(bytes: &'a [u8], marks: &'a Marks) -> Self {
        Marked { bytes, marks }
    }

    /// The string whose opening quote is at `at`. Its content is not looked at.
    #[inline(always)]
    pub(crate) fn quoted(self, at: usize) -> Result<Quoted, Error> {
        if self.bytes.get(at) != Some(&b'"') {
            return Err(Error::malformed(at, "expected a string"));
        }
        let mut above = !1 << (at % BLOCK);
        let mut plain = true;
        let first = at / BLOCK;
        for (i, masks) in self.marks.blocks.get(first..).unwrap_or_default().iter().enumerate() {
            let quotes = masks.quote & above;
            if quotes != 0 {
                plain &= masks.backslash & above & (quotes & quotes.wrapping_neg()).wrapping_sub(1) == 0;
                let end = (first + i) * BLOCK + quotes.trailing_zeros() as usize;
                return Ok(Quoted { start: at + 1, end, plain });
            }
            plain &= masks.backslash & above == 0;
            above = !0;
        }
        Err(Error::malformed(self.bytes.len(), "a string without its end"))
    }

    /// The position after the container whose opening bracket is at `at`.
    #[inline(always)]
    pub(crate) fn container_end(self, at: usize) -> Result<usize, Error> {
        // Most hold no other.
        let closing = self.bytes.get(at).map(|open| open + 2);
        let mut above = !1 << (at % BLOCK);
        let first = at / BLOCK;
        for (i, masks) in self.marks.blocks.get(first..).unwrap_or_default().iter().enumerate() {
            let brackets = (masks.open | masks.close) & above;
            if brackets != 0 {
                let next = (first + i) * BLOCK + brackets.trailing_zeros() as usize;
                if self.bytes.get(next).copied() == closing {
                    return Ok(next + 1);
                }
                break;
            }
            above = !0;
        }
        scan::nested_end(self.bytes, self.marks, at)
    }

    /// Steps over the value at `at`: containers structurally, strings by their ends.
    #[inline]
    pub(crate) fn value_end(self, at: usize) -> Result<usize, Error> {
        match self.bytes.get(at) {
            Some(b'"') => Ok(self.quoted(at)?.after()),
            Some(b'{' | b'[') => self.container_end(at),
            _ => token::scalar(self.bytes, at),
        }
    }
}
