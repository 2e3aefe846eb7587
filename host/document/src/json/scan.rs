//! The block scanner: finds where a container ends, 64 bytes at a time, without looking at what is in it.
//!
//! [`Skip`] is all that callers see. What a block looks like is asked of a [`Classify`]: vector instructions where the
//! processor has them, which is asked once, and [`Portable`] elsewhere. All of them give the same results.
//! Memory: the kinds of the open brackets, one bit each. It checks strings, matching brackets and depth, nothing else.

#[cfg(target_arch = "x86_64")]
pub mod avx2;
#[cfg(target_arch = "aarch64")]
pub mod neon;
mod portable;

pub use portable::Portable;

#[cfg(target_arch = "x86_64")]
use avx2::Avx2 as Vector;
#[cfg(target_arch = "aarch64")]
use neon::Neon as Vector;

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

/// The brackets that are open, at most 64 of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Brackets {
    /// Their kinds, the innermost lowest: 1 = `{`.
    pub kinds: u64,
    /// How many there are.
    pub depth: usize,
}

/// Turns a block into masks. A value of it proves that what it is made of is there.
pub trait Classify: Copy {
    /// The masks of one block.
    fn classify(self, block: &[u8; BLOCK]) -> Masks;

    /// Bit i of the result is the xor of bits 0 to i: between an opening quote (included) and its closing one (not).
    fn prefix_xor(self, bits: u64) -> u64;

    /// Opens and closes all brackets of a block at once: `all` of them, those that `open`, after `brackets`. None if the
    /// first of what was open is closed, if kinds do not match, or if one after another is the better way: then they are
    /// looked at in turn. At most 64 may be open at any time.
    #[inline(always)]
    fn fold(self, _block: &[u8; BLOCK], _all: u64, _open: u64, _brackets: Brackets) -> Option<Brackets> {
        None
    }
}

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

/// What this processor has.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
static VECTOR: std::sync::LazyLock<Option<Vector>> = std::sync::LazyLock::new(Vector::detect);

/// The position after the container whose opening bracket is at `at`; none if the bytes end before it.
#[inline]
pub fn container_end(bytes: &[u8], at: usize) -> Result<Option<usize>, Error> {
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    if let Some(vector) = *VECTOR {
        return match vector.flat_end(bytes, at) {
            0 => vector.container_end(bytes, at),
            end => Ok(Some(end)),
        };
    }
    Skip::new().run_with(Portable, bytes, at)
}

/// The same for a container without another one and without a backslash in it, which most are; 0 if it is none, or if
/// that is not known.
#[inline(always)]
pub fn flat_end_with<C: Classify>(by: C, bytes: &[u8], mut at: usize) -> usize {
    let mut rest = bytes.get(at..).unwrap_or_default();
    let closing = match rest.first() {
        Some(open @ (b'{' | b'[')) => open + 2,
        _ => return 0,
    };
    let (mut string, mut counting) = (0, !1);
    while let Some((block, after)) = rest.split_first_chunk::<BLOCK>() {
        let masks = by.classify(block);
        if masks.backslash != 0 {
            return 0;
        }
        let in_string = by.prefix_xor(masks.quote) ^ string;
        let brackets = (masks.open | masks.close) & !in_string & counting;
        if brackets != 0 {
            let i = brackets.trailing_zeros() as usize;
            return if block.get(i) == Some(&closing) { at + i + 1 } else { 0 };
        }
        string = ((in_string as i64) >> 63) as u64;
        counting = !0;
        at += BLOCK;
        rest = after;
    }
    0
}

/// Where the string goes on at `at`, not after a backslash: the position of its closing quote, and whether there was no
/// backslash before it; none if the bytes end before it.
#[inline]
pub fn string_end(bytes: &[u8], at: usize) -> Option<(usize, bool)> {
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    if let Some(vector) = *VECTOR {
        return vector.string_end(bytes, at);
    }
    string_end_with(Portable, bytes, at)
}

