//! The block scanner: finds where a container ends, 64 bytes at a time, without looking at what is in it.
//!
//! [`Skip`] is all that callers see. What a block looks like is asked of a [`Classify`]; the portable one here is plain
//! arithmetic on 64-bit words, and another one (AVX2, NEON) takes its place without a change elsewhere.
//! Memory: the kinds of the open brackets, one bit each. It checks strings, matching brackets and depth, nothing else.

use crate::{Error, MAX_DEPTH};

/// One block: as many bytes as a mask has bits.
pub const BLOCK: usize = 64;

/// Where the bytes that matter are in a block; bit i is byte i.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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

/// Turns a block into masks.
pub trait Classify {
    /// The masks of one block.
    fn classify(block: &[u8; BLOCK]) -> Masks;
}

/// The classifier that runs everywhere: eight bytes at a time in a 64-bit word.
#[derive(Debug, Clone, Copy)]
pub struct Portable;

/// Steps over one container, resumably: it may end in a later chunk than it began in.
#[derive(Debug, Clone)]
pub struct Skip {
    /// Kinds of the open brackets, one bit each: 1 = `{`.
    kinds: [u64; MAX_DEPTH / 64],
    depth: usize,
    /// All ones while inside a string.
    in_string: u64,
    /// 1 if the first byte to come is escaped.
    escaped: u64,
}

const LOW: u64 = 0x0101_0101_0101_0101;
const SEVEN: u64 = 0x7f7f_7f7f_7f7f_7f7f;

impl Classify for Portable {
    #[inline(always)]
    fn classify(block: &[u8; BLOCK]) -> Masks {
        let mut masks = Masks {
            quote: 0,
            backslash: 0,
            open: 0,
            close: 0,
        };
        let (words, _) = block.as_chunks::<8>();
        for (i, word) in words.iter().enumerate() {
            let word = u64::from_le_bytes(*word);
            // `[` and `{`, `]` and `}` differ in this one bit, and nothing else folds onto them.
            let folded = word | (LOW << 5);
            masks.quote |= equal(word, b'"') << (i * 8);
            masks.backslash |= equal(word, b'\\') << (i * 8);
            masks.open |= equal(folded, b'{') << (i * 8);
            masks.close |= equal(folded, b'}') << (i * 8);
        }
        masks
    }
}

/// Bit i of the result: byte i of `word` is `byte`.
#[inline(always)]
fn equal(word: u64, byte: u8) -> u64 {
    let differs = word ^ (LOW.wrapping_mul(u64::from(byte)));
    // The top bit of each byte is 0 where the byte is 0; no carry crosses bytes.
    let nonzero = ((differs & SEVEN).wrapping_add(SEVEN)) | differs;
    let zero = (!nonzero >> 7) & LOW;
    // Gathers bit 0 of byte i into bit 56 + i.
    zero.wrapping_mul(0x0102_0408_1020_4080) >> 56
}

impl Default for Skip {
    fn default() -> Self {
        Skip::new()
    }
}

impl Skip {
    /// A scan that is about to see an opening bracket.
    pub fn new() -> Self {
        Skip {
            kinds: [0; MAX_DEPTH / 64],
            depth: 0,
            in_string: 0,
            escaped: 0,
        }
    }

    /// Scans on from `from`, which is the opening bracket at first and the end of what was scanned later. Returns the
    /// position after the closing bracket, or `None` if all bytes were used up inside the container.
    pub fn run(&mut self, bytes: &[u8], from: usize) -> Result<Option<usize>, Error> {
        self.run_with::<Portable>(bytes, from)
    }

    #[inline(always)]
    fn run_with<C: Classify>(&mut self, bytes: &[u8], from: usize) -> Result<Option<usize>, Error> {
        let mut at = from;
        let mut rest = bytes.get(from..).unwrap_or_default();
        while let Some((block, after)) = rest.split_first_chunk::<BLOCK>() {
            if let Some(end) = self.block::<C>(block, BLOCK, at)? {
                return Ok(Some(end));
            }
            at += BLOCK;
            rest = after;
        }
        if rest.is_empty() {
            return Ok(None);
        }
        // Blanks change nothing after the last byte.
        let mut block = [b' '; BLOCK];
        for (to, byte) in block.iter_mut().zip(rest) {
            *to = *byte;
        }
        self.block::<C>(&block, rest.len(), at)
    }

