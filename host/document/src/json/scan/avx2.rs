#![allow(
    unsafe_code,
    reason = "vector instructions: each use has a SAFETY comment, and tests compare them with the portable classifier"
)]
//! The classifier for x86-64 with AVX2. A mask takes two compares of 32 bytes, the in-string mask one carry-less
//! multiplication, and the brackets of a block are matched at once. Keeps no state.
//!
//! INVARIANT: an [`Avx2`] exists only where its instructions do. Only [`Avx2::detect`] creates one.

use super::{
    BLOCK, Block, Brackets, Classify, Gathered, Marks, Masks, Reached, Skip, nested_end_with, string_end_with,
};
use crate::Error;
use std::arch::x86_64::{
    __m256i, _bzhi_u64, _mm_clmulepi64_si128, _mm_cvtsi128_si64, _mm_set_epi64x, _mm_set1_epi8, _mm256_cmpeq_epi8,
    _mm256_loadu_si256, _mm256_movemask_epi8, _mm256_or_si256, _mm256_set1_epi8, _mm256_slli_epi16, _pext_u64,
};

/// The proof that this machine has the instructions.
#[derive(Debug, Clone, Copy)]
pub struct Avx2(());

impl Avx2 {
    /// Checks the processor.
    pub fn detect() -> Option<Avx2> {
        let has = is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("pclmulqdq")
            && is_x86_feature_detected!("bmi1")
            && is_x86_feature_detected!("bmi2")
            && is_x86_feature_detected!("popcnt")
            && is_x86_feature_detected!("lzcnt");
        has.then_some(Avx2(()))
    }

    /// [`Skip::run_with`], compiled for these instructions.
    #[inline]
    pub(super) fn run(
        self,
        skip: &mut Skip,
        bytes: &[u8],
        from: usize,
        keep: Option<&mut Marks>,
    ) -> Result<Reached, Error> {
        // SAFETY: the function only requires its target features, and `self` proves that they exist.
        unsafe { run(self, skip, bytes, from, keep) }
    }

    /// [`Marks::with`], compiled for these instructions.
    #[inline]
    pub(super) fn marks(self, bytes: &[u8]) -> Marks {
        // SAFETY: as above.
        unsafe { marks(self, bytes) }
    }

    /// [`nested_end_with`], compiled for these instructions.
    #[inline]
    pub(super) fn nested_end(self, bytes: &[u8], blocks: &[Block], at: usize) -> Result<usize, Error> {
        // SAFETY: as above.
        unsafe { nested_end(self, bytes, blocks, at) }
    }

    /// [`string_end_with`], compiled for these instructions.
    #[inline]
    pub(super) fn string_end(self, bytes: &[u8], at: usize) -> Option<(usize, bool)> {
        // SAFETY: as above.
        unsafe { string_end(self, bytes, at) }
    }
}

impl Classify for Avx2 {
    #[inline(always)]
    fn classify(self, block: &[u8; BLOCK]) -> Masks {
        // SAFETY: the function only requires its target features, and `self` proves that they exist.
        unsafe { classify(block) }
    }

    #[inline(always)]
    fn prefix_xor(self, bits: u64) -> u64 {
        // SAFETY: as above.
        unsafe { prefix_xor(bits) }
    }

    const FOLDS: bool = true;

    #[inline(always)]
    fn gather(self, block: &[u8; BLOCK], all: u64, open: u64) -> Gathered {
        // SAFETY: as above.
        unsafe { gather(block, all, open) }
    }

    #[inline(always)]
    fn fold(self, gathered: Gathered, open: Brackets) -> Option<Brackets> {
        // SAFETY: as above.
        unsafe { fold(gathered, open) }
    }
}

#[target_feature(enable = "avx2,pclmulqdq,bmi1,bmi2,popcnt,lzcnt")]
fn run(this: Avx2, skip: &mut Skip, bytes: &[u8], from: usize, keep: Option<&mut Marks>) -> Result<Reached, Error> {
    skip.run_with(this, bytes, from, keep)
}

#[target_feature(enable = "avx2,pclmulqdq,bmi1,bmi2,popcnt,lzcnt")]
fn marks(this: Avx2, bytes: &[u8]) -> Marks {
    Marks::with(this, bytes)
}

#[target_feature(enable = "avx2,pclmulqdq,bmi1,bmi2,popcnt,lzcnt")]
fn nested_end(this: Avx2, bytes: &[u8], blocks: &[Block], at: usize) -> Result<usize, Error> {
    nested_end_with(this, bytes, blocks, at)
}

