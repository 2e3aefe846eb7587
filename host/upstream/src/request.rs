//! Requests to the API servers: head, body, and the kind of connection that they need.

use bytes::Bytes;
use http::uri::PathAndQuery;
use http::{HeaderMap, Method};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Empty};
use tower::BoxError;

/// A boxed body of a request to the API server.
pub type RequestBody = UnsyncBoxBody<Bytes, BoxError>;

/// Returns an empty request body.
#[must_use]
pub fn no_request_body() -> RequestBody {
    Empty::new().map_err(|never| match never {}).boxed_unsync()
}

/// Selects the connections that a request may use.
///
/// Each purpose has its own connections, so that a bulk list delays neither a watch nor a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// A request that ends soon. The default for all requests that fit no other purpose.
    Short,
    /// A watch.
    Watch,
    /// Another response body without an end: a log, or what `proxy` returns.
    Stream,
    /// A renewal of a lease or of a node's status, by which the cluster sees that the node is alive.
    Heartbeat,
    /// A health probe of the API server.
    Probe,
    /// An HTTP/1.1 request that upgrades the connection to a byte stream.
    Upgrade,
}

impl Purpose {
    /// The flow-control window of an HTTP/2 stream in bytes: how much of a response the server may send before the client
    /// reads. Lists need a large one where the API server is far away.
    pub(super) fn window(self) -> u32 {
        match self {
            Self::Short | Self::Upgrade => 1 << 20,
            Self::Watch | Self::Stream => 256 << 10,
            Self::Heartbeat | Self::Probe => 64 << 10,
        }
    }
}

/// The origin of the answer to a request.
///
/// The API server passes some requests on: to kubelet, to what runs in a pod, to an aggregated API server. Their answers are
/// those of a tenant, or may be. They say nothing of an outage or of a credential.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AnsweredBy {
    /// The API server itself.
    Server,
    /// Somebody behind the API server, or this is not known.
    Backend,
}

/// A request to the API server without its body.
#[derive(Debug, Clone)]
pub struct RequestHead {
    /// The method.
    pub method: Method,
    /// The path and query, as `weir_kube::RequestInfo::forward`.
    pub path: PathAndQuery,
    /// The headers, without the hop-by-hop headers of the client.
    pub headers: HeaderMap,
    /// The origin of the answer.
    pub answered_by: AnsweredBy,
}
