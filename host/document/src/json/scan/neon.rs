#![allow(
    unsafe_code,
    reason = "vector instructions: each use has a SAFETY comment, and tests compare them with the portable classifier"
)]
//! The classifier for aarch64. A mask takes four compares of 16 bytes, combined by pairwise additions. The in-string
//! mask takes one carry-less multiplication. Keeps no state.
//!
//! INVARIANT: a [`Neon`] exists only where its instructions do. Only [`Neon::detect`] creates one.

use super::{BLOCK, Block, Classify, Marks, Masks, Reached, Skip, nested_end_with, string_end_with};
use crate::Error;
use std::arch::{
    aarch64::{
        uint8x16_t, vandq_u8, vceqq_u8, vdupq_n_u8, vgetq_lane_u64, vld1q_u8, vmull_p64, vorrq_u8, vpaddq_u8,
        vreinterpretq_u64_u8,
    },
    is_aarch64_feature_detected,
};

/// The proof that this machine has the instructions.
#[derive(Debug, Clone, Copy)]
pub struct Neon(());

impl Neon {
    /// Checks the processor.
    pub fn detect() -> Option<Neon> {
        (is_aarch64_feature_detected!("neon") && is_aarch64_feature_detected!("aes")).then_some(Neon(()))
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

impl Classify for Neon {
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
}

#[target_feature(enable = "neon,aes")]
fn run(this: Neon, skip: &mut Skip, bytes: &[u8], from: usize, keep: Option<&mut Marks>) -> Result<Reached, Error> {
    skip.run_with(this, bytes, from, keep)
}

#[target_feature(enable = "neon,aes")]
fn marks(this: Neon, bytes: &[u8]) -> Marks {
    Marks::with(this, bytes)
}

#[target_feature(enable = "neon,aes")]
fn nested_end(this: Neon, bytes: &[u8], blocks: &[Block], at: usize) -> Result<usize, Error> {
    nested_end_with(this, bytes, blocks, at)
}

#[target_feature(enable = "neon,aes")]
fn string_end(this: Neon, bytes: &[u8], at: usize) -> Option<(usize, bool)> {
    string_end_with(this, bytes, at)
}

#[inline]
#[target_feature(enable = "neon")]
fn load(bytes: &[u8; 16]) -> uint8x16_t {
    // SAFETY: `bytes` is 16 readable bytes. The load needs no alignment, and any bytes are a valid vector.
    unsafe { vld1q_u8(bytes.as_ptr()) }
}

#[inline]
#[target_feature(enable = "neon")]
fn quarters(block: &[u8; BLOCK]) -> [uint8x16_t; 4] {
    let (quarters, _) = block.as_chunks::<16>();
    match quarters {
        [a, b, c, d] => [load(a), load(b), load(c), load(d)],
        // INVARIANT: a block is four times 16 bytes.
        _ => [vdupq_n_u8(0); 4],
    }
}

/// Returns a mask in which bit i means that byte i equals `byte`. Each equal byte keeps one bit, by its position modulo
/// eight. Adding neighbours combines eight bytes to one.
#[inline]
#[target_feature(enable = "neon")]
fn equal(quarters: [uint8x16_t; 4], byte: u8) -> u64 {
    let places = load(&[1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128]);
    let byte = vdupq_n_u8(byte);
    let [a, b, c, d] = quarters.map(|quarter| vandq_u8(vceqq_u8(quarter, byte), places));
    let sums = vpaddq_u8(vpaddq_u8(a, b), vpaddq_u8(c, d));
    vgetq_lane_u64::<0>(vreinterpretq_u64_u8(vpaddq_u8(sums, sums)))
}

#[inline]
#[target_feature(enable = "neon")]
fn classify(block: &[u8; BLOCK]) -> Masks {
    let bytes = quarters(block);
    // `[` and `{` differ only in this bit, like `]` and `}`. With the bit set, no other byte equals them.
    let folded = bytes.map(|quarter| vorrq_u8(quarter, vdupq_n_u8(0x20)));
    Masks {
        quote: equal(bytes, b'"'),
        backslash: equal(bytes, b'\\'),
        open: equal(folded, b'{'),
        close: equal(folded, b'}'),
    }
}

/// Carry-less multiplication by all ones computes the xor of all bits up to each bit.
#[inline]
#[target_feature(enable = "neon,aes")]
fn prefix_xor(bits: u64) -> u64 {
    vmull_p64(bits, u64::MAX) as u64
}
