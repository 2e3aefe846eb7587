//! The pieces of a split list, in JSON or protobuf, and the outcomes of its items. Pieces share the bytes of the body.

use crate::{TypeMeta, marks::BatchMarks, split::SplitError};
use bytes::Bytes;
use std::ops::Range;

/// The size at which a batch is complete, in bytes: large enough for few writes, small enough for a CPU cache.
pub(crate) const BATCH: usize = 96 << 10;

/// The default size limit of an item, head or tail.
pub(crate) const LIMIT: usize = 64 << 20;

/// A part of a list. The bytes of all pieces, concatenated, are the body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece {
    /// The first piece. In JSON it ends with the `[` of the items, or before the `null` in its place. In protobuf it
    /// ends before the first item's tag, or with the list if there are no items.
    Head {
        /// The bytes.
        bytes: Bytes,
    },
    /// Some items. There may be any number of batches.
    Batch(Batch),
    /// The last piece: everything after the last item.
    Tail {
        /// The bytes.
        bytes: Bytes,
    },
}

/// Consecutive items with the bytes between them. The first byte is the one after the previous piece. In JSON, a later
/// batch therefore starts with a comma. In protobuf, a batch starts with the first item's tag or with other fields
/// before it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Batch {
    /// The items with the bytes before each of them.
    pub bytes: Bytes,
    /// The spans of the items, at least one.
    pub items: Vec<Range<usize>>,
    /// The structural marks of each item. Empty for protobuf.
    pub(crate) marks: BatchMarks,
}

impl Batch {
    /// Returns the bytes of one item.
    pub fn item(&self, index: usize) -> Option<Bytes> {
        let at = self.items.get(index)?;
        (at.end <= self.bytes.len()).then(|| self.bytes.slice(at.clone()))
    }
}

/// The list's own fields that have been parsed so far. Each of them may follow the items.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ListMeta {
    /// `v1`
    pub api_version: Option<String>,
    /// `ServiceList`
    pub kind: Option<String>,
    /// `metadata.resourceVersion`
    pub resource_version: Option<String>,
    /// `metadata.continue`, or none if it is empty.
    pub continue_token: Option<String>,
}

impl ListMeta {
    /// Returns the kind of the items: the list's kind without `List`. Returns none if the kind is not a list.
    pub fn item_kind(&self) -> Option<&str> {
        self.kind.as_deref()?.strip_suffix("List").filter(|kind| !kind.is_empty())
    }

    /// Returns the type of the items. Returns none if the list names no apiVersion, or its kind is not a list.
    pub fn item_type(&self) -> Option<TypeMeta> {
        Some(TypeMeta { api_version: self.api_version.clone()?, kind: self.item_kind()?.to_owned() })
    }
}

/// The outcome of one item.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ItemOutcome {
    /// The item keeps its bytes.
    Keep,
    /// These bytes replace the item.
    Edit(Bytes),
    /// The item is omitted.
    Drop,
}

/// A splitter of lists, for any encoding.
pub trait Split {
    /// Adds the next bytes of the body.
    fn push(&mut self, chunk: Bytes);

    /// Marks the end of the body.
    fn finish(&mut self);

    /// Returns the next piece. Returns none if it needs more bytes, and always after the tail.
    fn next(&mut self) -> Result<Option<Piece>, SplitError>;
}

/// Splits a complete body given in chunks. Calls the function with each piece as soon as it is complete.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kind_of_items_follows_from_the_kind_of_the_list() {
        let meta =
            |kind: &str| ListMeta { api_version: Some("v1".into()), kind: Some(kind.into()), ..ListMeta::default() };
        assert_eq!(meta("ServiceList").item_type().unwrap().kind, "Service");
        assert!(meta("List").item_type().is_none() && meta("Odd").item_type().is_none());
    }
}
