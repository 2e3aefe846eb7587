//! Whether the API server itself answers a request, or only passes on the answer of a backend.
//!
//! A client that may use `pods/proxy` chooses such an answer freely: status, headers and body. An aggregated API server is not
//! the API server either. Weir concludes nothing from their answers about a credential, the clock or an outage.

use weir_kube::{GroupResource, RequestInfo, RequestKind, ResourceRequest, Verb};
use weir_upstream::AnsweredBy;

use crate::Access;

/// Subresources that a kubelet, or what it runs, answers through the API server.
const PASSED_ON: [&str; 5] = ["attach", "exec", "log", "portforward", "proxy"];

impl Access {
    /// Whether the API server itself answers a request. If that is not known, it does not.
    pub fn is_answered_by_server(&self, parsed: &RequestInfo) -> bool {
        match &parsed.kind {
            RequestKind::Resource(resource) => self.is_resource_answered_by_server(resource),
            RequestKind::NonResource => {
                served_group(parsed.forward.path()).is_none_or(|(group, version)| self.is_local_api(group, version))
            }
        }
    }

    /// The same for the head of the request.
    pub fn answered_by(&self, parsed: &RequestInfo) -> AnsweredBy {
        if self.is_answered_by_server(parsed) { AnsweredBy::Server } else { AnsweredBy::Backend }
    }

    /// The same for a request of which only the resource is known.
    pub fn resource_answered_by(&self, resource: &ResourceRequest) -> AnsweredBy {
        if self.is_resource_answered_by_server(resource) { AnsweredBy::Server } else { AnsweredBy::Backend }
    }

    fn is_resource_answered_by_server(&self, resource: &ResourceRequest) -> bool {
        let is_passed_on = resource.subresource.as_deref().is_some_and(|name| PASSED_ON.contains(&name));
        resource.verb != Verb::Proxy && !is_passed_on && self.is_local_api(&resource.resource.group, &resource.version)
    }

    /// Only what is known already counts: clients name groups as they like.
    fn is_local_api(&self, group: &str, version: &str) -> bool {
        GroupResource::is_built_in(group)
            || self.views.as_ref().is_some_and(|views| views.is_known_local(group, version))
    }
}

/// The group and version whose discovery or OpenAPI a path asks for: the server of that group answers.
fn served_group(path: &str) -> Option<(&str, &str)> {
    let rest = path.strip_prefix("/apis/").or_else(|| path.strip_prefix("/openapi/v3/apis/"))?;
    let (group, version) = rest.split_once('/')?;
    let version = version.split('/').next().filter(|version| !version.is_empty())?;
    Some((group, version))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn discovery_of_a_version_is_answered_by_the_server_of_its_group() {
        for path in
            ["/apis/metrics.k8s.io/v1beta1", "/apis/metrics.k8s.io/v1beta1/", "/openapi/v3/apis/metrics.k8s.io/v1beta1"]
        {
            assert_eq!(served_group(path), Some(("metrics.k8s.io", "v1beta1")), "{path}");
        }
        for path in
            ["/apis", "/apis/", "/apis/metrics.k8s.io", "/apis/metrics.k8s.io/", "/api/v1", "/readyz", "/openapi/v3"]
        {
            assert_eq!(served_group(path), None, "{path}");
        }
    }
}
