//! Accepts connections and serves them: HTTP/1.1 or HTTP/2, in plain text (prior knowledge) or over TLS (ALPN).
//!
//! The accept loop owns one task per connection. Memory: what hyper holds per connection.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::GracefulConnection;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use crate::handler;
use crate::plane::Plane;
use crate::record::Connection;

/// How long a connection stays open after its last response was sent and it was to be drained, as Go's HTTP/2 server has it
/// (`goAwayTimeout`). A socket that closes with unread bytes resets the connection, and the client can lose that response.
const GO_AWAY: Duration = Duration::from_secs(1);

/// Runs the HTTP/2 streams of a connection as tasks of the server.
#[derive(Clone)]
struct Executor(Arc<Plane>);

/// The settings of a listener.
pub(crate) struct Listener {
    pub(crate) plane: Arc<Plane>,
    pub(crate) tls: Option<TlsAcceptor>,
    pub(crate) streams: u32,
    /// Incremented to close all connections.
    pub(crate) broken: watch::Receiver<u64>,
    /// Incremented to close all connections after their current requests.
    pub(crate) drained: watch::Receiver<u64>,
}

// === impl Executor ===

impl<F> hyper::rt::Executor<F> for Executor
where
    F: Future + Send + 'static,
    F::Output: Send,
{
    fn execute(&self, future: F) {
        self.0.spawn(async move {
            future.await;
        });
    }
}

// === impl Listener ===

impl Listener {
    /// Accepts until dropped.
    pub(crate) async fn run(self, socket: TcpListener) {
        let this = Arc::new(self);
        let mut connections = JoinSet::new();
        let mut accepted = 0;
        loop {
            while connections.try_join_next().is_some() {}
            match socket.accept().await {
                Ok((stream, _)) => {
                    accepted += 1;
                    // Small writes are events and must leave at once.
                    let _ = stream.set_nodelay(true);
                    connections.spawn(Arc::clone(&this).connection(stream, accepted));
                }
                Err(error) => {
                    tracing::warn!(%error, "accept failed");
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
            }
        }
    }

    async fn connection(self: Arc<Self>, stream: tokio::net::TcpStream, number: u64) {
        let mut broken = self.broken.clone();
        broken.mark_unchanged();
        tokio::select! {
            served = self.serve(stream, number) => {
                if let Err(error) = served {
                    tracing::debug!(%error, "connection not served");
                }
            }
            _ = broken.changed() => {}
        }
    }

    async fn serve(&self, stream: tokio::net::TcpStream, number: u64) -> io::Result<()> {
        let stream = stream.into_std()?;
        let held_open = stream.try_clone()?;
        let stream = tokio::net::TcpStream::from_std(stream)?;
        let mut drained = self.drained.clone();
        drained.mark_unchanged();
        match &self.tls {
            None => self.speak(stream, false, Connection { number, certificate: None }).await,
            Some(tls) => match tls.accept(stream).await {
                Ok(stream) => {
                    let shown = stream.get_ref().1.peer_certificates().and_then(<[_]>::first);
                    let certificate = shown.map(|certificate| Arc::from(certificate.as_ref()));
                    let is_http_2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
                    self.speak(stream, is_http_2, Connection { number, certificate }).await;
                }
                Err(error) => tracing::debug!(%error, "TLS handshake failed"),
            },
        }
        if drained.has_changed().unwrap_or(false) {
            tokio::time::sleep(GO_AWAY).await;
        }
        drop(held_open);
        Ok(())
    }

    /// `is_http_2`: known so. Else it is read, and a connection that is drained before it was read is dropped, with the request
    /// that is on its way.
    async fn speak(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        is_http_2: bool,
        connection: Connection,
    ) {
        let (plane, connection) = (Arc::clone(&self.plane), Arc::new(connection));
        let service = service_fn(move |request| handler::handle(Arc::clone(&plane), Arc::clone(&connection), request));
        let mut server = auto::Builder::new(Executor(Arc::clone(&self.plane)));
        // Go's limits.
        server.http2().max_concurrent_streams(self.streams).max_header_list_size(1 << 20);
        server.http1().max_headers(4096);
        let stream = TokioIo::new(stream);
        let ended = match is_http_2 {
            true => self.until_drained(server.http2_only().serve_connection(stream, service)).await,
            false => self.until_drained(server.serve_connection_with_upgrades(stream, service)).await,
        };
        if let Err(error) = ended {
            tracing::debug!(error, "connection ended");
        }
    }

    async fn until_drained<C: GracefulConnection>(&self, served: C) -> C::Output {
        let mut drained = self.drained.clone();
        drained.mark_unchanged();
        let mut served = std::pin::pin!(served);
        tokio::select! {
            ended = served.as_mut() => ended,
            Ok(()) = drained.changed() => {
                served.as_mut().graceful_shutdown();
                served.await
            }
        }
    }
}