#[target_feature(enable = "avx2,pclmulqdq,bmi1,bmi2,popcnt,lzcnt")]
fn string_end(this: Avx2, bytes: &[u8], at: usize) -> Option<(usize, bool)> {
    string_end_with(this, bytes, at)
}

#[inline]
#[target_feature(enable = "avx2")]
fn halves(block: &[u8; BLOCK]) -> (__m256i, __m256i) {
    let at = block.as_ptr().cast::<__m256i>();
    // SAFETY: `block` is 64 readable bytes, so 32 bytes can be read at its start and 32 after these. The unaligned load
    // needs no alignment, and any bytes are a valid vector.
    unsafe { (_mm256_loadu_si256(at), _mm256_loadu_si256(at.add(1))) }
}

/// Returns the top bits of all 64 bytes.
#[inline]
#[target_feature(enable = "avx2")]
fn tops(low: __m256i, high: __m256i) -> u64 {
    u64::from(_mm256_movemask_epi8(low) as u32) | u64::from(_mm256_movemask_epi8(high) as u32) << 32
}

#[inline]
#[target_feature(enable = "avx2")]
fn equal(low: __m256i, high: __m256i, byte: u8) -> u64 {
    let byte = _mm256_set1_epi8(byte as i8);
    tops(_mm256_cmpeq_epi8(low, byte), _mm256_cmpeq_epi8(high, byte))
}

#[inline]
#[target_feature(enable = "avx2")]
fn classify(block: &[u8; BLOCK]) -> Masks {
    let (low, high) = halves(block);
    // `[` and `{` differ only in this bit, like `]` and `}`. With the bit set, no other byte equals them.
    let bit = _mm256_set1_epi8(0x20);
    let (low_folded, high_folded) = (_mm256_or_si256(low, bit), _mm256_or_si256(high, bit));
    Masks {
        quote: equal(low, high, b'"'),
        backslash: equal(low, high, b'\\'),
        open: equal(low_folded, high_folded, b'{'),
        close: equal(low_folded, high_folded, b'}'),
    }
}

/// Carry-less multiplication by all ones computes the xor of all bits up to each bit.
#[inline]
#[target_feature(enable = "pclmulqdq")]
fn prefix_xor(bits: u64) -> u64 {
    let product = _mm_clmulepi64_si128(_mm_set_epi64x(0, bits as i64), _mm_set1_epi8(-1), 0);
    _mm_cvtsi128_si64(product) as u64
}

#[inline]
#[target_feature(enable = "avx2,bmi2,popcnt")]
fn gather(block: &[u8; BLOCK], all: u64, open: u64) -> Gathered {
    let (low, high) = halves(block);
    // Shifts bit 5, which distinguishes `{` from `[`, to the top of its byte.
    let curly = tops(_mm256_slli_epi16::<2>(low), _mm256_slli_epi16::<2>(high));
    Gathered { open: _pext_u64(open, all), curly: _pext_u64(curly, all), count: all.count_ones() }
}

/// Matches all brackets at once. A pair without brackets between is two adjacent bits. Such pairs are compared and
/// removed until none is left, which takes as many rounds as the nesting is deep. Closing brackets for previously open
/// ones remain, followed by opening ones.
#[inline]
#[target_feature(enable = "avx2,bmi1,bmi2,popcnt,lzcnt")]
fn fold(gathered: Gathered, brackets: Brackets) -> Option<Brackets> {
    let Gathered { mut open, mut curly, mut count } = gathered;
    loop {
        // Selects opening brackets whose next bracket is a closing one. The bits above the last bracket are zero, and
        // are excluded.
        let pairs = open & !(open >> 1) & (_bzhi_u64(u64::MAX, count) >> 1);
        if pairs == 0 {
            break;
        }
        if (curly ^ curly >> 1) & pairs != 0 {
            return None;
        }
        let left = _bzhi_u64(!(pairs | pairs << 1), count);
        count = left.count_ones();
        open = _pext_u64(open, left);
        curly = _pext_u64(curly, left);
    }
    let closing = open.trailing_zeros().min(count);
    let opening = count - closing;
    if closing as usize >= brackets.depth || _bzhi_u64(curly ^ brackets.kinds, closing) != 0 {
        return None;
    }
    // INVARIANT: the caller ensures that at most 64 brackets are open at any time, and depth is more than `closing`
    // here, so that no shift exceeds 63. The first opened bracket is the outermost. Reversed, it is the highest bit.
    let opened = (curly >> closing).reverse_bits() >> 1 >> (63 - opening);
    let depth = brackets.depth - closing as usize + opening as usize;
    Some(Brackets { kinds: brackets.kinds >> closing << opening | opened, depth })
}
