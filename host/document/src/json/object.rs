//! One object's bytes with the table of its first levels. Cheap to clone; the bytes are shared.

use super::{
    Seen,
    marked::Marked,
    scan::Marks,
    spans::{Noting, Spans},
    table::{Index, find},
    token,
    walk::{Gap, Visit, absent, walk},
};
use crate::{Error, MAX_OBJECT, Path, path::Step};
use bytes::Bytes;
use std::sync::{Arc, OnceLock};

/// The bytes of one JSON object. Nothing is looked at before the first read.
#[derive(Debug, Clone)]
pub(crate) struct Object {
    bytes: Bytes,
    index: OnceLock<Arc<Index>>,
    /// What was seen of the bytes before.
    seen: Seen,
    /// Nothing that is as large as half of the object is kept.
    frugal: bool,
}

impl Object {
    pub(crate) fn new(bytes: Bytes) -> Self {
        Object::seen(bytes, Seen::default())
    }

    /// INVARIANT: what was seen is of these bytes. Of others it would lead to other positions, which every use checks.
    pub(crate) fn seen(bytes: Bytes, seen: Seen) -> Self {
        Object { bytes, index: OnceLock::new(), seen, frugal: false }
    }

    /// The same object, to be held for long: what makes reads of all of it fast is made each time.
    pub(crate) fn frugal(self) -> Self {
        Object { frugal: true, ..Object::new(self.bytes) }
    }

    pub(crate) fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// Where the object's `{` is.
    pub(crate) fn start(&self) -> usize {
        token::space(&self.bytes, 0)
    }

    pub(crate) fn index(&self) -> Result<&Arc<Index>, Error> {
        if let Some(index) = self.index.get() {
            return Ok(index);
        }
        if self.bytes.len() > MAX_OBJECT {
            return Err(Error::TooLarge { limit: MAX_OBJECT });
        }
        let index = Index::build(&self.bytes, self.start(), self.seen.blocks(self.bytes.len()), !self.frugal)?;
        let after = token::space(&self.bytes, index.end);
        if after != self.bytes.len() {
            return Err(Error::malformed(after, "bytes after the end of the object"));
        }
        Ok(self.index.get_or_init(|| Arc::new(index)))
    }

    /// Walks a path and notes where the elements of its only `[*]` are, for a cut to come.
    pub(crate) fn visit_noting(&self, path: &Path, mut visitor: impl Visit) -> Result<(), Error> {
        let index = self.index()?;
        if path.wildcards() != 1 || index.spans.get().is_some() {
            return self.visit(path.steps(), &mut visitor);
        }
        let mut noting = Noting::new(visitor);
        self.visit(path.steps(), &mut noting)?;
        if let Some(spans) = noting.spans(path) {
            index.spans.get_or_init(|| spans);
        }
        Ok(())
    }

    /// Where the elements of the array are that these steps lead to, if that was noted.
    pub(crate) fn spans(&self, steps: &[Step]) -> Option<&Spans> {
        self.index.get()?.spans.get().filter(|spans| spans.are_in(steps))
    }

    /// Walks the steps, by the table as far as it reaches. Errors of a bad object come from here, whatever the steps.
    pub(crate) fn visit(&self, steps: &[Step], visitor: &mut impl Visit) -> Result<(), Error> {
        let bytes = &*self.bytes;
        let index = self.index()?;
        let made;
        let blocks = match (self.seen.blocks(bytes.len()), &index.marks) {
            (Some(blocks), _) => blocks,
            (None, Some(marks)) => &*marks.blocks,
            (None, None) => {
                made = Marks::of(bytes);
                &*made.blocks
            }
        };
        let text = Marked::with(bytes, blocks);
        let [Step::Name(name), rest @ ..] = steps else {
            walk(text, self.start(), steps, visitor)?;
            return Ok(());
        };
        let Some((i, slot)) = find(index.top(), bytes, name)? else {
            let gap = Gap::Member { at: index.last(), empty: index.top().len() == 0 };
            return absent(steps, gap, visitor);
        };
        if let [Step::Name(name), below @ ..] = rest
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
