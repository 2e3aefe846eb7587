//! Converts an object of a response into the form that the store keeps.
//!
//! The store keeps each object in a buffer of its own, because a slice would keep the whole list in memory. It drops managed
//! fields. For a metadata-only lookup it reduces whole objects to `PartialObjectMetadata`.

use std::sync::{Arc, LazyLock};

use bytes::Bytes;
use weir_document::{Document, Path, TypeMeta};

use super::indexed_objects::StoredObject;
use super::store_key::StoreKey;
use weir_document::CachedObject;

/// The paths that are read of every object.
struct ObjectPaths {
    managed_fields: Path,
    metadata: Path,
}

static PATHS: LazyLock<Option<ObjectPaths>> = LazyLock::new(|| {
    Some(ObjectPaths {
        managed_fields: Path::parse("metadata.managedFields").ok()?,
        metadata: Path::parse("metadata").ok()?,
    })
});

/// The kind of the items in `PartialObjectMetadata` responses.
const PARTIAL: &str = "PartialObjectMetadata";

/// The bytes are not an object that the store can keep.
#[derive(Debug, thiserror::Error)]
pub(super) enum InvalidObject {
    #[error("unreadable object: {0}")]
    Unreadable(#[from] weir_document::Error),
    #[error("object without a name")]
    Nameless,
}

/// Reads the key of an object and copies the object. `default_type` is the type of an item of a typed list.
pub(super) fn read_object(
    bytes: &Bytes,
    default_type: Option<&Arc<TypeMeta>>,
    metadata_only: bool,
) -> Result<(StoreKey, StoredObject), InvalidObject> {
    let mut document = Document::json(bytes.clone());
    if let Some(type_meta) = default_type {
        document = document.with_type(type_meta.clone());
    }
    let key = read_key(&document)?;
    let Some(paths) = PATHS.as_ref() else {
        // Unreachable: the paths are constants, and a test parses them.
        return Ok((key, StoredObject { object: Arc::new(CachedObject::new(document)), version: Box::default() }));
    };
    let version = document.resource_version()?.unwrap_or_default().into();
    document.remove(&paths.managed_fields)?;
    let own = if metadata_only && document.kind()? != PARTIAL {
        metadata_of(&document, paths)?
    } else if document.is_edited() {
        document.bytes().clone()
    } else {
        Bytes::copy_from_slice(document.bytes())
    };
    let mut document = Document::json(own);
    if let Some(type_meta) = default_type {
        document = document.with_type(type_meta.clone());
    }
    Ok((key, StoredObject { object: Arc::new(CachedObject::new(document)), version }))
}

/// The key of a deleted object.
pub(super) fn key_of(bytes: &Bytes) -> Result<StoreKey, InvalidObject> {
    read_key(&Document::json(bytes.clone()))
}

fn read_key(document: &Document) -> Result<StoreKey, InvalidObject> {
    let name = document.name()?;
    if name.is_empty() {
        return Err(InvalidObject::Nameless);
    }
    Ok(StoreKey::new(document.namespace()?.as_deref().unwrap_or_default(), &name))
}

/// The `metadata.resourceVersion` of an object.
pub(super) fn version_of(bytes: &Bytes) -> Option<String> {
    let document = Document::json(bytes.clone());
    document.resource_version().ok().flatten().map(|version| version.into_owned())
}

fn metadata_of(document: &Document, paths: &ObjectPaths) -> Result<Bytes, weir_document::Error> {
    let metadata = document.text(&paths.metadata)?.unwrap_or("{}".into()).into_owned();
    let text = |text: &str| serde_json::Value::from(text).to_string();
    let json = format!(
        r#"{{"apiVersion":{},"kind":{},"metadata":{metadata}}}"#,
        text(&document.api_version()?),
        text(&document.kind()?)
    );
    Ok(json.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored(json: &str, metadata_only: bool) -> (StoreKey, StoredObject) {
        let type_meta = Arc::new(TypeMeta { api_version: "v1".into(), kind: "Node".into() });
        read_object(&Bytes::copy_from_slice(json.as_bytes()), Some(&type_meta), metadata_only).unwrap()
    }

    #[test]
    fn managed_fields_are_dropped_and_all_other_bytes_are_kept() {
        let (key, object) =
            stored(r#"{"metadata":{"name":"a","managedFields":[{"x":1}], "resourceVersion":"7"},"x": 1.0}"#, false);
        assert_eq!(key, StoreKey::new("", "a"));
        assert_eq!(&*object.version, "7");
        let text = String::from_utf8(object.object.document().bytes().to_vec()).unwrap();
        assert!(!text.contains("managedFields") && text.contains(r#""x": 1.0"#), "{text}");
        assert_eq!(object.object.document().kind().unwrap(), "Node");
    }

    #[test]
    fn a_metadata_only_lookup_reduces_whole_objects() {
        let (_, object) = stored(r#"{"metadata":{"name":"a","labels":{"x":"y"}},"status":{"big":1}}"#, true);
        assert_eq!(
            &object.object.document().bytes()[..],
            br#"{"apiVersion":"v1","kind":"Node","metadata":{"name":"a","labels":{"x":"y"}}}"#
        );
    }

    #[test]
    fn an_object_without_a_name_is_an_error() {
        for bad in ["{}", "[]", "", r#"{"metadata":{"name":"a""#] {
            assert!(read_object(&Bytes::copy_from_slice(bad.as_bytes()), None, false).is_err(), "{bad}");
        }
    }
}
