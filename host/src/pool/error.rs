//! Why a peer gets nothing.

use http::StatusCode;
use weir_upstream::{RelayError, error_report};

use crate::serve::respond::{ApiStatus, StatusError};

/// Why a peer gets nothing.
#[derive(Debug, thiserror::Error)]
pub(super) enum PeerError {
    /// 403: the path is for other Weirs of the pool, and the request has no certificate of one of their nodes.
    #[error("only the client certificate of a node that --peer names is allowed here")]
    NotAPeer,
    /// 403: a peer asks for something else than a list or a watch of a shared resource.
    #[error("peers serve each other only lists and watches of resources that every node may read")]
    NotShared,
    /// 404: a peer asks for a module that this Weir does not have.
    #[error("this Weir does not have the module")]
    NoModule,
    /// 405: nothing is relayed.
    #[error("the method is not supported")]
    NoRelay,
    /// 403: a peer asks to relay to something else than an API server.
    #[error("connections are relayed only to the API servers of this Weir's own configuration, over TLS")]
    NotRelayed,
    /// 502: the API server cannot be reached for a peer.
    #[error("{}", error_report(.0))]
    Relay(RelayError),
    /// 503: this Weir has nothing that is newer than what the peer may have.
    #[error("this peer cannot serve the request: {0}")]
    Unavailable(&'static str),
    /// What any client would get.
    #[error(transparent)]
    Handler(#[from] StatusError),
}

impl ApiStatus for PeerError {
    fn code(&self) -> StatusCode {
        match self {
            Self::NotAPeer | Self::NotShared | Self::NotRelayed => StatusCode::FORBIDDEN,
            Self::NoModule => StatusCode::NOT_FOUND,
            Self::NoRelay => StatusCode::METHOD_NOT_ALLOWED,
            Self::Relay(_) => StatusCode::BAD_GATEWAY,
            Self::Unavailable(_) => StatusCode::SERVICE_UNAVAILABLE,
            Self::Handler(error) => error.code(),
        }
    }

    fn passed_on(&self) -> Option<&dyn ApiStatus> {
        match self {
            Self::Handler(error) => Some(error),
            _ => None,
        }
    }
}
