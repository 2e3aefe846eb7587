//! Relays connections of peers whose own way to the API servers is down (HTTP `CONNECT`).
//!
//! Only the Weirs of the pool may ask, only API servers of this daemon's configuration are reached, and only directly: there
//! are no chains of relays. TLS is end to end inside, so nothing of it is seen here but its size.
//!
//! Bounds: [`MAX_TUNNELS`] for each peer, `--relay-rate` bytes a second for all of them together, and [`COPY`] bytes of
//! memory for each direction. A tunnel ends if its peer sends nothing at first, or if either side does not read on.

use std::collections::HashMap;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use http::{Request, Response, StatusCode};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, split};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;
use weir_kube::Encoding;
use weir_store::UplinkLimit;
use weir_upstream::RelayError;

use super::{PeerError, Pool};
use crate::serve::body::{Meter, ResponseBody, empty};
use crate::serve::respond::ApiStatus as _;
use weir_front::Peer;

/// The most tunnels of one peer. A Weir needs one for each identity and purpose, and further ones beyond 100 streams.
const MAX_TUNNELS: usize = 64;
/// The buffer of each direction.
const COPY: usize = 32 << 10;
/// How long a peer may take to send the first bytes.
const FIRST_BYTES: Duration = Duration::from_secs(10);
/// How long a side may take to accept bytes, and how long one direction goes on after the other has ended.
const STALLED: Duration = Duration::from_secs(60);

/// The relays for peers.
#[derive(Debug)]
pub(crate) struct Relays {
    /// The peers by node, each with the tunnels that it may still open.
    peers: HashMap<Arc<str>, Arc<Semaphore>>,
    rate: UplinkLimit,
    metrics: Arc<RelayMetrics>,
}

