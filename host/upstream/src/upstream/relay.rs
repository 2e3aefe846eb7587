//! Ways to the API servers through peers: each relays connections to the servers of its own configuration.
//!
//! TLS is end to end inside such a tunnel. So the peer sees names and bytes, but no request and no credential. One hop only:
//! a relay connects directly.

use std::sync::Arc;

use http::uri::Authority;
use hyper::upgrade::Upgraded;
use tokio::net::TcpStream;
use tower::{BoxError, ServiceExt as _};

use super::{Relay, Upstream};
use crate::dial::{DialedStream, Dialer};
use crate::tunnel::open_tunnel;

/// Why this daemon does not connect to an API server for a peer.
#[derive(Debug, thiserror::Error)]
pub enum RelayError {
    /// The target is no API server of this configuration, or not one with TLS.
    #[error("it is no API server of this configuration")]
    NotAServer,
    /// No server is up without another peer's help.
    #[error("no API server is reached directly")]
    Unreachable,
    /// Connecting failed.
    #[error("cannot connect to the API server")]
    Connect(#[source] BoxError),
}

/// Returns a route through a peer.
pub(super) fn route_through(Relay { node, peer }: &Relay) -> (Arc<str>, Dialer) {
    let peer = peer.clone();
    let open = Arc::new(move |target| {
        let peer = peer.clone();
        Box::pin(async move { peer.open_tunnel(target).await }) as _
    });
    (node.clone(), Dialer::Relayed(open))
}

impl Upstream {
    /// Opens a tunnel through this peer.
    async fn open_tunnel(&self, target: Authority) -> Result<Upgraded, BoxError> {
        let transport = self.daemon.load_full();
        let (Some(server), Some(connector)) = (self.servers.get(0), transport.unpooled(0)) else {
            return Err("the peer has no address".into());
        };
        open_tunnel(connector, server.address.origin(), server.name.clone(), target).await
    }

    /// Connects to an API server of this configuration for a peer, directly. Cancel safe.
    ///
    /// # Errors
    /// The target is no such server, no server is up as far as probes and requests know, or connecting failed.
    pub async fn connect_for_peer(&self, target: &Authority) -> Result<TcpStream, RelayError> {
        let mut servers = self.servers.direct().iter();
        let server = servers.find(|server| server.address.is(target)).ok_or(RelayError::NotAServer)?;
        if !self.servers.has_direct() {
            return Err(RelayError::Unreachable);
        }
        let connecting = server.dialer.clone().oneshot(server.address.origin());
        match tokio::time::timeout(self.connect_timeout, connecting).await {
            Ok(Ok(DialedStream::Direct(stream))) => Ok(stream.into_inner()),
            Ok(Ok(DialedStream::Relayed(_))) => Err(RelayError::NotAServer),
            Ok(Err(error)) => Err(RelayError::Connect(error)),
            Err(elapsed) => Err(RelayError::Connect(elapsed.into())),
        }
    }

    /// Whether requests go through a peer instead of this direct way.
    pub(super) fn is_replaced(&self, index: usize) -> bool {
        let is_direct = self.servers.get(index).is_some_and(|server| server.relay.is_none());
        is_direct && !self.servers.has_direct() && self.servers.has_relayed()
    }

    /// Ends the use of a way through a peer, if there still is a better one. Open streams continue.
    pub(super) fn end_relay(&self, index: usize) {
        let Some((server, peer)) = self.servers.get(index).and_then(|server| Some((server, server.relay.as_ref()?)))
        else {
            return;
        };
        let changing = self.servers.change();
        let was_up = server.is_up();
        if !changing.rest(index) {
            return;
        }
        if was_up && self.servers.has_direct() {
            tracing::info!(%peer, server = %server.name, "an API server is reached directly again, and not through the peer any more");
        } else if was_up {
            tracing::info!(%peer, server = %server.name, "requests go through another peer");
        }
        server.note_reason("");
        self.count_relay(peer);
    }

    fn count_relay(&self, peer: &Arc<str>) {
        self.metrics
            .relay_up(peer, self.servers.iter().any(|server| server.relay.as_ref() == Some(peer) && server.is_up()));
    }

    /// Logs and counts that a way through a peer works, or does not any more.
    pub(super) fn log_relay(&self, peer: &Arc<str>, server: &str, up: bool, reason: &str) {
        self.count_relay(peer);
        if up {
            tracing::warn!(%peer, server, "no API server is reached directly: requests go through the peer");
        } else {
            tracing::warn!(%peer, server, reason, "the peer does not relay to the API server");
        }
    }
}
