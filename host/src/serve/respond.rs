//! Turns every error of the handlers into a Kubernetes `Status`: a response, or the ERROR event that ends a watch.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Status, StatusCause, StatusDetails};
use weir_document::json::EventType;
use weir_document::protobuf::{self, Envelope};
use weir_document::{TypeMeta, json};

use tower::BoxError;

use super::body::{AbortError, ResponseBody, full};
use weir_access::AccessError;
use weir_access::Outage;
use weir_kube::Encoding;
use weir_kube::GroupResource;
use weir_kube::{OptionsError, OptionsErrorKind, RequestInfoError, Verb};
use weir_process::ledger::OverShare;
use weir_runtime::Failure;
use weir_upstream::{ResponseBodyError, UpstreamError, error_report};

/// An error of a handler.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum StatusError {
    /// 400: the URI is ambiguous, so that Weir and the API server could read it differently.
    #[error("weir rejects the request: {0}")]
    Malformed(#[from] RequestInfoError),
    /// 400 or 422, while no API server can be reached: a list or a watch has a selector or an option that the server refuses.
    #[error(transparent)]
    Options(#[from] OptionsError),
    /// 406, while no API server can be reached: the client accepts no form that the server has.
    #[error("the resource cannot be served in any of the accepted media types")]
    NotAcceptable,
    /// 405: HEAD of a watch.
    #[error("the method is not supported")]
    Method,
    /// 401, 403 or 503: the request gets no credential, or is not allowed.
    #[error(transparent)]
    Access(AccessError),
    /// 429: what the request makes Weir hold would exceed a share.
    #[error("{0}")]
    OverShare(OverShare),
    /// 429 with Retry-After: there is no room for a watch that filters match, which is never sent without them.
    #[error("there is no room for another watch with filters: {0}")]
    NoRoom(String),
    /// 429 with Retry-After: an object that filters match is read as a whole, and no memory has become free for it.
    #[error("the memory for responses is used up (a quarter of --memory)")]
    OverBudget,
    /// 403: a write would store the edits of a filter in the cluster.
    #[error(
        "{resource} {name:?} is forbidden: filter {filter:?} {} this client, and a replacement would write that to the cluster; use server-side apply or a strategic merge patch",
        if *hidden { "hides it from" } else { "changes it for" }
    )]
    WriteBack {
        /// The resource of the object.
        resource: GroupResource,
        /// The name of the object.
        name: String,
        /// The first filter that edits or hides it.
        filter: std::sync::Arc<str>,
        /// Whether the filter hides the object.
        hidden: bool,
    },
    /// 404: filters hide the object from this client. The message is the one of the API server.
    #[error("{resource} {name:?} not found")]
    NotFound {
        /// The resource of the object.
        resource: GroupResource,
        /// The name of the object.
        name: String,
    },
    /// 500: a filter with policy Fail failed on an object. The message begins like those of the API server.
    #[error("Internal error occurred: {0}")]
    Filter(Failure),
    /// 502: the API server's response does not have the requested form.
    #[error("the API server's response is invalid: {0}")]
    InvalidResponse(String),
    /// 502, or 504 after a timeout: the API server's response was interrupted.
    #[error("the API server's response is incomplete: {}", error_report(.0))]
    Interrupted(#[from] AbortError),
    /// 400: the client did not send the whole body of its request.
    #[error("the body of the request is incomplete: {0}")]
    RequestBody(BoxError),
    /// 502, 503 or 504: no API server responded.
    #[error("{}", error_report(.0))]
    Upstream(#[from] UpstreamError),
    /// 503 without Retry-After, which client-go would sleep out inside each call: no API server can be reached.
    #[error("the API server cannot be reached since {since}{}: {}", ended(.grace), error_report(.source))]
    Offline {
        /// Since when.
        since: jiff::Timestamp,
        /// The time for which clients other than node components kept their permissions, and when it ended.
        grace: Option<(Duration, jiff::Timestamp)>,
        /// What became of the request.
        source: UpstreamError,
    },
    /// 503 with Retry-After: the first filter set is not ready.
    #[error("weir is starting: the filters that may match this request are not ready yet")]
    Starting,
    /// 429 with Retry-After: a watch begins while the daemon stops. It would end before its first event, and client-go lists
    /// again after such a watch, but only tries again after this response, as after that of a kube-apiserver that stops.
    #[error("weir is stopping: watch again in a moment")]
    Stopping,
    /// 505: the list does not fit into the buffer for HTTP/1.0 clients, which cannot detect an aborted body.
    #[error("the list is too large for HTTP/1.0, where a client cannot detect a truncated response: use HTTP/1.1")]
    OldClient,
    /// 504 with Retry-After: a list requests a version that the view has not reached. The message is the one of the API server.
    #[error("Timeout: Too large resource version: {version}, current: {current}")]
    TooLargeVersion {
        /// The requested version.
        version: u64,
        /// The version of the view.
        current: u64,
    },
    /// 410: the client must list again, because what it holds is not known.
    #[error("too old resource version: {0}; list again")]
    Expired(&'static str),
}

/// Says that clients other than node components get nothing any more.
fn ended(grace: &Option<(Duration, jiff::Timestamp)>) -> String {
    let Some((grace, end)) = grace else { return String::new() };
    format!(", and what clients may read is unknown since {end}, when --offline-grace={grace:?} ended")
}

impl From<AccessError> for StatusError {
    fn from(error: AccessError) -> Self {
        match error {
            AccessError::Upstream(error) => Self::Upstream(error),
            error => Self::Access(error),
        }
    }
}

impl From<ResponseBodyError> for StatusError {
    fn from(error: ResponseBodyError) -> Self {
        Self::Interrupted(error.into())
    }
}

impl StatusError {
    /// The API server switched protocols, but the client did not ask for an upgrade.
    #[must_use]
    pub(crate) fn unrequested_upgrade() -> Self {
        Self::InvalidResponse("it switches protocols, which was not requested".to_owned())
    }

    /// Says since when no API server can be reached, if that is why a request failed.
    #[must_use]
    pub(crate) fn with_outage(self, outage: &Outage) -> Self {
        let status = outage.status();
        match (self, status.and_then(|status| jiff::Timestamp::try_from(status.since).ok())) {
            // A server that is not trusted is there: its own message helps.
            (Self::Upstream(source), Some(since))
                if !matches!(source, UpstreamError::Untrusted { .. } | UpstreamError::RequestBody) =>
            {
                let since = since.round(jiff::Unit::Second).unwrap_or(since);
                let ended = status.and_then(|status| status.ended(outage.grace()));
                let ended = ended.and_then(|end| jiff::Timestamp::try_from(end).ok()?.round(jiff::Unit::Second).ok());
                Self::Offline { since, grace: ended.map(|end| (outage.grace(), end)), source }
            }
            (error, _) => error,
        }
    }
}

impl ApiStatus for StatusError {
    fn code(&self) -> StatusCode {
        match self {
            Self::Options(error) if error.kind == OptionsErrorKind::Contradiction => StatusCode::UNPROCESSABLE_ENTITY,
            Self::Options(_) | Self::Malformed(_) | Self::RequestBody(_) => StatusCode::BAD_REQUEST,
            Self::OverShare(_) | Self::NoRoom(_) | Self::OverBudget | Self::Stopping => StatusCode::TOO_MANY_REQUESTS,
            Self::Method => StatusCode::METHOD_NOT_ALLOWED,
            Self::NotAcceptable => StatusCode::NOT_ACCEPTABLE,
            Self::WriteBack { .. } => StatusCode::FORBIDDEN,
            Self::NotFound { .. } => StatusCode::NOT_FOUND,
            Self::Filter(_) => StatusCode::INTERNAL_SERVER_ERROR,
            Self::Interrupted(AbortError::Upstream(ResponseBodyError::Stalled(_))) => StatusCode::GATEWAY_TIMEOUT,
            Self::InvalidResponse(_) | Self::Interrupted(_) => StatusCode::BAD_GATEWAY,
            Self::Upstream(error) => error.code(),
            Self::Access(error) => error.code(),
            Self::Starting | Self::Offline { .. } => StatusCode::SERVICE_UNAVAILABLE,
            Self::TooLargeVersion { .. } => StatusCode::GATEWAY_TIMEOUT,
            Self::OldClient => StatusCode::HTTP_VERSION_NOT_SUPPORTED,
            Self::Expired(_) => StatusCode::GONE,
        }
    }

    fn reason(&self) -> &'static str {
        match self {
            Self::Expired(_) => "Expired",
            _ => reason(self.code()),
        }
    }

    fn retry_after(&self) -> Option<u16> {
        let passes = matches!(
            self,
            Self::Starting
                | Self::Stopping
                | Self::OverShare(_)
                | Self::NoRoom(_)
                | Self::OverBudget
                | Self::TooLargeVersion { .. }
        );
        passes.then_some(1)
    }

    fn details(&self) -> Option<StatusDetails> {
        match self {
            Self::NotFound { resource, name } | Self::WriteBack { resource, name, .. } => Some(StatusDetails {
                name: Some(name.clone()).filter(|name| !name.is_empty()),
                group: Some(resource.group.clone()).filter(|group| !group.is_empty()),
                kind: Some(resource.resource.clone()),
                ..StatusDetails::default()
            }),
            Self::Options(OptionsError { parameter, reason, .. }) => {
                let (field, message) = (Some(parameter.to_string()), Some(reason.clone()));
                let cause = StatusCause { field, message, reason: Some("FieldValueInvalid".to_owned()) };
                Some(StatusDetails { causes: Some(vec![cause]), ..StatusDetails::default() })
            }
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
                Some(StatusDetails { causes: Some(vec![cause]), ..StatusDetails::default() })
            }
            _ => None,
        }
    }
}

