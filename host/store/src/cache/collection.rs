//! What a reflector lists and watches: one resource, narrowed by a namespace and selectors.

use std::fmt;

use serde::{Deserialize, Serialize};
use weir_document::protobuf::kind_of;
use weir_kube::{Encoding, GroupResource, ListOptions, Query, ResourceRequest};
use weir_spec::LookupSpec;

use crate::query::escaped;

/// A collection of objects: `/api/v1/pods`, narrowed by selectors.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Collection {
    /// The resource and its API group.
    pub resource: GroupResource,
    /// The API version without its group.
    pub version: String,
    /// The path of the collection: `/api/v1/pods`, `/api/v1/namespaces/a/pods`.
    pub path: String,
    /// The field selector; empty for all objects.
    pub field_selector: String,
    /// The label selector; empty for all objects.
    pub label_selector: String,
    /// Further parameters of a query, encoded, which Weir does not know and which may select.
    pub parameters: String,
    /// What is kept of each object.
    pub content: ObjectContent,
}

/// What a store keeps of each object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize)]
pub enum ObjectContent {
    /// The bytes of the API server: clients and lookups read them.
    #[default]
    Complete,
    /// The same in JSON, whatever the kind: for a private store, which is read in the encoding of its client.
    CompleteJson,
    /// Without `metadata.managedFields`, which no filter needs. For lookups alone.
    WithoutManagedFields,
    /// `PartialObjectMetadata` without `metadata.managedFields`. For lookups alone.
    Metadata,
}

impl Collection {
    /// Returns all objects of a kube type, complete, in all namespaces: `Collection::all::<Service>()`.
    #[must_use]
    pub fn all<K: kube::Resource<DynamicType = ()>>() -> Self {
        let resource = GroupResource::new(&K::plural(&()), &K::group(&()));
        Self::of_lookup(&LookupSpec::all(resource), &K::version(&())).widened()
    }

    /// Returns all objects of the requested resource, in all namespaces.
    #[must_use]
    pub fn whole(request: &ResourceRequest) -> Self {
        let path = match &request.namespace {
            Some(namespace) => request.collection.replacen(&format!("/namespaces/{namespace}/"), "/", 1),
            None => request.collection.clone(),
        };
        Self {
            resource: request.resource.clone(),
            version: request.version.clone(),
            path,
            field_selector: String::new(),
            label_selector: String::new(),
            parameters: String::new(),
            content: ObjectContent::Complete,
        }
    }

    /// Returns what a lookup selects, in a version that the API server serves.
    #[must_use]
    pub(crate) fn of_lookup(lookup: &LookupSpec, version: &str) -> Self {
        let GroupResource { resource, group } = &lookup.resource;
        Self {
            resource: lookup.resource.clone(),
            version: version.to_owned(),
            path: match group.as_str() {
                "" => format!("/api/{version}/{resource}"),
                group => format!("/apis/{group}/{version}/{resource}"),
            },
            field_selector: lookup.name.as_ref().map(|name| format!("metadata.name={name}")).unwrap_or_default(),
            label_selector: lookup.label_selector.clone().unwrap_or_default(),
            parameters: String::new(),
            content: match lookup.metadata_only {
                true => ObjectContent::Metadata,
                false => ObjectContent::WithoutManagedFields,
            },
        }
    }

    /// Returns all objects of the collection's resource, complete, in all namespaces.
    #[must_use]
    pub(crate) fn widened(self) -> Self {
        let (field_selector, label_selector) = Default::default();
        Self { field_selector, label_selector, content: ObjectContent::Complete, ..self }
    }

    /// Returns the collection as a request narrows it.
    #[must_use]
    pub fn narrowed(request: &ResourceRequest, field_selector: &str, label_selector: &str) -> Self {
        Self {
            path: request.collection.clone(),
            field_selector: field_selector.to_owned(),
            label_selector: label_selector.to_owned(),
            ..Self::whole(request)
        }
    }

    /// Returns exactly what a watch selects, in the words of its client: the API server evaluates them. In the encoding of its client.
    #[must_use]
    pub fn literal(request: &ResourceRequest, query: &Query, encoding: Encoding) -> Self {
        let text = |key| query.first(key).unwrap_or_default();
        let named = request.name.as_ref().map(|name| format!("metadata.name={name}"));
        let fields = [Some(text("fieldSelector").to_owned()).filter(|fields| !fields.is_empty()), named];
        let fields: Vec<_> = fields.into_iter().flatten().collect();
        Self {
            parameters: ListOptions::unknown(query),
            content: match encoding {
                Encoding::Json => ObjectContent::CompleteJson,
                Encoding::Protobuf => ObjectContent::Complete,
            },
            ..Self::narrowed(request, &fields.join(","), text("labelSelector"))
        }
    }

