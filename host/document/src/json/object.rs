//! The bytes of one object with a table of its first levels. Clones are cheap, because they share the bytes.

use super::{
    marked::Marked,
    scan::Marks,
    spans::{SpanRecorder, Spans},
    table::{MemberIndex, find},
    token,
    walk::{Gap, Visit, absent, walk},
};
use crate::{Error, MAX_OBJECT, Path, marks::ItemMarks, path::Segment};
use bytes::Bytes;
use std::sync::{Arc, OnceLock};

/// The bytes of one JSON object. They are not scanned before the first read.
#[derive(Debug, Clone)]
pub(crate) struct Object {
    bytes: Bytes,
    index: OnceLock<Arc<MemberIndex>>,
    /// The structural marks from splitting.
    marks: ItemMarks,
    /// Whether to rebuild the marks for each read, because they take five eighths of the object's size.
    uncached: bool,
}

impl Object {
    pub(crate) fn new(bytes: Bytes) -> Self {
        Object::with_marks(bytes, ItemMarks::default())
    }

    /// INVARIANT: the marks belong to these bytes. With other marks, positions would be wrong, but every use checks
    /// them.
    pub(crate) fn with_marks(bytes: Bytes, marks: ItemMarks) -> Self {
        Object { bytes, index: OnceLock::new(), marks, uncached: false }
    }

    /// Returns the same object for long storage. It does not keep marks, and builds them for each read.
    pub(crate) fn uncached(self) -> Self {
        Object { uncached: true, ..Object::new(self.bytes) }
    }

    pub(crate) fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// Returns the position of the object's `{`.
    pub(crate) fn start(&self) -> usize {
        token::space(&self.bytes, 0)
    }

    pub(crate) fn index(&self) -> Result<&Arc<MemberIndex>, Error> {
        if let Some(index) = self.index.get() {
            return Ok(index);
        }
        if self.bytes.len() > MAX_OBJECT {
            return Err(Error::TooLarge { limit: MAX_OBJECT });
        }
        let index = MemberIndex::build(&self.bytes, self.start(), self.marks.blocks(self.bytes.len()), !self.uncached)?;
        let after = token::space(&self.bytes, index.end);
        if after != self.bytes.len() {
            return Err(Error::malformed(after, "bytes after the end of the object"));
        }
        Ok(self.index.get_or_init(|| Arc::new(index)))
    }

    /// Walks a path and records the spans of the elements at its only `[*]`, for a removal that follows.
    pub(crate) fn visit_recording_spans(&self, path: &Path, mut visitor: impl Visit) -> Result<(), Error> {
        let index = self.index()?;
        if path.wildcards() != 1 || index.spans.get().is_some() {
            return self.visit(path.segments(), &mut visitor);
        }
        let mut noting = SpanRecorder::new(visitor);
        self.visit(path.segments(), &mut noting)?;
        if let Some(spans) = noting.spans(path) {
            index.spans.get_or_init(|| spans);
        }
        Ok(())
    }

    /// Returns the spans of the elements in the array at these segments, if they have been recorded.
    pub(crate) fn spans(&self, segments: &[Segment]) -> Option<&Spans> {
        self.index.get()?.spans.get().filter(|spans| spans.are_in(segments))
    }

    /// Walks the segments, and uses the table for the first ones. Returns the errors of a malformed object for any
    /// segments.
    pub(crate) fn visit(&self, segments: &[Segment], visitor: &mut impl Visit) -> Result<(), Error> {
        let bytes = &*self.bytes;
        let index = self.index()?;
        let made;
        let blocks = match (self.marks.blocks(bytes.len()), &index.marks) {
            (Some(blocks), _) => blocks,
            (None, Some(marks)) => &*marks.blocks,
            (None, None) => {
                made = Marks::of(bytes);
                &*made.blocks
            }
        };
        let text = Marked::with(bytes, blocks);
        let [Segment::Name(name), rest @ ..] = segments else {
            walk(text, self.start(), segments, visitor)?;
            return Ok(());
        };
        let Some((i, slot)) = find(index.top(), bytes, name)? else {
            let gap = Gap::Member { at: index.last(), empty: index.top().len() == 0 };
            return absent(segments, gap, visitor);
        };
        if let [Segment::Name(name), below @ ..] = rest
            && let Some((slots, last)) = index.below(i)
        {
            let Some((_, slot)) = find(slots.iter().copied(), bytes, name)? else {
                let gap = Gap::Member { at: last, empty: slots.is_empty() };
                return absent(rest, gap, visitor);
            };
            walk(text, slot.value(), below, visitor)?;
            return Ok(());
        }
        walk(text, slot.value(), rest, visitor)?;
        Ok(())
    }
}