/// An error that a client receives as a Kubernetes `Status`, like `APIStatus` in apimachinery. Each room has its own.
pub(crate) trait ApiStatus: std::error::Error {
    /// The HTTP status code.
    fn code(&self) -> StatusCode;

    /// The error of another room that this one passes on.
    fn passed_on(&self) -> Option<&dyn ApiStatus> {
        None
    }

    /// The reason, as apimachinery names it; empty where it has none.
    fn reason(&self) -> &'static str {
        self.passed_on().map_or_else(|| reason(self.code()), ApiStatus::reason)
    }

    /// What a program can read of the error.
    fn details(&self) -> Option<StatusDetails> {
        self.passed_on()?.details()
    }

    /// After how many seconds a client may try again, as header and details of the response say. client-go retries 429 and 5xx
    /// with this header only, and sleeps inside the call: an outage has none.
    fn retry_after(&self) -> Option<u16> {
        self.passed_on()?.retry_after()
    }

    /// Further headers of the response.
    fn add_headers(&self, _headers: &mut HeaderMap) {}

    /// The error as the body of a response.
    fn status(&self) -> Status {
        let (reason, mut details) = (self.reason(), self.details());
        if let Some(seconds) = self.retry_after() {
            details.get_or_insert_default().retry_after_seconds = Some(seconds.into());
        }
        Status {
            status: Some("Failure".to_owned()),
            message: Some(self.to_string()),
            reason: Some(reason.to_owned()).filter(|reason| !reason.is_empty()),
            details,
            code: Some(self.code().as_u16().into()),
            ..Status::default()
        }
    }

    /// Returns the response, in the encoding that the client asked for.
    #[must_use]
    fn response(&self, encoding: Encoding) -> Response<ResponseBody> {
        self.rendered(encoding).map(full)
    }

    /// Returns the response with its bytes.
    #[must_use]
    fn rendered(&self, encoding: Encoding) -> Response<Bytes> {
        let (encoding, body) = encode(&self.status(), encoding);
        let mut response = Response::new(body);
        *response.status_mut() = self.code();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, encoding.content_type(Verb::Get));
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
        if let Some(seconds) = self.retry_after() {
            headers.insert(header::RETRY_AFTER, seconds.into());
        }
        self.add_headers(headers);
        response
    }

    /// Returns the ERROR event that ends a watch, in the encoding of the watch.
    #[must_use]
    fn event(&self, encoding: Encoding) -> Bytes {
        let (encoding, object) = encode(&self.status(), encoding);
        match encoding {
            Encoding::Json => json::event(EventType::Error, &object),
            // This fails only for an object of 4 GiB.
            Encoding::Protobuf => protobuf::event(EventType::Error, &object).unwrap_or_default(),
        }
    }
}

