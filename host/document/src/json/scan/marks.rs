//! The structural marks of a text, in blocks. They are built for a text that is walked, or recorded by the scan that
//! finds its end. In the second case the depth of each block is known, and containers end where their depth does.

use super::{BLOCK, Classify, Masks, Portable, STRAY, Skip, StringState, padded};
use crate::Error;

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
use super::VECTOR;

/// The unescaped quotes, the brackets outside of strings, and their depth.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Block {
    /// The masks of the block. They end before a backslash outside of a string.
    pub masks: Masks,
    /// The depth, if a scan has recorded it.
    pub(crate) level: BlockDepth,
}

/// The depth at the start of a block, and a lower bound of the depth in the block. `MAX_DEPTH` fits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BlockDepth {
    before: u16,
    low: u16,
}

/// The blocks of one text, or of several concatenated ones. Each text ends with empty blocks, so that every block that
/// starts a string or container has a next one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Marks {
    /// The blocks in order.
    pub blocks: Vec<Block>,
}

/// Returns the number of blocks for a text of this length.
pub(crate) fn blocks(length: usize) -> usize {
    length / BLOCK + 2
}

impl Default for BlockDepth {
    /// The depth is unknown.
    fn default() -> Self {
        BlockDepth { before: u16::MAX, low: u16::MAX }
    }
}

impl BlockDepth {
    /// Creates the level of a block with this number of closing brackets.
    #[inline(always)]
    pub(super) fn new(before: usize, close: u32) -> Self {
        BlockDepth { before: before as u16, low: (before as u16).saturating_sub(close as u16) }
    }
}

impl Masks {
    /// Returns the bits below `end`, which is at most 64.
    fn up_to(self, end: usize) -> Self {
        let below = if end < BLOCK { (1 << end) - 1 } else { u64::MAX };
        Masks {
            quote: self.quote & below,
            backslash: self.backslash & below,
            open: self.open & below,
            close: self.close & below,
        }
    }

    /// Returns the position after the bracket at which the depth falls to `level`. The depth is `depth` before the bits
    /// of `from`.
    fn end(self, from: u64, mut depth: u32, level: u32) -> Option<usize> {
        let mut brackets = (self.open | self.close) & from;
        while brackets != 0 {
            let bit = brackets & brackets.wrapping_neg();
            brackets ^= bit;
            if self.open & bit != 0 {
                depth += 1;
            } else {
                depth = depth.checked_sub(1)?;
                if depth == level {
                    return Some(bit.trailing_zeros() as usize + 1);
                }
            }
        }
        None
    }
}

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

    /// Removes and returns the blocks before `at`. Reserves the same space for the next ones.
    pub(crate) fn cut(&mut self, at: usize) -> Marks {
        let mut rest = Vec::with_capacity(self.blocks.len());
        rest.extend(self.blocks.drain(at.min(self.blocks.len())..));
        Marks { blocks: std::mem::replace(&mut self.blocks, rest) }
    }

    /// Appends the next block, and the position in it at which the container ends. Later bytes do not belong to the
    /// container.
    #[inline(always)]
    pub(super) fn push(&mut self, masks: Masks, level: BlockDepth, end: Option<usize>) {
        let masks = match end {
            None => masks,
            Some(end) => masks.up_to(end),
        };
        self.blocks.push(Block { masks, level });
    }

    /// Ends the text of this length that began at block `first`.
    pub(crate) fn end_text(&mut self, first: usize, length: usize) {
        self.blocks.resize(first + blocks(length), Block::default());
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

/// Like [`nested_end`] for known depths. The scan that recorded them has matched the brackets.
fn level_end(blocks: &[Block], at: usize) -> Option<usize> {
    let (first, bit) = (at / BLOCK, at % BLOCK);
    let Block { masks, level } = blocks.get(first)?;
    if *level == BlockDepth::default() || masks.open >> bit & 1 == 0 {
        return None;
    }
    let below = (1_u64 << bit) - 1;
    let opened = u32::from(level.before) + (masks.open & below).count_ones();
    let depth = opened.checked_sub((masks.close & below).count_ones())?;
    if let Some(end) = masks.end(!below, depth, depth) {
        return Some(first * BLOCK + end);
    }
    let later = blocks.iter().enumerate().skip(first + 1);
    later
        .filter(|(_, block)| u32::from(block.level.low) <= depth)
        .find_map(|(i, Block { masks, level })| Some(i * BLOCK + masks.end(u64::MAX, u32::from(level.before), depth)?))
}
