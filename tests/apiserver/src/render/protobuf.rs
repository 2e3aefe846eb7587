//! Protobuf: an object in its envelope, a list `{1 metadata, 2 repeated items}` in one, an event as a frame.
//!
//! The size of a list is computed before it is written, from pointers to its items' bytes. An object with fields that
//! the schema lacks cannot be encoded. A real API server drops such fields on creation; here the read fails.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::Value;
use weir_document::json::EventType;
use weir_document::protobuf::{self, Envelope, MAGIC};
use weir_document::{Error, TypeMeta};

use super::{ListMetadata, Rendered, Renderer};
use crate::negotiate::{Media, Shape};
use crate::status::Status;
use crate::store::StoredObject;
use crate::table;

/// The tag of a list item.
const ITEM: u8 = 2 << 3 | 2;

pub(super) fn object(renderer: &Renderer, object: &StoredObject) -> Result<Bytes, Status> {
    let type_meta = type_meta(renderer, "");
    Ok(Envelope::seal(&type_meta, &message(renderer, &type_meta, object)?))
}

/// A value with apiVersion and kind, in its envelope.
pub(crate) fn sealed(value: &Value) -> Result<Bytes, Status> {
    let text = |field: &str| value.get(field).and_then(Value::as_str).unwrap_or("").to_owned();
    let type_meta = TypeMeta { api_version: text("apiVersion"), kind: text("kind") };
    let message =
        protobuf::from_json(&type_meta, &value.to_string()).map_err(|error| failed(&type_meta.kind, &error))?;
    Ok(Envelope::seal(&type_meta, &message))
}

pub(super) fn event(event: EventType, sealed: &Bytes) -> Result<Bytes, Status> {
    protobuf::event(event, sealed).map_err(|error| failed("WatchEvent", &error))
}

pub(super) fn list(
    renderer: &Renderer,
    objects: &[Arc<StoredObject>],
    meta: &ListMetadata,
) -> Result<Rendered, Status> {
    let item_type = type_meta(renderer, "");
    let items = objects.iter().map(|object| message(renderer, &item_type, object)).collect::<Result<Vec<_>, _>>()?;
    let metadata = field(1, &list_meta(meta));
    let lengths = items.iter().map(|item| 1 + varint(item.len() as u64).len() + item.len());
    let list = metadata.len() + lengths.sum::<usize>();
    let TypeMeta { api_version, kind } = type_meta(renderer, "List");
    let names = [field(1, api_version.as_bytes()), field(2, kind.as_bytes())].concat();
    let head = [MAGIC.to_vec(), field(1, &names), vec![ITEM], varint(list as u64)].concat();
    let foot = [field(3, b""), field(4, b"")].concat();
    let length = head.len() + list + foot.len();
    let mut items = items.into_iter();
    let more = move |piece: &mut Vec<u8>| {
        let Some(item) = items.next() else {
            return false;
        };
        piece.push(ITEM);
        piece.extend(varint(item.len() as u64));
        piece.extend_from_slice(&item);
        true
    };
    Ok(Rendered::in_pieces(Media::Protobuf, length, [head, metadata].concat(), more, foot))
}

/// An object without its envelope.
fn message(renderer: &Renderer, type_meta: &TypeMeta, object: &StoredObject) -> Result<Bytes, Status> {
    let bytes = match renderer.accepted.shape {
        Shape::Metadata => protobuf::from_json(type_meta, &table::partial(object).to_string()),
        Shape::Objects | Shape::Table => object.protobuf(type_meta),
    };
    bytes.map_err(|error| failed(&format!("{} {:?}", renderer.resource.kind, object.key.name), &error))
}

fn type_meta(renderer: &Renderer, suffix: &str) -> TypeMeta {
    let (api_version, kind) = match renderer.accepted.shape {
        Shape::Metadata => ("meta.k8s.io/v1".to_owned(), "PartialObjectMetadata"),
        Shape::Objects | Shape::Table => (renderer.resource.api_version(), renderer.resource.kind.as_str()),
    };
    TypeMeta { api_version, kind: format!("{kind}{suffix}") }
}

/// {1 selfLink, 2 resourceVersion, 3 continue, 4 remainingItemCount}. Go writes strings even when they are empty.
fn list_meta(meta: &ListMetadata) -> Vec<u8> {
    let mut out = field(1, b"");
    out.extend(field(2, meta.revision.to_string().as_bytes()));
    out.extend(field(3, meta.next_page.as_deref().unwrap_or("").as_bytes()));
    if let Some(remaining) = meta.remaining {
        out.push(4 << 3);
        out.extend(varint(remaining as u64));
    }
    out
}

fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    let mut out = vec![number << 3 | 2];
    out.extend(varint(bytes.len() as u64));
    out.extend_from_slice(bytes);
    out
}

fn varint(mut number: u64) -> Vec<u8> {
    let mut out = Vec::with_capacity(10);
    while number >= 0x80 {
        out.push((number & 0x7f) as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
    out
}

fn failed(what: &str, error: &Error) -> Status {
    Status::internal(format!("cannot write {what} as protobuf: {}", chain(error)))
}

fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}
