//! One object of a store: the bytes that the API server sent.

use std::sync::Arc;

use bytes::Bytes;
use weir_document::{Document, TypeMeta};
use weir_kube::Encoding;

use crate::StoreKey;

/// One object, immutable. Its bytes are an allocation of their own, so that an object never keeps a page of a list alive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Object {
    /// The namespace and the name.
    pub key: StoreKey,
    /// The `metadata.resourceVersion`.
    pub version: u64,
    /// The object in the encoding of its store. A protobuf message has no envelope.
    pub bytes: Bytes,
}

/// How a store keeps its objects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectFormat {
    /// The encoding of the bytes.
    pub encoding: Encoding,
    /// The apiVersion and the kind, which protobuf messages and the items of JSON lists do not carry.
    pub type_meta: Arc<TypeMeta>,
}

impl ObjectFormat {
    /// Returns bytes of this format as a document.
    #[must_use]
    pub fn document(&self, bytes: Bytes) -> Document {
        match self.encoding {
            Encoding::Json => Document::json(bytes).with_type(self.type_meta.clone()),
            // A store has the protobuf format only if the schema knows the kind. Otherwise every read of the document fails.
            Encoding::Protobuf => Document::protobuf(bytes, self.type_meta.clone())
                .unwrap_or_else(|| Document::json(Bytes::new()).with_type(self.type_meta.clone())),
        }
    }

    /// Whether two objects of this format say the same. `None` if they are of different versions, or not readable.
    pub(super) fn has_same_content(&self, one: &Object, other: &Object) -> Option<bool> {
        if one.version != other.version {
            return None;
        }
        if one.bytes == other.bytes || self.encoding == Encoding::Protobuf {
            return Some(one.bytes == other.bytes);
        }
        // The items of a list may lack what an event has: their type.
        let parse = |object: &Object| {
            let mut value: serde_json::Map<String, serde_json::Value> = serde_json::from_slice(&object.bytes).ok()?;
            value.retain(|key, _| key != "apiVersion" && key != "kind");
            Some(value)
        };
        Some(parse(one)? == parse(other)?)
    }
}
