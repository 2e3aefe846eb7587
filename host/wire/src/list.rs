//! The list codec, for JSON and protobuf: [`ListDecoder`] cuts a list into batches of documents as its bytes arrive, and
//! [`ListEncoder`] encodes the filtered batches.
//!
//! JSON is encoded as it arrives. A protobuf list starts with its length, so its first bytes are known last, and the caller
//! buffers the rest until then. Memory: the decoder holds one batch and the largest item, the encoder the first piece of
//! the list.

use bytes::Bytes;
use weir_document::SplitError;
use weir_document::json;
use weir_document::list::{Batch, ItemOutcome, ListMeta, Piece};
use weir_document::{Document, TypeMeta, protobuf};
use weir_kube::{Encoding, MetaVersion, Transform};
use weir_runtime::Outcome;

use super::object::message;
use super::object_type::{partial, partial_list};
use super::table::list_metadata;
use super::{CodecError, EncodeError, ObjectType};

/// Slices with a larger average are not copied together.
const SLICE: usize = 16 << 10;

/// Cuts the bytes of a list into pieces.
pub struct ListDecoder {
    splitter: ListBytes,
    /// The type of the requested resource's objects.
    object_type: ObjectType,
    api_version: String,
    /// The type of the items, once the first piece was read.
    item_type: ObjectType,
}

enum ListBytes {
    Json(json::ListSplitter),
    Protobuf(protobuf::ListSplitter),
}

/// A piece of a list. The pieces of a list come in this order.
pub enum ListPiece {
    /// The bytes before the items. Every list has one such piece.
    Head(Bytes),
    /// Some of the items. A list has any number of such pieces.
    Items(ItemBatch),
    /// The bytes after the items. Every list has one such piece.
    Tail(Bytes),
}

/// Consecutive items of a list.
pub struct ItemBatch {
    batch: Batch,
    encoding: Encoding,
    item_type: ObjectType,
}

impl ListDecoder {
    /// Decodes a list of objects of this type. `api_version` is that of the requested resource. An item larger than
    /// `limit` bytes is an error.
    pub fn new(encoding: Encoding, object_type: ObjectType, api_version: String, limit: usize) -> Self {
        let splitter = match encoding {
            Encoding::Json => ListBytes::Json(json::ListSplitter::with_limit(limit)),
            Encoding::Protobuf => ListBytes::Protobuf(protobuf::ListSplitter::with_limit(limit)),
        };
        Self { splitter, item_type: object_type.clone(), object_type, api_version }
    }

    /// Takes the next bytes of the list.
    pub fn push(&mut self, bytes: Bytes) {
        match &mut self.splitter {
            ListBytes::Json(splitter) => splitter.push(bytes),
            ListBytes::Protobuf(splitter) => splitter.push(bytes),
        }
    }

    /// Marks the end of the list: no bytes follow.
    pub fn finish(&mut self) {
        match &mut self.splitter {
            ListBytes::Json(splitter) => splitter.finish(),
            ListBytes::Protobuf(splitter) => splitter.finish(),
        }
    }

    /// Returns the next piece; none until more bytes are pushed, or at the end.
    ///
    /// # Errors
    /// The bytes are not a list, or an item exceeds the limit.
    pub fn next_piece(&mut self) -> Result<Option<ListPiece>, CodecError> {
        let (piece, encoding) = match &mut self.splitter {
            ListBytes::Json(splitter) => (splitter.next()?, Encoding::Json),
            ListBytes::Protobuf(splitter) => (splitter.next()?, Encoding::Protobuf),
        };
        Ok(piece.map(|piece| match piece {
            Piece::Head { bytes } => {
                self.item_type = self.object_type.or_of_list(&self.api_version, self.meta());
                ListPiece::Head(bytes)
            }
            Piece::Batch(batch) => ListPiece::Items(ItemBatch { batch, encoding, item_type: self.item_type.clone() }),
            Piece::Tail { bytes } => ListPiece::Tail(bytes),
        }))
    }

    /// The metadata of the list as far as it has been read. It is complete after the last piece.
    pub fn meta(&self) -> &ListMeta {
        match &self.splitter {
            ListBytes::Json(splitter) => splitter.meta(),
            ListBytes::Protobuf(splitter) => splitter.meta(),
        }
    }
}

impl ItemBatch {
    /// Returns all items as documents.
    ///
    /// # Errors
    /// The type of an item is not known.
    pub fn documents(&self) -> Result<Vec<Document>, CodecError> {
        (0..self.batch.items.len()).map(|index| self.document(index)).collect()
    }

    fn document(&self, index: usize) -> Result<Document, CodecError> {
        match self.encoding {
            // The batch has an index of each JSON item, which the splitter made.
            Encoding::Json => {
                let document = self.batch.json(index).unwrap_or_else(|| Document::json(Bytes::new()));
                self.item_type.apply(document)
            }
            Encoding::Protobuf => self.message(self.batch.item(index).unwrap_or_default()),
        }
    }

