//! Extracts parts of an object as bytes in its own encoding.

use super::{
    Document, Encoded,
    reads::{one_place, span},
};
use crate::{Error, Path, TypeMeta, json, protobuf};
use bytes::Bytes;
use serde::de::DeserializeOwned;

static METADATA: Path = crate::path!("metadata");

impl Document {
    /// Returns the JSON text of the value at a path without `[*]`, including null, or none if it is missing. It shares
    /// the bytes of a JSON document.
    pub fn json_at(&self, at: &Path) -> Result<Option<Bytes>, Error> {
        match &self.encoded {
            Encoded::Json(object) if at.wildcards() == 0 => {
                Ok(span(object, at.segments())?.map(|span| object.bytes().slice(span)))
            }
            _ => Ok(self.raw_rows(at)?.pop().flatten().map(|text| Bytes::from(text.into_owned()))),
        }
    }

    /// Deserializes the value at a path without `[*]`, and nothing else of the object. Returns none if it is missing or null. The
    /// path of the whole object is `$`.
    ///
    /// ```
    /// use std::collections::BTreeMap;
    /// use weir_document::{Document, path};
    ///
    /// let pod = Document::json(r#"{"metadata": {"labels": {"app": "web"}}, "status": {"phase": "Running"}}"#.into());
    /// let labels: Option<BTreeMap<String, String>> = pod.deserialize_at(&path!("metadata.labels"))?;
    /// assert_eq!(labels.unwrap_or_default()["app"], "web");
    /// # Ok::<_, weir_document::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Type`] if the value has another type, and those of [`Document::get`].
    pub fn deserialize_at<T: DeserializeOwned>(&self, at: &Path) -> Result<Option<T>, Error> {
        one_place(at)?;
        let json = match at.segments() {
            // With the type that the bytes do not name.
            [] => Some(Bytes::from(self.to_json()?)),
            _ => self.json_at(at)?,
        };
        let value = json.map(|json| serde_json::from_slice::<Option<T>>(&json)).transpose();
        value.map(Option::flatten).map_err(|error| Error::Type { path: at.clone(), reason: error.to_string() })
    }

    /// Returns the object reduced to its metadata, in its own encoding. JSON contains the given type. A message leaves
    /// the type to its envelope.
    pub fn only_metadata(&self, type_meta: &TypeMeta) -> Result<Bytes, Error> {
        if let Encoded::Protobuf(object) = &self.encoded {
            return protobuf::metadata(object.bytes());
        }
        let metadata = self.json_at(&METADATA)?;
        let metadata = metadata.as_deref().unwrap_or(b"{}");
        let mut text = Vec::with_capacity(metadata.len() + 96);
        text.extend_from_slice(b"{\"kind\":");
        json::write_string(&type_meta.kind, &mut text);
        text.extend_from_slice(b",\"apiVersion\":");
        json::write_string(&type_meta.api_version, &mut text);
        text.extend_from_slice(b",\"metadata\":");
        text.extend_from_slice(metadata);
        text.push(b'}');
        Ok(text.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    const SERVICE: &str = r#"{"metadata": {"name": "a", "labels": {"b": "c"}}, "spec": {"type": "ClusterIP"}}"#;

    fn partial() -> TypeMeta {
        TypeMeta { api_version: "meta.k8s.io/v1".into(), kind: "PartialObjectMetadata".into() }
    }

    #[test]
    fn an_object_is_reduced_to_its_metadata_in_either_encoding() {
        let expected = r#"{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"name": "a", "labels": {"b": "c"}}}"#;
        assert_eq!(Document::json(SERVICE.into()).only_metadata(&partial()).unwrap(), expected);
        let service = TypeMeta { api_version: "v1".into(), kind: "Service".into() };
        let message = protobuf::from_json(&service, SERVICE).unwrap();
        let whole = Document::protobuf(message, Arc::new(service)).unwrap();
        let cut = Document::protobuf(whole.only_metadata(&partial()).unwrap(), Arc::new(partial())).unwrap();
        assert_eq!((cut.name().unwrap(), cut.label("b").unwrap().unwrap()), ("a".into(), "c".into()));
        assert!(!cut.to_json().unwrap().contains("spec"));
    }

    #[test]
    fn an_object_without_metadata_has_empty_metadata() {
        let text = Document::json("{}".into()).only_metadata(&partial()).unwrap();
        assert!(text.ends_with(br#""metadata":{}}"#));
        assert!(Document::json("{".into()).only_metadata(&partial()).is_err());
    }

    #[test]
    fn parts_are_deserialized_in_either_encoding() {
        let service = TypeMeta { api_version: "v1".into(), kind: "Service".into() };
        let text = r#"{"metadata":{"labels":{"b":"c"}},"spec":{"ports":[{"port":80},{"port":443}],"type":null}}"#;
        let message = protobuf::from_json(&service, text).unwrap();
        let json = Document::json(text.into()).with_type(Arc::new(service.clone()));
        for document in [json, Document::protobuf(message, Arc::new(service)).unwrap()] {
            let port = document.deserialize_at::<u16>(&crate::path!("spec.ports[1].port"));
            assert_eq!(port, Ok(Some(443)));
            assert_eq!(document.deserialize_at::<String>(&crate::path!("spec.type")), Ok(None));
            assert_eq!(document.deserialize_at::<String>(&crate::path!("spec.missing")).unwrap_or_default(), None);
            let whole: serde_json::Value = document.deserialize_at(&crate::path!("$")).unwrap().unwrap();
            assert_eq!((&whole["kind"], &whole["metadata"]["labels"]["b"]), (&"Service".into(), &"c".into()));
            let other = document.deserialize_at::<u16>(&crate::path!("metadata.labels"));
            assert!(matches!(other, Err(Error::Type { .. })), "{other:?}");
            let many = document.deserialize_at::<u16>(&crate::path!("spec.ports[*].port"));
            assert!(matches!(many, Err(Error::Wildcard { .. })), "{many:?}");
        }
    }

    #[test]
    fn values_are_shared_with_the_document() {
        let document = Document::json(SERVICE.into());
        let spec = document.json_at(&Path::parse("spec").unwrap()).unwrap().unwrap();
        assert_eq!(spec, r#"{"type": "ClusterIP"}"#);
        assert!(document.bytes().as_ptr_range().contains(&spec.as_ptr()));
        assert_eq!(document.json_at(&Path::parse("status").unwrap()).unwrap(), None);
    }
}
