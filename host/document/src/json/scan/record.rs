//! What a scan has seen of a container, kept: a text that was split off need not be looked at again to be walked, and its
//! containers end where their depth does. Memory: nine sixteenths of the text.

use super::{BLOCK, Marks, Masks};

/// How deep a block is nested: at its beginning, and where that is least. `MAX_DEPTH` fits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Level {
    before: u16,
    low: u16,
}

/// The blocks of a container from its opening bracket on.
#[derive(Debug, Clone)]
pub(super) struct Record {
    blocks: Vec<Masks>,
    levels: Vec<Level>,
    /// The container came in pieces that do not fall together with blocks.
    torn: bool,
}

impl Level {
    pub(super) fn new(before: usize, low: usize) -> Self {
        Level { before: before as u16, low: low as u16 }
    }
}

impl Record {
    /// With room for so many blocks.
    pub(super) fn new(blocks: usize) -> Self {
        // Two more follow the last one.
        Record { blocks: Vec::with_capacity(blocks + 2), levels: Vec::with_capacity(blocks + 2), torn: false }
    }

    /// The next block, of which `length` bytes are there, and where in it the container ends.
    #[inline(always)]
    pub(super) fn block(&mut self, masks: Masks, level: Level, length: usize, end: Option<usize>) {
        if self.torn {
            return;
        }
        let masks = match end {
            None if length < BLOCK => {
                *self = Record { torn: true, ..Record::new(0) };
                return;
            }
            None => masks,
            // What follows the container is not its own.
            Some(end) => masks.up_to(end),
        };
        self.blocks.push(masks);
        self.levels.push(level);
    }

    /// All of it, if it is a container of this length.
    pub(super) fn marks(mut self, length: usize) -> Option<Marks> {
        if self.torn || self.blocks.len() != length.div_ceil(BLOCK) {
            return None;
        }
        let blocks = length / BLOCK + 2;
        self.blocks.resize(blocks, Masks::default());
        self.levels.resize(blocks, Level::default());
        Some(Marks { blocks: self.blocks, stray: None, levels: self.levels })
    }
}

impl Masks {
    /// The bits below `end`, which is at most 64.
    fn up_to(self, end: usize) -> Self {
        let below = if end < BLOCK { (1 << end) - 1 } else { u64::MAX };
        Masks {
            quote: self.quote & below,
            backslash: self.backslash & below,
            open: self.open & below,
            close: self.close & below,
        }
    }

    /// After the bracket that brings the depth, `depth` before the bits of `from`, down to `level`.
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
    /// The position after the container whose opening bracket is at `at`, where the depths are known.
    pub(super) fn level_end(&self, at: usize) -> Option<usize> {
        let (first, bit) = (at / BLOCK, at % BLOCK);
        let (masks, before) = (self.blocks.get(first)?, self.levels.get(first)?.before);
        if masks.open >> bit & 1 == 0 {
            return None;
        }
        let below = (1_u64 << bit) - 1;
        let opened = u32::from(before) + (masks.open & below).count_ones();
        let level = opened.checked_sub((masks.close & below).count_ones())?;
        if let Some(end) = masks.end(!below, level, level) {
            return Some(first * BLOCK + end);
        }
        let later = self.levels.get(first + 1..)?;
        let last = first + 1 + later.iter().position(|later| u32::from(later.low) <= level)?;
        let end = self.blocks.get(last)?.end(u64::MAX, u32::from(self.levels.get(last)?.before), level)?;
        Some(last * BLOCK + end)
    }
}
