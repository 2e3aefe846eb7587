//! Compares protobuf documents with objects that the Go types encoded and with JSON documents, and tests malformed
//! bytes.

mod bad;
mod edits;
mod fixtures;
mod normal;
mod same;

use super::{schema, wire};
use crate::{Document, TypeMeta, rules::IDENTITY};
use bytes::Bytes;
use std::sync::Arc;

fn type_meta(api_version: &str, kind: &str) -> Arc<TypeMeta> {
    Arc::new(TypeMeta { api_version: api_version.into(), kind: kind.into() })
}

/// Encodes a JSON object.
fn message(type_meta: &TypeMeta, json: &str) -> Bytes {
    super::from_json(type_meta, json).unwrap()
}

fn document(type_meta: &Arc<TypeMeta>, json: &str) -> Document {
    Document::protobuf(message(type_meta, json), type_meta.clone()).unwrap().with_rules(&IDENTITY)
}
