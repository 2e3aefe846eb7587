//! One stored object: its value, and its bytes as every answer carries them.
//!
//! Kept without apiVersion and kind, which depend on the version asked for and on whether it stands in a list: an
//! encoded object is a prefix and the same tail. Memory: the value, its JSON, and its protobuf once that was asked for.

use std::sync::{Mutex, PoisonError};

use bytes::Bytes;
use serde_json::{Map, Value};
use weir_document::{Error, TypeMeta};

use crate::catalog::Resource;
use crate::clock;

/// Names an object within its collection; the namespace is empty for cluster-scoped ones.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Key {
    pub(crate) namespace: String,
    pub(crate) name: String,
}

/// One version of an object. Never changes.
#[derive(Debug)]
pub(crate) struct Object {
    pub(crate) key: Key,
    pub(crate) revision: u64,
    /// All but apiVersion and kind; metadata comes first.
    pub(crate) body: Map<String, Value>,
    /// The body encoded, without its opening brace.
    tail: Bytes,
    /// The message of the kind and version that was asked for last.
    protobuf: Mutex<Option<(TypeMeta, Bytes)>>,
}

/// Which of apiVersion and kind an encoded object begins with, and in which order.
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

    /// Before all keys of a namespace.
    pub(crate) fn first(namespace: &str) -> Self {
        Self::new(namespace, "")
    }
}

// === impl Object ===

impl Object {
    /// `body` under a version, with what the server owns filled in: uid and creation time are kept from `old`, or given
    /// by the writer, or made.
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
        // Serialising a Value to memory cannot fail: its keys are strings.
        let bytes = serde_json::to_vec(&body).unwrap_or_else(|_| b"{}".to_vec());
        let tail = Bytes::from(bytes).slice(1..);
        Self { key, revision, body, tail, protobuf: Mutex::default() }
    }

    /// What a dry run would have stored.
    pub(crate) fn unstored(key: Key, body: Map<String, Value>, revision: u64) -> Self {
        Self::stamped(key, body, revision, 0, None)
    }

    /// The same object under another version.
    pub(crate) fn at(&self, revision: u64) -> Self {
        let mut body = self.body.clone();
        if let Some(Value::Object(metadata)) = body.get_mut("metadata") {
            metadata.insert("resourceVersion".into(), revision.to_string().into());
        }
        Self::encoded(self.key.clone(), revision, body)
    }

    /// Whether `body` says the same, whatever version it carries.
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

    /// Appends the encoded object after a prefix (or after a lone brace).
    pub(crate) fn write(&self, prefix: &str, out: &mut Vec<u8>) {
        out.extend_from_slice(prefix.as_bytes());
        out.extend_from_slice(&self.tail);
    }

    pub(crate) fn encoded_len(&self, prefix: &str) -> usize {
        prefix.len() + self.tail.len()
    }

    /// The object as a message without an envelope; encoded when first asked for.
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

    /// The whole object as a value, in the version of `resource`.
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
