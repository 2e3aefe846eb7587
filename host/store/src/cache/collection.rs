//! What a reflector lists and watches: one resource, narrowed by a namespace and selectors.

use std::fmt;

use weir_document::protobuf::kind_of;
use weir_kube::{Encoding, GroupResource, ResourceRequest};

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
}

impl Collection {
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
        }
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

    /// Whether the collection holds every object of its resource.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.field_selector.is_empty() && self.label_selector.is_empty() && !self.path.contains("/namespaces/")
    }

    /// The `apiVersion` of the objects.
    #[must_use]
    pub fn api_version(&self) -> String {
        match self.resource.group.as_str() {
            "" => self.version.clone(),
            group => format!("{group}/{}", self.version),
        }
    }

    /// The encoding in which the objects are requested: protobuf if the schema knows the kind.
    #[must_use]
    pub fn encoding(&self) -> Encoding {
        match kind_of(&self.api_version(), &self.resource.resource) {
            Some(_) => Encoding::Protobuf,
            None => Encoding::Json,
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
        path
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
        Ok(())
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
    fn built_in_kinds_are_read_as_protobuf() {
        let encoding = |path| Collection::whole(&request(path)).encoding();
        assert_eq!(encoding("/api/v1/pods"), Encoding::Protobuf);
        assert_eq!(encoding("/apis/discovery.k8s.io/v1/endpointslices"), Encoding::Protobuf);
        assert_eq!(encoding("/apis/apps.openyurt.io/v1beta2/nodepools"), Encoding::Json);
    }
}
