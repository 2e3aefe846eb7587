//! The daemon's own requests as kube's client sends them: over the same servers, with the same fail-over and the same
//! renewed credentials as those of clients.

use std::sync::{Arc, LazyLock};
use std::task::{Context, Poll};

use futures_util::future::BoxFuture;
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue, Request, Response, header};
use http_body_util::BodyExt as _;
use kube::client::Body;
use tower::{BoxError, Service};

use crate::Identity;
use crate::{Head, Purpose, Upstream, UpstreamBody, UpstreamError};

/// `weir/VERSION (OS/ARCHITECTURE)`, on all requests that the daemon makes for itself.
static USER_AGENT: LazyLock<HeaderValue> = LazyLock::new(|| {
    let text = format!("weir/{} ({}/{})", env!("CARGO_PKG_VERSION"), std::env::consts::OS, std::env::consts::ARCH);
    HeaderValue::try_from(text).unwrap_or(HeaderValue::from_static("weir"))
});

/// Names the daemon in the headers of a request of its own.
pub(super) fn sign(headers: &mut HeaderMap) {
    headers.insert(header::USER_AGENT, USER_AGENT.clone());
}

struct Own(Arc<Upstream>, Identity);

impl Upstream {
    /// A client with the daemon's own identity. What it asks passes no filter.
    pub fn client(self: &Arc<Self>) -> kube::Client {
        kube::Client::new(Own(self.clone(), Identity::Daemon), "default")
    }

    /// A client with the node credential if there is one, else with the daemon's own.
    pub fn node_client(self: &Arc<Self>) -> kube::Client {
        let identity = if self.has_node_credential() { Identity::Node } else { Identity::Daemon };
        kube::Client::new(Own(self.clone(), identity), "default")
    }
}

impl Service<Request<Body>> for Own {
    type Response = Response<UpstreamBody>;
    type Error = UpstreamError;
    type Future = BoxFuture<'static, Result<Self::Response, UpstreamError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), UpstreamError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let (upstream, identity) = (self.0.clone(), self.1);
        let (mut parts, body) = request.into_parts();
        sign(&mut parts.headers);
        let path = parts.uri.path_and_query().cloned().unwrap_or(PathAndQuery::from_static("/"));
        let watch = path.query().is_some_and(|query| query.split('&').any(|pair| pair.starts_with("watch=")));
        let purpose = if watch { Purpose::Stream } else { Purpose::Short };
        let head = Head { method: parts.method, path, headers: parts.headers };
        let body = body.map_err(BoxError::from).boxed_unsync();
        Box::pin(async move { upstream.send(identity, purpose, head, body).await })
    }
}
