//! Objects, lists and watch events as bytes, in the form the client negotiated.
//!
//! Plain objects are copied from the store's encoding; Table and metadata are made per request. A list is rendered in
//! pieces of about 64 KiB as it is read: memory is a piece.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Map, Value, json};

use crate::catalog::Resource;
use crate::negotiate::Form;
use crate::store::{Object, prefix};
use crate::table::{self, Include};

/// How one request's answers are written.
pub(crate) struct Renderer {
    resource: Arc<Resource>,
    form: Form,
    include: Include,
    /// What a plain object begins with.
    prefix: String,
}

/// What `metadata` of a list says.
pub(crate) struct ListMeta {
    pub(crate) revision: u64,
    pub(crate) next_page: Option<String>,
    pub(crate) remaining: Option<usize>,
}

/// A rendered list: its pieces and their total length.
pub(crate) struct Rendered {
    pub(crate) pieces: Box<dyn Iterator<Item = Bytes> + Send>,
    pub(crate) length: usize,
}

const PIECE: usize = 64 * 1024;

// === impl ListMeta ===

impl ListMeta {
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

// === impl Renderer ===

impl Renderer {
    pub(crate) fn new(resource: Arc<Resource>, form: Form, include: Include) -> Self {
        Self { prefix: prefix(&resource), resource, form, include }
    }

    /// One object; `header` matters to tables only.
    pub(crate) fn object(&self, object: &Object, header: bool) -> Vec<u8> {
        let mut out = Vec::with_capacity(object.encoded_len(&self.prefix) + 64);
        self.write_object(object, header, &mut out);
        out
    }

    fn write_object(&self, object: &Object, header: bool, out: &mut Vec<u8>) {
        match self.form {
            Form::Objects => object.write(&self.prefix, out),
            Form::Metadata => write_value(&table::partial(object), out),
            Form::Table => {
                let mut metadata = Map::new();
                metadata.insert("resourceVersion".into(), object.revision.to_string().into());
                let one = std::iter::once(object);
                let table = table::table(&self.resource, one, self.include, metadata, header);
                write_value(&table, out);
            }
        }
    }

    /// A line of a watch.
    pub(crate) fn event(&self, kind: &str, object: &Object, header: bool) -> Bytes {
        let mut out = Vec::with_capacity(object.encoded_len(&self.prefix) + 64);
        out.extend_from_slice(b"{\"type\":\"");
        out.extend_from_slice(kind.as_bytes());
        out.extend_from_slice(b"\",\"object\":");
        self.write_object(object, header, &mut out);
        out.extend_from_slice(b"}\n");
        out.into()
    }

    /// A BOOKMARK: of the watched kind, or of the form's.
    pub(crate) fn bookmark(&self, revision: u64, initial_end: bool, header: bool) -> Bytes {
        let mut metadata = json!({"resourceVersion": revision.to_string(), "creationTimestamp": null});
        if initial_end {
            let end = json!({"k8s.io/initial-events-end": "true"});
            metadata.as_object_mut().map(|metadata| metadata.insert("annotations".into(), end));
        }
        let object = match self.form {
            Form::Objects => json!({
                "kind": self.resource.kind,
                "apiVersion": self.resource.api_version(),
                "metadata": metadata,
            }),
            Form::Metadata => partial(&metadata),
            // The server prints the bookmark's empty object as a row, so the annotation is found in the row's object.
            Form::Table => {
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
        line("BOOKMARK", &object)
    }

    /// A list of any length.
    pub(crate) fn list(&self, objects: Vec<Arc<Object>>, meta: &ListMeta) -> Rendered {
        let metadata = Value::Object(meta.map());
        match self.form {
            Form::Objects => self.object_list(objects, &metadata),
            Form::Metadata => {
                let items: Vec<Value> = objects.iter().map(|object| table::partial(object)).collect();
                Rendered::whole(&json!({
                    "kind": "PartialObjectMetadataList",
                    "apiVersion": "meta.k8s.io/v1",
                    "metadata": metadata,
                    "items": items,
                }))
            }
            Form::Table => {
                let objects = objects.iter().map(AsRef::as_ref);
                Rendered::whole(&table::table(&self.resource, objects, self.include, meta.map(), true))
            }
        }
    }

    /// Built-in lists say what they are first and their items do not; lists of CRDs the other way round.
    fn object_list(&self, objects: Vec<Arc<Object>>, metadata: &Value) -> Rendered {
        let (api, kind) = (self.resource.api_version(), self.resource.list_kind());
        let (head, item, foot) = if self.resource.custom {
            (
                format!("{{\"apiVersion\":\"{api}\",\"items\":["),
                self.prefix.clone(),
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
        let mut head = Some(head);
        let mut foot = Some(foot);
        let pieces = std::iter::from_fn(move || {
            foot.as_ref()?;
            let mut piece = Vec::with_capacity(PIECE + PIECE / 4);
            piece.extend(head.take().unwrap_or_default().into_bytes());
            while piece.len() < PIECE {
                let Some((index, object)) = objects.next() else {
                    piece.extend(foot.take().unwrap_or_default().into_bytes());
                    break;
                };
                if index > 0 {
                    piece.push(b',');
                }
                object.write(&item, &mut piece);
            }
            Some(Bytes::from(piece))
        });
        Rendered { pieces: Box::new(pieces), length }
    }
}

// === impl Rendered ===

impl Rendered {
    fn whole(value: &Value) -> Self {
        let mut out = Vec::new();
        write_value(value, &mut out);
        out.push(b'\n');
        Self::bytes(out)
    }

    pub(crate) fn bytes(bytes: Vec<u8>) -> Self {
        Self { length: bytes.len(), pieces: Box::new(std::iter::once(Bytes::from(bytes))) }
    }
}

/// An ERROR event.
pub(crate) fn error(status: &crate::status::Status) -> Bytes {
    line("ERROR", &status.value())
}

fn line(kind: &str, object: &Value) -> Bytes {
    format!("{{\"type\":\"{kind}\",\"object\":{object}}}\n").into()
}

fn partial(metadata: &Value) -> Value {
    json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata})
}

fn write_value(value: &Value, out: &mut Vec<u8>) {
    // Writing to memory does not fail.
    let _ = serde_json::to_writer(out, value);
}
