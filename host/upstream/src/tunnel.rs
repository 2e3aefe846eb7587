//! A tunnel through a peer to an API server: HTTP `CONNECT` on a connection of its own.

use std::sync::Arc;

use http::uri::Authority;
use http::{HeaderValue, Method, Request, StatusCode, Uri, header};
use hyper::client::conn::http1;
use hyper::rt::Executor as _;
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioExecutor;
use tower::BoxError;

use crate::connect::Connector;
use crate::request::no_request_body;

/// A peer does not relay.
#[derive(Debug, thiserror::Error)]
#[error("the peer {peer} does not relay to {target}: it answers {status}")]
struct NotRelayed {
    peer: Arc<str>,
    target: Authority,
    status: StatusCode,
}

/// Opens a tunnel. Cancel safe: dropping the future closes the connection.
pub(super) async fn open_tunnel(
    connector: &Connector,
    peer: Uri,
    name: Arc<str>,
    target: Authority,
) -> Result<Upgraded, BoxError> {
    let stream = connector.connect(peer).await?;
    let (mut sender, connection) = http1::handshake(stream).await?;
    // It ends with the tunnel, or when the sender is dropped.
    TokioExecutor::new().execute(async move {
        if let Err(error) = connection.with_upgrades().await {
            tracing::debug!(%error, "connection to a relaying peer ended");
        }
    });
    let host = HeaderValue::from_str(target.as_str())?;
    let mut request = Request::new(no_request_body());
    *request.method_mut() = Method::CONNECT;
    *request.uri_mut() = Uri::from(target.clone());
    request.headers_mut().insert(header::HOST, host);
    let response = sender.send_request(request).await?;
    match response.status() {
        StatusCode::OK => Ok(hyper::upgrade::on(response).await?),
        status => Err(NotRelayed { peer: name, target, status }.into()),
    }
}
