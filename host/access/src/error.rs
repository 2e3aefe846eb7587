//! Why a request has no access.

use http::StatusCode;
use weir_upstream::{UpstreamError, error_report};

/// Why a request gets no credential, or is not allowed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AccessError {
    /// 403: the request has no credential, and its Host is not a loopback name.
    #[error(
        "weir attaches the node credential only to requests whose Host is a loopback address or localhost, not {0:?}: send a token"
    )]
    Host(String),
    /// 403: the request has no credential, and a web page sent it through a browser.
    #[error(
        "weir does not attach the node credential to a request with the header {0}, which browsers add for web pages: send a token"
    )]
    Page(&'static str),
    /// 403: the request has no credential, and its process has none of the configured uids or has closed its socket.
    #[error(
        "weir attaches the node credential only to requests of processes whose uid is in --node-credential-uids: send a token"
    )]
    Uid,
    /// 401: the client certificate was valid when the connection was opened.
    #[error("the client certificate is not valid any more: {0}")]
    Certificate(rustls::Error),
    /// 403: the request impersonates somebody with a credential that Weir would add: the node's, or impersonation of its own.
    #[error("weir does not impersonate with the credential of {0}: send a token")]
    Impersonation(&'static str),
    /// 403: the API server denied the SubjectAccessReview for a certificate's user.
    #[error("forbidden: user {user:?} cannot {action}")]
    Forbidden {
        /// The user.
        user: String,
        /// The request in the words of the API server: `list resource "pods" in API group ""`.
        action: String,
    },
    /// 503: the API server did not say whether the user may send the request.
    #[error("weir cannot authorize the request: {0}")]
    Review(String),
    /// 502, 503 or 504: no API server responded.
    #[error("{}", error_report(.0))]
    Upstream(#[from] UpstreamError),
}

impl AccessError {
    /// The HTTP status code.
    #[must_use]
    pub fn code(&self) -> StatusCode {
        match self {
            Self::Certificate(_) => StatusCode::UNAUTHORIZED,
            Self::Host(_) | Self::Page(_) | Self::Uid | Self::Impersonation(_) | Self::Forbidden { .. } => {
                StatusCode::FORBIDDEN
            }
            Self::Review(_) => StatusCode::SERVICE_UNAVAILABLE,
            Self::Upstream(error) => error.code(),
        }
    }
}
