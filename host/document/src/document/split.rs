//! Documents of split lists and watch streams. They reuse the structural marks from splitting.

use super::{Document, Encoded};
use crate::{
    json::{self, Frame},
    list::Batch,
    marks::ItemMarks,
};
use bytes::Bytes;

impl Document {
    fn with_marks(bytes: Bytes, marks: ItemMarks) -> Document {
        Document::new(Encoded::Json(json::Object::with_marks(bytes, marks)))
    }
}

impl Batch {
    /// Iterates over the items of a JSON list as documents.
    pub fn documents(&self) -> impl Iterator<Item = Document> {
        (0..self.items.len()).filter_map(|index| self.json(index))
    }

    /// Returns one item of a JSON list as a document.
    pub fn json(&self, index: usize) -> Option<Document> {
        Some(Document::with_marks(self.item(index)?, self.marks.of(index)))
    }
}

impl Frame {
    /// Returns the object of a JSON watch event as a document.
    pub fn document(&self) -> Document {
        Document::with_marks(self.object_bytes(), self.marks.clone())
    }
}
