//! The structural marks of JSON texts as data: the quotes and brackets of each block of 64 bytes. `json::scan` computes
//! them. Splitting passes them on with the objects, so that no object is scanned twice. Memory: five eighths of the text.

mod item_marks;

pub(crate) use item_marks::{BatchMarks, ItemMarks};

/// The size of a block in bytes, which is the number of bits of a mask.
pub const BLOCK: usize = 64;

/// The positions of the relevant bytes in a block. Bit i is byte i.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Masks {
    /// `"`
    pub quote: u64,
    /// `\`
    pub backslash: u64,
    /// `{` and `[`
    pub open: u64,
    /// `}` and `]`
    pub close: u64,
}

/// The unescaped quotes, the brackets outside of strings, and their depth.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Block {
    /// The masks of the block. They end before a backslash outside of a string.
    pub masks: Masks,
    /// The depth, if a scan has recorded it.
    pub(crate) level: BlockDepth,
}

/// The depth at the start of a block, and a lower bound of the depth in the block. Both are unknown where they do not fit.
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
    pub(crate) fn new(before: usize, close: u32) -> Self {
        match before < usize::from(u16::MAX) {
            true => BlockDepth { before: before as u16, low: (before as u16).saturating_sub(close as u16) },
            false => BlockDepth::default(),
        }
    }
}

impl Masks {
    /// Returns the bits below `end`, which is at most 64.
    #[inline]
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
    #[inline]
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
    /// Removes and returns the blocks before `at`. Reserves the same space for the next ones.
    pub(crate) fn cut(&mut self, at: usize) -> Marks {
        let mut rest = Vec::with_capacity(self.blocks.len());
        rest.extend(self.blocks.drain(at.min(self.blocks.len())..));
        Marks { blocks: std::mem::replace(&mut self.blocks, rest) }
    }

    /// Appends the next block, and the position in it at which the container ends. Later bytes do not belong to the
    /// container.
    #[inline(always)]
    pub(crate) fn push(&mut self, masks: Masks, level: BlockDepth, end: Option<usize>) {
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

/// Returns the position after the container whose opening bracket is at `at`, or none if the depths are unknown. The scan
/// that recorded them has matched the brackets.
#[inline]
pub(crate) fn level_end(blocks: &[Block], at: usize) -> Option<usize> {
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