/// The same by a given classifier.
#[inline(always)]
pub fn string_end_with<C: Classify>(by: C, bytes: &[u8], mut at: usize) -> Option<(usize, bool)> {
    let mut rest = bytes.get(at..).unwrap_or_default();
    let (mut escaped, mut plain) = (0, true);
    while !rest.is_empty() {
        let (masks, length) = match rest.first_chunk::<BLOCK>() {
            Some(block) => (by.classify(block), BLOCK),
            None => (by.classify(&padded(rest)), rest.len()),
        };
        let mut quotes = masks.quote;
        if masks.backslash | escaped != 0 {
            quotes &= !escapes(masks.backslash, &mut escaped, length);
        }
        // A block without a quote has all its backslashes before it.
        plain &= masks.backslash & (quotes & quotes.wrapping_neg()).wrapping_sub(1) == 0;
        if quotes != 0 {
            return Some((at + quotes.trailing_zeros() as usize, plain));
        }
        at += length;
        rest = rest.get(length..).unwrap_or_default();
    }
    None
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
        #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
        if let Some(vector) = *VECTOR {
            return vector.run(self, bytes, from);
        }
        self.run_with(Portable, bytes, from)
    }

    /// The same by a given classifier: tests compare them.
    #[inline(always)]
    pub fn run_with<C: Classify>(&mut self, by: C, bytes: &[u8], from: usize) -> Result<Option<usize>, Error> {
        let mut at = from;
        let mut rest = bytes.get(from..).unwrap_or_default();
        while let Some((block, after)) = rest.split_first_chunk::<BLOCK>() {
            if let Some(end) = self.block(by, block, BLOCK, at)? {
                return Ok(Some(end));
            }
            at += BLOCK;
            rest = after;
        }
        if rest.is_empty() {
            return Ok(None);
        }
        self.block(by, &padded(rest), rest.len(), at)
    }

    /// One block, of which `length` bytes are real, at position `at`.
    #[inline(always)]
    fn block<C: Classify>(
        &mut self,
        by: C,
        block: &[u8; BLOCK],
        length: usize,
        at: usize,
    ) -> Result<Option<usize>, Error> {
        let masks = by.classify(block);
        let quotes = if masks.backslash | self.escaped == 0 {
            masks.quote
        } else {
            masks.quote & !escapes(masks.backslash, &mut self.escaped, length)
        };
        let in_string = by.prefix_xor(quotes) ^ self.in_string;
        self.in_string = ((in_string as i64) >> 63) as u64;
        let stray = masks.backslash & !in_string;
        let mut brackets = (masks.open | masks.close) & !in_string;
        if stray != 0 {
            // An error, unless the container ends before it: what follows the container is not ours to judge.
            brackets &= (stray & stray.wrapping_neg()).wrapping_sub(1);
        } else if self.depth > 0 {
            if brackets == 0 {
                return Ok(None);
            }
            let open = masks.open & brackets;
            if self.depth + open.count_ones() as usize <= 64
                && let Some(after) = by.fold(block, brackets, open, Brackets { kinds: self.kinds, depth: self.depth })
            {
                (self.kinds, self.depth) = (after.kinds, after.depth);
                return Ok(None);
            }
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
                    spill(&mut self.outer, kinds, depth, offset)?;
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
}

/// Another 64 brackets are open.
#[cold]
fn spill(outer: &mut Vec<u64>, kinds: u64, depth: usize, offset: usize) -> Result<(), Error> {
    if depth >= MAX_DEPTH {
        return Err(Error::TooDeep { offset });
    }
    outer.push(kinds);
    Ok(())
}

/// The bytes of a block that a backslash escapes, by the carry of a subtraction: a run of backslashes escapes what
/// follows it if its length is odd (simdjson's method). `escaped` is 1 if the block before escapes its first byte.
#[inline(always)]
fn escapes(backslash: u64, escaped: &mut u64, length: usize) -> u64 {
    const ODD: u64 = 0xaaaa_aaaa_aaaa_aaaa;
    let potential = backslash & !*escaped;
    let shifted = (potential << 1) | ODD;
    let series = shifted.wrapping_sub(potential) ^ ODD;
    let bytes = series ^ (backslash | *escaped);
    let escape = series & backslash;
    *escaped = escape >> (length.wrapping_sub(1) & 63) & 1;
    bytes
}

/// Up to 64 bytes as a block; blanks change nothing after the last byte.
#[inline(always)]
fn padded(bytes: &[u8]) -> [u8; BLOCK] {
    let mut block = [b' '; BLOCK];
    for (to, byte) in block.iter_mut().zip(bytes) {
        *to = *byte;
    }
    block
}

#[cfg(test)]
mod tests;
