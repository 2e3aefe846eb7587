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

/// The classifier that runs everywhere.
#[derive(Debug, Clone, Copy)]
pub struct Portable;

/// Steps over one container, resumably: it may end in a later chunk than it began in.
#[derive(Debug, Clone)]
pub struct Skip {
    /// Kinds of the innermost open brackets, one bit each, the innermost lowest: 1 = `{`.
    kinds: u64,
    /// Those of the brackets round them, 64 at a time: mostly none.
    outer: Vec<u64>,
    depth: usize,
    /// All ones while inside a string.
    in_string: u64,
    /// 1 if the first byte to come is escaped.
    escaped: u64,
}

impl Classify for Portable {
    #[inline(always)]
    fn classify(block: &[u8; BLOCK]) -> Masks {
        // Most blocks have no backslash, and seeing that costs less than a mask.
        let backslashes = block.iter().fold(false, |found, byte| found | (*byte == b'\\'));
        // `[` and `{`, `]` and `}` differ in this one bit, and nothing else folds onto them.
        Masks {
            quote: mask(block, |byte| byte == b'"'),
            backslash: if backslashes { mask(block, |byte| byte == b'\\') } else { 0 },
            open: mask(block, |byte| byte | 0x20 == b'{'),
            close: mask(block, |byte| byte | 0x20 == b'}'),
        }
    }
}

/// Bit i of the result: byte i of the block is one of those. Written so that the compiler makes vector instructions of
/// the compare; the bits are then gathered eight at a time, by a multiplication that moves bit 0 of byte i to bit 56 + i.
#[inline(always)]
fn mask(block: &[u8; BLOCK], is: impl Fn(u8) -> bool) -> u64 {
    let flags = block.map(|byte| u8::from(is(byte)));
    let (words, _) = flags.as_chunks::<8>();
    words.iter().enumerate().fold(0, |mask, (i, word)| {
        mask | (u64::from_le_bytes(*word).wrapping_mul(0x0102_0408_1020_4080) >> 56) << (i * 8)
    })
}

impl Default for Skip {
    fn default() -> Self {
        Skip::new()
    }
}

impl Skip {
    /// A scan that is about to see an opening bracket.
    pub fn new() -> Self {
        Skip { kinds: 0, outer: Vec::new(), depth: 0, in_string: 0, escaped: 0 }
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
    fn block<C: Classify>(&mut self, block: &[u8; BLOCK], length: usize, at: usize) -> Result<Option<usize>, Error> {
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
        // In registers while the block lasts.
        let (mut kinds, mut depth) = (self.kinds, self.depth);
        while brackets != 0 {
            let i = brackets.trailing_zeros();
            brackets &= brackets - 1;
            let curly = u64::from(block.get(i as usize).is_some_and(|byte| byte & 0x20 != 0));
            let offset = at + i as usize;
            if masks.open >> i & 1 == 1 {
                if depth % 64 == 0 && depth > 0 {
                    self.spill(kinds, depth, offset)?;
                }
                kinds = kinds << 1 | curly;
                depth += 1;
                continue;
            }
            if depth == 0 || kinds & 1 != curly {
                return Err(Error::malformed(offset, "brackets do not match"));
            }
            depth -= 1;
            kinds >>= 1;
            if depth % 64 == 0 {
                if depth == 0 {
                    self.depth = 0;
                    return Ok(Some(offset + 1));
                }
                kinds = self.outer.pop().unwrap_or_default();
            }
        }
        (self.kinds, self.depth) = (kinds, depth);
        if stray != 0 {
            return Err(Error::malformed(at + stray.trailing_zeros() as usize, "a backslash outside a string"));
        }
        Ok(None)
    }

    /// Another 64 brackets are open.
    #[cold]
    fn spill(&mut self, kinds: u64, depth: usize, offset: usize) -> Result<(), Error> {
        if depth >= MAX_DEPTH {
            return Err(Error::TooDeep { offset });
        }
        self.outer.push(kinds);
        Ok(())
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
