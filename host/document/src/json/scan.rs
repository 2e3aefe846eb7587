//! The block scanner: finds where a container ends, 64 bytes at a time, without looking at what is in it.
//!
//! [`Skip`] steps over a container that comes in pieces; [`Marks`] are for a text that is walked, and are what a [`Skip`]
//! can leave behind. What a block looks like is asked of a [`Classify`]: vector instructions where the processor has
//! them, which is asked once, and [`Portable`] elsewhere. All of them give the same results. Memory: the kinds of the open
//! brackets, one bit each; marks take five eighths of the text. It checks strings, matching brackets and depth, nothing
//! else.

#[cfg(target_arch = "x86_64")]
pub mod avx2;
mod marks;
#[cfg(target_arch = "aarch64")]
pub mod neon;
mod portable;

pub(crate) use marks::blocks;
pub use marks::{Block, Marks, nested_end, nested_end_with};
pub use portable::Portable;

#[cfg(target_arch = "x86_64")]
use avx2::Avx2 as Vector;
#[cfg(target_arch = "aarch64")]
use neon::Neon as Vector;

use crate::{Error, MAX_DEPTH};
use marks::Level;

/// One block: as many bytes as a mask has bits.
pub const BLOCK: usize = 64;

/// Where the bytes that matter are in a block; bit i is byte i.
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

/// Brackets moved together, the first lowest: at most 64.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Gathered {
    /// 1 = opens.
    pub open: u64,
    /// 1 = `{` or `}`.
    pub curly: u64,
    /// How many there are.
    pub count: u32,
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

    /// Whether brackets are folded many at once, and not one after another.
    const FOLDS: bool = false;

    /// `all` brackets of a block, of which some `open`.
    #[inline(always)]
    fn gather(self, _block: &[u8; BLOCK], _all: u64, _open: u64) -> Gathered {
        Gathered::default()
    }

    /// Opens and closes brackets after those that are open. None if the first of these is closed or kinds do not match. At
    /// most 64 may be open at any time.
    #[inline(always)]
    fn fold(self, _gathered: Gathered, _open: Brackets) -> Option<Brackets> {
        None
    }
}

/// Steps over one container, resumably: it may end in a later chunk than it began in.
#[derive(Debug, Clone, Default)]
pub struct Skip {
    /// Kinds of the innermost open brackets, one bit each, the innermost lowest: 1 = `{`.
    kinds: u64,
    /// Those of the brackets round them, 64 at a time: mostly none.
    outer: Vec<u64>,
    depth: usize,
    strings: Strings,
}

/// How far a scan has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reached {
    /// The position after what is stepped over.
    End(usize),
    /// It goes on after the bytes. What is before this position need not be scanned again; from there on, with more.
    More(usize),
}

/// What a block says of the next one.
#[derive(Debug, Clone, Copy, Default)]
struct Strings {
    /// All ones while inside a string.
    inside: u64,
    /// 1 if the first byte to come is escaped.
    escaped: u64,
}

/// Brackets whose depth is known and whose kinds are still to be compared: of the blocks from a position on.
#[derive(Debug)]
struct Later {
    gathered: Gathered,
    /// What was known before the first of those blocks.
    from: usize,
    depth: usize,
    strings: Strings,
}

impl Later {
    /// Nothing yet, from the block at this position on.
    #[inline(always)]
    fn after(skip: &Skip, from: usize) -> Later {
        Later { gathered: Gathered::default(), from, depth: skip.depth, strings: skip.strings }
    }
}

impl Gathered {
    /// Those and then more, at most 64 together.
    #[inline(always)]
    fn append(&mut self, more: Gathered) {
        // 64 are there only if nothing comes.
        self.open |= more.open << (self.count & 63);
        self.curly |= more.curly << (self.count & 63);
        self.count += more.count;
    }
}

const STRAY: &str = "a backslash outside a string";

impl Strings {
    /// The masks of the next block: the quotes that are not escaped, the brackets outside of strings, and as a mask of
    /// their own the backslashes there. What is after one of those is left out.
    #[inline(always)]
    fn leave_out<C: Classify>(&mut self, by: C, block: &[u8; BLOCK]) -> (Masks, u64) {
        let mut masks = by.classify(block);
        if masks.backslash | self.escaped != 0 {
            masks.quote &= !escapes(masks.backslash, &mut self.escaped);
        }
        let inside = by.prefix_xor(masks.quote) ^ self.inside;
        self.inside = ((inside as i64) >> 63) as u64;
        let stray = masks.backslash & !inside;
        let mut outside = !inside;
        if stray != 0 {
            // An error, unless the container ends before it: what follows the container is not ours to judge.
            outside &= (stray & stray.wrapping_neg()).wrapping_sub(1);
        }
        masks.open &= outside;
        masks.close &= outside;
        (masks, stray)
    }
}

/// What this processor has.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
static VECTOR: std::sync::LazyLock<Option<Vector>> = std::sync::LazyLock::new(Vector::detect);

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
        let masks = match rest.first_chunk::<BLOCK>() {
            Some(block) => by.classify(block),
            None => by.classify(&padded(rest)),
        };
        let mut quotes = masks.quote;
        if masks.backslash | escaped != 0 {
            quotes &= !escapes(masks.backslash, &mut escaped);
        }
        // A block without a quote has all its backslashes before it.
        plain &= masks.backslash & (quotes & quotes.wrapping_neg()).wrapping_sub(1) == 0;
        if quotes != 0 {
            return Some((at + quotes.trailing_zeros() as usize, plain));
        }
        at += BLOCK;
        rest = rest.get(BLOCK..).unwrap_or_default();
    }
    None
}

