//! The interface of the classifiers that compute the masks of a block. Keeps no state.

use crate::marks::{BLOCK, Masks};

/// The brackets of some blocks, packed without gaps, the first one in the lowest bit. At most 64.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Gathered {
    /// 1 means an opening bracket.
    pub open: u64,
    /// 1 means `{` or `}`.
    pub curly: u64,
    /// The number of brackets.
    pub count: u32,
}

/// The open brackets, at most 64.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Brackets {
    /// Their kinds, the innermost in the lowest bit: 1 means `{`.
    pub kinds: u64,
    /// The number of open brackets.
    pub depth: usize,
}

/// Computes the masks of a block. A value of an implementing type proves that the processor has its instructions.
pub trait Classify: Copy {
    /// Returns the masks of one block.
    fn classify(self, block: &[u8; BLOCK]) -> Masks;

    /// Returns the xor of bits 0 to i in each bit i. Applied to quotes, it marks the bytes of strings, including the
    /// opening quote and excluding the closing one.
    fn prefix_xor(self, bits: u64) -> u64;

    /// Whether the implementation can fold many brackets at once. Otherwise they are matched one by one.
    const FOLDS: bool = false;

    /// Packs the brackets at the bits of `all`, of which those in `open` are opening ones.
    #[inline(always)]
    fn gather(self, _block: &[u8; BLOCK], _all: u64, _open: u64) -> Gathered {
        Gathered::default()
    }

    /// Applies opening and closing brackets to the open ones. Returns none if a bracket closes that is not among them,
    /// or if kinds do not match. At most 64 may be open at any time.
    #[inline(always)]
    fn fold(self, _gathered: Gathered, _open: Brackets) -> Option<Brackets> {
        None
    }
}
