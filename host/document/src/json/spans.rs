//! The spans of the elements in one array, recorded while a column is read. A removal that follows need not scan the
//! array again. Memory: 8 bytes per element, for at most [`MAX_SPANS`] elements, kept with the object's bytes.

use super::{
    marked::Marked,
    walk::{Gap, Visit},
};
use crate::{Error, Path, path::Segment};
use std::ops::Range;

/// Larger arrays are scanned again, so that the spans stay small.
const MAX_SPANS: usize = 4096;

/// The number of elements to allocate space for at first.
const INITIAL_SPANS: usize = 32;

/// The spans of the elements at a path's only `[*]`.
#[derive(Debug)]
pub(crate) struct Spans {
    path: Path,
    elements: Vec<(u32, u32)>,
}

/// Wraps a visitor and records its elements.
pub(crate) struct SpanRecorder<V> {
    visitor: V,
    elements: Vec<(u32, u32)>,
    /// The number of elements. Not all are recorded if they are too many.
    count: usize,
}

impl Spans {
    /// Returns whether these are the elements of the array at these segments.
    pub(crate) fn are_in(&self, segments: &[Segment]) -> bool {
        self.path.rows_in() == Some(segments)
    }

    /// Iterates over the elements in order.
    pub(crate) fn iter(&self) -> impl ExactSizeIterator<Item = Range<usize>> + '_ {
        self.elements.iter().map(|(start, end)| *start as usize..*end as usize)
    }
}

impl<V> SpanRecorder<V> {
    pub(crate) fn new(visitor: V) -> Self {
        SpanRecorder { visitor, elements: Vec::with_capacity(INITIAL_SPANS), count: 0 }
    }

    /// Returns the recorded spans of this path, if they are complete.
    pub(crate) fn spans(self, path: &Path) -> Option<Spans> {
        (self.count == self.elements.len()).then(|| Spans { path: path.clone(), elements: self.elements })
    }
}

impl<V: Visit> Visit for SpanRecorder<V> {
    #[inline]
    fn value(&mut self, text: Marked<'_>, at: usize) -> Result<usize, Error> {
        self.visitor.value(text, at)
    }

    #[inline]
    fn absent(&mut self, rest: &[Segment], gap: Gap) -> Result<(), Error> {
        self.visitor.absent(rest, gap)
    }

    #[inline(always)]
    fn element(&mut self, at: Range<usize>) {
        self.count += 1;
        if self.elements.len() < MAX_SPANS {
            // Offsets of an object have at most 31 bits.
            self.elements.push((at.start as u32, at.end as u32));
        }
    }
}
