//! Ways to the API servers through peers: each relays connections to the servers of its own configuration.
//!
//! TLS is end to end inside such a tunnel. So the peer sees names and bytes, but no request and no credential. One hop only:
//! a relay connects directly.

use std::io;
use std::sync::Arc;

use http::uri::Authority;
use hyper::upgrade::Upgraded;
use tokio::net::TcpStream;
use tower::{BoxError, ServiceExt as _};

use super::{Relay, Upstream};
use crate::dial::{DialedStream, Dialer};
use crate::error_report;
use crate::server::Server;
use crate::tunnel::open_tunnel;

/// The way through a peer.
pub(super) fn way_through(Relay { node, peer }: &Relay) -> (Arc<str>, Dialer) {
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

    /// Whether a host and port are those of an API server of this configuration. Only TLS goes through relays.
    #[must_use]
    pub fn is_server(&self, target: &Authority) -> bool {
        self.servers.direct().iter().any(|server| server.address.is(target))
    }

    /// Whether an API server is up without a peer's help, as far as probes and requests know.
    #[must_use]
    pub fn has_direct(&self) -> bool {
        self.servers.has_direct()
    }

    /// Connects to an API server of this configuration for a peer, directly. Cancel safe.
    ///
    /// # Errors
    /// It is no such server, or connecting failed.
    pub async fn connect_for_peer(&self, target: &Authority) -> io::Result<TcpStream> {
        let not_found = || io::Error::new(io::ErrorKind::NotFound, "it is no API server of this configuration");
        let server = self.servers.direct().iter().find(|server| server.address.is(target)).ok_or_else(not_found)?;
        let connecting = server.dialer.clone().oneshot(server.address.origin());
        match tokio::time::timeout(self.connect_timeout, connecting).await {
            Ok(Ok(DialedStream::Direct(stream))) => Ok(stream.into_inner()),
            Ok(Ok(DialedStream::Relayed(_))) => Err(not_found()),
            Ok(Err(error)) => Err(io::Error::other(error_report(&*error))),
            Err(_) => Err(io::ErrorKind::TimedOut.into()),
        }
    }

    /// Whether requests go through a peer instead of this direct way.
    pub(super) fn is_replaced(&self, index: usize) -> bool {
        let is_direct = self.servers.get(index).is_some_and(|server| server.relay.is_none());
        is_direct && !self.servers.has_direct() && self.servers.has_relayed()
    }

    /// Ends the use of a way through a peer: there is a better one. Open streams continue.
    pub(super) fn end_relay(&self, server: &Server) {
        let Some(peer) = &server.relay else { return };
        if server.is_up() && self.has_direct() {
            tracing::info!(%peer, server = %server.name, "an API server is reached directly again, and not through the peer any more");
        } else if server.is_up() {
            tracing::info!(%peer, server = %server.name, "requests go through another peer");
        }
        server.rest();
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
