//! Accepts and serves client connections: HTTP/1.1 or HTTP/2, plain or over TLS.
//!
//! Bounds: the number of connections, in all and of each peer ([`Connections`]; a stream upgraded from a connection counts on),
//! the time of a TLS handshake, the time without a request, the size of a request head, and the HTTP/2 streams of a connection.

use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
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

use weir_kube::Encoding;
use weir_process::LogLimit;
use weir_upstream::{Tasks, error_report};

use crate::client_certificate::Subject;
use crate::connections::{ActiveRequest, Connection, ConnectionPeer, Connections, NotAdmitted};
use crate::drain::Drain;
use crate::handler::Handler;
use crate::head_guard::{HEAD_BYTES, HEAD_FIELDS, HeadError, HeadGuard, OwnAnswers};
use crate::peer::Peer;
use crate::shut_down::{LINGER, quiet, shut_down};
use crate::sockets::Listener;
use crate::tls::ServerTls;
use crate::waiting_clients::{AcceptedClient, WaitingClients};
use crate::write_coalescer::{CoalescedStream, coalesce_writes};

/// The time that a connection may have no request, and with it the time to receive a request head. It is longer than the idle
/// timeout of clients (client-go: 90 s): if the server closed first, it could miss a request that is on its way.
const IDLE: Duration = Duration::from_secs(120);
/// The time of a TLS handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// The most concurrent HTTP/2 streams of a connection.
const STREAMS: u32 = 250;
/// The pause after `accept` failed, probably because the process has no file descriptors left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// What all ports share: their settings, the tasks of their connections, and the end of them.
#[derive(Debug)]
pub struct Front {
    tasks: Tasks,
    drain: Drain,
    max_connections: usize,
    refused_heads: LogLimit,
    refused_connections: LogLimit,
    refused_certificates: LogLimit,
}

impl Front {
    /// Creates what all ports share. They stop with the tasks: open requests have the time `drain` to finish. A port has at most
    /// `max_connections`, and one peer at most half of them.
    #[must_use]
    pub fn new(max_connections: usize, drain: Duration, tasks: Tasks) -> Arc<Self> {
        Arc::new(Self {
            tasks,
            drain: Drain::new(drain),
            max_connections,
            refused_heads: LogLimit::default(),
            refused_connections: LogLimit::default(),
            refused_certificates: LogLimit::default(),
        })
    }

    /// Starts to serve a bound listener, and returns: plain HTTP, or HTTPS, whose certificate files it then reloads. It stops with
    /// the daemon.
    pub fn serve<H: Handler>(self: &Arc<Self>, handler: &Arc<H>, listener: Listener, tls: Option<Arc<ServerTls>>) {
        if let Some(tls) = &tls {
            self.tasks.spawn_until_stop(tls.clone().watch_files());
        }
        let connections = Connections::new(self.max_connections);
        let port = Arc::new(Port { front: self.clone(), handler: handler.clone(), tls, connections });
        self.tasks.spawn(accept(port, listener));
    }

    /// Returns when open requests are given up, upgraded streams included. The first call starts the timeout.
    pub fn deadline(&self) -> Instant {
        self.drain.deadline()
    }

