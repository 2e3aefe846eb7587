//! The block scanner. It finds the end of a container 64 bytes at a time, without parsing its content.
//!
//! [`Skip`] scans over a container that arrives in pieces. [`Marks`] are the result for a text that is walked later,
//! and a [`Skip`] can record them. A [`Classify`] implementation computes the masks of a block: with vector
//! instructions if the processor has them, which is detected once, and otherwise with [`Portable`]. All of them give
//! the same results.
//!
//! The scanner checks strings, matching brackets and depth, and nothing else. Memory: one bit per open bracket. Marks
//! take five eighths of the text.

#[cfg(target_arch = "x86_64")]
pub mod avx2;
mod classify;
mod marks;
#[cfg(target_arch = "aarch64")]
pub mod neon;
mod portable;
mod strings;

pub use crate::marks::{BLOCK, Block, Marks, Masks};
pub use classify::{Brackets, Classify, Gathered};
pub use marks::{nested_end, nested_end_with};
pub use portable::Portable;
pub use strings::string_end_with;

#[cfg(target_arch = "x86_64")]
use avx2::Avx2 as Vector;
#[cfg(target_arch = "aarch64")]
use neon::Neon as Vector;

use crate::{Error, marks::BlockDepth};
use strings::{STRAY, StringState, padded};

/// Scans over one container, which may continue in a later chunk.
#[derive(Debug, Clone, Default)]
pub struct Skip {
    /// The kinds of the innermost open brackets, one bit each, the innermost in the lowest bit: 1 means `{`.
    kinds: u64,
    /// The kinds of the outer brackets, 64 per word. Rarely used.
    outer: Vec<u64>,
    depth: usize,
    strings: StringState,
}

/// The result of a scan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reached {
    /// The container ends before this position.
    End(usize),
    /// The container continues after these bytes. The next scan must start at this position, with more bytes.
    More(usize),
}

/// The brackets of some blocks whose depth is known, and whose kinds are compared later. The blocks start at `from`.
#[derive(Debug)]
struct Deferred {
    gathered: Gathered,
    /// The state before the first of these blocks.
    from: usize,
    depth: usize,
    strings: StringState,
}

impl Deferred {
    /// Creates an empty set from the block at this position on.
    #[inline(always)]
    fn after(skip: &Skip, from: usize) -> Deferred {
        Deferred { gathered: Gathered::default(), from, depth: skip.depth, strings: skip.strings }
    }
}

impl Gathered {
    /// Appends more brackets, at most 64 in total.
    #[inline(always)]
    fn append(&mut self, more: Gathered) {
        // With 64 brackets, there are no more to append.
        self.open |= more.open << (self.count & 63);
        self.curly |= more.curly << (self.count & 63);
        self.count += more.count;
    }
}

/// The vector instructions of this processor.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
static VECTOR: std::sync::LazyLock<Option<Vector>> = std::sync::LazyLock::new(Vector::detect);

/// Returns the position of the closing quote of a string that continues at `at`, and whether there is no backslash
/// before it. Returns none if the bytes end first. There must be no backslash directly before `at`.
#[inline]
pub fn string_end(bytes: &[u8], at: usize) -> Option<(usize, bool)> {
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    if let Some(vector) = *VECTOR {
        return vector.string_end(bytes, at);
    }
    string_end_with(Portable, bytes, at)
}

impl Skip {
    /// Creates a scan that starts at an opening bracket.
    pub fn new() -> Self {
        Skip::default()
    }

    /// Scans from `from`: first the opening bracket, then the position that the previous scan reached. Appends the
    /// marks to `keep`, block by block from the opening bracket to the end of the container.
    pub fn run(&mut self, bytes: &[u8], from: usize, keep: Option<&mut Marks>) -> Result<Reached, Error> {
        #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
        if let Some(vector) = *VECTOR {
            return vector.run(self, bytes, from, keep);
        }
        self.run_with(Portable, bytes, from, keep)
    }

