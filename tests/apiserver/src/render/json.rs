//! JSON: objects from the store's encoding, lists with their members in the API server's order, one line per event.
//!
//! It holds no state.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Map, Value, json};
use weir_document::json::EventType;

use super::{ListMetadata, Rendered, Renderer};
use crate::negotiate::{Media, Shape};
use crate::store::StoredObject;
use crate::table;

// === impl ListMetadata ===

impl ListMetadata {
    fn map(&self) -> Map<String, Value> {
        let mut map = Map::new();
        map.insert("resourceVersion".into(), self.revision.to_string().into());
        if let Some(token) = &self.next_page {
            map.insert("continue".into(), token.clone().into());
        }
        if let Some(remaining) = self.remaining {
            map.insert("remainingItemCount".into(), remaining.into());
        }
        map
    }
}

pub(super) fn object(renderer: &Renderer, object: &StoredObject) -> Bytes {
    let mut out = Vec::with_capacity(object.encoded_len(&renderer.prefix) + 64);
    write_object(renderer, object, true, &mut out);
    out.push(b'\n');
    out.into()
}

fn write_object(renderer: &Renderer, object: &StoredObject, header: bool, out: &mut Vec<u8>) {
    match renderer.accepted.shape {
        Shape::Objects => object.write(&renderer.prefix, out),
        Shape::Metadata => write_value(&table::partial(object), out),
        Shape::Table => {
            let mut metadata = Map::new();
            metadata.insert("resourceVersion".into(), object.revision.to_string().into());
            let one = std::iter::once(object);
            let table = table::table(&renderer.resource, one, renderer.include, metadata, header);
            write_value(&table, out);
        }
    }
}

pub(super) fn event(renderer: &Renderer, event: EventType, object: &StoredObject, header: bool) -> Bytes {
    let mut out = Vec::with_capacity(object.encoded_len(&renderer.prefix) + 64);
    out.extend_from_slice(b"{\"type\":\"");
    out.extend_from_slice(event.as_str().as_bytes());
    out.extend_from_slice(b"\",\"object\":");
    write_object(renderer, object, header, &mut out);
    out.extend_from_slice(b"}\n");
    out.into()
}

pub(super) fn line(event: EventType, object: &Value) -> Bytes {
    format!("{{\"type\":\"{}\",\"object\":{object}}}\n", event.as_str()).into()
}

pub(super) fn list(renderer: &Renderer, objects: Vec<Arc<StoredObject>>, meta: &ListMetadata) -> Rendered {
    match renderer.accepted.shape {
        Shape::Objects => object_list(renderer, objects, &Value::Object(meta.map())),
        Shape::Metadata => {
            let items: Vec<Value> = objects.iter().map(|object| table::partial(object)).collect();
            whole(&json!({
                "kind": "PartialObjectMetadataList",
                "apiVersion": "meta.k8s.io/v1",
                "metadata": meta.map(),
                "items": items,
            }))
        }
        Shape::Table => {
            let objects = objects.iter().map(AsRef::as_ref);
            whole(&table::table(&renderer.resource, objects, renderer.include, meta.map(), true))
        }
    }
}

/// In lists of built-in kinds, the list carries kind and apiVersion first, and its items do not. Lists of CRDs are the
/// opposite.
fn object_list(renderer: &Renderer, objects: Vec<Arc<StoredObject>>, metadata: &Value) -> Rendered {
    let resource = &renderer.resource;
    let (api, kind) = (resource.api_version(), resource.list_kind());
    let (head, item, foot) = if resource.custom {
        (
            format!("{{\"apiVersion\":\"{api}\",\"items\":["),
            renderer.prefix.clone(),
            format!("],\"kind\":\"{kind}\",\"metadata\":{metadata}}}\n"),
        )
    } else {
        (
            format!("{{\"kind\":\"{kind}\",\"apiVersion\":\"{api}\",\"metadata\":{metadata},\"items\":["),
            "{".to_owned(),
            "]}\n".to_owned(),
        )
    };
    let items: usize = objects.iter().map(|object| object.encoded_len(&item)).sum();
    let length = head.len() + items + objects.len().saturating_sub(1) + foot.len();
    let mut objects = objects.into_iter().enumerate();
    let more = move |piece: &mut Vec<u8>| {
        let Some((index, object)) = objects.next() else {
            return false;
        };
        if index > 0 {
            piece.push(b',');
        }
        object.write(&item, piece);
        true
    };
    Rendered::in_pieces(Media::Json, length, head.into_bytes(), more, foot.into_bytes())
}

fn whole(value: &Value) -> Rendered {
    let mut out = Vec::new();
    write_value(value, &mut out);
    out.push(b'\n');
    Rendered::bytes(Media::Json, out)
}

fn write_value(value: &Value, out: &mut Vec<u8>) {
    // Writing to memory does not fail.
    let _ = serde_json::to_writer(out, value);
}
