//! Strings across blocks: which quotes are unescaped, and where a string ends. The state is two words.

use super::{BLOCK, Classify, Masks};

pub(super) const STRAY: &str = "a backslash outside a string";

/// The state of strings between two blocks.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct StringState {
    /// All ones inside a string.
    pub(super) inside: u64,
    /// 1 if the next byte is escaped.
    pub(super) escaped: u64,
}

impl StringState {
    /// Returns the masks of the next block: unescaped quotes and brackets outside of strings. The second mask marks
    /// backslashes outside of strings. The masks end before the first of these.
    #[inline(always)]
    pub(super) fn next_masks<C: Classify>(&mut self, by: C, block: &[u8; BLOCK]) -> (Masks, u64) {
        let mut masks = by.classify(block);
        if masks.backslash | self.escaped != 0 {
            masks.quote &= !escapes(masks.backslash, &mut self.escaped);
        }
        let inside = by.prefix_xor(masks.quote) ^ self.inside;
        self.inside = ((inside as i64) >> 63) as u64;
        let stray = masks.backslash & !inside;
        let mut outside = !inside;
        if stray != 0 {
            // The backslash is an error only if the container does not end before it.
            outside &= (stray & stray.wrapping_neg()).wrapping_sub(1);
        }
        masks.open &= outside;
        masks.close &= outside;
        (masks, stray)
    }
}

/// Like [`string_end`](super::string_end), with a given classifier.
#[inline(always)]
pub fn string_end_with<C: Classify>(by: C, bytes: &[u8], mut at: usize) -> Option<(usize, bool)> {
    let mut rest = bytes.get(at..).unwrap_or_default();
    let (mut escaped, mut plain) = (0, true);
    while !rest.is_empty() {
        let masks = match rest.first_chunk::<BLOCK>() {
            Some(block) => by.classify(block),
            None => by.classify(&padded(rest)),
        };
        let mut quotes = masks.quote;
        if masks.backslash | escaped != 0 {
            quotes &= !escapes(masks.backslash, &mut escaped);
        }
        // If a block has no quote, all its backslashes are before the quote.
        plain &= masks.backslash & (quotes & quotes.wrapping_neg()).wrapping_sub(1) == 0;
        if quotes != 0 {
            return Some((at + quotes.trailing_zeros() as usize, plain));
        }
        at += BLOCK;
        rest = rest.get(BLOCK..).unwrap_or_default();
    }
    None
}

/// Returns the bytes of a block that a backslash escapes. A run of backslashes of odd length escapes the next byte,
/// which the carry of a subtraction finds (simdjson's method). `escaped` is 1 if the previous block escapes the first
/// byte.
#[inline(always)]
fn escapes(backslash: u64, escaped: &mut u64) -> u64 {
    const ODD: u64 = 0xaaaa_aaaa_aaaa_aaaa;
    let potential = backslash & !*escaped;
    let shifted = (potential << 1) | ODD;
    let series = shifted.wrapping_sub(potential) ^ ODD;
    let bytes = series ^ (backslash | *escaped);
    let escape = series & backslash;
    *escaped = escape >> (BLOCK - 1);
    bytes
}

/// Pads up to 64 bytes to a block. Spaces after the last byte have no effect.
#[inline(always)]
pub(super) fn padded(bytes: &[u8]) -> [u8; BLOCK] {
    let mut block = [b' '; BLOCK];
    for (to, byte) in block.iter_mut().zip(bytes) {
        *to = *byte;
    }
    block
}