    /// Like [`Skip::run`], with a given classifier. Tests compare the classifiers.
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
        let mut deferred = Deferred::after(self, at);
        while let Some((block, after)) = rest.split_first_chunk::<BLOCK>() {
            let strings = self.strings;
            let (masks, stray) = self.strings.next_masks(by, block);
            let (open, close) = (masks.open.count_ones(), masks.close.count_ones());
            let ends_later = close < self.depth as u32 && open + self.depth as u32 <= 64 && stray == 0;
            if C::FOLDS && ends_later {
                // The container continues after this block, whatever its brackets are. Their kinds are compared later,
                // together with others.
                if deferred.gathered.count + open + close > 64 {
                    self.fold_gathered(by, &deferred, bytes)?;
                    deferred = Deferred { strings, ..Deferred::after(self, at) };
                }
                deferred.gathered.append(by.gather(block, masks.open | masks.close, masks.open));
                if let Some(marks) = &mut keep {
                    marks.push(masks, BlockDepth::new(self.depth, close), None);
                }
                self.depth = self.depth + open as usize - close as usize;
            } else {
                self.fold_gathered(by, &deferred, bytes)?;
                if let Some(end) = self.block(by, block, at, (masks, stray), &mut keep)? {
                    return Ok(Reached::End(end));
                }
                deferred = Deferred::after(self, at + BLOCK);
            }
            at += BLOCK;
            rest = after;
        }
        self.fold_gathered(by, &deferred, bytes)?;
        if !rest.is_empty() {
            // The container may end in this partial block. Otherwise, it is scanned again when it is complete.
            let mut last = self.clone();
            let block = padded(rest);
            let masks = last.strings.next_masks(by, &block);
            if let Some(end) = last.block(by, &block, at, masks, &mut keep)? {
                return Ok(Reached::End(end));
            }
            if let Some(marks) = keep {
                marks.blocks.pop();
            }
        }
        Ok(Reached::More(at))
    }

    /// Matches the deferred brackets.
    #[inline(always)]
    fn fold_gathered<C: Classify>(&mut self, by: C, deferred: &Deferred, bytes: &[u8]) -> Result<(), Error> {
        if deferred.gathered.count == 0 {
            return Ok(());
        }
        match by.fold(deferred.gathered, Brackets { kinds: self.kinds, depth: deferred.depth }) {
            Some(after) => {
                self.kinds = after.kinds;
                Ok(())
            }
            None => self.one_by_one(deferred, bytes),
        }
    }

    /// Finds the bracket that does not match.
    #[cold]
    fn one_by_one(&mut self, deferred: &Deferred, bytes: &[u8]) -> Result<(), Error> {
        (self.depth, self.strings) = (deferred.depth, deferred.strings);
        let mut left = deferred.gathered.count;
        for (i, block) in bytes.get(deferred.from..).unwrap_or_default().as_chunks::<BLOCK>().0.iter().enumerate() {
            let (masks, _) = self.strings.next_masks(Portable, block);
            self.brackets(Portable, block, masks.open, masks.close, deferred.from + i * BLOCK)?;
            left = left.saturating_sub((masks.open | masks.close).count_ones());
            if left == 0 {
                break;
            }
        }
        Ok(())
    }

    /// Scans one block at position `at` with these masks.
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
            marks.push(masks, BlockDepth::new(before, masks.close.count_ones()), end.map(|end| end - at));
        }
        if end.is_none() && stray != 0 {
            return Err(Error::malformed(at + stray.trailing_zeros() as usize, STRAY));
        }
        Ok(end)
    }

    /// Matches the brackets of one block at position `at`. Returns the container's end.
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
        // Local copies stay in registers during the block.
        let (mut kinds, mut depth) = (self.kinds, self.depth);
        while brackets != 0 {
            let i = brackets.trailing_zeros();
            brackets &= brackets - 1;
            let curly = u64::from(block.get(i as usize).is_some_and(|byte| byte & 0x20 != 0));
            let offset = at + i as usize;
            if open >> i & 1 == 1 {
                if depth % 64 == 0 && depth > 0 {
                    // Any depth: an object that is nested too deep is an error of its reads, not of the whole list.
                    self.outer.push(kinds);
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

#[cfg(test)]
mod tests;