impl Skip {
    /// A scan that is about to see an opening bracket.
    pub fn new() -> Self {
        Skip::default()
    }

    /// Scans on from `from`, which is the opening bracket at first and what was reached later. What is seen goes to `keep`,
    /// block by block from the opening bracket on, until the container has ended.
    pub fn run(&mut self, bytes: &[u8], from: usize, keep: Option<&mut Marks>) -> Result<Reached, Error> {
        #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
        if let Some(vector) = *VECTOR {
            return vector.run(self, bytes, from, keep);
        }
        self.run_with(Portable, bytes, from, keep)
    }

    /// The same by a given classifier: tests compare them.
    #[inline(always)]
    pub fn run_with<C: Classify>(
        &mut self,
        by: C,
        bytes: &[u8],
        from: usize,
        mut keep: Option<&mut Marks>,
    ) -> Result<Reached, Error> {
        let mut at = from;
        let mut rest = bytes.get(from..).unwrap_or_default();
        let mut later = Later::after(self, at);
        while let Some((block, after)) = rest.split_first_chunk::<BLOCK>() {
            let strings = self.strings;
            let (masks, stray) = self.strings.leave_out(by, block);
            let (open, close) = (masks.open.count_ones(), masks.close.count_ones());
            let ends_later = close < self.depth as u32 && open + self.depth as u32 <= 64 && stray == 0;
            if C::FOLDS && ends_later {
                // Whatever its brackets are, the container goes on after it. They are seen to match later, with others.
                if later.gathered.count + open + close > 64 {
                    self.fold_gathered(by, &later, bytes)?;
                    later = Later { strings, ..Later::after(self, at) };
                }
                later.gathered.append(by.gather(block, masks.open | masks.close, masks.open));
                if let Some(marks) = &mut keep {
                    marks.push(masks, Level::new(self.depth, close), None);
                }
                self.depth = self.depth + open as usize - close as usize;
            } else {
                self.fold_gathered(by, &later, bytes)?;
                if let Some(end) = self.block(by, block, at, (masks, stray), &mut keep)? {
                    return Ok(Reached::End(end));
                }
                later = Later::after(self, at + BLOCK);
            }
            at += BLOCK;
            rest = after;
        }
        self.fold_gathered(by, &later, bytes)?;
        if !rest.is_empty() {
            // The container may end here. If not, the block is seen again when it is whole.
            let mut last = self.clone();
            let block = padded(rest);
            let masks = last.strings.leave_out(by, &block);
            if let Some(end) = last.block(by, &block, at, masks, &mut keep)? {
                return Ok(Reached::End(end));
            }
            if let Some(marks) = keep {
                marks.blocks.pop();
            }
        }
        Ok(Reached::More(at))
    }

    /// Opens and closes what was gathered, whose depth is known.
    #[inline(always)]
    fn fold_gathered<C: Classify>(&mut self, by: C, later: &Later, bytes: &[u8]) -> Result<(), Error> {
        if later.gathered.count == 0 {
            return Ok(());
        }
        match by.fold(later.gathered, Brackets { kinds: self.kinds, depth: later.depth }) {
            Some(after) => {
                self.kinds = after.kinds;
                Ok(())
            }
            None => self.one_by_one(later, bytes),
        }
    }

    /// Finds the bracket that does not match.
    #[cold]
    fn one_by_one(&mut self, later: &Later, bytes: &[u8]) -> Result<(), Error> {
        (self.depth, self.strings) = (later.depth, later.strings);
        let mut left = later.gathered.count;
        for (i, block) in bytes.get(later.from..).unwrap_or_default().as_chunks::<BLOCK>().0.iter().enumerate() {
            let (masks, _) = self.strings.leave_out(Portable, block);
            self.brackets(Portable, block, masks.open, masks.close, later.from + i * BLOCK)?;
            left = left.saturating_sub((masks.open | masks.close).count_ones());
            if left == 0 {
                break;
            }
        }
        Ok(())
    }

    /// One block, at position `at`, with its masks.
    #[inline(always)]
    fn block<C: Classify>(
        &mut self,
        by: C,
        block: &[u8; BLOCK],
        at: usize,
        (masks, stray): (Masks, u64),
        keep: &mut Option<&mut Marks>,
    ) -> Result<Option<usize>, Error> {
        let before = self.depth;
        let end = self.brackets(by, block, masks.open, masks.close, at)?;
        if let Some(marks) = keep {
            marks.push(masks, Level::new(before, masks.close.count_ones()), end.map(|end| end - at));
        }
        if end.is_none() && stray != 0 {
            return Err(Error::malformed(at + stray.trailing_zeros() as usize, STRAY));
        }
        Ok(end)
    }

    /// The brackets of one block at position `at`: the container's end.
    #[inline(always)]
    fn brackets<C: Classify>(
        &mut self,
        by: C,
        block: &[u8; BLOCK],
        open: u64,
        close: u64,
        at: usize,
    ) -> Result<Option<usize>, Error> {
        let mut brackets = open | close;
        if self.depth > 0 {
            if brackets == 0 {
                return Ok(None);
            }
            if C::FOLDS
                && self.depth + open.count_ones() as usize <= 64
                && let Some(after) =
                    by.fold(by.gather(block, brackets, open), Brackets { kinds: self.kinds, depth: self.depth })
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
            if open >> i & 1 == 1 {
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
