//! The one place where a failure becomes what a Kubernetes client understands: a `Status` object, as an answer or as
//! the ERROR event that ends a watch.

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Status, StatusCause, StatusDetails};
use weir_document::json::EventType;
use weir_document::protobuf::{self, Envelope};
use weir_document::{TypeMeta, json};

use super::body::{BodyError, ResponseBody, full};
use super::headers::NotHopByHop;
use weir_kube::Encoding;
use weir_kube::GroupResource;
use weir_kube::{RequestInfoError, Verb};
use weir_runtime::Failure;
use weir_upstream::UpstreamError;
use weir_upstream::{ResponseBodyError, error_report};

/// Why the proxy answers by itself, or ends a watch by itself.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(super) enum Refusal {
    /// 400: the request line has more than one reading.
    #[error("weir refuses the request: {0}")]
    Malformed(#[from] RequestInfoError),
    /// 400: `Connection` names a header that must reach the API server.
    #[error("weir refuses the request: {0}")]
    Connection(#[from] NotHopByHop),
    /// 405: CONNECT and TRACE.
    #[error("the method is not supported")]
    Method,
    /// 403: the request has no credential, and its Host is not a loopback name.
    #[error(
        "weir attaches the node credential only to requests for a loopback address or localhost, not for {0:?}: send a token"
    )]
    Host(String),
    /// 403: the request has no credential, and a browser sends it for a page.
    #[error(
        "weir attaches no credential to a request with the header {0}, which browsers send for pages: send a token"
    )]
    Page(&'static str),
    /// 403: the request has no credential, and its process has none of the permitted uids, or has closed its socket.
    #[error(
        "weir attaches the node credential only to requests of processes with the uids in --node-credential-uids: send a token"
    )]
    Uid,
    /// 403: Weir impersonates the user of a client certificate already.
    #[error("weir cannot combine a client certificate with impersonation: send a token")]
    Impersonation,
    /// 403: the API server does not let a certificate's user do this.
    #[error("forbidden: user {user:?} cannot {asked}")]
    Forbidden {
        /// The user.
        user: String,
        /// What.
        asked: String,
    },
    /// 503: whether a certificate's user may do this could not be found out.
    #[error("weir cannot find out what the client certificate's user may do: {0}")]
    Review(String),
    /// 403: the client would write a filter's cut into the cluster.
    #[error(
        "{resource} {name:?} is forbidden: filter {filter:?} {} this client; replacing it would make that the cluster's state (server-side apply and strategic merge patch pass)",
        if *hidden { "hides it from" } else { "alters what is shown of it to" }
    )]
    WriteBack {
        /// Of the object.
        resource: GroupResource,
        /// Of the object.
        name: String,
        /// The first filter that alters it.
        filter: std::sync::Arc<str>,
        /// Whether it hides it.
        hidden: bool,
    },
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
    InvalidAnswer(String),
    /// 502, or 504 where nothing more came: the API server's answer broke off.
    #[error("the API server's answer is not usable: {0}")]
    Broken(#[from] BodyError),
    /// 502, 503 or 504: no answer from the API server.
    #[error("{}", error_report(.0))]
    Upstream(#[from] UpstreamError),
    /// 503 with Retry-After: what the filters are is not known yet.
    #[error("weir is starting: its filters are not ready yet, and nothing is served unfiltered before they are")]
    Starting,
    /// 505: a list too large to be held for a client that could not see it break off.
    #[error("HTTP/1.0 cannot tell a list of this size from a truncated one: ask with HTTP/1.1")]
    OldClient,
    /// 504 with Retry-After: the view has not reached the version that a list asks for; worded as the API server words it.
    #[error("Too large resource version: {version}, current: {current}")]
    TooLargeVersion {
        /// The version that the client asks for.
        version: u64,
        /// The view's version.
        current: u64,
    },
    /// 410: the client must list again, because what it is shown has changed without an event of the API server.
    #[error("too old resource version: {0}; list again")]
    Expired(&'static str),
}

impl From<ResponseBodyError> for Refusal {
    fn from(error: ResponseBodyError) -> Self {
        Self::Broken(error.into())
    }
}

impl Refusal {
    /// The HTTP status code.
    #[must_use]
    pub(super) fn code(&self) -> StatusCode {
        match self {
            Self::Malformed(_) | Self::Connection(_) => StatusCode::BAD_REQUEST,
            Self::Method => StatusCode::METHOD_NOT_ALLOWED,
            Self::Host(_)
            | Self::Page(_)
            | Self::Uid
            | Self::Impersonation
            | Self::Forbidden { .. }
            | Self::WriteBack { .. } => StatusCode::FORBIDDEN,
            Self::NotFound { .. } => StatusCode::NOT_FOUND,
            Self::Filter(_) => StatusCode::INTERNAL_SERVER_ERROR,
            Self::Broken(BodyError::Upstream(ResponseBodyError::Stalled(_))) => StatusCode::GATEWAY_TIMEOUT,
            Self::InvalidAnswer(_) | Self::Broken(_) => StatusCode::BAD_GATEWAY,
            Self::Upstream(error) => error.code(),
            Self::Starting | Self::Review(_) => StatusCode::SERVICE_UNAVAILABLE,
            Self::TooLargeVersion { .. } => StatusCode::GATEWAY_TIMEOUT,
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
                StatusCode::FORBIDDEN => "Forbidden",
                StatusCode::NOT_FOUND => "NotFound",
                StatusCode::SERVICE_UNAVAILABLE => "ServiceUnavailable",
                StatusCode::GATEWAY_TIMEOUT => "Timeout",
                _ => "InternalError",
            },
        }
    }

    fn details(&self) -> Option<StatusDetails> {
        match self {
            Self::NotFound { resource, name } | Self::WriteBack { resource, name, .. } => Some(StatusDetails {
                name: Some(name.clone()).filter(|name| !name.is_empty()),
                group: Some(resource.group.clone()).filter(|group| !group.is_empty()),
                kind: Some(resource.resource.clone()),
                ..StatusDetails::default()
            }),
            Self::Filter(failure) => {
                let (reason, message) = (Some(failure.class.label().to_owned()), Some(failure.to_string()));
                let cause = StatusCause { reason, message, ..StatusCause::default() };
                Some(StatusDetails { causes: Some(vec![cause]), ..StatusDetails::default() })
            }
            Self::TooLargeVersion { .. } => {
                let (reason, message) = ("ResourceVersionTooLarge", "Too large resource version");
                let cause = StatusCause {
                    reason: Some(reason.to_owned()),
                    message: Some(message.to_owned()),
                    ..StatusCause::default()
                };
                Some(StatusDetails {
                    causes: Some(vec![cause]),
                    retry_after_seconds: Some(1),
                    ..StatusDetails::default()
                })
            }
            Self::Starting => Some(StatusDetails { retry_after_seconds: Some(1), ..StatusDetails::default() }),
            _ => None,
        }
    }

    fn status(&self) -> Status {
        Status {
            status: Some("Failure".to_owned()),
            message: Some(self.to_string()),
            reason: Some(self.reason().to_owned()),
            details: self.details(),
            code: Some(self.code().as_u16().into()),
            ..Status::default()
        }
    }

    /// The answer, in the encoding that the client asked for.
    #[must_use]
    pub(super) fn response(&self, encoding: Encoding) -> Response<ResponseBody> {
        let (encoding, body) = self.written(encoding);
        let mut response = Response::new(full(body));
        *response.status_mut() = self.code();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, encoding.content_type(Verb::Get));
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
        if matches!(self, Self::Starting | Self::TooLargeVersion { .. }) {
            headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }

    /// The event that ends a watch of this encoding.
    #[must_use]
    pub(super) fn event(&self, encoding: Encoding) -> Bytes {
        let (encoding, object) = self.written(encoding);
        match encoding {
            Encoding::Json => json::event(EventType::Error, &object),
            // A Status is nowhere near the size at which this fails.
            Encoding::Protobuf => protobuf::event(EventType::Error, &object).unwrap_or_default(),
        }
    }

    /// Serialising a Status cannot fail; an empty body would be the answer if it did. JSON stands in if the schema has no
    /// Status.
    fn written(&self, encoding: Encoding) -> (Encoding, Bytes) {
        let text = serde_json::to_string(&self.status()).unwrap_or_default();
        let type_meta = TypeMeta { api_version: "v1".to_owned(), kind: "Status".to_owned() };
        match (encoding, protobuf::from_json(&type_meta, &text)) {
            (Encoding::Protobuf, Ok(message)) => (encoding, Envelope::seal(&type_meta, &message)),
            _ => (Encoding::Json, text.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::{Value, json};

    use super::*;
    use weir_runtime::FailureClass;

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
        assert_eq!(Refusal::Starting.response(Encoding::Json).headers()[header::RETRY_AFTER], "1");
        assert!(!Refusal::Method.response(Encoding::Json).headers().contains_key(header::RETRY_AFTER));
    }

    #[test]
    fn the_event_that_makes_informers_list_again_is_410_expired() {
        let event: Value = serde_json::from_slice(&Refusal::Expired("a filter changed").event(Encoding::Json)).unwrap();
        assert_eq!(event["type"], "ERROR");
        assert_eq!((&event["object"]["code"], &event["object"]["reason"]), (&json!(410), &json!("Expired")));
    }

    #[test]
    fn a_status_is_the_same_one_in_protobuf() {
        let failure = Failure { filter: Arc::from("topology"), class: FailureClass::Trap, message: Arc::from("boom") };
        let named = Refusal::NotFound { resource: GroupResource::new("services", ""), name: "a".into() };
        for refusal in [Refusal::Starting, Refusal::Filter(failure), named, Refusal::Expired("x"), Refusal::OldClient] {
            let (encoding, body) = refusal.written(Encoding::Protobuf);
            assert_eq!(encoding, Encoding::Protobuf);
            let envelope = Envelope::open(body).unwrap();
            let document =
                weir_document::Document::protobuf(envelope.object(), Arc::new(envelope.type_meta().clone())).unwrap();
            let told: Value = serde_json::from_str(&document.to_json().unwrap()).unwrap();
            assert_eq!(told, status(&refusal));
        }
    }
}
