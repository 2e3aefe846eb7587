//! One object as the server sent it → as a feed holds it: its own buffer (never a slice of a list's), without managed
//! fields, and reduced to metadata where only that was asked for and the server sent more.

use std::sync::{Arc, LazyLock};

use bytes::Bytes;
use weir_document::{Document, Path, TypeMeta};

use super::store::{Held, Key};
use weir_document::CachedObject;

/// Paths that every object is read at.
struct Paths {
    version: Path,
    managed_fields: Path,
    metadata: Path,
}

static PATHS: LazyLock<Option<Paths>> = LazyLock::new(|| {
    Some(Paths {
        version: Path::parse("metadata.resourceVersion").ok()?,
        managed_fields: Path::parse("metadata.managedFields").ok()?,
        metadata: Path::parse("metadata").ok()?,
    })
});

/// The group and kind of what `PartialObjectMetadata` answers hold.
const PARTIAL: &str = "PartialObjectMetadata";

/// Why the bytes are no object that a feed could hold.
#[derive(Debug, thiserror::Error)]
pub(super) enum ObjectError {
    #[error("an object that can not be read: {0}")]
    Unreadable(#[from] weir_document::Error),
    #[error("an object without a name")]
    Nameless,
}

/// Reads what identifies an object and makes it the feed's own. `default_type`: what an item of a typed list is.
pub(super) fn hold(
    bytes: &Bytes,
    default_type: Option<&Arc<TypeMeta>>,
    metadata_only: bool,
) -> Result<(Key, Held), ObjectError> {
    let mut document = Document::json(bytes.clone());
    if let Some(type_meta) = default_type {
        document = document.with_type(type_meta.clone());
    }
    let key = read_key(&document)?;
    let Some(paths) = PATHS.as_ref() else {
        // The paths are constants that parse; a test says so.
        return Ok((key, Held { object: Arc::new(CachedObject::new(document)), version: Box::default() }));
    };
    let version = document.text(&paths.version)?.unwrap_or_default().into();
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
    Ok((key, Held { object: Arc::new(CachedObject::new(document)), version }))
}

/// The key alone, for an object that is gone.
pub(super) fn key_of(bytes: &Bytes) -> Result<Key, ObjectError> {
    read_key(&Document::json(bytes.clone()))
}

fn read_key(document: &Document) -> Result<Key, ObjectError> {
    let name = document.name()?;
    if name.is_empty() {
        return Err(ObjectError::Nameless);
    }
    Ok(Key::new(document.namespace()?.as_deref().unwrap_or_default(), &name))
}

/// `metadata.resourceVersion` of any object.
pub(super) fn version_of(bytes: &Bytes) -> Option<String> {
    let document = Document::json(bytes.clone());
    document.text(&PATHS.as_ref()?.version).ok().flatten().map(|version| version.into_owned())
}

fn metadata_of(document: &Document, paths: &Paths) -> Result<Bytes, weir_document::Error> {
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

    fn held(json: &str, metadata_only: bool) -> (Key, Held) {
        let type_meta = Arc::new(TypeMeta { api_version: "v1".into(), kind: "Node".into() });
        hold(&Bytes::copy_from_slice(json.as_bytes()), Some(&type_meta), metadata_only).unwrap()
    }

    #[test]
    fn managed_fields_are_not_held_and_all_else_is_as_it_came() {
        let (key, held) =
            held(r#"{"metadata":{"name":"a","managedFields":[{"x":1}], "resourceVersion":"7"},"x": 1.0}"#, false);
        assert_eq!(key, Key::new("", "a"));
        assert_eq!(&*held.version, "7");
        let text = String::from_utf8(held.object.document().bytes().to_vec()).unwrap();
        assert!(!text.contains("managedFields") && text.contains(r#""x": 1.0"#), "{text}");
        assert_eq!(held.object.document().kind().unwrap(), "Node");
    }

    #[test]
    fn a_whole_object_is_reduced_to_metadata_where_only_that_was_asked_for() {
        let (_, held) = held(r#"{"metadata":{"name":"a","labels":{"x":"y"}},"status":{"big":1}}"#, true);
        assert_eq!(
            &held.object.document().bytes()[..],
            br#"{"apiVersion":"v1","kind":"Node","metadata":{"name":"a","labels":{"x":"y"}}}"#
        );
    }

    #[test]
    fn an_object_without_a_name_is_an_error() {
        for bad in ["{}", "[]", "", r#"{"metadata":{"name":"a""#] {
            assert!(hold(&Bytes::copy_from_slice(bad.as_bytes()), None, false).is_err(), "{bad}");
        }
    }
}