    /// One block, of which `length` bytes are real, at position `at`.
    #[inline(always)]
    fn block<C: Classify>(
        &mut self,
        block: &[u8; BLOCK],
        length: usize,
        at: usize,
    ) -> Result<Option<usize>, Error> {
        let masks = C::classify(block);
        let quotes = if masks.backslash | self.escaped == 0 {
            masks.quote
        } else {
            masks.quote & !self.escapes(masks.backslash, length)
        };
        let in_string = prefix_xor(quotes) ^ self.in_string;
        self.in_string = ((in_string as i64) >> 63) as u64;
        let stray = masks.backslash & !in_string;
        let mut brackets = (masks.open | masks.close) & !in_string;
        if stray != 0 {
            // An error, unless the container ends before it: what follows the container is not ours to judge.
            brackets &= (stray & stray.wrapping_neg()).wrapping_sub(1);
        }
        while brackets != 0 {
            let i = brackets.trailing_zeros();
            brackets &= brackets - 1;
            if self.bracket(block, masks, i, at)? {
                return Ok(Some(at + i as usize + 1));
            }
        }
        if stray != 0 {
            return Err(Error::malformed(
                at + stray.trailing_zeros() as usize,
                "a backslash outside a string",
            ));
        }
        Ok(None)
    }

    /// The bracket at bit `i` opens or closes; true if it closes the container.
    #[inline(always)]
    fn bracket(
        &mut self,
        block: &[u8; BLOCK],
        masks: Masks,
        i: u32,
        at: usize,
    ) -> Result<bool, Error> {
        let curly = u64::from(block.get(i as usize).is_some_and(|byte| byte & 0x20 != 0));
        let offset = at + i as usize;
        if masks.open >> i & 1 == 1 {
            let Some(word) = self.kinds.get_mut(self.depth / 64) else {
                return Err(Error::TooDeep { offset });
            };
            let bit = self.depth % 64;
            *word = *word & !(1 << bit) | curly << bit;
            self.depth += 1;
            return Ok(false);
        }
        let Some(depth) = self.depth.checked_sub(1) else {
            return Err(Error::malformed(
                offset,
                "a bracket closes that none opened",
            ));
        };
        let kind = self
            .kinds
            .get(depth / 64)
            .map_or(0, |word| word >> (depth % 64) & 1);
        if kind != curly {
            return Err(Error::malformed(offset, "brackets do not match"));
        }
        self.depth = depth;
        Ok(depth == 0)
    }

    /// The bytes of a block that a backslash escapes, by the carry of a subtraction: a run of backslashes escapes what
    /// follows it if its length is odd (simdjson's method).
    #[inline(always)]
    fn escapes(&mut self, backslash: u64, length: usize) -> u64 {
        const ODD: u64 = 0xaaaa_aaaa_aaaa_aaaa;
        let potential = backslash & !self.escaped;
        let shifted = (potential << 1) | ODD;
        let series = shifted.wrapping_sub(potential) ^ ODD;
        let escaped = series ^ (backslash | self.escaped);
        let escape = series & backslash;
        self.escaped = escape >> (length.wrapping_sub(1) & 63) & 1;
        escaped
    }
}

/// Bit i of the result is the xor of bits 0 to i: between an opening quote (included) and its closing one (not).
#[inline(always)]
fn prefix_xor(mut bits: u64) -> u64 {
    bits ^= bits << 1;
    bits ^= bits << 2;
    bits ^= bits << 4;
    bits ^= bits << 8;
    bits ^= bits << 16;
    bits ^ bits << 32
}

#[cfg(test)]
mod tests;
