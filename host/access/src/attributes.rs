//! What the API server authorizes of a read: the one set of attributes by which Weir asks, remembers and serves.

use http::Method;
use k8s_openapi::api::authorization::v1::{FieldSelectorAttributes, LabelSelectorAttributes, ResourceAttributes};
use sha2::{Digest as _, Sha256};
use weir_kube::{FieldSelector, LabelSelector, ResourceRequest, Verb};

use crate::caller::{hash_part, hash_text};

/// The attributes of a request for a resource, as the API server authorizes it.
pub(super) fn attributes(method: &Method, resource: &ResourceRequest) -> ResourceAttributes {
    let text = |text: Option<&str>| Some(text.unwrap_or_default().to_owned());
    // Since Kubernetes 1.32 the authorizer of nodes considers selectors: a node may list only its own pods.
    let field = |raw: &str| FieldSelectorAttributes { raw_selector: Some(raw.to_owned()), requirements: None };
    let label = |raw: &str| LabelSelectorAttributes { raw_selector: Some(raw.to_owned()), requirements: None };
    ResourceAttributes {
        verb: Some(rbac_verb(resource.verb, method)),
        group: text(Some(&resource.resource.group)),
        version: text(Some(&resource.version)),
        resource: text(Some(&resource.resource.resource)),
        subresource: text(resource.subresource.as_deref()),
        namespace: text(resource.namespace.as_deref()),
        name: text(resource.authorized_name()),
        field_selector: resource.field_selector().map(field),
        label_selector: resource.label_selector().map(label),
    }
}

/// The name of one question: whose permission, and for what. The version of the API makes no difference to an authorizer of the
/// resource.
pub(super) fn question(subject: &str, asked: &ResourceAttributes) -> String {
    let mut hash = Sha256::new_with_prefix(subject);
    let raw = |text: &Option<String>| text.clone().unwrap_or_default();
    for part in [&asked.verb, &asked.group, &asked.resource, &asked.subresource, &asked.namespace, &asked.name] {
        hash_part(&mut hash, raw(part).as_bytes());
    }
    let fields = asked.field_selector.as_ref().and_then(|selector| selector.raw_selector.clone()).unwrap_or_default();
    let labels = asked.label_selector.as_ref().and_then(|selector| selector.raw_selector.clone()).unwrap_or_default();
    // In the form in which Weir itself asks, however a client has written it.
    let fields = FieldSelector::parse(&fields).map_or(fields, |selector| selector.to_string());
    let labels = LabelSelector::parse(&labels).map_or(labels, |selector| selector.to_string());
    hash_part(&mut hash, fields.as_bytes());
    hash_part(&mut hash, labels.as_bytes());
    hash_text(hash)
}

/// The permissions that include a read, besides its own: the same verb, unselected, on its namespace and on the cluster; for a
/// get also a list there, whose client has seen each object.
pub(super) fn covered_by(read: &ResourceAttributes) -> Vec<ResourceAttributes> {
    let verb = read.verb.as_deref().unwrap_or_default();
    if !matches!(verb, "get" | "list" | "watch") || read.subresource.as_ref().is_some_and(|sub| !sub.is_empty()) {
        return Vec::new();
    }
    let verbs = if verb == "get" { &["get", "list"][..] } else { &[verb][..] };
    let mut wider = Vec::new();
    for verb in verbs {
        let collection = ResourceAttributes {
            verb: Some((*verb).to_owned()),
            name: Some(String::new()),
            field_selector: None,
            label_selector: None,
            ..read.clone()
        };
        wider.push(ResourceAttributes { namespace: Some(String::new()), ..collection.clone() });
        wider.push(collection);
    }
    wider
}

fn rbac_verb(verb: Verb, method: &Method) -> String {
    verb.name().map_or_else(|| method.as_str().to_ascii_lowercase(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use weir_kube::RequestInfo;

    use super::*;

    fn asked(path: &str) -> ResourceAttributes {
        let request = RequestInfo::parse(&Method::GET, &path.parse().unwrap()).unwrap();
        attributes(&Method::GET, request.resource().unwrap())
    }

    fn covers(wider: &str, read: &str) -> bool {
        let (wider, read) = (asked(wider), asked(read));
        let name = |asked: &ResourceAttributes| question("s", asked);
        name(&wider) == name(&read) || covered_by(&read).iter().any(|cover| name(cover) == name(&wider))
    }

    #[test]
    fn an_unselected_list_covers_gets_and_lists_in_its_scope_and_nothing_else_widens() {
        let (all, of_a) = ("/api/v1/services", "/api/v1/namespaces/a/services");
        let (one, other) = ("/api/v1/namespaces/a/services/x", "/api/v1/namespaces/b/services/x");
        for (wider, read, is_covered) in [
            (all, of_a, true),
            (all, one, true),
            (of_a, one, true),
            (of_a, other, false),
            (of_a, all, false),
            (one, of_a, false),
            (one, "/api/v1/namespaces/a/services/y", false),
            (one, "/api/v1/namespaces/a/services?fieldSelector=metadata.name%3Dx", false),
            ("/api/v1/namespaces/a/services?fieldSelector=metadata.name%3Dx", of_a, false),
            ("/api/v1/services?labelSelector=a%3Db", all, false),
            (all, "/api/v1/services?labelSelector=a%3Db", true),
            ("/api/v1/services?labelSelector=a%3D%3Db", "/api/v1/services?labelSelector=a%3Db", true),
            (all, "/api/v1/services?watch=1", false),
            ("/api/v1/services?watch=1", of_a, false),
            ("/api/v1/services?watch=1", "/api/v1/namespaces/a/services?watch=1", true),
            ("/api/v1/watch/namespaces/a/services/x", "/api/v1/namespaces/a/services?watch=1", false),
            (all, "/api/v1/namespaces/a/services/x/status", false),
            ("/apis/discovery.k8s.io/v1/endpointslices", "/apis/discovery.k8s.io/v1beta1/endpointslices", true),
        ] {
            assert_eq!(covers(wider, read), is_covered, "{wider} {read}");
        }
        assert_ne!(question("s", &asked(all)), question("t", &asked(all)));
    }
}
