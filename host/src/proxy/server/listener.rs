//! Accepts and serves client connections: HTTP/1.1 or HTTP/2, plain or over TLS.
//!
//! Bounds: the number of connections (each has a permit, and a stream upgraded from it keeps the permit), the time of a TLS
//! handshake, the time and size of a request head, and the HTTP/2 streams of a connection.

use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use http::{HeaderValue, StatusCode, Version, header};
use hyper::body::Incoming;
use hyper::rt::Executor;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::GracefulConnection;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OnceCell, OwnedSemaphorePermit, Semaphore, watch};
use tokio_util::sync::CancellationToken;

use super::client_certificate::Subject;
use super::peer_uid::peer_uid;
use super::tls::ServerTls;
use super::write_coalescer::{CoalescedStream, coalesce_writes};
use crate::proxy::Proxy;
use crate::proxy::body::guarded;
use weir_upstream::Tasks;

/// The time to receive a request head, and with it the time that a connection may be idle. It is longer than the idle
/// timeout of clients (client-go: 90 s): if the server closed first, it could miss a request that is on its way.
const HEAD_TIMEOUT: Duration = Duration::from_secs(120);
/// The time of a TLS handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// How long an idle connection waits for a request on its way when the daemon stops.
const LINGER: Duration = Duration::from_secs(1);
/// The largest request head.
const HEAD_BYTES: usize = 64 << 10;
/// The most concurrent HTTP/2 streams of a connection.
const STREAMS: u32 = 250;
/// The pause after `accept` failed, probably because the process has no file descriptors left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A reason why a listener cannot be served.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ListenError {
    /// The plain port is not on a loopback address.
    #[error(
        "{0} is not a loopback address: without TLS, tokens travel in clear text; --allow-remote-plaintext permits it"
    )]
    NotLoopback(SocketAddr),
    /// The socket has no local address.
    #[error("the listening socket has no local address")]
    Socket(#[source] io::Error),
}

/// The client side of a connection.
#[derive(Debug, Clone)]
pub(in crate::proxy) struct Peer {
    /// The address of the client.
    pub(in crate::proxy) address: SocketAddr,
    /// The address that the client connected to.
    local: Option<SocketAddr>,
    /// The uid of the client process, looked up at most once; none if it is unknown.
    uid: Arc<OnceCell<Option<u32>>>,
    /// The subject of its verified client certificate, if it sent one.
    pub(in crate::proxy) subject: Option<Arc<Subject>>,
    /// Closes the connection at once.
    pub(in crate::proxy) close: CancellationToken,
    /// The permit of the connection. An upgraded stream keeps it by a clone of the peer.
    _permit: Arc<OwnedSemaphorePermit>,
}

impl Peer {
    /// Returns the uid of the local process that opened the connection; none if it is unknown. Cancel-safe.
    pub(in crate::proxy) async fn uid(&self) -> Option<u32> {
        let local = self.local?;
        *self.uid.get_or_init(|| peer_uid(self.address, local)).await
    }
}

/// Counts a request until its response is complete.
struct ActiveRequest(Arc<watch::Sender<usize>>);

impl ActiveRequest {
    fn new(count: &Arc<watch::Sender<usize>>) -> Self {
        count.send_modify(|count| *count += 1);
        Self(count.clone())
    }
}

impl Drop for ActiveRequest {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count = count.saturating_sub(1));
    }
}

/// Makes hyper spawn its tasks through [`Tasks`].
#[derive(Clone)]
struct TaskExecutor(Tasks);

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for TaskExecutor {
    fn execute(&self, future: F) {
        self.0.spawn(future);
    }
}