    /// Whether the collection holds every object of its resource.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        let is_selected =
            [&self.field_selector, &self.label_selector, &self.parameters].iter().any(|part| !part.is_empty());
        !is_selected && !self.path.contains("/namespaces/")
    }

    /// The `apiVersion` of the objects.
    #[must_use]
    pub(crate) fn api_version(&self) -> String {
        match self.resource.group.as_str() {
            "" => self.version.clone(),
            group => format!("{group}/{}", self.version),
        }
    }

    /// The encoding in which the objects are requested: protobuf if the schema knows the kind.
    #[must_use]
    pub fn encoding(&self) -> Encoding {
        match kind_of(&self.api_version(), &self.resource.resource) {
            Some(_) if !matches!(self.content, ObjectContent::Metadata | ObjectContent::CompleteJson) => {
                Encoding::Protobuf
            }
            _ => Encoding::Json,
        }
    }

    /// The `Accept` header of a list.
    pub(super) fn accept_list(&self) -> &'static str {
        match (self.content, self.encoding()) {
            // A server without `PartialObjectMetadata` responds with whole objects, which are reduced later.
            (ObjectContent::Metadata, _) => {
                "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"
            }
            (_, Encoding::Json) => "application/json",
            // A server that does not encode the kind so answers in JSON, and is taken as it answers.
            (_, Encoding::Protobuf) => "application/vnd.kubernetes.protobuf,application/json",
        }
    }

    /// The `Accept` header of a watch.
    pub(super) fn accept_watch(&self) -> &'static str {
        match (self.content, self.encoding()) {
            (ObjectContent::Metadata, _) => {
                "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"
            }
            (_, Encoding::Json) => "application/json",
            (_, Encoding::Protobuf) => "application/vnd.kubernetes.protobuf;stream=watch,application/json",
        }
    }

    /// The path of a list or a watch, with these further parameters.
    pub(super) fn path_with(&self, parameters: &str) -> String {
        let mut path = format!("{}?{parameters}", self.path);
        for (name, value) in [("fieldSelector", &self.field_selector), ("labelSelector", &self.label_selector)] {
            if !value.is_empty() {
                path = format!("{path}&{name}={}", escaped(value));
            }
        }
        if self.parameters.is_empty() { path } else { format!("{path}&{}", self.parameters) }
    }
}

impl fmt::Display for Collection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.path)?;
        let selectors = [("fieldSelector", &self.field_selector), ("labelSelector", &self.label_selector)];
        let mut separator = '?';
        for (name, value) in selectors.into_iter().filter(|(_, value)| !value.is_empty()) {
            write!(f, "{separator}{name}={value}")?;
            separator = '&';
        }
        match self.content {
            ObjectContent::Metadata => f.write_str(" (metadata)"),
            ObjectContent::Complete | ObjectContent::CompleteJson | ObjectContent::WithoutManagedFields => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use http::Method;
    use weir_kube::RequestInfo;

    use super::*;

    fn request(path: &str) -> ResourceRequest {
        RequestInfo::parse(&Method::GET, &path.parse().unwrap()).unwrap().resource().unwrap().clone()
    }

    #[test]
    fn a_whole_collection_spans_all_namespaces() {
        for path in ["/api/v1/pods", "/api/v1/namespaces/a/pods"] {
            let whole = Collection::whole(&request(path));
            assert_eq!(whole.path, "/api/v1/pods");
            assert!(whole.is_whole());
        }
        assert_eq!(Collection::whole(&request("/api/v1/namespaces")).path, "/api/v1/namespaces");
        let narrowed = Collection::narrowed(&request("/api/v1/namespaces/a/pods"), "spec.nodeName=n", "");
        assert!(!narrowed.is_whole());
        assert_eq!(narrowed.to_string(), "/api/v1/namespaces/a/pods?fieldSelector=spec.nodeName=n");
        assert_eq!(narrowed.path_with("limit=1"), "/api/v1/namespaces/a/pods?limit=1&fieldSelector=spec.nodeName%3Dn");
    }

    #[test]
    fn the_selectors_of_a_lookup_are_escaped() {
        let lookup = LookupSpec {
            name: Some("a&b".into()),
            label_selector: Some("x in (a,b)".into()),
            ..LookupSpec::all(GroupResource::new("nodes", ""))
        };
        let collection = Collection::of_lookup(&lookup, "v1");
        assert_eq!(
            collection.path_with("limit=1"),
            "/api/v1/nodes?limit=1&fieldSelector=metadata.name%3Da%26b&labelSelector=x%20in%20%28a%2Cb%29"
        );
        assert!(collection.widened().is_whole());
        let pools = Collection::of_lookup(&LookupSpec::all("nodepools.apps.openyurt.io".parse().unwrap()), "v1beta2");
        assert_eq!(pools.path, "/apis/apps.openyurt.io/v1beta2/nodepools");
    }

    #[test]
    fn built_in_kinds_are_read_as_protobuf() {
        let encoding = |path| Collection::whole(&request(path)).encoding();
        assert_eq!(encoding("/api/v1/pods"), Encoding::Protobuf);
        assert_eq!(encoding("/apis/discovery.k8s.io/v1/endpointslices"), Encoding::Protobuf);
        assert_eq!(encoding("/apis/apps.openyurt.io/v1beta2/nodepools"), Encoding::Json);
    }
}
