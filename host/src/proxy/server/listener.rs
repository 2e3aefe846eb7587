//! The ports: HTTP/1.1 and HTTP/2, told apart by their first bytes; plain, or within TLS.
//!
//! Bounds: connections (a permit each, held by the connection and by streams upgraded from it), time for a TLS handshake
//! and for a request's head, size of a head, HTTP/2 streams per connection. The plain port binds loopback only unless
//! told otherwise: Weir may attach the node credential to requests that reach it without one.

use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use hyper::rt::Executor;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::GracefulConnection;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OnceCell, OwnedSemaphorePermit, Semaphore, watch};

use super::certificate::Subject;
use super::peer_uid::peer_uid;
use super::tls::ServerTls;
use super::write_coalescer::{CoalescedStream, coalesce_writes};
use crate::proxy::Proxy;
use crate::proxy::body::guarded;
use weir_upstream::Tasks;

/// Time for a client to send a request's head. Idle connections count as waiting for one, so it is longer than clients
/// keep those (client-go: 90 s): the side that closes first must not be the one that cannot know of a request under way.
const HEAD_TIME: Duration = Duration::from_secs(120);
/// Time for a TLS handshake.
const HANDSHAKE_TIME: Duration = Duration::from_secs(10);
/// How long an idle connection waits for a request that may be under way when the daemon stops.
const LINGER: Duration = Duration::from_secs(1);
/// The largest head of a request.
const HEAD_BYTES: usize = 64 << 10;
/// HTTP/2 streams per connection.
const STREAMS: u32 = 250;
/// Pause after an accept that failed for want of descriptors or memory.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Why a listener was refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ListenError {
    /// Plain HTTP beyond loopback.
    #[error(
        "{0} is not a loopback address: clients there could use this port without TLS; allow it by --allow-remote-plaintext"
    )]
    NotLoopback(SocketAddr),
    /// The socket tells no address.
    #[error("the listening socket is not usable")]
    Socket(#[source] io::Error),
}

/// Who is on the other side of a connection.
#[derive(Debug, Clone)]
pub(in crate::proxy) struct Peer {
    /// Its address.
    pub(in crate::proxy) address: SocketAddr,
    /// Our address, as it sees it.
    local: Option<SocketAddr>,
    /// The uid of the client process, once it was looked up; none: unknown.
    uid: Arc<OnceCell<Option<u32>>>,
    /// Whom its client certificate names, verified.
    pub(in crate::proxy) certificate: Option<Arc<Subject>>,
    /// The connection's permit: what outlives the connection (an upgraded stream) holds on to it by a clone of this.
    _permit: Arc<OwnedSemaphorePermit>,
}

impl Peer {
    /// The uid of the local process that opened the connection; none if it is unknown. Cancel-safe.
    pub(in crate::proxy) async fn uid(&self) -> Option<u32> {
        let local = self.local?;
        *self.uid.get_or_init(|| peer_uid(self.address, local)).await
    }
}

/// A request that is being answered.
struct Active(Arc<watch::Sender<usize>>);

impl Active {
    fn new(count: &Arc<watch::Sender<usize>>) -> Self {
        count.send_modify(|count| *count += 1);
        Self(count.clone())
    }
}

impl Drop for Active {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count = count.saturating_sub(1));
    }
}

/// Lets hyper spawn through [`Tasks`].
#[derive(Clone)]
struct Owned(Tasks);

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for Owned {
    fn execute(&self, future: F) {
        self.0.spawn(future);
    }
}

/// Accepts until the daemon stops.
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
            Ok((accepted, permit)) => begin(&proxy, tls.as_ref(), accepted, permit),
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted; trying on");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    // Whoever is in the queue has a connection already: closing the socket would break it.
    while let Ok(permit) = permits.clone().try_acquire_owned()
        && let Some(Ok(accepted)) = listener.accept().now_or_never()
    {
        begin(&proxy, tls.as_ref(), accepted, permit);
    }
}

