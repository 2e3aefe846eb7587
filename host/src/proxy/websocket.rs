//! A watch over a WebSocket, as kube-apiserver serves it: one frame an event. Java's fabric8 client opens all its watches so.
//!
//! The handlers know nothing of it. They respond to the watch as to any other, and [`WebSocketWatch::open`] turns that response into
//! 101 and a task that sends its events as frames. The request that goes upstream asks for no upgrade. An error stays a plain
//! response. The task owns the body of the response, and with it all that the watch holds, until the watch or its client ends.
//!
//! Back-pressure: the body is read only when all frames before have been written. Memory: [`events`] and [`socket`].

mod events;
pub(crate) mod handshake;
mod socket;

use std::sync::Arc;

use http::header::{self, HeaderValue};
use http::{Request, Response, StatusCode, Version};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::time::sleep_until;

use self::events::{Events, Framing};
use self::handshake::{Accepted, Handshake, HandshakeError};
use self::socket::EventSocket;
use super::Proxy;
use crate::serve::body::{ResponseBody, empty};
use crate::serve::respond::{ApiStatus as _, StatusError};
use weir_front::Peer;
use weir_kube::Encoding;

/// A watch whose client asks for a WebSocket.
pub(super) struct WebSocketWatch {
    accepted: Accepted,
    client: OnUpgrade,
    peer: Peer,
}

impl WebSocketWatch {
    /// Takes the handshake out of a request, which is one for a plain watch afterwards.
    ///
    /// # Errors
    /// The handshake is malformed.
    pub(super) fn take<B>(request: &mut Request<B>, handshake: Handshake, peer: &Peer) -> Result<Self, HandshakeError> {
        let accepted = handshake.accept(request.headers_mut())?;
        Ok(Self { accepted, client: hyper::upgrade::on(request), peer: peer.clone() })
    }

    /// Turns the response to the watch into the one that opens the WebSocket, and sends its events there. An error stays as it is.
    pub(super) fn open(self, proxy: &Arc<Proxy>, response: Response<ResponseBody>) -> Response<ResponseBody> {
        if response.status() != StatusCode::OK {
            return response;
        }
        let (head, body) = response.into_parts();
        let Some(framing) = Framing::of(&head.headers) else {
            let form = "a watch in this form cannot be sent over a WebSocket".to_owned();
            return StatusError::InvalidResponse(form).response(Encoding::Json);
        };
        let Self { accepted, client, peer } = self;
        let mut switched = Response::new(empty());
        *switched.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        let headers = switched.headers_mut();
        headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
        headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
        headers.insert(header::SEC_WEBSOCKET_ACCEPT, accepted.key);
        headers.extend(accepted.protocol.map(|protocol| (header::SEC_WEBSOCKET_PROTOCOL, protocol)));
        let warnings = head.headers.get_all(header::WARNING).iter().cloned();
        headers.extend(warnings.map(|warning| (header::WARNING, warning)));

        // The rules for clients that do not read are those of all responses.
        let watched = proxy.unread.watch(Response::new(body), Version::HTTP_11, peer.connection.begin());
        let serving = proxy.clone();
        proxy.handlers.tasks.spawn(async move {
            let address = peer.address;
            let sent = peer.unless_closed(async {
                let client = TokioIo::new(client.await.map_err(std::io::Error::other)?);
                EventSocket::new(client, Events::new(framing)).send(watched.into_body()).await
            });
            // A stop ends the watch itself, between two events.
            let stopped = async {
                serving.handlers.tasks.stopping().await;
                sleep_until(serving.front.deadline()).await;
            };
            tokio::select! {
                sent = sent => {
                    if let Err(error) = sent {
                        tracing::debug!(%address, %error, "watch over a WebSocket interrupted");
                    }
                }
                () = stopped => tracing::info!(%address, "watch over a WebSocket did not finish within the drain timeout"),
            }
            drop(peer);
        });
        switched
    }
}
