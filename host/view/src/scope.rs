//! What a view shows of a resource, and with which identity its objects are read upstream.

use std::sync::Arc;

use http::HeaderMap;
use weir_kube::{GroupResource, Identity, ResourceRequest, Verb, node_of_user};
use weir_store::StoreReader;
use weir_store::cache::Collection;

/// How wide a reflector of a resource is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ScopePolicy {
    /// All objects, read with the daemon's own identity: every node needs all of them, and many clients read them.
    Whole,
    /// What the request selects, read with the node credential or as the client's user: the local Node, the node's pods and
    /// their Secrets. Without either, the daemon reads Nodes, and the client's own credential pods and ConfigMaps.
    Requested,
}

impl ScopePolicy {
    /// A node reads only its own Node and pods, and only the Secrets and ConfigMaps of its pods.
    pub(super) fn of(resource: &GroupResource) -> Self {
        match (resource.group.as_str(), resource.resource.as_str()) {
            ("", "pods" | "nodes" | "secrets" | "configmaps") => Self::Requested,
            _ => Self::Whole,
        }
    }
}

/// The identity with which the objects that serve a read are read upstream; `None` if no view serves the read. `owner` returns
/// the owner of the client's own credential.
///
/// Secrets are cached for the kubelet, which needs them to restart pods, and for components that the operator of the node names.
pub(super) fn reader(
    identity: Identity,
    headers: &HeaderMap,
    request: &ResourceRequest,
    may_keep_secrets: bool,
    owner: impl FnOnce() -> Option<Arc<str>>,
) -> Option<StoreReader> {
    if is_confidential(&request.resource) && !may_keep_secrets && !is_node(identity, headers) {
        return None;
    }
    match (ScopePolicy::of(&request.resource), identity) {
        (ScopePolicy::Whole, _) => Some(StoreReader::Daemon),
        (ScopePolicy::Requested, Identity::Client) => match request.resource.resource.as_str() {
            "nodes" => Some(StoreReader::Daemon),
            _ => owner().map(StoreReader::Client),
        },
        (ScopePolicy::Requested, identity) => StoreReader::of(identity, headers),
    }
}

/// Whether objects of a resource are for those alone who need them to run pods, and encrypted on disk.
pub(super) fn is_confidential(resource: &GroupResource) -> bool {
    (resource.group.as_str(), resource.resource.as_str()) == ("", "secrets")
}

/// Whether a request has the rights of a node: the node credential, or the certificate of a node's user.
pub(super) fn is_node(identity: Identity, headers: &HeaderMap) -> bool {
    StoreReader::of(identity, headers).is_some_and(|reader| is_of_node(&reader))
}

/// The collection that serves a list or a watch; `None` if the request is too wide for its reader, or only the API server can
/// evaluate it. Single objects of what is read by request are in whatever view has them.
pub(super) fn collection(reader: &StoreReader, request: &ResourceRequest) -> Option<Collection> {
    if ScopePolicy::of(&request.resource) == ScopePolicy::Whole {
        return Some(Collection::whole(request));
    }
    let options = request.options.as_ref().ok().filter(|_| request.verb != Verb::Get)?;
    let selects = |field| options.fields.exact(field).is_some_and(|value| !value.is_empty());
    // What one object or one node selects, and not, for example, the Secrets of a namespace. Others select what they need.
    let is_narrow = match request.resource.resource.as_str() {
        _ if !is_of_node(reader) => true,
        "pods" => selects("spec.nodeName"),
        "secrets" | "configmaps" => request.namespace.is_some() && selects("metadata.name"),
        _ => selects("metadata.name"),
    };
    // In their normal form: two spellings of a selector share a store. They are short, see `request_selector.rs`.
    let (fields, labels) = (options.fields.to_string(), options.labels.to_string());
    is_narrow.then(|| Collection::narrowed(request, &fields, &labels))
}

/// The collections that hold all that a read selects, and more: narrowest first. What a user has listed in full holds its
/// narrower reads while no API server can be reached.
pub(super) fn wider(reader: &StoreReader, request: &ResourceRequest) -> Vec<Collection> {
    if ScopePolicy::of(&request.resource) == ScopePolicy::Whole || is_of_node(reader) {
        return Vec::new();
    }
    let mut wider = vec![Collection::narrowed(request, "", ""), Collection::whole(request)];
    wider.dedup();
    wider
}

