//! Accepts and serves client connections: HTTP/1.1 or HTTP/2, plain or over TLS.
//!
//! Bounds: the number of connections, in all and of each peer ([`Connections`]; a stream upgraded from a connection counts on),
//! the time of a TLS handshake, the time without a request, the size of a request head, and the HTTP/2 streams of a connection.

use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures_util::FutureExt as _;
use http::{HeaderValue, Method, Response, StatusCode, Version, header};
use hyper::body::Incoming;
use hyper::rt::Executor;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::Instant;
use tokio_util::task::task_tracker::TaskTrackerToken;

use super::client_certificate::Subject;
use super::client_trust::ClientCertificate;
use super::head_guard::{HEAD_BYTES, HEAD_FIELDS, HeadError, HeadGuard, OwnAnswers};
use super::shut_down::{quiet, shut_down};
use super::tls::ServerTls;
use super::waiting_clients::{AcceptedClient, WaitingClients};
use super::write_coalescer::{CoalescedStream, coalesce_writes};
use crate::connections::{Connection, ConnectionPeer, Connections, NotAdmitted, peer_uid};
use crate::proxy::Proxy;
use crate::proxy::body::ResponseBody;
use crate::proxy::respond::StatusError;
use crate::sockets::Listener;
use weir_kube::Encoding;
use weir_upstream::{Tasks, error_report};

/// The time that a connection may have no request, and with it the time to receive a request head. It is longer than the idle
/// timeout of clients (client-go: 90 s): if the server closed first, it could miss a request that is on its way.
const IDLE: Duration = Duration::from_secs(120);
/// The time of a TLS handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// How long an idle connection waits for a request on its way when the daemon stops.
pub(super) const LINGER: Duration = Duration::from_secs(1);
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
    uid: Arc<OnceLock<Option<u32>>>,
    /// Its client certificate, if it sent one.
    certificate: Option<Arc<ClientCertificate>>,
    /// An upgraded stream keeps it by a clone of the peer.
    pub(in crate::proxy) connection: Connection,
    /// While it is held, ports that outlive the daemon go on accepting. `None` if the connection came after the stop.
    _hold: Option<TaskTrackerToken>,
}

impl Peer {
    /// The client of a connection without TLS. `local` is the address that it connected to.
    pub(in crate::proxy) fn plain(address: SocketAddr, local: Option<SocketAddr>, connection: Connection) -> Self {
        Self { address, local, uid: Arc::default(), certificate: None, connection, _hold: None }
    }

    /// The user and groups of the client certificate, if the client sent one.
    ///
    /// # Errors
    /// [`StatusError::Certificate`]: it is not valid any more.
    pub(in crate::proxy) fn subject(&self) -> Result<Option<&Subject>, StatusError> {
        self.certificate.as_deref().map(ClientCertificate::subject).transpose().map_err(StatusError::Certificate)
    }

    /// Returns the uid of the local process that opened the connection; none if it is unknown.
    pub(in crate::proxy) fn uid(&self) -> Option<u32> {
        let local = self.local?;
        *self.uid.get_or_init(|| peer_uid(self.address, local))
    }

