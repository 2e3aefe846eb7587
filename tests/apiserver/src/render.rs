//! Encodes objects, lists and watch events in the negotiated encoding and shape.
//!
//! Complete objects are copied from the store's encodings. Table and metadata are built per request. A list is
//! rendered in pieces of about 64 KiB as the client reads it, so its memory is one piece.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Map, Value, json};
use weir_document::json::EventType;

use crate::body;
use crate::catalog::Resource;
use crate::negotiate::{Accepted, Media, Shape};
use crate::status::Status;
use crate::store::{StoredObject, prefix};
use crate::table::{self, Include};

mod json;
mod protobuf;

pub(crate) use protobuf::sealed;

/// How the responses of one request are encoded.
pub(crate) struct Renderer {
    resource: Arc<Resource>,
    accepted: Accepted,
    include: Include,
    /// The JSON prefix of a complete object.
    prefix: String,
}

/// The `metadata` of a list.
pub(crate) struct ListMetadata {
    pub(crate) revision: u64,
    pub(crate) next_page: Option<String>,
    pub(crate) remaining: Option<usize>,
}

/// A rendered response: its pieces and their total length.
pub(crate) struct Rendered {
    pub(crate) media: Media,
    pub(crate) pieces: Box<dyn Iterator<Item = Bytes> + Send>,
    pub(crate) length: usize,
}

const PIECE: usize = 64 * 1024;

// === impl Renderer ===

impl Renderer {
    pub(crate) fn new(resource: Arc<Resource>, accepted: Accepted, include: Include) -> Self {
        Self { prefix: prefix(&resource), resource, accepted, include }
    }

    pub(crate) fn accepted(&self) -> Accepted {
        self.accepted
    }

    pub(crate) fn media(&self) -> Media {
        self.accepted.media
    }

    /// One object.
    pub(crate) fn object(&self, object: &StoredObject) -> Result<Rendered, Status> {
        let bytes = match self.media() {
            Media::Json => json::object(self, object),
            Media::Protobuf => protobuf::object(self, object)?,
        };
        Ok(Rendered::bytes(self.media(), bytes).pretty(self.accepted))
    }

    /// A watch event. `header` is for tables only.
    pub(crate) fn event(&self, event: EventType, object: &StoredObject, header: bool) -> Result<Bytes, Status> {
        match self.media() {
            Media::Json => Ok(json::event(self, event, object, header)),
            Media::Protobuf => protobuf::event(event, &protobuf::object(self, object)?),
        }
    }

    /// A BOOKMARK, with an object of the watched kind or of the negotiated shape.
    pub(crate) fn bookmark(&self, revision: u64, initial_end: bool, header: bool) -> Result<Bytes, Status> {
        let mut metadata = json!({"resourceVersion": revision.to_string(), "creationTimestamp": null});
        if initial_end {
            let end = json!({"k8s.io/initial-events-end": "true"});
            metadata.as_object_mut().map(|metadata| metadata.insert("annotations".into(), end));
        }
        let object = match self.accepted.shape {
            Shape::Objects => json!({
                "kind": self.resource.kind,
                "apiVersion": self.resource.api_version(),
                "metadata": metadata,
            }),
            Shape::Metadata => partial(&metadata),
            // The API server prints the bookmark's empty object as a row, so the annotation is in the row's object.
            Shape::Table => {
                let mut own = Map::new();
                own.insert("resourceVersion".into(), revision.to_string().into());
                let none = std::iter::empty();
                let mut table = table::table(&self.resource, none, self.include, own, header);
                if let Some(table) = table.as_object_mut() {
                    let row = json!({"cells": [], "object": partial(&metadata)});
                    table.insert("rows".into(), json!([row]));
                }
                table
            }
        };
        match self.media() {
            Media::Json => Ok(json::line(EventType::Bookmark, &object)),
            Media::Protobuf => protobuf::event(EventType::Bookmark, &sealed(&object)?),
        }
    }

    /// An ERROR event.
    pub(crate) fn error(&self, status: &Status) -> Bytes {
        let status = status.value();
        match self.media() {
            Media::Json => json::line(EventType::Error, &status),
            // The schema has every member of a Status. Without it the stream would end without an error event.
            Media::Protobuf => {
                sealed(&status).and_then(|status| protobuf::event(EventType::Error, &status)).unwrap_or_default()
            }
        }
    }

    /// A list of any length.
    pub(crate) fn list(&self, objects: Vec<Arc<StoredObject>>, meta: &ListMetadata) -> Result<Rendered, Status> {
        match self.media() {
            Media::Json => Ok(json::list(self, objects, meta).pretty(self.accepted)),
            Media::Protobuf => protobuf::list(self, &objects, meta),
        }
    }
}

// === impl Rendered ===

impl Rendered {
    fn bytes(media: Media, bytes: impl Into<Bytes>) -> Self {
        let bytes = bytes.into();
        Self { media, length: bytes.len(), pieces: Box::new(std::iter::once(bytes)) }
    }

    /// Bytes that exist already.
    pub(crate) fn slices(media: Media, bytes: Bytes) -> Self {
        Self { media, length: bytes.len(), pieces: Box::new(body::slices(bytes)) }
    }

    /// The complete bytes.
    pub(crate) fn collect(self) -> Bytes {
        let all = self.pieces.fold(Vec::with_capacity(self.length), |mut all, piece| {
            all.extend_from_slice(&piece);
            all
        });
        all.into()
    }

    /// A response in pieces: the head, then what `more` appends until it returns false, then the foot.
    fn in_pieces(
        media: Media,
        length: usize,
        head: Vec<u8>,
        mut more: impl FnMut(&mut Vec<u8>) -> bool + Send + 'static,
        foot: Vec<u8>,
    ) -> Self {
        let mut head = Some(head);
        let mut foot = Some(foot);
        let pieces = std::iter::from_fn(move || {
            foot.as_ref()?;
            let mut piece = Vec::with_capacity(PIECE + PIECE / 4);
            piece.extend(head.take().unwrap_or_default());
            while piece.len() < PIECE {
                if !more(&mut piece) {
                    piece.extend(foot.take().unwrap_or_default());
                    break;
                }
            }
            Some(Bytes::from(piece))
        });
        Self { media, length, pieces: Box::new(pieces) }
    }

    /// Indented, if it is JSON and the client requests it. It is then held completely.
    fn pretty(self, accepted: Accepted) -> Self {
        if !accepted.pretty || self.media != Media::Json {
            return self;
        }
        let media = self.media;
        let bytes = self.collect();
        match serde_json::from_slice(&bytes).and_then(|value: Value| serde_json::to_vec_pretty(&value)) {
            Ok(mut indented) => {
                indented.push(b'\n');
                Self::bytes(media, indented)
            }
            // This JSON was encoded by this server and parses.
            Err(_) => Self::bytes(media, bytes),
        }
    }
}

fn partial(metadata: &Value) -> Value {
    json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata})
}
