//! A list taken apart and written again, whichever its encoding, in the shape that its client asked for.
//!
//! JSON leaves as it comes. A protobuf list has its length in front: what leaves is gathered by the caller, and the head
//! is made when all of it is there.

use bytes::Bytes;
use weir_document::json::{self, Batch, ItemOutcome, ListMeta, Piece, SplitError};
use weir_document::{Document, TypeMeta, protobuf};

use crate::proxy::object::{list_metadata, partial_list};
use weir_kube::{Encoding, MetaVersion, Transform};

/// A list on its way through.
pub(super) struct Wire {
    halves: Halves,
    /// Whether only metadata is shown, and in which version.
    metadata: Option<MetaVersion>,
    head: Bytes,
    tail: Bytes,
}

enum Halves {
    Json(json::ListSplitter, json::Joiner),
    Protobuf(protobuf::ListSplitter, protobuf::Joiner),
}

impl Wire {
    /// Items larger than `limit` are refused.
    pub(super) fn new(encoding: Encoding, transform: Transform, limit: usize) -> Self {
        let halves = match encoding {
            Encoding::Json => Halves::Json(json::ListSplitter::with_limit(limit), json::Joiner::new()),
            Encoding::Protobuf => Halves::Protobuf(protobuf::ListSplitter::with_limit(limit), protobuf::Joiner::new()),
        };
        let metadata = match transform {
            Transform::Metadata(version) => Some(version),
            Transform::None | Transform::Table(..) => None,
        };
        Self { halves, metadata, head: Bytes::new(), tail: Bytes::new() }
    }

    /// The next bytes of the body.
    pub(super) fn push(&mut self, bytes: Bytes) {
        match &mut self.halves {
            Halves::Json(splitter, _) => splitter.push(bytes),
            Halves::Protobuf(splitter, _) => splitter.push(bytes),
        }
    }

    /// The body is complete.
    pub(super) fn finish(&mut self) {
        match &mut self.halves {
            Halves::Json(splitter, _) => splitter.finish(),
            Halves::Protobuf(splitter, _) => splitter.finish(),
        }
    }

    /// The next piece, or none until more is pushed.
    pub(super) fn next(&mut self) -> Result<Option<Piece>, SplitError> {
        match &mut self.halves {
            Halves::Json(splitter, _) => splitter.next(),
            Halves::Protobuf(splitter, _) => splitter.next(),
        }
    }

    /// What the list has said about itself so far.
    pub(super) fn meta(&self) -> &ListMeta {
        match &self.halves {
            Halves::Json(splitter, _) => splitter.meta(),
            Halves::Protobuf(splitter, _) => splitter.meta(),
        }
    }

    /// What leaves of the first piece.
    pub(super) fn head(&mut self, bytes: Bytes) -> Vec<Bytes> {
        self.head = bytes.clone();
        match (&self.halves, self.metadata) {
            (Halves::Protobuf(..), _) => Vec::new(),
            (Halves::Json(..), None) => vec![bytes],
            (Halves::Json(..), Some(version)) => {
                let TypeMeta { api_version, kind } = partial_list(version);
                vec![format!(r#"{{"kind":"{kind}","apiVersion":"{api_version}","items":["#).into()]
            }
        }
    }

    /// What leaves of a batch.
    pub(super) fn batch(&mut self, batch: &Batch, outcomes: Vec<ItemOutcome>) -> Result<Vec<Bytes>, SplitError> {
        match &mut self.halves {
            Halves::Json(_, joiner) => joiner.push(batch, outcomes),
            Halves::Protobuf(_, joiner) => joiner.push(batch, outcomes),
        }
    }

    /// What leaves of the last piece.
    pub(super) fn tail(&mut self, bytes: Bytes) -> Result<Vec<Bytes>, weir_document::Error> {
        self.tail = bytes.clone();
        match (&self.halves, self.metadata) {
            (Halves::Protobuf(..), _) | (Halves::Json(..), None) => Ok(vec![bytes]),
            (Halves::Json(..), Some(_)) => {
                // Without its items the list is a small object; its metadata may stand before or after them.
                let rest = Document::json([&self.head[..], &bytes].concat().into());
                let metadata = list_metadata(&rest)?;
                Ok(vec![Bytes::from_static(b"],\"metadata\":"), metadata, Bytes::from_static(b"}\n")])
            }
        }
    }

    /// What goes in front of all that has left, once that is all; nothing for JSON.
    pub(super) fn front(&self) -> Result<Bytes, SplitError> {
        match &self.halves {
            Halves::Json(..) => Ok(Bytes::new()),
            Halves::Protobuf(_, joiner) => {
                let type_meta = self.metadata.map(partial_list);
                joiner.head(&self.head, type_meta.as_ref())
            }
        }
    }
}