    /// Copies the bytes of a stream that was upgraded from this connection. Closing the connection ends it. Cancel-safe.
    pub(in crate::proxy) async fn unless_closed<T>(
        &self,
        copied: impl Future<Output = io::Result<T>>,
    ) -> io::Result<T> {
        let _active = self.connection.begin();
        tokio::select! {
            copied = copied => copied,
            () = self.connection.close().cancelled() => Err(io::ErrorKind::ConnectionAborted.into()),
        }
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

/// Accepts connections until the port ends ([`Drain::port_ends`](super::drain::Drain::port_ends)).
pub(in crate::proxy) async fn accept(proxy: Arc<Proxy>, listener: Listener, tls: Option<Arc<ServerTls>>) {
    let Listener { socket: listener, is_inherited } = listener;
    let (draining, max) = (proxy.clone(), proxy.max_connections);
    let mut end = pin!(draining.drain.port_ends(&draining.tasks, is_inherited));
    let port = Port { proxy, tls, connections: Connections::new(max) };
    let mut waiting = WaitingClients::default();
    loop {
        let oldest = waiting.until();
        let given_up = async { tokio::time::sleep_until(oldest.unwrap_or_else(Instant::now)).await };
        let accepted = tokio::select! {
            () = &mut end => break,
            accepted = listener.accept() => accepted,
            () = port.connections.freed(), if oldest.is_some() => {
                port.serve_waiting(&mut waiting);
                continue;
            }
            () = given_up, if oldest.is_some() => {
                port.refuse(waiting.pop().map(|(_, client)| client).as_ref());
                continue;
            }
        };
        match accepted {
            Ok((stream, address)) => {
                let peer = ConnectionPeer::of(address, stream.local_addr().ok());
                if let Some(client) = port.admit(AcceptedClient { stream, address, peer }) {
                    port.refuse(waiting.push(client).as_ref());
                }
            }
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection, retrying");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    port.serve_waiting(&mut waiting);
    if is_inherited {
        // The backlog is for the next daemon.
        return;
    }
    // Clients in the backlog have an open connection, which closing the socket would reset.
    while let Some(Ok((stream, address))) = listener.accept().now_or_never()
        && let peer = ConnectionPeer::of(address, stream.local_addr().ok())
        && port.admit(AcceptedClient { stream, address, peer }).is_none()
    {}
}

/// What a listener needs for each connection.
struct Port {
    proxy: Arc<Proxy>,
    tls: Option<Arc<ServerTls>>,
    connections: Arc<Connections>,
}

impl Port {
    /// Serves a connection, or refuses it because its client is at its share. Returns it if the port is full.
    fn admit(&self, client: AcceptedClient) -> Option<AcceptedClient> {
        let AcceptedClient { stream, address, peer } = client;
        match self.connections.try_admit(peer) {
            Ok(connection) => serve(&self.proxy, self.tls.as_ref(), stream, address, connection),
            Err(NotAdmitted::Full) => return Some(AcceptedClient { stream, address, peer }),
            Err(NotAdmitted::Share) => {
                tracing::warn!(%address, client = %peer, "connection refused: half of all connections are of this client, and all have requests");
            }
        }
        None
    }

    /// Serves the connections for which there is room now.
    fn serve_waiting(&self, waiting: &mut WaitingClients) {
        while let Some((until, client)) = waiting.pop() {
            if let Some(client) = self.admit(client) {
                waiting.put_back(until, client);
                return;
            }
        }
    }

    fn refuse(&self, client: Option<&AcceptedClient>) {
        if let Some(AcceptedClient { address, peer, .. }) = client {
            tracing::warn!(%address, client = %peer, "connection refused: all connections of the port have requests");
        }
    }
}

fn serve(
    proxy: &Arc<Proxy>,
    tls: Option<&Arc<ServerTls>>,
    stream: TcpStream,
    address: SocketAddr,
    connection: Connection,
) {
    let _ = stream.set_nodelay(true);
    let hold = (!proxy.tasks.is_stopping()).then(|| proxy.drain.hold());
    let peer = Peer { _hold: hold, ..Peer::plain(address, stream.local_addr().ok(), connection) };
    let (proxy, tls, tasks) = (proxy.clone(), tls.cloned(), proxy.tasks.clone());
    // The runtime that serves the stream must register it, not this one.
    match stream.into_std() {
        // A future of its own for each kind. One for both would make a plain connection as large as one with TLS.
        Ok(stream) => match tls {
            None => tasks.spawn_connection(async move {
                match TcpStream::from_std(stream) {
                    Ok(stream) => serve_http(proxy, stream, peer).await,
                    Err(error) => tracing::warn!(%address, %error, "cannot serve a connection"),
                }
            }),
            Some(tls) => tasks.spawn_connection(async move {
                match TcpStream::from_std(stream) {
                    Ok(stream) => {
                        let (stream, coalescer) = coalesce_writes(stream);
                        coalescer.serve(serve_tls(proxy, tls, stream, peer)).await;
                    }
                    Err(error) => tracing::warn!(%address, %error, "cannot serve a connection"),
                }
            }),
        },
        Err(error) => tracing::warn!(%address, %error, "cannot serve a connection"),
    }
}

async fn serve_tls(proxy: Arc<Proxy>, tls: Arc<ServerTls>, stream: CoalescedStream<TcpStream>, peer: Peer) {
    let address = peer.address;
    let handshake = tokio::time::timeout(HANDSHAKE_TIMEOUT, tls.acceptor().accept(stream));
    let handshake = tokio::select! {
        handshake = handshake => handshake,
        () = peer.connection.close().cancelled() => return,
        () = async { proxy.tasks.stopping().await; tokio::time::sleep(LINGER).await } => return,
    };
    let stream = match handshake {
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
    let chain = stream.get_ref().1.peer_certificates().filter(|chain| !chain.is_empty());
    let certificate = match chain.map(|chain| (chain, chain.first().and_then(Subject::of))) {
        None => None,
        Some((chain, Some(subject))) => {
            Some(tls.trust.register(subject, chain, address, peer.connection.close().clone()))
        }
        Some((_, None)) => {
            tracing::warn!(%address, "connection closed: its client certificate names no user");
            return;
        }
    };
    serve_http(proxy, stream, Peer { certificate, ..peer }).await;
}

async fn serve_http<S>(proxy: Arc<Proxy>, stream: S, peer: Peer)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (draining, tasks) = (proxy.clone(), proxy.tasks.clone());
    let (address, connection) = (peer.address, peer.connection.clone());
    let mut active = connection.active();
    let own = Arc::<OwnAnswers>::default();
    let answers = own.clone();
    let io = TokioIo::new(HeadGuard::new(stream, connection.active(), own.clone()));
    let refusing = proxy.clone();
    let service = service_fn(move |request: http::Request<Incoming>| {
        let (proxy, peer, active, own) = (proxy.clone(), peer.clone(), peer.connection.begin(), own.clone());
        async move {
            let version = request.version();
            let unread = proxy.unread.clone();
            if *request.method() == Method::CONNECT {
                own.note_tunnel();
            }
            // Boxed and dropped with the head. A connection would otherwise keep this memory while it is idle.
            let mut response = Box::pin(answer(&proxy, request, peer)).await;
            // A response from memory may end before `shut_down` has noticed its request.
            if proxy.tasks.is_stopping()
                && version == Version::HTTP_11
                && response.status() != StatusCode::SWITCHING_PROTOCOLS
            {
                response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
            }
            own.note(version, &response);
            Ok::<_, std::convert::Infallible>(unread.watch(response, version, active))
        }
    });
    let builder = http_server(&tasks);
    let mut served = pin!(builder.serve_connection_with_upgrades(io, service));
    let ended = tokio::select! {
        ended = served.as_mut() => ended,
        () = connection.close().cancelled() => {
            tracing::debug!(%address, "connection closed");
            return;
        }
        () = connection.idle(IDLE) => {
            served.as_mut().graceful_shutdown();
            let Ok(ended) = tokio::time::timeout(LINGER, served).await else { return };
            ended
        }
        () = tasks.stopping() => {
            let ended = tokio::select! {
                ended = tokio::time::timeout_at(draining.drain.deadline(), shut_down(served, &mut active)) => ended,
                () = quiet(&connection, &answers) => {
                    tracing::debug!(%address, "connection closed before the head of a request was complete");
                    return;
                }
            };
            match ended {
                Ok(ended) => ended,
                Err(_) => {
                    let timeout = draining.drain.timeout();
                    tracing::info!(%address, ?timeout, "connection closed: its requests did not finish within the drain timeout");
                    return;
                }
            }
        }
    };
    if let Err(error) = ended {
        match error.downcast_ref::<hyper::Error>() {
            Some(parse) if parse.is_parse() => log_refused(&refusing, address, parse),
            _ => tracing::debug!(%address, error, "connection ended"),
        }
    }
}

/// The settings of a connection.
fn http_server(tasks: &Tasks) -> auto::Builder<TaskExecutor> {
    let mut builder = auto::Builder::new(TaskExecutor(tasks.clone()));
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(None)
        .max_buf_size(HEAD_BYTES)
        .max_headers(HEAD_FIELDS);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS)
        // `answer` refuses what is larger than a half of it, with a Status. The parser has no body for what it refuses.
        .max_header_list_size(u32::try_from(2 * HEAD_BYTES).unwrap_or(u32::MAX))
        .initial_stream_window_size(256 << 10)
        .initial_connection_window_size(1 << 20)
        .max_send_buf_size(256 << 10)
        .keep_alive_interval(Duration::from_secs(30))
        .keep_alive_timeout(Duration::from_secs(20));
    builder
}

/// Responds to a request whose head has an acceptable size.
async fn answer(proxy: &Arc<Proxy>, request: http::Request<Incoming>, peer: Peer) -> Response<ResponseBody> {
    match HeadError::check(&request) {
        Ok(()) => proxy.handle(request, peer).await,
        Err(error) => {
            log_refused(proxy, peer.address, &error);
            StatusError::Head(error).response(Encoding::for_errors(request.headers()))
        }
    }
}

fn log_refused(proxy: &Proxy, peer: SocketAddr, error: &(dyn std::error::Error + 'static)) {
    if let Some(omitted) = proxy.refused_heads.permit() {
        let error = error_report(error);
        tracing::warn!(%peer, error, omitted, "request refused: its head is invalid or too large");
    }
}
