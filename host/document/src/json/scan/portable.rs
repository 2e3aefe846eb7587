//! The classifier for all processors: arithmetic on 64-bit words. Keeps no state.

use super::{BLOCK, Classify, Masks};

/// The classifier for all processors.
#[derive(Debug, Clone, Copy)]
pub struct Portable;

impl Classify for Portable {
    #[inline(always)]
    fn classify(self, block: &[u8; BLOCK]) -> Masks {
        // Most blocks have no backslash, and this check costs less than a mask.
        let backslashes = block.iter().fold(false, |found, byte| found | (*byte == b'\\'));
        // `[` and `{` differ only in this bit, like `]` and `}`. With the bit set, no other byte equals them.
        Masks {
            quote: mask(block, |byte| byte == b'"'),
            backslash: if backslashes { mask(block, |byte| byte == b'\\') } else { 0 },
            open: mask(block, |byte| byte | 0x20 == b'{'),
            close: mask(block, |byte| byte | 0x20 == b'}'),
        }
    }

    #[inline(always)]
    fn prefix_xor(self, mut bits: u64) -> u64 {
        bits ^= bits << 1;
        bits ^= bits << 2;
        bits ^= bits << 4;
        bits ^= bits << 8;
        bits ^= bits << 16;
        bits ^ bits << 32
    }
}

/// Returns a mask in which bit i means that `is` holds for byte i. The compiler vectorises the comparison. A
/// multiplication then collects eight bits at a time, by moving bit 0 of byte i to bit 56 + i.
#[inline(always)]
fn mask(block: &[u8; BLOCK], is: impl Fn(u8) -> bool) -> u64 {
    let flags = block.map(|byte| u8::from(is(byte)));
    let (words, _) = flags.as_chunks::<8>();
    words.iter().enumerate().fold(0, |mask, (i, word)| {
        mask | (u64::from_le_bytes(*word).wrapping_mul(0x0102_0408_1020_4080) >> 56) << (i * 8)
    })
}
