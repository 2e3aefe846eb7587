//! SubjectAccessReviews: asks the API server, with the daemon's own credential, whether a user may send a request.

use std::fmt;

use http::Method;
use k8s_openapi::api::authorization::v1::{
    NonResourceAttributes, ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use kube::Api;
use kube::api::PostParams;
use sha2::{Digest as _, Sha256};

use super::attributes::attributes;
use crate::caller::hash_text;
use crate::error::AccessError;
use weir_front::Subject;
use weir_kube::{RequestInfo, RequestKind};
use weir_upstream::UpstreamError;

/// A SubjectAccessReview. Its `Display` is the wording of the API server:
/// `list resource "pods" in API group "" in the namespace "a"`.
#[derive(Debug)]
pub(super) struct Review {
    spec: SubjectAccessReviewSpec,
    action: String,
}

impl Review {
    /// Creates a review of whether `subject` may send this request.
    pub(super) fn new(subject: &Subject, method: &Method, request: &RequestInfo) -> Self {
        let spec = SubjectAccessReviewSpec {
            user: Some(subject.user.clone()),
            groups: Some(subject.groups.clone()),
            ..SubjectAccessReviewSpec::default()
        };
        match &request.kind {
            RequestKind::Resource(resource) => {
                let attributes = attributes(method, resource);
                let action = action(&attributes);
                Self { spec: SubjectAccessReviewSpec { resource_attributes: Some(attributes), ..spec }, action }
            }
            RequestKind::NonResource => {
                let (path, verb) = (request.forward.path().to_owned(), method.as_str().to_ascii_lowercase());
                let action = format!("{verb} path {path:?}");
                let attributes = NonResourceAttributes { path: Some(path), verb: Some(verb) };
                Self { spec: SubjectAccessReviewSpec { non_resource_attributes: Some(attributes), ..spec }, action }
            }
        }
    }

    /// What it is about, if that is a resource.
    pub(super) fn attributes(&self) -> Option<&ResourceAttributes> {
        self.spec.resource_attributes.as_ref()
    }

    /// Returns the key of this review in a cache: equal keys have equal results. It is a hash, because clients choose the
    /// length of selectors.
    #[must_use]
    pub(super) fn key(&self) -> String {
        hash_text(Sha256::new_with_prefix(serde_json::to_vec(&self.spec).unwrap_or_default()))
    }

    /// Sends the review, and returns whether the request is allowed. `client` has the daemon's credential. Cancel-safe.
    ///
    /// # Errors
    /// The API server did not respond, or not with a review. The caller must deny the request.
    pub(super) async fn send(&self, client: &kube::Client) -> Result<bool, AccessError> {
        let review = SubjectAccessReview { spec: self.spec.clone(), ..SubjectAccessReview::default() };
        let response = Api::all(client.clone()).create(&PostParams::default(), &review).await;
        let response: SubjectAccessReview = response.map_err(|error| match error {
            kube::Error::Api(status) => {
                AccessError::Review(format!("the API server returned {}: {}", status.code, status.message))
            }
            kube::Error::Service(error) => match error.downcast::<UpstreamError>() {
                Ok(error) => AccessError::Upstream(*error),
                Err(error) => AccessError::Review(error.to_string()),
            },
            error => AccessError::Review(error.to_string()),
        })?;
        Ok(response.status.is_some_and(|status| status.allowed && status.denied != Some(true)))
    }
}

fn action(attributes: &ResourceAttributes) -> String {
    let [verb, resource, subresource, group, namespace] =
        [&attributes.verb, &attributes.resource, &attributes.subresource, &attributes.group, &attributes.namespace]
            .map(|text| text.as_deref().unwrap_or_default());
    let slash = if subresource.is_empty() { "" } else { "/" };
    let place = match namespace {
        "" => "at the cluster scope".to_owned(),
        namespace => format!("in the namespace {namespace:?}"),
    };
    format!("{verb} resource \"{resource}{slash}{subresource}\" in API group {group:?} {place}")
}

impl fmt::Display for Review {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.action)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn review(method: &Method, path: &str) -> (Value, String) {
        let subject = Subject { user: "u".to_owned(), groups: vec!["g".to_owned()] };
        let request = RequestInfo::parse(method, &path.parse().unwrap()).unwrap();
        let review = Review::new(&subject, method, &request);
        (serde_json::to_value(&review.spec).unwrap(), review.to_string())
    }

    #[test]
    fn a_review_has_the_attributes_that_the_api_server_authorizes() {
        let (spec, action) = review(&Method::GET, "/api/v1/pods?watch=1&fieldSelector=spec.nodeName%3Dedge-a");
        assert_eq!(
            spec,
            json!({"user": "u", "groups": ["g"], "resourceAttributes": {
                "verb": "watch", "group": "", "version": "v1", "resource": "pods", "subresource": "",
                "namespace": "", "name": "", "fieldSelector": {"rawSelector": "spec.nodeName=edge-a"},
            }})
        );
        assert_eq!(action, r#"watch resource "pods" in API group "" at the cluster scope"#);
        let (spec, action) = review(&Method::POST, "/api/v1/namespaces/a/pods/p/exec");
        let attributes = &spec["resourceAttributes"];
        assert_eq!((&attributes["verb"], &attributes["subresource"]), (&json!("create"), &json!("exec")));
        assert_eq!(action, r#"create resource "pods/exec" in API group "" in the namespace "a""#);
        for selector in ["metadata.name%3Dx", "a%3Db,metadata.name%3D%3Dx"] {
            let (spec, _) = review(&Method::GET, &format!("/api/v1/namespaces/a/secrets?fieldSelector={selector}"));
            assert_eq!(spec["resourceAttributes"]["name"], "x", "as the API server does: {selector}");
        }
        let (spec, _) = review(&Method::GET, "/metrics");
        assert_eq!(spec["nonResourceAttributes"], json!({"path": "/metrics", "verb": "get"}));
    }
}
