//! A text whose quotes, backslashes and brackets are marked: strings and containers end where the next mark is, so that
//! nothing between is looked at again, however often a text is walked. Memory: five eighths of the text, as long as the
//! marks are kept.

use super::{
    scan::{self, BLOCK, Block, Marks},
    token::{self, Quoted},
};
use crate::Error;
use std::ops::Deref;

/// A text with its marks. Positions that are asked for are outside of strings, or an opening quote.
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
    /// INVARIANT: the marks are those of the bytes. Others would lead to other positions, which every use checks.
    pub(crate) fn new(bytes: &'a [u8], marks: &'a Marks) -> Self {
        Marked::with(bytes, &marks.blocks)
    }

    /// INVARIANT: as above.
    pub(crate) fn with(bytes: &'a [u8], blocks: &'a [Block]) -> Self {
        Marked { bytes, blocks }
    }

    /// The string whose opening quote is at `at`. Its content is not looked at.
    #[inline(always)]
    pub(crate) fn quoted(self, at: usize) -> Result<Quoted, Error> {
        if self.bytes.get(at) != Some(&b'"') {
            return Err(Error::malformed(at, "expected a string"));
        }
        let start = at + 1;
        // Most end within the next 64 bytes, which are looked at as one mask wherever they begin.
        if let Some([Block { masks: first, .. }, Block { masks: next, .. }]) = self.pair(start) {
            let quotes = window(first.quote, next.quote, start);
            if quotes != 0 {
                let before = (quotes & quotes.wrapping_neg()).wrapping_sub(1);
                let plain = window(first.backslash, next.backslash, start) & before == 0;
                return Ok(Quoted { start, end: start + quotes.trailing_zeros() as usize, plain });
            }
        }
        match self.long(start) {
            0 => Err(Error::malformed(self.bytes.len(), "a string without its end")),
            end => Ok(Quoted { start, end: end >> 1, plain: end & 1 == 1 }),
        }
    }

    /// Twice the position of the closing quote, and one more if there is no backslash before it; 0 if there is none. In
    /// one word, because what is passed through memory takes longer than all the rest.
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

    /// The position after the container whose opening bracket is at `at`.
    #[inline(always)]
    pub(crate) fn container_end(self, at: usize) -> Result<usize, Error> {
        // Most are short and hold no other.
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

    /// Steps over the value at `at`: containers structurally, strings by their ends.
    #[inline(always)]
    pub(crate) fn value_end(self, at: usize) -> Result<usize, Error> {
        match self.bytes.get(at) {
            Some(b'"') => Ok(self.quoted(at)?.after()),
            Some(b'{' | b'[') => self.container_end(at),
            _ => token::scalar(self.bytes, at),
        }
    }
}

/// The mask of the 64 bytes from `at` on, which lie in two blocks.
#[inline(always)]
fn window(first: u64, next: u64, at: usize) -> u64 {
    let shift = at % BLOCK;
    first >> shift | next << 1 << (BLOCK - 1 - shift)
}
