//! Where the elements of one array lie, noted while a column is read, so that the cut that follows steps over nothing
//! again. Memory: 8 bytes an element, of at most [`MOST`] elements; it goes with the bytes that it is about.

use super::{
    marked::Marked,
    walk::{Gap, Visit},
};
use crate::{Error, Path, path::Step};
use std::ops::Range;

/// Arrays of more are stepped over again: what is noted stays small beside any object.
const MOST: usize = 4096;

/// Room for these is made at once.
const SOME: usize = 32;

/// The elements of the array that a path's only `[*]` stands for.
#[derive(Debug)]
pub(crate) struct Spans {
    path: Path,
    elements: Vec<(u32, u32)>,
}

/// Another visitor, whose elements are noted.
pub(crate) struct Noting<V> {
    visitor: V,
    elements: Vec<(u32, u32)>,
    /// Fewer than there are if they are too many.
    count: usize,
}

impl Spans {
    /// Whether they are those of the array that these steps lead to.
    pub(crate) fn are_in(&self, steps: &[Step]) -> bool {
        self.path.rows_in() == Some(steps)
    }

    /// The elements, in order.
    pub(crate) fn iter(&self) -> impl ExactSizeIterator<Item = Range<usize>> + '_ {
        self.elements.iter().map(|(start, end)| *start as usize..*end as usize)
    }
}

impl<V> Noting<V> {
    pub(crate) fn new(visitor: V) -> Self {
        Noting { visitor, elements: Vec::with_capacity(SOME), count: 0 }
    }

    /// What was noted on the walk of this path, if it was all there is.
    pub(crate) fn spans(self, path: &Path) -> Option<Spans> {
        (self.count == self.elements.len()).then(|| Spans { path: path.clone(), elements: self.elements })
    }
}

impl<V: Visit> Visit for Noting<V> {
    #[inline]
    fn value(&mut self, text: Marked<'_>, at: usize) -> Result<usize, Error> {
        self.visitor.value(text, at)
    }

    #[inline]
    fn absent(&mut self, rest: &[Step], gap: Gap) -> Result<(), Error> {
        self.visitor.absent(rest, gap)
    }

    #[inline(always)]
    fn element(&mut self, at: Range<usize>) {
        self.count += 1;
        if self.elements.len() < MOST {
            // Positions fit: an object has at most 31 bits of them.
            self.elements.push((at.start as u32, at.end as u32));
        }
    }
}
