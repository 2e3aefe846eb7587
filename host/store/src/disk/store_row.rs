//! The row of a store: what it holds, and whose segments it consists of.

use std::sync::Arc;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use weir_document::TypeMeta;
use weir_kube::Encoding;

use super::config::{Confidentiality, StoreName};
use super::error::DiskError;
use super::seal::{seal, unseal};
use crate::cache::ObjectFormat;

/// A store on disk. Its row is written in the transaction of its segments.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct StoreRow {
    pub(super) name: StoreName,
    pub(super) confidentiality: Confidentiality,
    /// The id of the key of an encrypted store.
    pub(super) key: Option<String>,
    pub(super) protobuf: bool,
    pub(super) api_version: String,
    pub(super) kind: String,
    /// The resourceVersion.
    pub(super) version: u64,
    /// The number of objects.
    pub(super) objects: u64,
    /// The sequence numbers of the segments.
    pub(super) segments: std::ops::Range<u64>,
    /// The bytes of the segments.
    pub(super) bytes: u64,
    /// When the store was used last, in seconds since 1970.
    pub(super) used: u64,
    /// Whether the API server refuses the reader of the store.
    #[serde(default)]
    pub(super) refused: bool,
}

impl StoreRow {
    /// The row of an empty store.
    pub(super) fn new(name: StoreName, key: Option<&str>, format: &ObjectFormat) -> Self {
        Self {
            name,
            confidentiality: if key.is_some() { Confidentiality::Encrypted } else { Confidentiality::Plain },
            key: key.map(str::to_owned),
            protobuf: format.encoding == Encoding::Protobuf,
            api_version: format.type_meta.api_version.clone(),
            kind: format.type_meta.kind.clone(),
            version: 0,
            objects: 0,
            segments: 0..0,
            bytes: 0,
            used: 0,
            refused: false,
        }
    }

    pub(super) fn format(&self) -> ObjectFormat {
        let type_meta = TypeMeta { api_version: self.api_version.clone(), kind: self.kind.clone() };
        let encoding = if self.protobuf { Encoding::Protobuf } else { Encoding::Json };
        ObjectFormat { encoding, type_meta: Arc::new(type_meta) }
    }

    pub(super) fn seal(&self, id: u64) -> Result<Vec<u8>, DiskError> {
        let text = serde_json::to_vec(self).map_err(|error| DiskError::Damaged(error.to_string()))?;
        seal(&place(id), &text, None)
    }

    pub(super) fn unseal(id: u64, blob: &[u8]) -> Result<Self, DiskError> {
        let text = Bytes::from(unseal(&place(id), blob, None)?);
        serde_json::from_slice(&text).map_err(|error| DiskError::Damaged(error.to_string()))
    }
}

fn place(id: u64) -> Vec<u8> {
    [&b"store"[..], &id.to_le_bytes()].concat()
}

/// The place of a segment.
pub(super) fn segment_place(store: u64, sequence: u64) -> Vec<u8> {
    [&b"segment"[..], &store.to_le_bytes(), &sequence.to_le_bytes()].concat()
}