/// Whether objects are read with the rights of a node, which reads single objects and its own pods.
pub(super) fn is_of_node(reader: &StoreReader) -> bool {
    match reader {
        StoreReader::Node => true,
        StoreReader::User(user) => node_of_user(&user.user, &user.groups).is_some(),
        StoreReader::Client(_) | StoreReader::Daemon | StoreReader::Private(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use http::Method;
    use weir_kube::RequestInfo;

    use super::*;

    fn narrow(path: &str) -> bool {
        let parsed = RequestInfo::parse(&Method::GET, &path.parse().unwrap()).unwrap();
        collection(&StoreReader::Node, parsed.resource().unwrap()).is_some()
    }

    #[test]
    fn only_what_a_node_needs_of_confidential_resources_is_cached() {
        for path in [
            "/api/v1/pods?fieldSelector=spec.nodeName%3Da",
            "/api/v1/nodes?fieldSelector=metadata.name%3Da",
            "/api/v1/namespaces/a/secrets?fieldSelector=metadata.name%3Db",
            "/api/v1/namespaces/a/configmaps?fieldSelector=metadata.name%3D%3Db",
            "/api/v1/watch/namespaces/a/secrets/b",
            "/api/v1/watch/nodes/a",
            "/api/v1/services",
        ] {
            assert!(narrow(path), "{path}");
        }
        for path in [
            "/api/v1/pods",
            "/api/v1/namespaces/a/pods?fieldSelector=spec.nodeName%21%3Da",
            "/api/v1/pods?fieldSelector=spec.nodeName%3D",
            "/api/v1/pods?fieldSelector=spec.nodeName%21%3D%3Da",
            "/api/v1/watch/namespaces/a/pods/b",
            "/api/v1/namespaces/a/secrets",
            "/api/v1/namespaces/a/secrets?fieldSelector=%20metadata.name%3Db",
            "/api/v1/secrets?fieldSelector=metadata.name%3Db",
            "/api/v1/nodes",
        ] {
            assert!(!narrow(path), "{path}");
        }
    }

    #[test]
    fn the_credential_of_a_client_reads_what_is_its_own_and_secrets_for_named_components_only() {
        let request = |path: &str| RequestInfo::parse(&Method::GET, &path.parse().unwrap()).unwrap();
        let of = |path: &str, identity, owner: Option<&str>| {
            reader(identity, &HeaderMap::new(), request(path).resource().unwrap(), false, || owner.map(Arc::from))
        };
        let reader = |path: &str, identity| of(path, identity, Some("o"));
        for path in ["/api/v1/pods", "/api/v1/namespaces/a/configmaps"] {
            assert_eq!(reader(path, Identity::Client), Some(StoreReader::Client("o".into())), "{path}");
            assert_eq!(of(path, Identity::Client, None), None, "{path}");
            assert_eq!(reader(path, Identity::Node), Some(StoreReader::Node));
        }
        assert_eq!(reader("/api/v1/namespaces/a/secrets", Identity::Client), None);
        let secrets = request("/api/v1/secrets");
        let named = |owner: Option<&str>| {
            let owner = owner.map(Arc::from);
            super::reader(Identity::Client, &HeaderMap::new(), secrets.resource().unwrap(), true, || owner)
        };
        assert_eq!((named(Some("o")), named(None)), (Some(StoreReader::Client("o".into())), None));
        assert_eq!(reader("/api/v1/namespaces/a/secrets", Identity::Node), Some(StoreReader::Node));
        assert_eq!(reader("/api/v1/nodes", Identity::Client), Some(StoreReader::Daemon));
        assert_eq!(reader("/api/v1/nodes", Identity::Node), Some(StoreReader::Node));
        assert_eq!(reader("/api/v1/services", Identity::Impersonated), Some(StoreReader::Daemon));
        for (user, group, is_kept) in [("system:node:a", "system:nodes", true), ("admin", "system:masters", false)] {
            let headers = [("impersonate-user", user), ("impersonate-group", group)];
            let headers = headers.map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()));
            let headers = HeaderMap::from_iter(headers);
            let reader = |may_keep| {
                super::reader(Identity::Impersonated, &headers, secrets.resource().unwrap(), may_keep, || None)
            };
            assert_eq!((reader(false).is_some(), reader(true).is_some()), (is_kept, true), "{user}");
        }
    }
}
