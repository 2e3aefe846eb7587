//! Errors of requests to the API servers.

use std::error::Error;
use std::sync::Arc;

use http::{Request, StatusCode};
use tower::BoxError;

use crate::request::RequestBody;

/// A request got no response from the API server.
///
/// The API server may have processed the request all the same, unless connecting failed, Weir did not send it, or the server
/// said that it did not process it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UpstreamError {
    /// Connecting failed.
    #[error("cannot connect to the API server {server}")]
    Connect {
        /// The name of the server.
        server: Arc<str>,
        /// The cause.
        #[source]
        source: BoxError,
    },
    /// The certificate of the server is not trusted.
    #[error("the certificate of the API server {server} is not trusted by {trust}")]
    Untrusted {
        /// The name of the server.
        server: Arc<str>,
        /// The name of the CA bundle.
        trust: Arc<str>,
        /// The cause.
        #[source]
        source: BoxError,
    },
    /// Connecting, including the TLS handshake, timed out.
    #[error("connecting to the API server {server} timed out")]
    ConnectTimeout {
        /// The name of the server.
        server: Arc<str>,
        /// The cause.
        #[source]
        source: BoxError,
    },
    /// The connection broke before the head of the response arrived.
    #[error("the API server {server} closed the connection without a response")]
    Broken {
        /// The name of the server.
        server: Arc<str>,
        /// The cause.
        #[source]
        source: hyper::Error,
    },
    /// The server did not process the request: it closed the connection for further requests, or refused the stream.
    #[error("the API server {server} closed the connection before it processed the request")]
    Unprocessed {
        /// The name of the server.
        server: Arc<str>,
        /// The cause.
        #[source]
        source: hyper::Error,
    },
    /// The server went down before it responded.
    #[error("the API server {server} went down before it responded")]
    Lost {
        /// The name of the server.
        server: Arc<str>,
    },
    /// The client broke off the body of its request. This says nothing of the server.
    #[error("the body of the request is incomplete")]
    RequestBody,
    /// All servers are unresponsive, and Weir did not send the request.
    #[error("no API server responds ({servers}); weir keeps probing and recovers when one does")]
    Unresponsive {
        /// The names of all servers.
        servers: String,
    },
    /// All streams of all connections are in use.
    #[error("too many open requests to the API server")]
    Busy,
    /// The credential is not available, for example because its token file or exec plugin failed.
    #[error("the credential for the API server is not usable: {0}")]
    Credential(String),
    /// The URL of the request is not valid with the path prefix of the server.
    #[error("the request cannot be forwarded")]
    InvalidRequest(#[source] http::Error),
}

impl UpstreamError {
    /// Returns the status code for the client.
    #[must_use]
    pub fn code(&self) -> StatusCode {
        match self {
            Self::Connect { .. }
            | Self::Unprocessed { .. }
            | Self::Unresponsive { .. }
            | Self::Busy
            | Self::Credential(_) => StatusCode::SERVICE_UNAVAILABLE,
            Self::ConnectTimeout { .. } => StatusCode::GATEWAY_TIMEOUT,
            Self::Broken { .. } | Self::Untrusted { .. } | Self::Lost { .. } => StatusCode::BAD_GATEWAY,
            Self::InvalidRequest(_) | Self::RequestBody => StatusCode::BAD_REQUEST,
        }
    }