/// The reason of a status code, as apimachinery names it; empty where it has none.
fn reason(code: StatusCode) -> &'static str {
    match code {
        StatusCode::BAD_REQUEST => "BadRequest",
        StatusCode::UNPROCESSABLE_ENTITY => "Invalid",
        StatusCode::UNAUTHORIZED => "Unauthorized",
        StatusCode::TOO_MANY_REQUESTS => "TooManyRequests",
        StatusCode::METHOD_NOT_ALLOWED => "MethodNotAllowed",
        StatusCode::NOT_ACCEPTABLE => "NotAcceptable",
        StatusCode::FORBIDDEN => "Forbidden",
        StatusCode::NOT_FOUND => "NotFound",
        StatusCode::SERVICE_UNAVAILABLE => "ServiceUnavailable",
        StatusCode::GATEWAY_TIMEOUT => "Timeout",
        StatusCode::URI_TOO_LONG | StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE => "",
        _ => "InternalError",
    }
}

/// Encodes a Status. Falls back to JSON if the schema does not know the kind Status.
fn encode(status: &Status, encoding: Encoding) -> (Encoding, Bytes) {
    // Serializing a Status cannot fail.
    let text = serde_json::to_string(status).unwrap_or_default();
    let type_meta = TypeMeta { api_version: "v1".to_owned(), kind: "Status".to_owned() };
    match (encoding, protobuf::from_json(&type_meta, &text)) {
        (Encoding::Protobuf, Ok(message)) => (encoding, Envelope::seal(&type_meta, &message)),
        _ => (Encoding::Json, text.into()),
    }
}

#[cfg(test)]
mod tests;
