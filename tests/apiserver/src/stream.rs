//! Stand-ins for a kubelet's streams: followed logs, and upgraded connections, which echo.
//!
//! Memory: at most 16 MiB of log per pod, further output is dropped. Each upgraded connection has one copy buffer.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, header};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use tokio::io::copy;
use tokio::sync::watch;

use crate::body::{self, Body};
use crate::plane::Plane;
use crate::record::OpenGuard;
use crate::request::{Place, QueryOptions};
use crate::status::Status;

/// The output of a pod. Clones share one log. A test appends to it, `…/log?follow=true` streams it.
#[derive(Clone, Debug, Default)]
pub struct PodLog(Arc<Feed>);

#[derive(Debug, Default)]
struct Feed {
    written: Mutex<PodOutput>,
    changed: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct PodOutput {
    pieces: Vec<Bytes>,
    bytes: usize,
    closed: bool,
}

const LOG_LIMIT: usize = 16 * 1024 * 1024;

// === impl PodLog ===

impl PodLog {
    /// Appends to the log. Followers get the text at once in one piece.
    pub fn write(&self, text: impl Into<Bytes>) {
        let text = text.into();
        let mut written = self.0.written.lock().unwrap_or_else(PoisonError::into_inner);
        if written.bytes + text.len() <= LOG_LIMIT {
            written.bytes += text.len();
            written.pieces.push(text);
        }
        drop(written);
        self.0.changed.send_modify(|changes| *changes += 1);
    }

    /// Ends the container's log. Followers end after they have read everything.
    pub fn close(&self) {
        let mut written = self.0.written.lock().unwrap_or_else(PoisonError::into_inner);
        written.closed = true;
        drop(written);
        self.0.changed.send_modify(|changes| *changes += 1);
    }

    fn piece(&self, at: usize) -> Result<Bytes, bool> {
        let written = self.0.written.lock().unwrap_or_else(PoisonError::into_inner);
        written.pieces.get(at).cloned().ok_or(written.closed)
    }

    /// The pieces of the log from the first on. With `follow` it waits for more. Cancel-safe.
    fn read(self, follow: bool, open: OpenGuard) -> impl futures_util::Stream<Item = Bytes> {
        let changed = self.0.changed.subscribe();
        stream::unfold((self, changed, 0, open), move |(log, mut changed, at, open)| async move {
            loop {
                changed.borrow_and_update();
                match log.piece(at) {
                    Ok(piece) => return Some((piece, (log, changed, at + 1, open))),
                    Err(closed) if closed || !follow => return None,
                    Err(_) => changed.changed().await.ok()?,
                }
            }
        })
    }
}

/// `pods/<name>/log`.
pub(crate) fn log(plane: &Plane, place: &Place, query: &QueryOptions) -> Response<Body> {
    let log = plane.log(&place.namespace, &place.name);
    let pieces = log.read(query.flag("follow"), plane.streams.open());
    body::respond(StatusCode::OK, "text/plain", body::streamed(pieces.map(Ok)))
}

/// exec, attach, portforward: accepts the upgrade, then echoes the bytes that it receives.
pub(crate) fn upgrade(plane: &Plane, request: &mut Request<Incoming>) -> Result<Response<Body>, Status> {
    let Some(protocol) = request.headers().get(header::UPGRADE).cloned() else {
        return Err(Status::bad_request("Upgrade request required"));
    };
    let mut response = Response::new(body::full(Bytes::new()));
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = response.headers_mut();
    headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(header::UPGRADE, protocol);
    first_protocol(request.headers(), headers);
    let upgraded = hyper::upgrade::on(request);
    let open = plane.streams.open();
    plane.spawn(async move {
        let _open = open;
        if let Ok(connection) = upgraded.await {
            let (mut from, mut to) = tokio::io::split(TokioIo::new(connection));
            // The peer ends the connection, cleanly or not. There is nobody to report it to.
            let _ = copy(&mut from, &mut to).await;
            let _ = tokio::io::AsyncWriteExt::shutdown(&mut to).await;
        }
    });
    Ok(response)
}

/// Selects the first protocol that the client offers, in either form of the offer.
fn first_protocol(request: &HeaderMap, response: &mut HeaderMap) {
    for name in ["sec-websocket-protocol", "x-stream-protocol-version"] {
        let offered = request.get(name).and_then(|value| value.to_str().ok());
        let first = offered.and_then(|offer| offer.split(',').next());
        if let Some(Ok(value)) = first.map(|first| first.trim().parse::<HeaderValue>()) {
            response.insert(http::HeaderName::from_static(name), value);
        }
    }
}
