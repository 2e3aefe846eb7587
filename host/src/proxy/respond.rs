//! The one place where a failure becomes what a Kubernetes client understands: a `Status` object, as an answer or as
//! the ERROR event that ends a watch.

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};
use serde::Serialize;

use super::body::{ResponseBody, full};
use super::request::Malformed;
use super::upstream::UpstreamError;
use crate::filter::Failure;
use crate::resource::GroupResource;

/// Why the proxy answers by itself, or ends a watch by itself.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(super) enum Refusal {
    /// 400: the request line has more than one reading.
    #[error("weir refuses the request: {0}")]
    Malformed(#[from] Malformed),
    /// 405: CONNECT and TRACE.
    #[error("the method is not supported")]
    Method,
    /// 404: the object is hidden from this client; worded as the API server words it.
    #[error("{resource} {name:?} not found")]
    NotFound {
        /// Of the object.
        resource: GroupResource,
        /// Of the object.
        name: String,
    },
    /// 500: a filter with policy Fail could not decide.
    #[error("Internal error occurred: {0}")]
    Filter(Failure),
    /// 502: the API server's answer cannot be read as what was asked for.
    #[error("the API server's answer is not usable: {0}")]
    Garbage(String),
    /// 502, 503 or 504: no answer from the API server.
    #[error("{}", describe(.0))]
    Upstream(#[from] UpstreamError),
    /// 503 with Retry-After: what the filters are is not known yet.
    #[error("weir is starting: its filters are not ready yet, and nothing is served unfiltered before they are")]
    Starting,
    /// 505: a list too large to be held for a client that could not see it break off.
    #[error("HTTP/1.0 cannot tell a list of this size from a truncated one: ask with HTTP/1.1")]
    OldClient,
    /// 410: the client must list again, because what it is shown has changed without an event of the API server.
    #[error("too old resource version: {0}; list again")]
    Expired(&'static str),
}

/// What a client is told of an upstream error: all its levels, as there is no source to look at on the wire.
fn describe(error: &UpstreamError) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.ends_with(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        source = cause.source();
    }
    text
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Status<'a> {
    kind: &'static str,
    api_version: &'static str,
    metadata: Empty,
    status: &'static str,
    message: String,
    reason: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    details: Option<Details<'a>>,
    code: u16,
}

#[derive(Serialize)]
struct Empty {}

#[derive(Serialize, Default)]
#[serde(rename_all = "camelCase")]
struct Details<'a> {
    #[serde(skip_serializing_if = "str::is_empty")]
    name: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    group: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    kind: &'a str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    causes: Vec<Cause>,
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after_seconds: Option<u32>,
}

#[derive(Serialize)]
struct Cause {
    reason: &'static str,
    message: String,
}

impl Refusal {
    /// The HTTP status code.
    #[must_use]
    pub(super) fn code(&self) -> StatusCode {
        match self {
            Self::Malformed(_) => StatusCode::BAD_REQUEST,
            Self::Method => StatusCode::METHOD_NOT_ALLOWED,
            Self::NotFound { .. } => StatusCode::NOT_FOUND,
            Self::Filter(_) => StatusCode::INTERNAL_SERVER_ERROR,
            Self::Garbage(_) => StatusCode::BAD_GATEWAY,
            Self::Upstream(error) => error.code(),
            Self::Starting => StatusCode::SERVICE_UNAVAILABLE,
            Self::OldClient => StatusCode::HTTP_VERSION_NOT_SUPPORTED,
            Self::Expired(_) => StatusCode::GONE,
        }
    }

    fn reason(&self) -> &'static str {
        match self {
            Self::Expired(_) => "Expired",
            _ => match self.code() {
                StatusCode::BAD_REQUEST => "BadRequest",
                StatusCode::METHOD_NOT_ALLOWED => "MethodNotAllowed",
                StatusCode::NOT_FOUND => "NotFound",
                StatusCode::SERVICE_UNAVAILABLE => "ServiceUnavailable",
                StatusCode::GATEWAY_TIMEOUT => "Timeout",
                _ => "InternalError",
            },
        }
    }

    fn details(&self) -> Option<Details<'_>> {
        match self {
            Self::NotFound { resource, name } => {
                Some(Details { name, group: &resource.group, kind: &resource.resource, ..Details::default() })
            }
            Self::Filter(failure) => Some(Details {
                causes: vec![Cause { reason: failure.class.label(), message: failure.to_string() }],
                ..Details::default()
            }),
            Self::Starting => Some(Details { retry_after_seconds: Some(1), ..Details::default() }),
            _ => None,
        }
    }

    fn status(&self) -> Status<'_> {
        Status {
            kind: "Status",
            api_version: "v1",
            metadata: Empty {},
            status: "Failure",
            message: self.to_string(),
            reason: self.reason(),
            details: self.details(),
            code: self.code().as_u16(),
        }
    }

    /// The answer.
    #[must_use]
    pub(super) fn response(&self) -> Response<ResponseBody> {
        let mut response = Response::new(full(json(&self.status())));
        *response.status_mut() = self.code();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
        if matches!(self, Self::Starting) {
            headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }

    /// The event that ends a watch.
    #[must_use]
    pub(super) fn event(&self) -> Bytes {
        #[derive(Serialize)]
        struct Event<'a> {
            r#type: &'static str,
            object: Status<'a>,
        }
        let mut event = Vec::from(json(&Event { r#type: "ERROR", object: self.status() }));
        event.push(b'\n');
        event.into()
    }
}

/// Serialising these structs cannot fail; an empty body would be the answer if it did.
fn json(value: &impl Serialize) -> Bytes {
    serde_json::to_vec(value).unwrap_or_default().into()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::{Value, json};

    use super::*;
    use crate::filter::FailureClass;

    fn status(refusal: &Refusal) -> Value {
        serde_json::to_value(refusal.status()).unwrap()
    }

    #[test]
    fn a_hidden_object_is_worded_as_the_server_words_it() {
        let refusal =
            Refusal::NotFound { resource: GroupResource::new("endpointslices", "discovery.k8s.io"), name: "a".into() };
        assert_eq!(
            status(&refusal),
            json!({
                "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
                "message": "endpointslices.discovery.k8s.io \"a\" not found", "reason": "NotFound",
                "details": {"name": "a", "group": "discovery.k8s.io", "kind": "endpointslices"}, "code": 404
            })
        );
    }

    #[test]
    fn a_failure_names_its_filter() {
        let failure = Failure { filter: Arc::from("topology"), class: FailureClass::Trap, message: Arc::from("boom") };
        let status = status(&Refusal::Filter(failure));
        assert_eq!((&status["code"], &status["reason"]), (&json!(500), &json!("InternalError")));
        assert!(status["message"].as_str().unwrap().contains("topology"));
    }

    #[test]
    fn only_starting_asks_to_come_back_soon() {
        assert_eq!(Refusal::Starting.response().headers()[header::RETRY_AFTER], "1");
        assert!(!Refusal::Method.response().headers().contains_key(header::RETRY_AFTER));
    }

    #[test]
    fn the_event_that_makes_informers_list_again_is_410_expired() {
        let event: Value = serde_json::from_slice(&Refusal::Expired("a filter changed").event()).unwrap();
        assert_eq!(event["type"], "ERROR");
        assert_eq!((&event["object"]["code"], &event["object"]["reason"]), (&json!(410), &json!("Expired")));
    }
}
