//! Requests for one resource with the daemon's own identity, and the meaning of error responses.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, ACCEPT_ENCODING, CONTENT_TYPE};
use http::{Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Limited};
use kube::client::Body;
use weir_document::Document;
use weir_document::protobuf::Envelope;
use weir_kube::{Encoding, GroupResource};
use weir_upstream::{DecodedBody, ResponseBodyError, error_report};

use super::error::ReflectorError;
use super::uplink::Received;

/// Sends requests for one resource.
#[derive(Clone)]
pub(super) struct ResourceClient {
    pub(super) client: kube::Client,
    pub(super) resource: GroupResource,
    /// Bounds the wait for the head of a response, and for each chunk of a list.
    pub(super) response_timeout: Duration,
}

/// A request failed.
#[derive(Debug)]
pub(super) enum RequestError {
    /// 404: the API server does not serve the resource.
    NotFound,
    /// 410: the resourceVersion or the continue token has expired.
    Expired,
    /// 504: the server has not reached the resourceVersion of the request.
    UnknownVersion,
    /// The client that has delegated what the request was sent with has left. That says nothing of the API server.
    Withdrawn,
    /// Any other failure.
    Other(ReflectorError),
}

/// How many bytes of an error response are read for its message.
const MAX_ERROR_BODY: usize = 16 << 10;
/// The maximum number of characters of a message of the API server.
const MAX_MESSAGE: usize = 300;
/// The maximum number of characters of a reason.
const MAX_REASON: usize = 400;
/// The maximum size of a discovery document. A cluster with thousands of resources stays below it.
const MAX_DISCOVERY: usize = 4 << 20;

/// A `Status` in protobuf as JSON; empty for an object of another kind.
pub(crate) fn status_json(envelope: &Envelope) -> Result<Bytes, weir_document::Error> {
    match Document::protobuf(envelope.object(), Arc::new(envelope.type_meta().clone())) {
        Some(status) => Ok(status.to_json()?.into()),
        None => Ok(Bytes::new()),
    }
}

impl ResourceClient {
    /// Sends a GET request. Cancel-safe: dropping the future cancels the request.
    pub(super) async fn get(&self, path: &str, accept: &str, gzip: bool) -> Result<Response<Body>, RequestError> {
        let encoding = if gzip { "gzip" } else { "identity" };
        let request = Request::get(path)
            .header(ACCEPT, accept)
            .header(ACCEPT_ENCODING, encoding)
            .body(Body::empty())
            .map_err(|error| self.invalid_response(error))?;
        let response = match tokio::time::timeout(self.response_timeout, self.client.send(request)).await {
            Ok(Ok(response)) => response,
            Ok(Err(error)) => return Err(self.unavailable(error_report(&error))),
            Err(_) => return Err(self.unavailable(format!("no response within {:?}", self.response_timeout))),
        };
        if response.status() == StatusCode::OK {
            return Ok(response);
        }
        let code = response.status();
        let body = Limited::new(response.into_body(), MAX_ERROR_BODY).collect();
        let body = match tokio::time::timeout(self.response_timeout, body).await {
            Ok(Ok(body)) => body.to_bytes(),
            _ => Bytes::new(),
        };
        // An API server that is asked for protobuf answers its errors so, too.
        let status = Envelope::open(body.clone()).ok().and_then(|envelope| status_json(&envelope).ok());
        Err(self.error_response(code, &status.unwrap_or(body)))
    }

    /// Reads a small JSON document, such as a discovery document.
    pub(super) async fn get_json<T: serde::de::DeserializeOwned>(&self, path: &str) -> Result<T, RequestError> {
        let response = self.get(path, "application/json", false).await?;
        let body = Limited::new(response.into_body(), MAX_DISCOVERY).collect();
        match tokio::time::timeout(self.response_timeout, body).await {
            Ok(Ok(body)) => serde_json::from_slice(&body.to_bytes())
                .map_err(|error| self.invalid_response(format_args!("{path}: {error}"))),
            Ok(Err(error)) => Err(self.unavailable(format!("{path}: {error}"))),
            Err(_) => Err(self.unavailable(format!("{path}: the response stalled for {:?}", self.response_timeout))),
        }
    }

