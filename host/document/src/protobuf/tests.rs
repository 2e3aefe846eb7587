//! Protobuf documents against objects that the Go types encoded, against JSON documents, and against bad bytes.

mod bad;
mod edits;
mod fixtures;
mod normal;
mod same;

use super::{schema, wire};
use crate::{Document, TypeMeta};
use bytes::Bytes;
use std::sync::Arc;

fn type_meta(api_version: &str, kind: &str) -> Arc<TypeMeta> {
    Arc::new(TypeMeta { api_version: api_version.into(), kind: kind.into() })
}

/// The message of a JSON object.
fn message(type_meta: &TypeMeta, json: &str) -> Bytes {
    super::from_json(type_meta, json).unwrap()
}

fn document(type_meta: &Arc<TypeMeta>, json: &str) -> Document {
    Document::protobuf(message(type_meta, json), type_meta.clone()).unwrap()
}