    fn edited(&self, bytes: Bytes) -> Result<Document, CodecError> {
        match self.encoding {
            Encoding::Json => self.item_type.apply(Document::json(bytes)),
            Encoding::Protobuf => self.message(bytes),
        }
    }

    fn message(&self, bytes: Bytes) -> Result<Document, CodecError> {
        let item_type = self.item_type.known().ok_or(CodecError::NotAList)?;
        Ok(message(bytes, item_type)?)
    }
}

/// Encodes a list in its own encoding and in the form that the client requested.
pub struct ListEncoder {
    joiner: ListJoiner,
    /// The version of `PartialObjectMetadata`, if the client requested it.
    metadata: Option<MetaVersion>,
    head: Bytes,
}

enum ListJoiner {
    Json(json::Joiner),
    Protobuf(protobuf::Joiner),
}

impl ListEncoder {
    /// Starts a list.
    pub fn new(encoding: Encoding, transform: Transform) -> Self {
        let joiner = match encoding {
            Encoding::Json => ListJoiner::Json(json::Joiner::new()),
            Encoding::Protobuf => ListJoiner::Protobuf(protobuf::Joiner::new()),
        };
        let metadata = match transform {
            Transform::Metadata(version) => Some(version),
            Transform::None | Transform::Table(..) => None,
        };
        Self { joiner, metadata, head: Bytes::new() }
    }

    /// Encodes the first piece.
    pub fn head(&mut self, bytes: Bytes) -> Vec<Bytes> {
        self.head = bytes.clone();
        match (&self.joiner, self.metadata) {
            (ListJoiner::Protobuf(_), _) => Vec::new(),
            (ListJoiner::Json(_), None) => vec![bytes],
            (ListJoiner::Json(_), Some(version)) => {
                let TypeMeta { api_version, kind } = partial_list(version);
                vec![format!(r#"{{"kind":"{kind}","apiVersion":"{api_version}","items":["#).into()]
            }
        }
    }

    /// Encodes a batch, given one outcome for each of its items.
    ///
    /// # Errors
    /// An outcome is a failure, or an item is malformed.
    pub fn items(&mut self, items: &ItemBatch, outcomes: Vec<Outcome>) -> Result<Vec<Bytes>, EncodeError> {
        let mut written = Vec::with_capacity(outcomes.len());
        for (index, outcome) in outcomes.into_iter().enumerate() {
            written.push(match (outcome, self.metadata) {
                (Outcome::Unchanged, None) => ItemOutcome::Keep,
                (Outcome::Unchanged, Some(version)) => {
                    ItemOutcome::Edit(items.document(index)?.only_metadata(&partial(version))?)
                }
                (Outcome::Edited(bytes), None) => ItemOutcome::Edit(bytes),
                (Outcome::Edited(bytes), Some(version)) => {
                    ItemOutcome::Edit(items.edited(bytes)?.only_metadata(&partial(version))?)
                }
                (Outcome::Hidden, _) => ItemOutcome::Drop,
                (Outcome::Failed(failure), _) => return Err(EncodeError::Filter(failure)),
            });
        }
        Ok(match &mut self.joiner {
            ListJoiner::Json(joiner) => merged(joiner.push(&items.batch, written)?, items.batch.bytes.len()),
            // The caller copies these together, because it buffers them until the end.
            ListJoiner::Protobuf(joiner) => joiner.push(&items.batch, written)?,
        })
    }

    /// Encodes the last piece.
    ///
    /// # Errors
    /// The list's metadata is malformed.
    pub fn tail(&mut self, bytes: Bytes) -> Result<Vec<Bytes>, CodecError> {
        match (&self.joiner, self.metadata) {
            (ListJoiner::Protobuf(_), _) | (ListJoiner::Json(_), None) => Ok(vec![bytes]),
            (ListJoiner::Json(_), Some(_)) => {
                // Without its items the list is a small object. Its metadata may precede or follow the items.
                let rest = Document::json([&self.head[..], &bytes].concat().into());
                let metadata = list_metadata(&rest)?;
                Ok(vec![Bytes::from_static(b"],\"metadata\":"), metadata, Bytes::from_static(b"}\n")])
            }
        }
    }

    /// Returns the bytes that precede all others, after those are encoded; empty for JSON.
    ///
    /// # Errors
    /// The first piece is malformed.
    pub fn prefix(&self) -> Result<Bytes, SplitError> {
        match &self.joiner {
            ListJoiner::Json(_) => Ok(Bytes::new()),
            ListJoiner::Protobuf(joiner) => {
                let type_meta = self.metadata.map(partial_list);
                joiner.head(&self.head, type_meta.as_ref())
            }
        }
    }
}

/// Copies many small slices into one, because a frame for each would cost more than the copy. It also copies if little of a
/// batch is left, because slices would keep the whole batch in memory.
fn merged(slices: Vec<Bytes>, batch: usize) -> Vec<Bytes> {
    let length: usize = slices.iter().map(Bytes::len).sum();
    let small = slices.len() >= 4 && length / slices.len() <= SLICE;
    if slices.is_empty() || !(small || length < batch / 2) {
        return slices;
    }
    vec![slices.concat().into()]
}
