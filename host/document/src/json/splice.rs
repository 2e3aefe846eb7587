//! Builds the bytes of an edited object from spans of the old bytes and new texts. Memory: 16 bytes per splice, each
//! distinct text once, and the new buffer.

use crate::{Error, MAX_OBJECT};
use bytes::Bytes;
use std::ops::Range;

/// Replacements in the order of their positions, without overlaps.
#[derive(Default)]
pub(crate) struct Splices {
    list: Vec<Splice>,
    texts: Vec<Vec<u8>>,
}

struct Splice {
    start: u32,
    end: u32,
    /// The index of the new text, or none for a removal.
    text: Option<u32>,
}

/// A text that several splices share.
#[derive(Clone, Copy)]
pub(crate) struct TextId(u32);

impl Splices {
    pub(crate) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Stores a text for splices.
    pub(crate) fn text(&mut self, text: Vec<u8>) -> TextId {
        self.texts.push(text);
        TextId((self.texts.len() - 1) as u32)
    }

    /// Returns a stored text.
    pub(crate) fn get(&self, text: TextId) -> &[u8] {
        self.texts.get(text.0 as usize).map_or(&[], |text| text)
    }

    /// Removes the span.
    pub(crate) fn cut(&mut self, at: Range<usize>) {
        self.push(at, None);
    }

    /// Replaces the span with a text.
    pub(crate) fn put(&mut self, at: Range<usize>, text: TextId) {
        self.push(at, Some(text.0));
    }

    fn push(&mut self, at: Range<usize>, text: Option<u32>) {
        // Offsets of an object have at most 31 bits.
        self.list.push(Splice { start: at.start as u32, end: at.end as u32, text });
    }

    /// Builds the new buffer in one pass, with one allocation of its exact size: `limit` at most, or the old size.
    pub(crate) fn apply(&self, old: &[u8], limit: usize) -> Result<Bytes, Error> {
        let limit = limit.max(old.len()).min(MAX_OBJECT);
        let mut size = old.len();
        for splice in &self.list {
            let text = splice.text.map_or(0, |text| self.get(TextId(text)).len());
            size = (size + text).saturating_sub((splice.end - splice.start) as usize);
            // Checked here so that the sum cannot overflow. Removals are in order with the insertions.
            if size > limit + old.len() {
                return Err(Error::TooLarge { limit });
            }
        }
        if size > limit {
            return Err(Error::TooLarge { limit });
        }
        let mut new = Vec::with_capacity(size);
        let mut at = 0;
        for splice in &self.list {
            new.extend_from_slice(old.get(at..splice.start as usize).unwrap_or_default());
            if let Some(text) = splice.text {
                new.extend_from_slice(self.get(TextId(text)));
            }
            at = splice.end as usize;
        }
        new.extend_from_slice(old.get(at..).unwrap_or_default());
        Ok(Bytes::from(new))
    }
}

/// Removes members or elements of one container, with the commas that are no longer needed.
#[derive(Default)]
pub(crate) struct Cutter {
    /// The start of the current run of removed items.
    run: Option<usize>,
    kept_end: Option<usize>,
    end: usize,
    count: u32,
}

impl Cutter {
    /// Adds the next item, in order.
    pub(crate) fn item(&mut self, at: Range<usize>, cut: bool, splices: &mut Splices) {
        self.end = at.end;
        if cut {
            self.count += 1;
            self.run.get_or_insert(at.start);
            return;
        }
        // Removes the comma after the last removed item too.
        if let Some(run) = self.run.take() {
            splices.cut(run..at.start);
        }
        self.kept_end = Some(at.end);
    }

    /// Ends the container. Returns the number of removed items.
    pub(crate) fn finish(self, splices: &mut Splices) -> u32 {
        if let Some(run) = self.run {
            // Removes the comma before a run at the end too.
            splices.cut(self.kept_end.unwrap_or(run)..self.end);
        }
        self.count
    }
}