/// The metrics of the relays.
#[derive(Debug, Default)]
pub struct RelayMetrics {
    tunnels: Family<PeerLabel, Gauge>,
    bytes: Family<DirectionLabels, Counter>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PeerLabel {
    peer: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DirectionLabels {
    peer: String,
    direction: &'static str,
}

/// An open tunnel of a peer.
struct Tunnel {
    peer: Arc<str>,
    rate: UplinkLimit,
    open: Gauge,
    to_server: Counter,
    from_server: Counter,
    _permit: OwnedSemaphorePermit,
}

impl Relays {
    /// Creates the relays for the peers on these nodes.
    pub(crate) fn new(nodes: &[String], rate: UplinkLimit, metrics: Arc<RelayMetrics>) -> Self {
        let peers = nodes.iter().map(|node| (Arc::from(&**node), Arc::new(Semaphore::new(MAX_TUNNELS)))).collect();
        Self { peers, rate, metrics }
    }

    /// Counts a tunnel of the peer on a node.
    fn open(&self, node: &str) -> Result<Tunnel, PeerError> {
        let (node, permits) = self.peers.get_key_value(node).ok_or(PeerError::NotAPeer)?;
        let permit = permits.clone().try_acquire_owned();
        let permit = permit.map_err(|_| PeerError::Unavailable("it relays too many connections of this peer"))?;
        Ok(self.metrics.tunnel(node.clone(), self.rate.clone(), permit))
    }
}

impl Drop for Tunnel {
    fn drop(&mut self) {
        self.open.dec();
    }
}

impl RelayMetrics {
    /// Registers the metrics.
    pub fn register(&self, registry: &mut Registry) {
        registry.register(
            "weir_relay_tunnels",
            "Open connections to API servers that this Weir relays for a peer",
            self.tunnels.clone(),
        );
        registry.register(
            "weir_relay_bytes",
            "Bytes that this Weir relays for a peer, by direction: to-server, from-server",
            self.bytes.clone(),
        );
    }

    /// Counts a tunnel until it is dropped.
    fn tunnel(&self, peer: Arc<str>, rate: UplinkLimit, permit: OwnedSemaphorePermit) -> Tunnel {
        let open = self.tunnels.get_or_create_owned(&PeerLabel { peer: peer.to_string() });
        let bytes = |direction| self.bytes.get_or_create_owned(&DirectionLabels { peer: peer.to_string(), direction });
        let (to_server, from_server) = (bytes("to-server"), bytes("from-server"));
        open.inc();
        Tunnel { peer, rate, open, to_server, from_server, _permit: permit }
    }

    /// Creates a series of each metric, for the generated documentation.
    #[cfg(test)]
    pub(crate) fn sample(&self) {
        self.tunnels.get_or_create(&PeerLabel { peer: String::new() }).set(0);
        self.bytes.get_or_create(&DirectionLabels { peer: String::new(), direction: "" }).inc_by(0);
    }
}

impl Pool {
    /// Responds to `CONNECT`.
    pub(crate) async fn relay(
        &self,
        request: Request<Incoming>,
        peer: Peer,
        started: Instant,
    ) -> Response<ResponseBody> {
        let meter = Meter::new(self.handlers.metrics.clone(), "relay", started);
        let address = peer.address;
        match self.connect_for_peer(&request, &peer).await {
            Ok((tunnel, server)) => {
                let client = hyper::upgrade::on(request);
                self.handlers.tasks.spawn_until_stop(async move {
                    let relayed = async {
                        let client = client.await.map_err(io::Error::other)?;
                        tunnel.relay(TokioIo::new(client), server).await
                    };
                    let bytes = peer.unless_closed(relayed).await;
                    if let Err(error) = &bytes {
                        tracing::debug!(%address, peer = %tunnel.peer, %error, "relayed connection interrupted");
                    }
                    meter.finish(StatusCode::OK, bytes.unwrap_or_default());
                    // The connection counts until here.
                    drop(peer);
                });
                Response::new(empty())
            }
            Err(error) => {
                let client = address.ip().to_canonical().to_string();
                let code = Some(error.code().as_u16());
                self.handlers.failures.warn("CONNECT refused", (request.uri(), &client), code, &error);
                meter.attach(error.response(Encoding::for_errors(request.headers())))
            }
        }
    }

    async fn connect_for_peer(
        &self,
        request: &Request<Incoming>,
        peer: &Peer,
    ) -> Result<(Tunnel, tokio::net::TcpStream), PeerError> {
        let relays = self.relays.as_ref().ok_or(PeerError::NoRelay)?;
        let tunnel = relays.open(self.node_of(peer)?)?;
        let target = request.uri().authority().ok_or(PeerError::NotRelayed)?;
        match self.handlers.upstream.connect_for_peer(target).await {
            Ok(server) => Ok((tunnel, server)),
            Err(RelayError::NotAServer) => Err(PeerError::NotRelayed),
            Err(RelayError::Unreachable) => Err(PeerError::Unavailable("it cannot reach the API server itself")),
            Err(error @ RelayError::Connect(_)) => Err(PeerError::Relay(error)),
        }
    }
}

impl Tunnel {
    /// Copies both directions until both have ended. Returns the bytes from the server.
    async fn relay(&self, client: impl AsyncRead + AsyncWrite, server: impl AsyncRead + AsyncWrite) -> io::Result<u64> {
        let ((mut client_reads, mut client_writes), (mut server_reads, mut server_writes)) =
            (split(client), split(server));
        let mut first = vec![0; COPY];
        let read = timeout(FIRST_BYTES, client_reads.read(&mut first)).await??;
        let first = first.get(..read).unwrap_or_default();
        self.pass(&self.to_server, first, &mut server_writes).await?;
        let mut to_server = pin!(self.copy(&self.to_server, &mut client_reads, &mut server_writes));
        let mut from_server = pin!(self.copy(&self.from_server, &mut server_reads, &mut client_writes));
        tokio::select! {
            ended = &mut to_server => {
                ended?;
                timeout(STALLED, from_server).await?
            }
            ended = &mut from_server => {
                let bytes = ended?;
                timeout(STALLED, to_server).await??;
                Ok(bytes)
            }
        }
    }

    /// Copies one direction until its end. Returns the bytes.
    async fn copy(
        &self,
        direction: &Counter,
        from: &mut (impl AsyncRead + Unpin),
        to: &mut (impl AsyncWrite + Unpin),
    ) -> io::Result<u64> {
        let (mut buffer, mut bytes) = (vec![0; COPY], 0);
        loop {
            let read = from.read(&mut buffer).await?;
            let Some(data) = buffer.get(..read).filter(|data| !data.is_empty()) else {
                to.shutdown().await?;
                return Ok(bytes);
            };
            self.pass(direction, data, to).await?;
            bytes += read as u64;
        }
    }

    async fn pass(&self, direction: &Counter, data: &[u8], to: &mut (impl AsyncWrite + Unpin)) -> io::Result<()> {
        self.rate.take(data.len() as u64).await;
        direction.inc_by(data.len() as u64);
        timeout(STALLED, to.write_all(data)).await?
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU64;

    use tokio::io::{DuplexStream, duplex};
    use tokio::time::Instant;

    use super::*;

    const RATE: u64 = 100_000;

    /// A tunnel, with the far ends of its client and its server.
    fn tunnel() -> (impl Future<Output = io::Result<u64>>, DuplexStream, DuplexStream) {
        let (client, relay_client) = duplex(4096);
        let (server, relay_server) = duplex(4096);
        let relayed = async move {
            let rate = UplinkLimit::new(NonZeroU64::new(RATE).unwrap());
            let permit = Arc::new(Semaphore::new(1)).try_acquire_owned().unwrap();
            let tunnel = RelayMetrics::default().tunnel("edge-b".into(), rate, permit);
            tunnel.relay(relay_client, relay_server).await
        };
        (relayed, client, server)
    }

    #[tokio::test(start_paused = true)]
    async fn both_directions_pass_within_the_rate_until_both_have_ended() {
        let (relayed, mut client, mut server) = tunnel();
        let begun = Instant::now();
        let serve = async move {
            server.read_exact(&mut [0; 5]).await.unwrap();
            server.write_all(&vec![1; 500_000]).await.unwrap();
            server.shutdown().await.unwrap();
            let mut rest = Vec::new();
            server.read_to_end(&mut rest).await.unwrap();
            rest
        };
        let request = async move {
            client.write_all(b"hello").await.unwrap();
            let mut received = Vec::new();
            client.read_to_end(&mut received).await.unwrap();
            assert_eq!((received.len(), begun.elapsed().as_secs()), (500_000, 5), "the bytes take their time");
            client.write_all(b"bye").await.unwrap();
            client.shutdown().await.unwrap();
        };
        let (relayed, rest, ()) = tokio::join!(relayed, serve, request);
        assert_eq!((relayed.unwrap(), rest.as_slice()), (500_000, &b"bye"[..]));
    }

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_sends_nothing_loses_its_tunnel() {
        let (relayed, _client, _server) = tunnel();
        let begun = Instant::now();
        assert_eq!(relayed.await.unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert_eq!(begun.elapsed(), FIRST_BYTES);
    }

    #[tokio::test(start_paused = true)]
    async fn a_side_that_does_not_read_or_close_ends_the_tunnel() {
        let (relayed, mut client, mut server) = tunnel();
        client.write_all(b"hello").await.unwrap();
        let (relayed, sent) = tokio::join!(relayed, server.write_all(&[1; 100_000]));
        assert_eq!(relayed.unwrap_err().kind(), io::ErrorKind::TimedOut, "nobody reads");
        assert!(sent.is_err());

        let (relayed, mut client, mut server) = tunnel();
        client.write_all(b"hello").await.unwrap();
        let begun = Instant::now();
        let close = async move {
            server.read_exact(&mut [0; 5]).await.unwrap();
            drop(server);
        };
        let (relayed, ()) = tokio::join!(relayed, close);
        assert_eq!(relayed.unwrap_err().kind(), io::ErrorKind::TimedOut, "the client does not close");
        assert_eq!(begun.elapsed().as_secs(), STALLED.as_secs());
    }
}
