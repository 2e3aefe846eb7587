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
}
