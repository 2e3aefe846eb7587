//! Asks the API server whether somebody may do something: a SubjectAccessReview, made with the daemon's own identity.

use std::fmt;

use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use http_body_util::{BodyExt as _, Limited};
use serde_json::{Value, json};

use crate::proxy::respond::Refusal;
use crate::proxy::server::certificate::Subject;
use weir_kube::{Request, Target, Verb};
use weir_upstream::Identity;
use weir_upstream::whole_request_body;
use weir_upstream::{Head, Purpose, Upstream};

const PATH: PathAndQuery = PathAndQuery::from_static("/apis/authorization.k8s.io/v1/subjectaccessreviews");
/// The largest answer that is read.
const LIMIT: usize = 64 << 10;

/// A question. Shown as the API server words a refusal: `list resource "pods" in API group "" in the namespace "a"`.
#[derive(Debug)]
pub(super) struct Review {
    body: Value,
    shown: String,
}

impl Review {
    /// Whether `subject` may send this request.
    pub(super) fn new(subject: &Subject, method: &Method, request: &Request) -> Self {
        let (attributes, shown) = match &request.target {
            Target::Resource(asked) => {
                let verb = rbac(asked.verb, method);
                let subresource = asked.subresource.as_deref().unwrap_or_default();
                let (resource, group) = (&asked.resource.resource, &asked.resource.group);
                let namespace = asked.namespace.as_deref().unwrap_or_default();
                let name = asked.name.as_deref().or(selected(request)).unwrap_or_default();
                let place = match namespace {
                    "" => "at the cluster scope".to_owned(),
                    namespace => format!("in the namespace {namespace:?}"),
                };
                let sub = if subresource.is_empty() { String::new() } else { format!("/{subresource}") };
                let mut attributes = json!({
                    "verb": verb, "group": group, "version": asked.version, "resource": resource,
                    "subresource": subresource, "namespace": namespace, "name": name,
                });
                // Since 1.32 a node may list only what it selects as its own.
                for key in ["fieldSelector", "labelSelector"] {
                    let selector = request.query.first(key).filter(|selector| !selector.is_empty());
                    if let (Some(selector), Value::Object(attributes)) = (selector, &mut attributes) {
                        attributes.insert(key.to_owned(), json!({"rawSelector": selector}));
                    }
                }
                let attributes = json!({"resourceAttributes": attributes});
                (attributes, format!("{verb} resource \"{resource}{sub}\" in API group {group:?} {place}"))
            }
            Target::NonResource => {
                let (path, verb) = (request.forward.path(), method.as_str().to_ascii_lowercase());
                (json!({"nonResourceAttributes": {"path": path, "verb": verb}}), format!("{verb} path {path:?}"))
            }
        };
        let mut body = json!({
            "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
            "spec": {"user": subject.user, "groups": subject.groups},
        });
        if let (Some(Value::Object(spec)), Value::Object(attributes)) = (body.get_mut("spec"), attributes) {
            spec.extend(attributes);
        }
        Self { body, shown }
    }

    /// All that the answer depends on.
    #[must_use]
    pub(super) fn question(&self) -> String {
        self.body.to_string()
    }

    /// What the API server says. Cancel-safe.
    ///
    /// # Errors
    /// It says nothing, or nothing of use: nobody is let through by that.
    pub(super) async fn ask(&self, upstream: &Upstream) -> Result<bool, Refusal> {
        let mut headers = HeaderMap::new();
        let json = HeaderValue::from_static("application/json");
        headers.insert(header::CONTENT_TYPE, json.clone());
        headers.insert(header::ACCEPT, json);
        let head = Head { method: Method::POST, path: PATH, headers };
        let body = whole_request_body(self.body.to_string().into());
        let answer = upstream.send(Identity::Daemon, Purpose::Short, head, body).await?;
        let code = answer.status();
        let body = Limited::new(answer.into_body(), LIMIT).collect().await;
        let body = body.map_err(|error| Refusal::Review(error.to_string()))?.to_bytes();
        if code != StatusCode::CREATED && code != StatusCode::OK {
            let told: Value = serde_json::from_slice(&body).unwrap_or_default();
            let message = told.get("message").and_then(Value::as_str).unwrap_or_default();
            return Err(Refusal::Review(format!("the API server answers {}: {message}", code.as_u16())));
        }
        let told: Value = serde_json::from_slice(&body).map_err(|error| Refusal::Review(error.to_string()))?;
        let status = |field: &str| told.pointer(field).and_then(Value::as_bool);
        Ok(status("/status/allowed") == Some(true) && status("/status/denied") != Some(true))
    }
}

impl fmt::Display for Review {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

/// The one name that a collection is narrowed to: the server judges that as a request for that object.
fn selected(request: &Request) -> Option<&str> {
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
    use super::*;

    fn asked(method: &Method, path: &str) -> (Value, String) {
        let subject = Subject { user: "u".to_owned(), groups: vec!["g".to_owned()] };
        let request = Request::parse(method, &path.parse().unwrap()).unwrap();
        let review = Review::new(&subject, method, &request);
        (review.body["spec"].clone(), review.to_string())
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
