//! Asks the API server whether a user may do something: a SubjectAccessReview, made with the daemon's own identity.

use std::fmt;

use http::Method;
use k8s_openapi::api::authorization::v1::{
    FieldSelectorAttributes, LabelSelectorAttributes, NonResourceAttributes, ResourceAttributes, SubjectAccessReview,
    SubjectAccessReviewSpec,
};
use kube::Api;
use kube::api::PostParams;

use crate::proxy::respond::Refusal;
use crate::proxy::server::certificate::Subject;
use weir_kube::{RequestInfo, RequestKind, ResourceRequest, Verb};
use weir_upstream::UpstreamError;

/// A question. Its `Display` is worded as the API server words a refusal:
/// `list resource "pods" in API group "" in the namespace "a"`.
#[derive(Debug)]
pub(super) struct Review {
    spec: SubjectAccessReviewSpec,
    shown: String,
}

impl Review {
    /// Asks whether `subject` may send this request.
    pub(super) fn new(subject: &Subject, method: &Method, request: &RequestInfo) -> Self {
        let spec = SubjectAccessReviewSpec {
            user: Some(subject.user.clone()),
            groups: Some(subject.groups.clone()),
            ..SubjectAccessReviewSpec::default()
        };
        match &request.kind {
            RequestKind::Resource(asked) => {
                let attributes = attributes(method, request, asked);
                let shown = shown(&attributes);
                Self { spec: SubjectAccessReviewSpec { resource_attributes: Some(attributes), ..spec }, shown }
            }
            RequestKind::NonResource => {
                let (path, verb) = (request.forward.path().to_owned(), method.as_str().to_ascii_lowercase());
                let shown = format!("{verb} path {path:?}");
                let attributes = NonResourceAttributes { path: Some(path), verb: Some(verb) };
                Self { spec: SubjectAccessReviewSpec { non_resource_attributes: Some(attributes), ..spec }, shown }
            }
        }
    }

    /// All that the answer depends on.
    #[must_use]
    pub(super) fn question(&self) -> String {
        serde_json::to_string(&self.spec).unwrap_or_default()
    }

    /// Asks. `client` sends as the daemon. Cancel-safe.
    ///
    /// # Errors
    /// The API server gives no answer, or an unusable one: then nobody is let through.
    pub(super) async fn ask(&self, client: &kube::Client) -> Result<bool, Refusal> {
        let review = SubjectAccessReview { spec: self.spec.clone(), ..SubjectAccessReview::default() };
        let answer = Api::all(client.clone()).create(&PostParams::default(), &review).await;
        let answer: SubjectAccessReview = answer.map_err(|error| match error {
            kube::Error::Api(status) => {
                Refusal::Review(format!("the API server answers {}: {}", status.code, status.message))
            }
            kube::Error::Service(error) => match error.downcast::<UpstreamError>() {
                Ok(error) => Refusal::Upstream(*error),
                Err(error) => Refusal::Review(error.to_string()),
            },
            error => Refusal::Review(error.to_string()),
        })?;
        Ok(answer.status.is_some_and(|status| status.allowed && status.denied != Some(true)))
    }
}

pub(super) fn attributes(method: &Method, request: &RequestInfo, asked: &ResourceRequest) -> ResourceAttributes {
    let text = |text: Option<&str>| Some(text.unwrap_or_default().to_owned());
    // Since 1.32 a node may list only what it selects as its own.
    let selector = |key| request.query.first(key).filter(|selector| !selector.is_empty()).map(str::to_owned);
    let field = |raw| FieldSelectorAttributes { raw_selector: Some(raw), requirements: None };
    let label = |raw| LabelSelectorAttributes { raw_selector: Some(raw), requirements: None };
    ResourceAttributes {
        verb: Some(rbac(asked.verb, method)),
        group: text(Some(&asked.resource.group)),
        version: text(Some(&asked.version)),
        resource: text(Some(&asked.resource.resource)),
        subresource: text(asked.subresource.as_deref()),
        namespace: text(asked.namespace.as_deref()),
        name: text(asked.name.as_deref().or(selected(request))),
        field_selector: selector("fieldSelector").map(field),
        label_selector: selector("labelSelector").map(label),
    }
}

fn shown(attributes: &ResourceAttributes) -> String {
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
        f.write_str(&self.shown)
    }
}

/// The name that a field selector narrows a collection to: the server authorizes that as a request for that object.
fn selected(request: &RequestInfo) -> Option<&str> {
    let terms = request.query.first("fieldSelector")?.split(',');
    terms
        .filter_map(|term| term.split_once('='))
        .find_map(|(field, value)| (field.trim() == "metadata.name").then(|| value.trim_start_matches('=').trim()))
}

fn rbac(verb: Verb, method: &Method) -> String {
    match verb {
        Verb::Get => "get".to_owned(),
        Verb::List => "list".to_owned(),
        Verb::Watch => "watch".to_owned(),
        Verb::Create => "create".to_owned(),
        Verb::Update => "update".to_owned(),
        Verb::Patch => "patch".to_owned(),
        Verb::Delete => "delete".to_owned(),
        Verb::DeleteCollection => "deletecollection".to_owned(),
        Verb::Proxy => "proxy".to_owned(),
        Verb::Other => method.as_str().to_ascii_lowercase(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn asked(method: &Method, path: &str) -> (Value, String) {
        let subject = Subject { user: "u".to_owned(), groups: vec!["g".to_owned()] };
        let request = RequestInfo::parse(method, &path.parse().unwrap()).unwrap();
        let review = Review::new(&subject, method, &request);
        (serde_json::to_value(&review.spec).unwrap(), review.to_string())
    }

    #[test]
    fn a_review_asks_what_the_server_will_ask_itself() {
        let (spec, shown) = asked(&Method::GET, "/api/v1/pods?watch=1&fieldSelector=spec.nodeName%3Dedge-a");
        assert_eq!(
            spec,
            json!({"user": "u", "groups": ["g"], "resourceAttributes": {
                "verb": "watch", "group": "", "version": "v1", "resource": "pods", "subresource": "",
                "namespace": "", "name": "", "fieldSelector": {"rawSelector": "spec.nodeName=edge-a"},
            }})
        );
        assert_eq!(shown, r#"watch resource "pods" in API group "" at the cluster scope"#);
        let (spec, shown) = asked(&Method::POST, "/api/v1/namespaces/a/pods/p/exec");
        let attributes = &spec["resourceAttributes"];
        assert_eq!((&attributes["verb"], &attributes["subresource"]), (&json!("create"), &json!("exec")));
        assert_eq!(shown, r#"create resource "pods/exec" in API group "" in the namespace "a""#);
        for selector in ["metadata.name%3Dx", "a%3Db,metadata.name%3D%3Dx"] {
            let (spec, _) = asked(&Method::GET, &format!("/api/v1/namespaces/a/secrets?fieldSelector={selector}"));
            assert_eq!(spec["resourceAttributes"]["name"], "x", "as the server takes it: {selector}");
        }
        let (spec, _) = asked(&Method::GET, "/metrics");
        assert_eq!(spec["nonResourceAttributes"], json!({"path": "/metrics", "verb": "get"}));
    }
}
