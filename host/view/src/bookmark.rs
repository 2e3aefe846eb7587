//! BOOKMARK events that Weir writes itself.

use bytes::Bytes;
use weir_document::json::{self, EventType};
use weir_document::protobuf::{self, Envelope};
use weir_document::{Error, TypeMeta};
use weir_kube::Encoding;

/// Encodes a BOOKMARK of a version. `initial`: it marks the end of the initial state. It has the kind of the watched objects,
/// because clients drop others.
pub(super) fn bookmark(type_meta: &TypeMeta, version: u64, initial: bool, encoding: Encoding) -> Result<Bytes, Error> {
    let annotations = match initial {
        true => serde_json::json!({"k8s.io/initial-events-end": "true"}),
        false => serde_json::Value::Null,
    };
    let mut object = serde_json::json!({
        "kind": type_meta.kind, "apiVersion": type_meta.api_version,
        "metadata": {"resourceVersion": version.to_string()},
    });
    if initial && let Some(metadata) = object.get_mut("metadata").and_then(serde_json::Value::as_object_mut) {
        metadata.insert("annotations".to_owned(), annotations);
    }
    let text = object.to_string();
    match encoding {
        Encoding::Json => Ok(json::event(EventType::Bookmark, text.as_bytes())),
        Encoding::Protobuf => {
            let message = protobuf::from_json(type_meta, &text)?;
            protobuf::event(EventType::Bookmark, &Envelope::seal(type_meta, &message))
        }
    }
}