    fn log_refused(&self, peer: SocketAddr, error: &(dyn std::error::Error + 'static)) {
        if let Some(omitted) = self.refused_heads.permit() {
            let error = error_report(error);
            tracing::warn!(%peer, error, omitted, "request refused: its head is invalid or too large, or there are too many requests");
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

/// Accepts connections until the port ends ([`Drain::port_ends`]).
async fn accept<H: Handler>(port: Arc<Port<H>>, listener: Listener) {
    let Listener { socket: listener, is_inherited } = listener;
    let front = port.front.clone();
    let mut end = pin!(front.drain.port_ends(&front.tasks, is_inherited));
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

/// A port. Its connections share it.
struct Port<H> {
    front: Arc<Front>,
    handler: Arc<H>,
    tls: Option<Arc<ServerTls>>,
    connections: Arc<Connections>,
}

impl<H: Handler> Port<H> {
    /// Serves a connection, or refuses it because its client is at its share. Returns it if the port is full.
    fn admit(self: &Arc<Self>, client: AcceptedClient) -> Option<AcceptedClient> {
        let AcceptedClient { stream, address, peer } = client;
        match self.connections.try_admit(peer) {
            Ok(connection) => serve(self, stream, address, connection),
            Err(NotAdmitted::Full) => return Some(AcceptedClient { stream, address, peer }),
            Err(NotAdmitted::Share) => {
                if let Some(omitted) = self.front.refused_connections.permit() {
                    tracing::warn!(%address, client = %peer, omitted, "connection refused: half of all connections are of this client, and all have requests");
                }
            }
        }
        None
    }

    /// Serves the connections for which there is room now.
    fn serve_waiting(self: &Arc<Self>, waiting: &mut WaitingClients) {
        while let Some((until, client)) = waiting.pop() {
            if let Some(client) = self.admit(client) {
                waiting.put_back(until, client);
                return;
            }
        }
    }

    fn refuse(&self, client: Option<&AcceptedClient>) {
        if let Some(AcceptedClient { address, peer, .. }) = client
            && let Some(omitted) = self.front.refused_connections.permit()
        {
            tracing::warn!(%address, client = %peer, omitted, "connection refused: all connections of the port have requests");
        }
    }
}

fn serve<H: Handler>(port: &Arc<Port<H>>, stream: TcpStream, address: SocketAddr, connection: Connection) {
    let _ = stream.set_nodelay(true);
    let front = &port.front;
    let hold = (!front.tasks.is_stopping()).then(|| front.drain.hold());
    let peer = Peer::plain(address, stream.local_addr().ok(), connection).with_hold(hold);
    let (port, tls, tasks) = (port.clone(), port.tls.clone(), front.tasks.clone());
    // The runtime that serves the stream must register it, not this one.
    match stream.into_std() {
        // A future of its own for each kind. One for both would make a plain connection as large as one with TLS.
        Ok(stream) => match tls {
            None => tasks.spawn_connection(async move {
                match TcpStream::from_std(stream) {
                    Ok(stream) => serve_http(port, stream, peer).await,
                    Err(error) => tracing::warn!(%address, %error, "cannot serve a connection"),
                }
            }),
            Some(tls) => tasks.spawn_connection(async move {
                match TcpStream::from_std(stream) {
                    Ok(stream) => {
                        let (stream, coalescer) = coalesce_writes(stream);
                        coalescer.serve(serve_tls(port, tls, stream, peer)).await;
                    }
                    Err(error) => tracing::warn!(%address, %error, "cannot serve a connection"),
                }
            }),
        },
        Err(error) => tracing::warn!(%address, %error, "cannot serve a connection"),
    }
}

async fn serve_tls<H: Handler>(
    port: Arc<Port<H>>,
    tls: Arc<ServerTls>,
    stream: CoalescedStream<TcpStream>,
    peer: Peer,
) {
    let address = peer.address;
    let handshake = tokio::time::timeout(HANDSHAKE_TIMEOUT, tls.acceptor().accept(stream));
    let handshake = tokio::select! {
        handshake = handshake => handshake,
        () = peer.connection.close().cancelled() => return,
        () = async { port.front.tasks.stopping().await; tokio::time::sleep(LINGER).await } => return,
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
            if let Some(omitted) = port.front.refused_certificates.permit() {
                tracing::warn!(%address, omitted, "connection closed: its client certificate names no user");
            }
            return;
        }
    };
    serve_http(port, stream, peer.with_certificate(certificate)).await;
}

async fn serve_http<H, S>(port: Arc<Port<H>>, stream: S, peer: Peer)
where
    H: Handler,
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let front = port.front.clone();
    let (address, connection) = (peer.address, peer.connection.clone());
    let mut active = connection.active();
    let own = Arc::<OwnAnswers>::default();
    let answers = own.clone();
    let io = TokioIo::new(HeadGuard::new(stream, connection.active(), own.clone(), H::refusal));
    let service = service_fn(move |request: http::Request<Incoming>| {
        let (port, peer, active, own) = (port.clone(), peer.clone(), peer.connection.begin(), own.clone());
        async move {
            let version = request.version();
            if *request.method() == Method::CONNECT {
                own.note_tunnel();
            }
            // Boxed and dropped with the head. A connection would otherwise keep this memory while it is idle.
            let mut response = Box::pin(answer(&port, request, peer, active)).await;
            // A response from memory may end before `shut_down` has noticed its request.
            if port.front.tasks.is_stopping()
                && version == Version::HTTP_11
                && response.status() != StatusCode::SWITCHING_PROTOCOLS
            {
                response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
            }
            own.note(version, &response);
            Ok::<_, std::convert::Infallible>(response)
        }
    });
    let builder = http_server(&front.tasks);
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
        () = front.tasks.stopping() => {
            let ended = tokio::select! {
                ended = tokio::time::timeout_at(front.drain.deadline(), shut_down(served, &mut active)) => ended,
                () = quiet(&connection, &answers) => {
                    tracing::debug!(%address, "connection closed before the head of a request was complete");
                    return;
                }
            };
            match ended {
                Ok(ended) => ended,
                Err(_) => {
                    let timeout = front.drain.timeout();
                    tracing::info!(%address, ?timeout, "connection closed: its requests did not finish within the drain timeout");
                    return;
                }
            }
        }
    };
    if let Err(error) = ended {
        match error.downcast_ref::<hyper::Error>() {
            Some(parse) if parse.is_parse() => front.log_refused(address, parse),
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

/// Responds to a request, if its head has an acceptable size.
async fn answer<H: Handler>(
    port: &Port<H>,
    request: http::Request<Incoming>,
    peer: Peer,
    active: ActiveRequest,
) -> Response<H::Body> {
    let charged = HeadError::check(&request).and_then(|size| {
        let fields = request.headers().len();
        peer.connection.requests().charge(peer.connection.peer(), size, fields).ok_or(HeadError::Share)
    });
    match charged {
        Ok((_until_response, head)) => port.handler.answer(request, peer, active.with_head(head)).await,
        Err(error) => {
            port.front.log_refused(peer.address, &error);
            let refusal = H::refusal(error, Encoding::for_errors(request.headers()));
            port.handler.attach(refusal, request.version(), active)
        }
    }
}