    /// Returns the value of the metric label `result`.
    pub(super) fn label(&self) -> &'static str {
        match self {
            Self::Connect { .. } => "connect",
            Self::Untrusted { .. } => "untrusted",
            Self::ConnectTimeout { .. } => "connect-timeout",
            Self::Broken { .. } => "broken",
            Self::Unprocessed { .. } => "unprocessed",
            Self::Lost { .. } => "lost",
            Self::Unresponsive { .. } => "unresponsive",
            Self::Busy => "busy",
            Self::Credential(_) => "credential",
            Self::InvalidRequest(_) => "invalid-request",
            Self::RequestBody => "request-body",
        }
    }

    /// Returns whether connecting failed, so that the server received nothing of the request.
    pub(super) fn is_connect_error(&self) -> bool {
        matches!(self, Self::Connect { .. } | Self::Untrusted { .. } | Self::ConnectTimeout { .. })
    }

    /// Returns whether the server said that it did not process the request, so that sending it again is harmless.
    pub(super) fn is_unprocessed(&self) -> bool {
        matches!(self, Self::Unprocessed { .. })
    }

    /// Returns whether the server was unreachable, or became so before it responded.
    pub(super) fn is_unreachable(&self) -> bool {
        self.is_connect_error() || matches!(self, Self::Broken { .. } | Self::Lost { .. } | Self::Unresponsive { .. })
    }

    /// Returns whether the request may go to another server. `repeatable` says whether sending it twice is harmless.
    pub(super) fn allows_other_server(&self, repeatable: bool) -> bool {
        self.is_connect_error() || self.is_unprocessed() || (repeatable && self.is_unreachable())
    }

    /// Names the server, and classifies the cause of a failed connection attempt.
    pub(super) fn from_send(error: SendError, server: &Arc<str>, trust: &Arc<str>) -> Self {
        let server = server.clone();
        match error {
            SendError::Exhausted => Self::Busy,
            SendError::Broken(source) | SendError::Unsent { source, .. } => Self::Broken { server, source },
            SendError::Unprocessed(source) => Self::Unprocessed { server, source },
            SendError::Connect(source) => match connect_failure(&*source) {
                ConnectFailure::Timeout => Self::ConnectTimeout { server, source },
                ConnectFailure::Untrusted => Self::Untrusted { server, trust: trust.clone(), source },
                ConnectFailure::Other => Self::Connect { server, source },
            },
        }
    }
}

/// A request got no response from a connection or a pool.
#[derive(Debug)]
pub(super) enum SendError {
    /// All streams of the maximum number of connections are in use.
    Exhausted,
    /// Connecting failed. The server received nothing.
    Connect(BoxError),
    /// The connection broke before the head of the response arrived.
    Broken(hyper::Error),
    /// The server said that it did not process the request.
    Unprocessed(hyper::Error),
    /// The connection closed before it sent anything of the request.
    Unsent {
        /// The request with its unread body.
        request: Box<Request<RequestBody>>,
        /// The cause.
        source: hyper::Error,
    },
}

impl SendError {
    /// Classifies an error of a connection that may have sent the request.
    pub(super) fn sent(error: hyper::Error) -> Self {
        let cause = error.source().and_then(|source| source.downcast_ref::<h2::Error>());
        // h2 ends with the server's GOAWAY only streams that it does not name as processed, and those it did not open for it.
        let is_unprocessed = cause.is_some_and(|cause| {
            let is_refused = cause.is_reset() && cause.reason() == Some(h2::Reason::REFUSED_STREAM);
            cause.is_remote() && (cause.is_go_away() || is_refused)
        });
        if is_unprocessed { Self::Unprocessed(error) } else { Self::Broken(error) }
    }
}

/// The cause of a failed connection attempt.
enum ConnectFailure {
    Timeout,
    Untrusted,
    Other,
}

/// What is wrong with the certificate of a server, if that is why connecting failed.
pub(super) fn certificate_error(error: &UpstreamError) -> Option<&rustls::CertificateError> {
    match error {
        UpstreamError::Untrusted { source, .. } => match tls_error(&**source)? {
            rustls::Error::InvalidCertificate(error) => Some(error),
            _ => None,
        },
        _ => None,
    }
}

/// The error of TLS that caused another one.
pub(super) fn tls_error<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a rustls::Error> {
    if let Some(tls) = error.downcast_ref() {
        return Some(tls);
    }
    // `source` of an I/O error skips the error that it wraps.
    let inner = error.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
    inner.map(|inner| inner as &(dyn Error + 'static)).or(error.source()).and_then(tls_error)
}

fn connect_failure(error: &(dyn Error + 'static)) -> ConnectFailure {
    if matches!(error.downcast_ref(), Some(rustls::Error::InvalidCertificate(_))) {
        return ConnectFailure::Untrusted;
    }
    if let Some(io) = error.downcast_ref::<std::io::Error>() {
        if io.kind() == std::io::ErrorKind::TimedOut {
            return ConnectFailure::Timeout;
        }
        // `source` of an I/O error skips the error that it wraps.
        if let Some(inner) = io.get_ref() {
            return connect_failure(inner);
        }
    }
    error.source().map_or(ConnectFailure::Other, connect_failure)
}
