//! The apiVersion and kind of the objects that filters see.
//!
//! Filters check the kind of an object, so an object without a kind could pass unfiltered. The items of built-in JSON lists
//! name no kind. The list does, but possibly after its items, which are filtered by then. So the type comes from the
//! requested resource. For resources that are not built in, the list or the object itself names the type. An object whose
//! type is still unknown fails its response.

use std::sync::Arc;

use weir_document::{Document, TypeMeta, list::ListMeta, protobuf};
use weir_kube::{MetaVersion, ResourceRequest};

use super::CodecError;

/// The type of a resource's objects, as far as it is known.
#[derive(Debug, Clone)]
pub struct ObjectType(Option<Arc<TypeMeta>>);

impl ObjectType {
    /// Returns the type of a built-in resource's objects; it is unknown for all others.
    #[must_use]
    pub fn of(resource: &ResourceRequest) -> Self {
        let api_version = resource.api_version();
        let kind = protobuf::kind_of(&api_version, &resource.resource.resource);
        Self(kind.map(|kind| Arc::new(TypeMeta { api_version, kind: kind.to_owned() })))
    }

    /// Returns this type if it is known, else the one that a list names before its items. `api_version` applies to a list that
    /// names only its kind.
    #[must_use]
    pub fn or_of_list(&self, api_version: &str, list: &ListMeta) -> Self {
        if self.0.is_some() {
            return self.clone();
        }
        let api_version = || list.api_version.clone().unwrap_or_else(|| api_version.to_owned());
        Self(list.item_kind().map(|kind| Arc::new(TypeMeta { api_version: api_version(), kind: kind.to_owned() })))
    }

    /// Returns the type, if it is known.
    #[must_use]
    pub(crate) fn known(&self) -> Option<&Arc<TypeMeta>> {
        self.0.as_ref()
    }

    /// Gives an object this type, unless it names its own.
    ///
    /// # Errors
    /// [`CodecError::UnknownType`], if neither is known.
    pub fn apply(&self, object: Document) -> Result<Document, CodecError> {
        match &self.0 {
            Some(known) => Ok(object.with_type(known.clone())),
            None if object.kind()?.is_empty() || object.api_version()?.is_empty() => Err(CodecError::UnknownType),
            None => Ok(object),
        }
    }
}

/// The type of an object that is reduced to its metadata.
pub fn partial(version: MetaVersion) -> TypeMeta {
    TypeMeta { api_version: version.api_version().to_owned(), kind: "PartialObjectMetadata".to_owned() }
}

/// The type of a list of such objects.
pub fn partial_list(version: MetaVersion) -> TypeMeta {
    TypeMeta { api_version: version.api_version().to_owned(), kind: "PartialObjectMetadataList".to_owned() }
}

#[cfg(test)]
mod tests {
    use http::Method;
    use weir_kube::RequestInfo;

    use super::*;

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
    fn the_type_of_built_in_objects_comes_from_the_requested_resource() {
        let slices = resource("/apis/discovery.k8s.io/v1/endpointslices");
        let known = ObjectType::of(&slices);
        assert_eq!(kind(&known, "{}").unwrap(), "discovery.k8s.io/v1/EndpointSlice");
        assert_eq!(
            kind(&known.or_of_list(&slices.api_version(), &list(Some("OddList"))), "{}").unwrap(),
            kind(&known, "{}").unwrap()
        );
    }

    #[test]
    fn other_types_come_from_the_list_or_the_object_and_an_unknown_type_is_an_error() {
        let pools = resource("/apis/apps.openyurt.io/v1beta2/nodepools");
        let unknown = ObjectType::of(&pools);
        assert_eq!(kind(&unknown, r#"{"kind":"NodePool","apiVersion":"a/v1"}"#).unwrap(), "a/v1/NodePool");
        for object in ["{}", r#"{"kind":"NodePool"}"#, r#"{"apiVersion":"a/v1","kind":""}"#, r#"{"kind":null}"#] {
            assert!(kind(&unknown, object).unwrap_err().contains("names no apiVersion"), "{object}");
        }
        for nothing in [None, Some("List"), Some("NodePool")] {
            assert!(unknown.or_of_list(&pools.api_version(), &list(nothing)).known().is_none(), "{nothing:?}");
        }
        let listed = unknown.or_of_list(&pools.api_version(), &list(Some("NodePoolList")));
        assert_eq!(kind(&listed, "{}").unwrap(), "apps.openyurt.io/v1beta2/NodePool");
    }
}
