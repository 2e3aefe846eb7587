//! Reduces an object to what lookups need of it: without managed fields, which are often its larger part, or its metadata
//! alone.

use std::sync::Arc;

use bytes::Bytes;
use weir_document::{Document, Path, TypeMeta, path};
use weir_spec::CachedObject;

use super::store_key::StoreKey;

static MANAGED_FIELDS: Path = path!("metadata.managedFields");

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

/// Reads the key of a JSON object that names its type, and reduces the object.
pub(super) fn read_object(bytes: &Bytes, metadata_only: bool) -> Result<(StoreKey, Arc<CachedObject>), InvalidObject> {
    let document = Document::json(bytes.clone());
    let key = StoreKey::of(&document)?.ok_or(InvalidObject::Nameless)?;
    let own = reduced(document, metadata_only)?;
    Ok((key, Arc::new(CachedObject::new(Document::json(own)))))
}

/// The bytes of an object without its managed fields, in an allocation of their own. With `metadata_only`, a JSON object is
/// reduced to its metadata, in case the API server does not serve `PartialObjectMetadata`.
pub(super) fn reduced(mut document: Document, metadata_only: bool) -> Result<Bytes, weir_document::Error> {
    document.remove(&MANAGED_FIELDS)?;
    if metadata_only && document.kind()? != PARTIAL {
        let (api_version, kind) = (document.api_version()?.into_owned(), document.kind()?.into_owned());
        document.only_metadata(&TypeMeta { api_version, kind })
    } else if document.is_edited() {
        Ok(document.bytes().clone())
    } else {
        Ok(Bytes::copy_from_slice(document.bytes()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text_of(json: &str, metadata_only: bool) -> String {
        let type_meta = Arc::new(TypeMeta { api_version: "v1".into(), kind: "Node".into() });
        let document = Document::json(json.to_owned().into()).with_type(type_meta);
        String::from_utf8(reduced(document, metadata_only).unwrap().to_vec()).unwrap()
    }

    #[test]
    fn managed_fields_are_dropped_and_all_other_bytes_are_kept() {
        let json = r#"{"metadata":{"name":"a","managedFields":[{"x":1}], "resourceVersion":"7"},"x": 1.0}"#;
        let text = text_of(json, false);
        assert!(!text.contains("managedFields") && text.contains(r#""x": 1.0"#), "{text}");
        let (key, _) = read_object(&Bytes::from_static(json.as_bytes()), false).unwrap();
        assert_eq!(key, StoreKey::new("", "a"));
    }

    #[test]
    fn a_metadata_only_lookup_reduces_whole_objects() {
        assert_eq!(
            text_of(r#"{"metadata":{"name":"a","labels":{"x":"y"}},"status":{"big":1}}"#, true),
            r#"{"kind":"Node","apiVersion":"v1","metadata":{"name":"a","labels":{"x":"y"}}}"#
        );
    }

    #[test]
    fn an_object_without_a_name_is_an_error() {
        for bad in ["{}", "[]", "", r#"{"metadata":{"name":"a""#] {
            assert!(read_object(&Bytes::copy_from_slice(bad.as_bytes()), false).is_err(), "{bad}");
        }
    }
}
