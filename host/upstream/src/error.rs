//! Why there is no answer from an API server.

use std::error::Error;
use std::sync::Arc;

use http::StatusCode;
use hyper_util::client::legacy;

/// No answer from the API server. None of these is a reason to try a write again.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UpstreamError {
    /// It could not be reached.
    #[error("cannot connect to the API server {server}")]
    Connect {
        /// Which.
        server: Arc<str>,
        /// Why.
        #[source]
        source: legacy::Error,
    },
    /// Its certificate does not prove that it is the API server.
    #[error("the API server {server} does not prove itself by {trust}")]
    Untrusted {
        /// Which.
        server: Arc<str>,
        /// What its certificate was judged by.
        trust: Arc<str>,
        /// Why.
        #[source]
        source: legacy::Error,
    },
    /// Dialling or its handshake took too long.
    #[error("connecting to the API server {server} took too long")]
    ConnectTimeout {
        /// Which.
        server: Arc<str>,
        /// Why.
        #[source]
        source: legacy::Error,
    },
    /// The connection broke before the answer's head was there.
    #[error("the API server {server} closed the connection without an answer")]
    Broken {
        /// Which.
        server: Arc<str>,
        /// Why.
        #[source]
        source: legacy::Error,
    },
    /// It went down while its answer was awaited.
    #[error("the API server {server} went down before it answered")]
    Lost {
        /// Which.
        server: Arc<str>,
    },
    /// No server has sent anything for a while; nothing of the request was sent.
    #[error("no API server answers ({servers}); weir probes on and serves again when one does")]
    Silent {
        /// All of them.
        servers: String,
    },
    /// All streams of all connections are in use.
    #[error("too many requests to the API server are open")]
    Busy,
    /// A credential could not be had (its token file, its plug-in).
    #[error("the credential that the request would travel with cannot be used: {0}")]
    Credential(String),
    /// The request cannot be put into words for the API server.
    #[error("the request cannot be forwarded")]
    Unsendable(#[source] http::Error),
}

impl UpstreamError {
    /// The status code of the proxy's answer.
    #[must_use]
    pub fn code(&self) -> StatusCode {
        match self {
            Self::Connect { .. } | Self::Silent { .. } | Self::Busy | Self::Credential(_) => {
                StatusCode::SERVICE_UNAVAILABLE
            }
            Self::ConnectTimeout { .. } => StatusCode::GATEWAY_TIMEOUT,
            Self::Broken { .. } | Self::Untrusted { .. } | Self::Lost { .. } => StatusCode::BAD_GATEWAY,
            Self::Unsendable(_) => StatusCode::BAD_REQUEST,
        }
    }

    /// The metric label.
    pub(super) fn label(&self) -> &'static str {
        match self {
            Self::Connect { .. } => "connect",
            Self::Untrusted { .. } => "untrusted",
            Self::ConnectTimeout { .. } => "connect-timeout",
            Self::Broken { .. } => "broken",
            Self::Lost { .. } => "lost",
            Self::Silent { .. } => "silent",
            Self::Busy => "busy",
            Self::Credential(_) => "credential",
            Self::Unsendable(_) => "unsendable",
        }
    }

    /// Whether nothing of the request has reached the server, because there was no connection.
    pub(super) fn is_of_connecting(&self) -> bool {
        matches!(self, Self::Connect { .. } | Self::Untrusted { .. } | Self::ConnectTimeout { .. })
    }

    /// Whether the server was not reached, or no longer when it was to answer.
    pub(super) fn is_unanswered(&self) -> bool {
        self.is_of_connecting() || matches!(self, Self::Broken { .. } | Self::Lost { .. } | Self::Silent { .. })
    }

    /// Whether another server may be asked instead, for a request that is safe to repeat or not.
    pub(super) fn may_be_another_servers(&self, safe: bool) -> bool {
        if safe { self.is_unanswered() } else { self.is_of_connecting() }
    }

    pub(super) fn from_client(error: legacy::Error, server: &Arc<str>, trust: &Arc<str>) -> Self {
        let server = server.clone();
        if !error.is_connect() {
            return Self::Broken { server, source: error };
        }
        match connect_fault(&error) {
            Fault::Timeout => Self::ConnectTimeout { server, source: error },
            Fault::Untrusted => Self::Untrusted { server, trust: trust.clone(), source: error },
            Fault::Other => Self::Connect { server, source: error },
        }
    }
}

enum Fault {
    Timeout,
    Untrusted,
    Other,
}

fn connect_fault(error: &(dyn Error + 'static)) -> Fault {
    if matches!(error.downcast_ref(), Some(rustls::Error::InvalidCertificate(_))) {
        return Fault::Untrusted;
    }
    if let Some(io) = error.downcast_ref::<std::io::Error>() {
        if io.kind() == std::io::ErrorKind::TimedOut {
            return Fault::Timeout;
        }
        // `source` of an I/O error leaves out what it is made of itself.
        if let Some(inner) = io.get_ref() {
            return connect_fault(inner);
        }
    }
    error.source().map_or(Fault::Other, connect_fault)
}
