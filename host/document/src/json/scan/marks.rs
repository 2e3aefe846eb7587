//! Computes the marks of a text that is walked, and finds the ends of containers by them. If a scan recorded the marks, the
//! depth of each block is known, and containers end where their depth does.

use super::{Classify, Portable, STRAY, Skip, StringState, padded};
use crate::{
    Error,
    marks::{BLOCK, Block, Marks, blocks, level_end},
};

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
use super::VECTOR;

impl Marks {
    /// Returns the marks of a text.
    pub fn of(bytes: &[u8]) -> Marks {
        #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
        if let Some(vector) = *VECTOR {
            return vector.marks(bytes);
        }
        Marks::with(Portable, bytes)
    }

    /// Like [`Marks::of`], with a given classifier.
    #[inline(always)]
    pub fn with<C: Classify>(by: C, bytes: &[u8]) -> Marks {
        let (whole, rest) = bytes.as_chunks::<BLOCK>();
        let mut marks = Marks { blocks: vec![Block::default(); blocks(bytes.len())] };
        let (mut strings, mut strays) = (StringState::default(), 0);
        for (bytes, block) in whole.iter().zip(&mut marks.blocks) {
            let stray;
            (block.masks, stray) = strings.next_masks(by, bytes);
            strays |= stray;
        }
        if let Some(block) = marks.blocks.get_mut(whole.len()) {
            let stray;
            (block.masks, stray) = strings.next_masks(by, &padded(rest));
            strays |= stray;
        }
        if strays != 0
            && let Some(stray) = stray(bytes)
        {
            marks.blocks.truncate(stray / BLOCK + 1);
            marks.blocks.push(Block::default());
        }
        marks
    }
}

/// Returns the position of the first backslash outside of a string.
#[cold]
fn stray(bytes: &[u8]) -> Option<usize> {
    let mut strings = StringState::default();
    let found = bytes.chunks(BLOCK).map(|block| strings.next_masks(Portable, &padded(block)).1).enumerate();
    let first = found.into_iter().find(|(_, stray)| *stray != 0)?;
    Some(first.0 * BLOCK + first.1.trailing_zeros() as usize)
}

/// Returns the position after the container whose opening bracket is at `at`, in a text with these blocks.
#[inline]
pub fn nested_end(bytes: &[u8], blocks: &[Block], at: usize) -> Result<usize, Error> {
    if let Some(end) = level_end(blocks, at) {
        return Ok(end);
    }
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    if let Some(vector) = *VECTOR {
        return vector.nested_end(bytes, blocks, at);
    }
    nested_end_with(Portable, bytes, blocks, at)
}

/// Like [`nested_end`], with a given classifier. The depths may be unknown.
#[inline(always)]
pub fn nested_end_with<C: Classify>(by: C, bytes: &[u8], blocks: &[Block], at: usize) -> Result<usize, Error> {
    let mut skip = Skip::new();
    let mut start = at - at % BLOCK;
    let mut from = !0 << (at % BLOCK);
    for block in blocks.get(at / BLOCK..).unwrap_or_default() {
        let rest = bytes.get(start..).unwrap_or_default();
        let (open, close) = (block.masks.open & from, block.masks.close & from);
        let end = match rest.first_chunk::<BLOCK>() {
            Some(block) => skip.brackets(by, block, open, close, start)?,
            None => skip.brackets(by, &padded(rest), open, close, start)?,
        };
        if let Some(end) = end {
            return Ok(end);
        }
        start += BLOCK;
        from = !0;
    }
    Err(match stray(bytes) {
        Some(stray) => Error::malformed(stray, STRAY),
        None => Error::malformed(bytes.len(), "unterminated container"),
    })
}
