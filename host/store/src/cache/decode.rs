//! Reads lists and watch events of either encoding into objects.

use std::sync::Arc;

use bytes::Bytes;
use weir_document::Document;
use weir_document::SplitError;
use weir_document::json::{self, EventType};
use weir_document::list::{ListMeta, Piece};
use weir_document::protobuf::{self, Envelope};
use weir_kube::Encoding;

use super::collection::ObjectContent;
use super::object::{Object, ObjectFormat};
use crate::StoreKey;
use crate::resource_client::status_json;
use crate::stored_object::reduced;

/// The largest object that is accepted: ten times the default limit of etcd.
const MAX_ITEM: usize = 16 << 20;

/// The bytes are not a list, an event or an object that a store can keep.
#[derive(Debug, thiserror::Error)]
pub(super) enum DecodeError {
    #[error(transparent)]
    Split(#[from] SplitError),
    #[error("unreadable object: {0}")]
    Object(#[from] weir_document::Error),
    #[error("object without a name")]
    Nameless,
    #[error("object {0:?} without a numeric metadata.resourceVersion")]
    Version(String),
    #[error("the list names no kind")]
    Kind,
}

/// Splits the body of one page of a list.
pub(super) enum PageDecoder {
    Json(json::ListSplitter),
    Protobuf(protobuf::ListSplitter),
}

impl PageDecoder {
    pub(super) fn new(encoding: Encoding) -> Self {
        match encoding {
            Encoding::Json => Self::Json(json::ListSplitter::with_limit(MAX_ITEM)),
            Encoding::Protobuf => Self::Protobuf(protobuf::ListSplitter::with_limit(MAX_ITEM)),
        }
    }

    pub(super) fn encoding(&self) -> Encoding {
        match self {
            Self::Json(_) => Encoding::Json,
            Self::Protobuf(_) => Encoding::Protobuf,
        }
    }

    pub(super) fn push(&mut self, chunk: Bytes) {
        match self {
            Self::Json(splitter) => splitter.push(chunk),
            Self::Protobuf(splitter) => splitter.push(chunk),
        }
    }

    pub(super) fn finish(&mut self) {
        match self {
            Self::Json(splitter) => splitter.finish(),
            Self::Protobuf(splitter) => splitter.finish(),
        }
    }

    /// Appends the items that are complete.
    pub(super) fn items(&mut self, items: &mut Vec<Bytes>) -> Result<(), DecodeError> {
        loop {
            let piece = match self {
                Self::Json(splitter) => splitter.next()?,
                Self::Protobuf(splitter) => splitter.next()?,
            };
            match piece {
                Some(Piece::Batch(batch)) => items.extend((0..batch.items.len()).filter_map(|index| batch.item(index))),
                Some(_) => {}
                None => return Ok(()),
            }
        }
    }

    pub(super) fn meta(&self) -> &ListMeta {
        match self {
            Self::Json(splitter) => splitter.meta(),
            Self::Protobuf(splitter) => splitter.meta(),
        }
    }
}

/// The format of a list's items: the list names their kind.
pub(super) fn list_format(encoding: Encoding, meta: &ListMeta) -> Result<ObjectFormat, DecodeError> {
    let type_meta = Arc::new(meta.item_type().ok_or(DecodeError::Kind)?);
    Ok(ObjectFormat { encoding, type_meta })
}

/// Reads an object. Copies its bytes, as far as they are kept.
pub(super) fn object(format: &ObjectFormat, content: ObjectContent, bytes: &Bytes) -> Result<Object, DecodeError> {
    let document = format.document(bytes.clone());
    let (key, version) = (key(&document)?, version(&document)?);
    let bytes = match content {
        ObjectContent::Complete | ObjectContent::CompleteJson => Bytes::copy_from_slice(bytes),
        _ => reduced(document, content == ObjectContent::Metadata)?,
    };
    Ok(Object { key, version, bytes })
}

pub(super) fn key(document: &Document) -> Result<StoreKey, DecodeError> {
    StoreKey::of(document)?.ok_or(DecodeError::Nameless)
}

pub(super) fn version(document: &Document) -> Result<u64, DecodeError> {
    let text = document.resource_version()?.unwrap_or_default();
    text.parse().map_err(|_| DecodeError::Version(document.name().unwrap_or_default().into_owned()))
}

/// One event of a watch.
pub(super) enum WatchEvent {
    /// ADDED or MODIFIED.
    Put(Object),
    /// DELETED, at this version.
    Delete(StoreKey, u64),
    /// BOOKMARK of this version.
    Bookmark(u64),
    /// ERROR: the JSON of a `Status`.
    Error(Bytes),
}

/// Splits the body of a watch.
pub(super) enum EventDecoder {
    Json(json::FrameSplitter),
    Protobuf(protobuf::FrameSplitter),
}

impl EventDecoder {
    pub(super) fn new(encoding: Encoding) -> Self {
        match encoding {
            Encoding::Json => Self::Json(json::FrameSplitter::with_limit(MAX_ITEM)),
            Encoding::Protobuf => Self::Protobuf(protobuf::FrameSplitter::with_limit(MAX_ITEM)),
        }
    }

    pub(super) fn push(&mut self, chunk: Bytes) {
        match self {
            Self::Json(splitter) => splitter.push(chunk),
            Self::Protobuf(splitter) => splitter.push(chunk),
        }
    }

    /// Returns the next complete event.
    pub(super) fn next(
        &mut self,
        format: &ObjectFormat,
        content: ObjectContent,
    ) -> Result<Option<WatchEvent>, DecodeError> {
        let (event, bytes) = match self {
            Self::Json(splitter) => match splitter.next()? {
                Some(frame) => (frame.event, frame.object_bytes()),
                None => return Ok(None),
            },
            Self::Protobuf(splitter) => match splitter.next()? {
                Some(frame) => {
                    let envelope = Envelope::open(frame.object_bytes())?;
                    if frame.event == EventType::Error {
                        return Ok(Some(WatchEvent::Error(status_json(&envelope)?)));
                    }
                    (frame.event, envelope.object())
                }
                None => return Ok(None),
            },
        };
        Ok(Some(match event {
            EventType::Added | EventType::Modified => WatchEvent::Put(object(format, content, &bytes)?),
            EventType::Deleted => {
                let document = format.document(bytes);
                WatchEvent::Delete(key(&document)?, version(&document)?)
            }
            EventType::Bookmark => WatchEvent::Bookmark(version(&format.document(bytes))?),
            EventType::Error => WatchEvent::Error(bytes),
        }))
    }
}
