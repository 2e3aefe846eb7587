//! What responds to the requests of a port.

use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response, Version};
use http_body::Body;
use hyper::body::Incoming;
use tower::BoxError;
use weir_kube::Encoding;

use crate::connections::ActiveRequest;
use crate::head_guard::HeadError;
use crate::peer::Peer;

/// Responds to requests, and renders the refusal of those that are not HTTP or too large.
pub trait Handler: Send + Sync + 'static {
    /// The body of a response.
    type Body: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static;

    /// Responds to a request. An error is a response, too. The connection is busy until `active` is dropped: with the body of
    /// the response. Cancel-safe: a client may close its connection at any time.
    fn answer(
        self: &Arc<Self>,
        request: Request<Incoming>,
        peer: Peer,
        active: ActiveRequest,
    ) -> impl Future<Output = Response<Self::Body>> + Send;

    /// Renders a Kubernetes `Status` that says why a request is refused.
    fn refusal(error: HeadError, encoding: Encoding) -> Response<Bytes>;

    /// Attaches a request of this version to the body of its refusal, as [`Self::answer`] does to that of its response.
    fn attach(&self, refusal: Response<Bytes>, version: Version, active: ActiveRequest) -> Response<Self::Body>;
}
