//! A stored object: its value and its encodings.
//!
//! apiVersion and kind are not part of the encoding, as they depend on the requested version and on whether the object
//! is in a list. An encoded object is a prefix and this shared tail. Memory: the value, its JSON, and its protobuf
//! after the first request for it.

use std::sync::{Mutex, PoisonError};

use bytes::Bytes;
use serde_json::{Map, Value};
use weir_document::{Error, TypeMeta};

use crate::catalog::Resource;
use crate::clock;

/// The key of an object within its collection. The namespace is empty for cluster-scoped objects.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Key {
    pub(crate) namespace: String,
    pub(crate) name: String,
}

/// One immutable version of an object.
#[derive(Debug)]
pub(crate) struct StoredObject {
    pub(crate) key: Key,
    pub(crate) revision: u64,
    /// Everything except apiVersion and kind. metadata comes first.
    pub(crate) body: Map<String, Value>,
    /// The JSON without its opening brace.
    tail: Bytes,
    /// The protobuf message of the kind and version of the last request.
    protobuf: Mutex<Option<(TypeMeta, Bytes)>>,
}

/// Which of apiVersion and kind the encoding begins with, and in which order.
pub(crate) fn prefix(resource: &Resource) -> String {
    let (api, kind) = (resource.api_version(), &resource.kind);
    if resource.custom {
        format!("{{\"apiVersion\":\"{api}\",\"kind\":\"{kind}\",")
    } else {
        format!("{{\"kind\":\"{kind}\",\"apiVersion\":\"{api}\",")
    }
}

// === impl Key ===

impl Key {
    pub(crate) fn new(namespace: &str, name: &str) -> Self {
        Self { namespace: namespace.to_owned(), name: name.to_owned() }
    }

    /// The lower bound of all keys of a namespace.
    pub(crate) fn first(namespace: &str) -> Self {
        Self::new(namespace, "")
    }
}

// === impl StoredObject ===

impl StoredObject {
    /// `body` with a version and the fields that the server sets: uid and creation time come from `old`, from the
    /// writer, or are new.
    pub(super) fn stamped(
        key: Key,
        mut body: Map<String, Value>,
        revision: u64,
        serial: u64,
        old: Option<&Self>,
    ) -> Self {
        body.shift_remove("apiVersion");
        body.shift_remove("kind");
        let mut metadata = match body.shift_remove("metadata") {
            Some(Value::Object(metadata)) => metadata,
            _ => Map::new(),
        };
        metadata.insert("name".into(), key.name.clone().into());
        if !key.namespace.is_empty() {
            metadata.insert("namespace".into(), key.namespace.clone().into());
        }
        for (field, made) in
            [("uid", format!("{serial:08x}-0000-4000-8000-{revision:012x}")), ("creationTimestamp", clock::now())]
        {
            let kept = old.and_then(|old| old.metadata().get(field)).cloned();
            if let Some(kept) = kept {
                metadata.insert(field.into(), kept);
            } else if !metadata.get(field).is_some_and(Value::is_string) {
                metadata.insert(field.into(), made.into());
            }
        }
        metadata.insert("resourceVersion".into(), revision.to_string().into());
        body.shift_insert(0, "metadata".into(), metadata.into());
        Self::encoded(key, revision, body)
    }

    fn encoded(key: Key, revision: u64, body: Map<String, Value>) -> Self {
        // Serializing a Value to memory cannot fail: its keys are strings.
        let bytes = serde_json::to_vec(&body).unwrap_or_else(|_| b"{}".to_vec());
        let tail = Bytes::from(bytes).slice(1..);
        Self { key, revision, body, tail, protobuf: Mutex::default() }
    }

    /// The object that a dry run returns.
    pub(crate) fn unstored(key: Key, body: Map<String, Value>, revision: u64) -> Self {
        Self::stamped(key, body, revision, 0, None)
    }

    /// The same object with another version.
    pub(crate) fn at(&self, revision: u64) -> Self {
        let mut body = self.body.clone();
        if let Some(Value::Object(metadata)) = body.get_mut("metadata") {
            metadata.insert("resourceVersion".into(), revision.to_string().into());
        }
        Self::encoded(self.key.clone(), revision, body)
    }

    /// Whether `body` is equal apart from the version.
    pub(super) fn same_but_version(&self, body: &Map<String, Value>) -> bool {
        let plain = |map: &Map<String, Value>| -> Map<String, Value> {
            let mut map = map.clone();
            map.shift_remove("apiVersion");
            map.shift_remove("kind");
            if let Some(Value::Object(metadata)) = map.get_mut("metadata") {
                metadata.shift_remove("resourceVersion");
                metadata.shift_remove("managedFields");
            }
            map
        };
        plain(&self.body) == plain(body)
    }

    pub(crate) fn metadata(&self) -> &Map<String, Value> {
        static EMPTY: std::sync::LazyLock<Map<String, Value>> = std::sync::LazyLock::new(Map::new);
        match self.body.get("metadata") {
            Some(Value::Object(metadata)) => metadata,
            _ => &EMPTY,
        }
    }

    pub(crate) fn text(&self, field: &str) -> &str {
        self.metadata().get(field).and_then(Value::as_str).unwrap_or("")
    }

    /// Appends the encoding with a prefix, or with an opening brace only.
    pub(crate) fn write(&self, prefix: &str, out: &mut Vec<u8>) {
        out.extend_from_slice(prefix.as_bytes());
        out.extend_from_slice(&self.tail);
    }

    pub(crate) fn encoded_len(&self, prefix: &str) -> usize {
        prefix.len() + self.tail.len()
    }

    /// The object as a protobuf message without an envelope. It is encoded on the first request.
    pub(crate) fn protobuf(&self, type_meta: &TypeMeta) -> Result<Bytes, Error> {
        let mut encoded = self.protobuf.lock().unwrap_or_else(PoisonError::into_inner);
        match &*encoded {
            Some((known, bytes)) if known == type_meta => Ok(bytes.clone()),
            _ => {
                let json = format!("{{{}", String::from_utf8_lossy(&self.tail));
                let bytes = weir_document::protobuf::from_json(type_meta, &json)?;
                *encoded = Some((type_meta.clone(), bytes.clone()));
                Ok(bytes)
            }
        }
    }

    /// The complete object as a value, in the version of `resource`.
    pub(crate) fn value(&self, resource: &Resource) -> Map<String, Value> {
        let mut value = Map::new();
        if resource.custom {
            value.insert("apiVersion".into(), resource.api_version().into());
            value.insert("kind".into(), resource.kind.clone().into());
        } else {
            value.insert("kind".into(), resource.kind.clone().into());
            value.insert("apiVersion".into(), resource.api_version().into());
        }
        value.extend(self.body.clone());
        value
    }
}