fn begin(
    proxy: &Arc<Proxy>,
    tls: Option<&Arc<ServerTls>>,
    (stream, address): (TcpStream, SocketAddr),
    permit: OwnedSemaphorePermit,
) {
    let _ = stream.set_nodelay(true);
    let local = stream.local_addr().ok();
    let peer = Peer { address, local, uid: Arc::default(), certificate: None, _permit: Arc::new(permit) };
    let (proxy, tls, tasks) = (proxy.clone(), tls.cloned(), proxy.tasks.clone());
    // It is watched by the runtime that serves it, not by this one.
    match stream.into_std() {
        // Two futures, not one for both: a plain connection would be as large as one with TLS as long as it lasts.
        Ok(stream) => match tls {
            None => tasks.spawn_connection(async move {
                match TcpStream::from_std(stream) {
                    Ok(stream) => connection(proxy, stream, peer).await,
                    Err(error) => tracing::warn!(%error, "a connection could not be served"),
                }
            }),
            Some(tls) => tasks.spawn_connection(async move {
                match TcpStream::from_std(stream) {
                    Ok(stream) => {
                        let (stream, coalescer) = coalesce_writes(stream);
                        coalescer.serve(secure_connection(proxy, tls, stream, peer)).await;
                    }
                    Err(error) => tracing::warn!(%error, "a connection could not be served"),
                }
            }),
        },
        Err(error) => tracing::warn!(%error, "a connection could not be served"),
    }
}

async fn secure_connection(proxy: Arc<Proxy>, tls: Arc<ServerTls>, stream: CoalescedStream<TcpStream>, peer: Peer) {
    let address = peer.address;
    let stream = match tokio::time::timeout(HANDSHAKE_TIME, tls.acceptor().accept(stream)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => {
            tracing::debug!(%address, %error, "TLS handshake failed");
            return;
        }
        Err(_) => {
            tracing::debug!(%address, "no TLS handshake within {HANDSHAKE_TIME:?}");
            return;
        }
    };
    let shown = stream.get_ref().1.peer_certificates().and_then(<[_]>::first);
    let certificate = shown.map(Subject::of);
    if certificate == Some(None) {
        tracing::warn!(%address, "a verified client certificate names no user: the connection is closed");
        return;
    }
    let certificate = certificate.flatten().map(Arc::new);
    connection(proxy, stream, Peer { certificate, ..peer }).await;
}

async fn connection<S>(proxy: Arc<Proxy>, stream: S, peer: Peer)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let drain = proxy.drain;
    let tasks = proxy.tasks.clone();
    let address = peer.address;
    let (active, mut busy) = watch::channel(0);
    let active = Arc::new(active);
    let service = service_fn(move |request| {
        let (proxy, peer, active) = (proxy.clone(), peer.clone(), Active::new(&active));
        async move {
            // In a box, which goes when the head is there: a connection would keep the room for it as long as it lasts.
            let answer = Box::pin(proxy.answer(request, peer));
            Ok::<_, std::convert::Infallible>(guarded(answer.await, active))
        }
    });
    let mut builder = auto::Builder::new(Owned(tasks.clone()));
    builder.http1().timer(TokioTimer::new()).header_read_timeout(HEAD_TIME).max_buf_size(HEAD_BYTES.max(400 << 10));
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
        () = tasks.stopping() => {
            match tokio::time::timeout(drain, ended(served, &mut busy)).await {
                Ok(ended) => ended,
                Err(_) => {
                    tracing::info!(%address, "a connection did not end in time and is closed");
                    return;
                }
            }
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%address, error, "connection ended");
    }
}

/// Ends a connection without losing a request. An idle HTTP/1.1 client may be sending its next request at this very
/// moment and could not know that it is in vain: so the connection waits a while for that request, whose answer then says
/// that it was the last. (HTTP/2 says so at any time, and tells which request was the last one heard.)
async fn ended<C: GracefulConnection>(mut connection: Pin<&mut C>, busy: &mut watch::Receiver<usize>) -> C::Output {
    let last = async {
        // No sender: the connection has ended, which the other branch tells.
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
