//! The apiVersion and kind of the objects that filters see. Filters tell objects apart by kind, so that an object without
//! one would pass them all.
//!
//! The items of built-in JSON lists name no kind. The list does, but a sorted or hostile one does so after its items,
//! which have left by then. So the type comes from the requested resource; from the list or the object itself only where
//! the resource is not built in; and an object whose type is still unknown fails its answer.

use std::sync::Arc;

use weir_document::{Document, TypeMeta, json::ListMeta, protobuf};

use weir_kube::ResourceRequest;

/// The type of a resource's objects, as far as it is known.
#[derive(Debug, Clone)]
pub(super) struct ObjectType(Option<Arc<TypeMeta>>);

/// An object has no known type.
#[derive(Debug, thiserror::Error)]
pub(super) enum ObjectTypeError {
    /// The object's bytes are bad.
    #[error(transparent)]
    Document(#[from] weir_document::Error),
    /// Nothing names its type.
    #[error("an object names no apiVersion and kind, and the kind of its resource is not known")]
    Unknown,
}

impl ObjectType {
    /// The type of a built-in resource's objects; unknown for all others.
    #[must_use]
    pub(super) fn of(resource: &ResourceRequest) -> Self {
        let api_version = resource.api_version();
        let kind = protobuf::kind_of(&api_version, &resource.resource.resource);
        Self(kind.map(|kind| Arc::new(TypeMeta { api_version, kind: kind.to_owned() })))
    }

    /// The same, or else the type that a list names before its items.
    #[must_use]
    pub(super) fn or_of_list(&self, resource: &ResourceRequest, list: &ListMeta) -> Self {
        if self.0.is_some() {
            return self.clone();
        }
        let kind = list.kind.as_deref().and_then(|kind| kind.strip_suffix("List")).filter(|kind| !kind.is_empty());
        let api_version = || list.api_version.clone().unwrap_or_else(|| resource.api_version());
        Self(kind.map(|kind| Arc::new(TypeMeta { api_version: api_version(), kind: kind.to_owned() })))
    }

    /// The type, if it is known.
    #[must_use]
    pub(super) fn known(&self) -> Option<&Arc<TypeMeta>> {
        self.0.as_ref()
    }

    /// Gives an object this type, unless it names its own.
    ///
    /// # Errors
    /// [`ObjectTypeError::Unknown`], when neither is there.
    pub(super) fn apply(&self, object: Document) -> Result<Document, ObjectTypeError> {
        match &self.0 {
            Some(known) => Ok(object.with_type(known.clone())),
            None if object.kind()?.is_empty() || object.api_version()?.is_empty() => Err(ObjectTypeError::Unknown),
            None => Ok(object),
        }
    }
}

#[cfg(test)]
mod tests {
    use http::Method;

    use super::*;
    use weir_kube::RequestInfo;

    fn resource(path: &str) -> ResourceRequest {
        RequestInfo::parse(&Method::GET, &path.parse().unwrap()).unwrap().resource().unwrap().clone()
    }

    fn list(kind: Option<&str>) -> ListMeta {
        ListMeta { kind: kind.map(str::to_owned), ..ListMeta::default() }
    }

    fn kind(object_type: &ObjectType, object: &'static str) -> Result<String, String> {
        let typed = object_type.apply(Document::json(object.into())).map_err(|error| error.to_string())?;
        Ok(format!("{}/{}", typed.api_version().unwrap(), typed.kind().unwrap()))
    }

    #[test]
    fn the_requested_resource_names_the_type_of_built_in_objects() {
        let slices = resource("/apis/discovery.k8s.io/v1/endpointslices");
        let known = ObjectType::of(&slices);
        assert_eq!(kind(&known, "{}").unwrap(), "discovery.k8s.io/v1/EndpointSlice");
        assert_eq!(
            kind(&known.or_of_list(&slices, &list(Some("OddList"))), "{}").unwrap(),
            kind(&known, "{}").unwrap()
        );
    }

    #[test]
    fn a_list_or_the_object_itself_names_the_type_of_others_and_one_of_no_type_fails() {
        let pools = resource("/apis/apps.openyurt.io/v1beta2/nodepools");
        let unknown = ObjectType::of(&pools);
        assert_eq!(kind(&unknown, r#"{"kind":"NodePool","apiVersion":"a/v1"}"#).unwrap(), "a/v1/NodePool");
        for object in ["{}", r#"{"kind":"NodePool"}"#, r#"{"apiVersion":"a/v1","kind":""}"#, r#"{"kind":null}"#] {
            assert!(kind(&unknown, object).unwrap_err().contains("names no apiVersion"), "{object}");
        }
        for nothing in [None, Some("List"), Some("NodePool")] {
            assert!(unknown.or_of_list(&pools, &list(nothing)).known().is_none(), "{nothing:?}");
        }
        let listed = unknown.or_of_list(&pools, &list(Some("NodePoolList")));
        assert_eq!(kind(&listed, "{}").unwrap(), "apps.openyurt.io/v1beta2/NodePool");
    }
}
