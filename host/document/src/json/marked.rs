//! A text with marks of its quotes, backslashes and brackets. A string or container ends at one of the next marks, so
//! that a walk skips the bytes between, however often the text is walked. Memory: five eighths of the text while the
//! marks are kept.

use super::{
    scan::{self, BLOCK, Block, Marks},
    token::{self, Quoted},
};
use crate::Error;
use std::ops::Deref;

/// A text with its marks. Positions passed to its methods are outside of strings, or opening quotes.
#[derive(Clone, Copy)]
pub(crate) struct Marked<'a> {
    pub(crate) bytes: &'a [u8],
    blocks: &'a [Block],
}

impl Deref for Marked<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.bytes
    }
}

impl<'a> Marked<'a> {
    /// INVARIANT: the marks belong to these bytes. With other marks, positions would be wrong, but every use checks
    /// them.
    pub(crate) fn new(bytes: &'a [u8], marks: &'a Marks) -> Self {
        Marked::with(bytes, &marks.blocks)
    }

    /// INVARIANT: as above.
    pub(crate) fn with(bytes: &'a [u8], blocks: &'a [Block]) -> Self {
        Marked { bytes, blocks }
    }

    /// Returns the string whose opening quote is at `at`, without looking at its content.
    #[inline(always)]
    pub(crate) fn quoted(self, at: usize) -> Result<Quoted, Error> {
        if self.bytes.get(at) != Some(&b'"') {
            return Err(Error::malformed(at, "expected a string"));
        }
        let start = at + 1;
        // Most strings end within the next 64 bytes, which form one mask at any alignment.
        if let Some([Block { masks: first, .. }, Block { masks: next, .. }]) = self.pair(start) {
            let quotes = window(first.quote, next.quote, start);
            if quotes != 0 {
                let before = (quotes & quotes.wrapping_neg()).wrapping_sub(1);
                let plain = window(first.backslash, next.backslash, start) & before == 0;
                return Ok(Quoted { start, end: start + quotes.trailing_zeros() as usize, plain });
            }
        }
        match self.long(start) {
            0 => Err(Error::malformed(self.bytes.len(), "unterminated string")),
            end => Ok(Quoted { start, end: end >> 1, plain: end & 1 == 1 }),
        }
    }

    /// Returns twice the position of the closing quote, plus one if there is no backslash before it, or 0 if there is
    /// no closing quote. One word is returned, because passing a struct through memory takes longer than the rest of
    /// this function.
    #[inline(never)]
    fn long(self, start: usize) -> usize {
        let (mut from, mut plain) = (!0 << (start % BLOCK), true);
        let first = start / BLOCK;
        for (i, Block { masks, .. }) in self.blocks.iter().enumerate().skip(first) {
            let (quotes, backslash) = (masks.quote & from, masks.backslash & from);
            if quotes != 0 {
                plain &= backslash & (quotes & quotes.wrapping_neg()).wrapping_sub(1) == 0;
                return (i * BLOCK + quotes.trailing_zeros() as usize) << 1 | usize::from(plain);
            }
            plain &= backslash == 0;
            from = !0;
        }
        0
    }

    /// Returns the position after the container whose opening bracket is at `at`.
    #[inline(always)]
    pub(crate) fn container_end(self, at: usize) -> Result<usize, Error> {
        // Most containers are short and contain no others.
        let start = at + 1;
        if let (Some([Block { masks: first, .. }, Block { masks: next, .. }]), Some(open)) =
            (self.pair(start), self.bytes.get(at))
        {
            let brackets = window(first.open | first.close, next.open | next.close, start);
            let end = start + brackets.trailing_zeros() as usize;
            if brackets != 0 && self.bytes.get(end) == Some(&open.wrapping_add(2)) {
                return Ok(end + 1);
            }
        }
        self.far_end(at)
    }

    #[inline(never)]
    fn far_end(self, at: usize) -> Result<usize, Error> {
        let mut from = !1 << (at % BLOCK);
        let first = at / BLOCK;
        for (i, Block { masks, .. }) in self.blocks.iter().enumerate().skip(first) {
            let brackets = (masks.open | masks.close) & from;
            if brackets != 0 {
                let next = i * BLOCK + brackets.trailing_zeros() as usize;
                let closes = self.bytes.get(at).is_some_and(|open| self.bytes.get(next) == Some(&open.wrapping_add(2)));
                if closes {
                    return Ok(next + 1);
                }
                break;
            }
            from = !0;
        }
        scan::nested_end(self.bytes, self.blocks, at)
    }

    #[inline(always)]
    fn pair(self, at: usize) -> Option<&'a [Block; 2]> {
        self.blocks.get(at / BLOCK..)?.first_chunk()
    }

    /// Skips the value at `at`: containers structurally, strings up to their end.
    #[inline(always)]
    pub(crate) fn value_end(self, at: usize) -> Result<usize, Error> {
        match self.bytes.get(at) {
            Some(b'"') => Ok(self.quoted(at)?.after()),
            Some(b'{' | b'[') => self.container_end(at),
            _ => token::scalar(self.bytes, at),
        }
    }
}

/// Returns the mask of the 64 bytes from `at`, which span two blocks.
#[inline(always)]
fn window(first: u64, next: u64, at: usize) -> u64 {
    let shift = at % BLOCK;
    first >> shift | next << 1 << (BLOCK - 1 - shift)
}