    /// The error that a status code other than 200 stands for. `body` is a `Status` object in JSON, or plain text.
    pub(super) fn error_response(&self, code: StatusCode, body: &[u8]) -> RequestError {
        #[derive(serde::Deserialize)]
        struct StatusMessage {
            message: Option<String>,
        }
        let message = serde_json::from_slice::<StatusMessage>(body).ok().and_then(|status| status.message);
        let message = message.unwrap_or_else(|| String::from_utf8_lossy(body).into_owned());
        let message: String = message.chars().filter(|c| !c.is_control()).take(MAX_MESSAGE).collect();
        let resource = self.resource.clone();
        match code {
            StatusCode::NOT_FOUND => RequestError::NotFound,
            StatusCode::GONE => RequestError::Expired,
            StatusCode::GATEWAY_TIMEOUT if message.contains("Too large resource version") => {
                RequestError::UnknownVersion
            }
            StatusCode::FORBIDDEN => RequestError::Other(ReflectorError::Forbidden { resource, message }),
            StatusCode::UNAUTHORIZED => RequestError::Other(ReflectorError::Unauthorized { resource, message }),
            _ if code.is_server_error()
                || code == StatusCode::TOO_MANY_REQUESTS
                || code == StatusCode::REQUEST_TIMEOUT =>
            {
                self.unavailable(format!("status {}: {message}", code.as_u16()))
            }
            _ => RequestError::Other(ReflectorError::Rejected { resource, code: code.as_u16(), message }),
        }
    }

    /// The error that an ERROR event of a watch reports. `status` is its object, a `Status` in JSON.
    pub(super) fn error_event(&self, status: &[u8]) -> RequestError {
        #[derive(serde::Deserialize)]
        struct StatusCodeOnly {
            code: Option<u16>,
        }
        let code = serde_json::from_slice::<StatusCodeOnly>(status).ok().and_then(|status| status.code);
        let code = code.and_then(|code| StatusCode::from_u16(code).ok()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        self.error_response(code, status)
    }

    pub(super) fn unavailable(&self, reason: impl std::fmt::Display) -> RequestError {
        // The reason may quote the API server.
        let reason = reason.to_string().chars().filter(|c| !c.is_control()).take(MAX_REASON).collect();
        RequestError::Other(ReflectorError::Unavailable { resource: self.resource.clone(), reason })
    }

    pub(super) fn invalid_response(&self, reason: impl std::fmt::Display) -> RequestError {
        let reason = reason.to_string();
        RequestError::Other(ReflectorError::InvalidResponse { resource: self.resource.clone(), reason })
    }
}

/// The body of a response, decompressed chunk by chunk.
pub(super) struct ResponseChunks {
    body: DecodedBody<UnsyncBoxBody<Bytes, kube::Error>>,
    encoding: Encoding,
}

impl ResponseChunks {
    /// Fails if the response is neither JSON nor protobuf, or has a content encoding other than gzip. Its bytes count as received
    /// when they arrive.
    pub(super) fn new(
        client: &ResourceClient,
        response: Response<Body>,
        received: Arc<Received>,
    ) -> Result<Self, RequestError> {
        let (head, body) = response.into_parts();
        let content_type = head.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let Some(encoding) = Encoding::from_content_type(content_type) else {
            let reason = format_args!("the content type is {content_type:?}, neither JSON nor protobuf");
            return Err(client.invalid_response(reason));
        };
        let counted = body.map_frame(move |frame| {
            if let Some(data) = frame.data_ref() {
                received.note(data.len());
            }
            frame
        });
        let body = DecodedBody::new(&head.headers, counted.boxed_unsync());
        Ok(Self { body: body.map_err(|reason| client.invalid_response(reason))?, encoding })
    }

    /// The encoding of the body: a server that does not encode a kind in protobuf answers in JSON.
    pub(super) fn encoding(&self) -> Encoding {
        self.encoding
    }

    /// Waits for the next chunk; `None` at the end of the body. Cancel-safe.
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, String> {
        self.body.next().await.map_err(|error| match error {
            // The errors of a reflector name what it reads from, which may be a peer.
            ResponseBodyError::Broken(source) => error_report(&*source),
            other => error_report(&other),
        })
    }
}
