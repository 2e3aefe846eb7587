//! An API server for unit tests: a function of requests. It needs no socket, so that the clock of a test may be paused.

use std::convert::Infallible;
use std::io::{Error, ErrorKind};

use bytes::Bytes;
use futures_util::stream::pending;
use http::{Method, Request, Response};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::Frame;
use kube::Client;
use kube::client::Body;
use serde_json::Value;

/// A request: the method, the path with its query, and the body.
pub(crate) type Asked<'a> = (&'a Method, &'a str, Value);

/// What becomes of a request.
pub(crate) enum Reply {
    /// The connection is refused.
    Refused,
    /// Nothing is sent.
    Silence,
    /// A watch without events.
    Watch,
    /// A response with a status.
    Json(u16, Value),
}

/// A client of such a server.
pub(crate) fn client(respond: impl Fn(Asked<'_>) -> Reply + Clone + Send + 'static) -> Client {
    let service = tower::service_fn(move |request: Request<Body>| {
        let respond = respond.clone();
        async move {
            let (parts, body) = request.into_parts();
            let body = body.collect_bytes().await.map_err(Error::other)?;
            let body = serde_json::from_slice(&body).unwrap_or_default();
            match respond((&parts.method, parts.uri.path_and_query().unwrap().as_str(), body)) {
                Reply::Refused => Err(Error::from(ErrorKind::ConnectionRefused)),
                Reply::Silence => std::future::pending().await,
                Reply::Watch => {
                    Ok(response(200, StreamBody::new(pending::<Result<Frame<Bytes>, Infallible>>()).boxed()))
                }
                Reply::Json(status, value) => Ok(response(status, Full::new(Bytes::from(value.to_string())).boxed())),
            }
        }
    });
    Client::new(service, "default")
}

fn response(status: u16, body: BoxBody<Bytes, Infallible>) -> Response<BoxBody<Bytes, Infallible>> {
    Response::builder().status(status).header("content-type", "application/json").body(body).unwrap()
}
