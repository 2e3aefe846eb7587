//! What splitting a list comes to, whatever it is written in: its pieces in order, and what becomes of its items.
//! Pieces share the bytes that came.

use crate::{Document, json::Scans, split::SplitError};
use bytes::Bytes;
use std::ops::Range;

/// A batch is cut when it has this many bytes: enough to make writes few, little enough to stay in a cache.
pub(crate) const BATCH: usize = 96 << 10;

/// The largest item, head or tail unless told otherwise.
pub(crate) const LIMIT: usize = 64 << 20;

/// A part of a list, in order. The bytes of all pieces together are the body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece {
    /// The first piece. JSON: up to and including the `[` of the items (or up to the `null` that stands there).
    /// Protobuf: up to the first item's tag, or to the list's end if it has none.
    Head {
        /// The bytes.
        bytes: Bytes,
    },
    /// Some items, any number of times.
    Batch(Batch),
    /// The last piece: from what follows the last item.
    Tail {
        /// The bytes.
        bytes: Bytes,
    },
}

/// Consecutive items with what is between them. The first byte is the one after the last piece's last: for a later
/// batch of JSON the comma, in protobuf the first item's tag unless other fields are before it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Batch {
    /// The items and what is before each.
    pub bytes: Bytes,
    /// Where the items are, at least one.
    pub items: Vec<Range<usize>>,
    /// What was seen of each; of protobuf nothing.
    pub(crate) seen: Scans,
}

impl Batch {
    /// The bytes of one item.
    pub fn item(&self, index: usize) -> Option<Bytes> {
        let at = self.items.get(index)?;
        (at.end <= self.bytes.len()).then(|| self.bytes.slice(at.clone()))
    }

    /// One item of a JSON list as a document, which need not look again at what the split has seen.
    pub fn json(&self, index: usize) -> Option<Document> {
        Some(Document::seen(self.item(index)?, self.seen.of(index)))
    }
}

/// What a list says about itself, as far as it has been seen: each of them may stand after the items.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ListMeta {
    /// `v1`
    pub api_version: Option<String>,
    /// `ServiceList`
    pub kind: Option<String>,
    /// `metadata.resourceVersion`
    pub resource_version: Option<String>,
    /// `metadata.continue`; none if empty.
    pub continue_token: Option<String>,
}

/// What becomes of one item.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// It leaves as it came.
    Keep,
    /// These bytes leave in its place.
    Edit(Bytes),
    /// It is left out.
    Drop,
}

/// What cuts a list into pieces, whatever it is written in.
pub trait Split {
    /// The next bytes of the body.
    fn push(&mut self, chunk: Bytes);

    /// The body is complete.
    fn finish(&mut self);

    /// The next piece, or none until more is pushed; none for good after the tail.
    fn next(&mut self) -> Result<Option<Piece>, SplitError>;
}

/// Splits a body that is at hand in chunks: each piece is given to the function as soon as it is whole.
pub fn split<S: Split, E: From<SplitError>>(
    mut splitter: S,
    chunks: impl IntoIterator<Item = Bytes>,
    mut piece: impl FnMut(Piece) -> Result<(), E>,
) -> Result<S, E> {
    for chunk in chunks {
        splitter.push(chunk);
        while let Some(next) = splitter.next()? {
            piece(next)?;
        }
    }
    splitter.finish();
    while let Some(next) = splitter.next()? {
        piece(next)?;
    }
    Ok(splitter)
}