/// Accepts connections until the daemon stops.
pub(in crate::proxy) async fn accept(proxy: Arc<Proxy>, listener: TcpListener, tls: Option<Arc<ServerTls>>) {
    let tasks = proxy.tasks.clone();
    let permits = Arc::new(Semaphore::new(proxy.max_connections));
    let mut stopping = pin!(tasks.stopping());
    loop {
        let next = async {
            let permit = permits.clone().acquire_owned().await.map_err(io::Error::other)?;
            listener.accept().await.map(|accepted| (accepted, permit))
        };
        let accepted = tokio::select! {
            () = &mut stopping => break,
            accepted = next => accepted,
        };
        match accepted {
            Ok((accepted, permit)) => serve(&proxy, tls.as_ref(), accepted, permit),
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection, retrying");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    // Clients in the backlog have an open connection, which closing the socket would reset.
    while let Ok(permit) = permits.clone().try_acquire_owned()
        && let Some(Ok(accepted)) = listener.accept().now_or_never()
    {
        serve(&proxy, tls.as_ref(), accepted, permit);
    }
}

fn serve(
    proxy: &Arc<Proxy>,
    tls: Option<&Arc<ServerTls>>,
    (stream, address): (TcpStream, SocketAddr),
    permit: OwnedSemaphorePermit,
) {
    let _ = stream.set_nodelay(true);
    let local = stream.local_addr().ok();
    let close = CancellationToken::new();
    let peer = Peer { address, local, uid: Arc::default(), subject: None, close, _permit: Arc::new(permit) };
    let (proxy, tls, tasks) = (proxy.clone(), tls.cloned(), proxy.tasks.clone());
    // The runtime that serves the stream must register it, not this one.
    match stream.into_std() {
        // A future of its own for each kind. One for both would make a plain connection as large as one with TLS.
        Ok(stream) => match tls {
            None => tasks.spawn_connection(async move {
                match TcpStream::from_std(stream) {
                    Ok(stream) => connection(proxy, stream, peer).await,
                    Err(error) => tracing::warn!(%address, %error, "cannot serve a connection"),
                }
            }),
            Some(tls) => tasks.spawn_connection(async move {
                match TcpStream::from_std(stream) {
                    Ok(stream) => {
                        let (stream, coalescer) = coalesce_writes(stream);
                        coalescer.serve(secure_connection(proxy, tls, stream, peer)).await;
                    }
                    Err(error) => tracing::warn!(%address, %error, "cannot serve a connection"),
                }
            }),
        },
        Err(error) => tracing::warn!(%address, %error, "cannot serve a connection"),
    }
}

async fn secure_connection(proxy: Arc<Proxy>, tls: Arc<ServerTls>, stream: CoalescedStream<TcpStream>, peer: Peer) {
    let address = peer.address;
    let stream = match tokio::time::timeout(HANDSHAKE_TIMEOUT, tls.acceptor().accept(stream)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => {
            tracing::debug!(%address, %error, "TLS handshake failed");
            return;
        }
        Err(_) => {
            tracing::debug!(%address, "TLS handshake timed out");
            return;
        }
    };
    let certificate = stream.get_ref().1.peer_certificates().and_then(<[_]>::first);
    let subject = certificate.map(Subject::of);
    if subject == Some(None) {
        tracing::warn!(%address, "connection closed: its client certificate names no user");
        return;
    }
    let subject = subject.flatten().map(Arc::new);
    connection(proxy, stream, Peer { subject, ..peer }).await;
}

async fn connection<S>(proxy: Arc<Proxy>, stream: S, peer: Peer)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let drain = proxy.drain;
    let tasks = proxy.tasks.clone();
    let (address, close) = (peer.address, peer.close.clone());
    let (active, mut busy) = watch::channel(0);
    let active = Arc::new(active);
    let service = service_fn(move |request: http::Request<Incoming>| {
        let (proxy, peer, active) = (proxy.clone(), peer.clone(), ActiveRequest::new(&active));
        async move {
            let version = request.version();
            // Boxed and dropped with the head. A connection would otherwise keep this memory while it is idle.
            let mut response = Box::pin(proxy.handle(request, peer)).await;
            // A response from memory may end before `shut_down` has noticed its request.
            if proxy.tasks.is_stopping()
                && version == Version::HTTP_11
                && response.status() != StatusCode::SWITCHING_PROTOCOLS
            {
                response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
            }
            Ok::<_, std::convert::Infallible>(guarded(response, active))
        }
    });
    let mut builder = auto::Builder::new(TaskExecutor(tasks.clone()));
    builder.http1().timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT).max_buf_size(HEAD_BYTES.max(400 << 10));
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS)
        .max_header_list_size(u32::try_from(HEAD_BYTES).unwrap_or(u32::MAX))
        .initial_stream_window_size(256 << 10)
        .initial_connection_window_size(1 << 20)
        .max_send_buf_size(256 << 10)
        .keep_alive_interval(Duration::from_secs(30))
        .keep_alive_timeout(Duration::from_secs(20));
    let mut served = pin!(builder.serve_connection_with_upgrades(TokioIo::new(stream), service));
    let ended = tokio::select! {
        ended = served.as_mut() => ended,
        () = close.cancelled() => return,
        () = tasks.stopping() => {
            match tokio::time::timeout(drain, shut_down(served, &mut busy)).await {
                Ok(ended) => ended,
                Err(_) => {
                    tracing::info!(%address, timeout = ?drain, "connection closed: its requests did not finish within the drain timeout");
                    return;
                }
            }
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%address, error, "connection ended");
    }
}

/// Ends a connection without losing a request.
///
/// An idle HTTP/1.1 client may be sending its next request just now. So an idle connection waits for [`LINGER`]. The
/// response to such a request has `Connection: close`. HTTP/2 needs no wait: GOAWAY names the last request.
async fn shut_down<C: GracefulConnection>(mut connection: Pin<&mut C>, busy: &mut watch::Receiver<usize>) -> C::Output {
    let last = async {
        // Without a sender the connection has ended, and the other branch of the select returns.
        let waited = async { busy.wait_for(|active| *active > 0).await.is_ok() };
        if tokio::time::timeout(LINGER, waited).await == Ok(false) {
            std::future::pending::<()>().await;
        }
    };
    tokio::select! {
        ended = connection.as_mut() => return ended,
        () = last => {}
    }
    connection.as_mut().graceful_shutdown();
    connection.await
}
