//! One connection to an API server: HTTP/2, or HTTP/1.1 if the server does not offer HTTP/2.
//!
//! hyper runs an HTTP/2 connection as two tasks. The dispatcher ([`http2::Connection`]) opens streams and returns the
//! stream limit of the server. The I/O task reads the SETTINGS frame that contains this limit, and does not wake the
//! dispatcher. So [`ConnectionExecutor`] wakes it after each poll of the I/O task until the limit is known. Later changes
//! of the limit are published when the next stream opens.
//!
//! The tasks end when the server closes the connection, when it is idle ([`Streams::idle`]), or when the [`Connection`]
//! and the bodies of its responses are dropped.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::header::HOST;
use http::uri::{PathAndQuery, Scheme};
use http::{HeaderValue, Request, Response, Uri};
use hyper::body::Incoming;
use hyper::client::conn::{TrySendError, http1, http2};
use hyper::rt::{Executor, Read, Write};
use hyper_util::client::legacy::connect::Connection as _;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use tokio::sync::Notify;

use crate::connect::Connector;
use crate::error::SendError;
use crate::request::RequestBody;
use crate::streams::{DEFAULT_STREAM_LIMIT, MAX_STREAM_LIMIT, Streams};

/// The stream limit that hyper reports until SETTINGS arrive. It differs from each value that a server can send. The pool
/// itself sends one request until then.
const LIMIT_UNKNOWN: usize = usize::MAX - 1;
/// The stream limit that hyper reports if the SETTINGS of the server contain none.
const LIMIT_NOT_SET: usize = usize::MAX;

/// An open connection. Dropping all clones closes it once its streams have ended.
#[derive(Debug, Clone)]
pub(super) enum Connection {
    /// Any number of requests at a time.
    Http2(http2::SendRequest<RequestBody>),
    /// One request at a time.
    Http1(Arc<Mutex<http1::SendRequest<RequestBody>>>),
}

/// Spawns the tasks of an HTTP/2 connection. They wake the dispatcher until the stream limit is known.
#[derive(Clone)]
struct ConnectionExecutor {
    streams: Arc<Streams>,
    wake: Arc<Notify>,
}

impl Connection {
    /// Connects to the server of a URI, and publishes its stream limit as soon as it is known.
    ///
    /// `window` is the flow-control window of a stream. That of the connection covers all its streams, so that clients that do
    /// not read stall no other stream.
    pub(super) async fn open(
        connector: &Connector,
        uri: Uri,
        window: u32,
        streams: Arc<Streams>,
    ) -> Result<Self, SendError> {
        let io = connector.connect(uri).await.map_err(SendError::Connect)?;
        let opened = if io.connected().is_negotiated_h2() {
            Self::http2(io, window, streams).await
        } else {
            Self::http1(io, streams).await
        };
        opened.map_err(SendError::Broken)
    }

    async fn http2<T>(io: T, window: u32, streams: Arc<Streams>) -> Result<Self, hyper::Error>
    where
        T: Read + Write + Unpin + Send + 'static,
    {
        const STREAMS: u32 = MAX_STREAM_LIMIT as u32;
        let executor = ConnectionExecutor { streams, wake: Arc::default() };
        let (sender, dispatcher) = http2::Builder::new(executor.clone())
            .timer(TokioTimer::new())
            .initial_max_send_streams(LIMIT_UNKNOWN)
            .initial_stream_window_size(window)
            .initial_connection_window_size(window * STREAMS)
            .max_frame_size(64 << 10)
            .max_header_list_size(64 << 10)
            .keep_alive_interval(Duration::from_secs(30))
            .keep_alive_timeout(Duration::from_secs(15))
            .handshake(io)
            .await?;
        spawn(dispatch(dispatcher, executor));
        Ok(Self::Http2(sender))
    }

    async fn http1<T>(io: T, streams: Arc<Streams>) -> Result<Self, hyper::Error>
    where
        T: Read + Write + Unpin + Send + 'static,
    {
        let (sender, connection) = http1::Builder::new().max_buf_size(256 << 10).handshake(io).await?;
        streams.set_limit(1);
        spawn(async move {
            tokio::select! {
                result = connection.with_upgrades() => log_end(result),
                () = streams.idle() => {}
            }
        });
        Ok(Self::Http1(Arc::new(Mutex::new(sender))))
    }

    /// Returns whether the connection accepts a request. With HTTP/1.1 it does so when the last response is complete.
    pub(super) fn is_ready(&self) -> bool {
        match self {
            Self::Http2(sender) => sender.is_ready(),
            Self::Http1(sender) => sender.lock().unwrap_or_else(PoisonError::into_inner).is_ready(),
        }
    }

    /// Returns whether the connection is closed for further requests.
    pub(super) fn is_closed(&self) -> bool {
        match self {
            Self::Http2(sender) => sender.is_closed(),
            Self::Http1(sender) => sender.lock().unwrap_or_else(PoisonError::into_inner).is_closed(),
        }
    }

    pub(super) fn is_http1(&self) -> bool {
        matches!(self, Self::Http1(_))
    }

    /// Sends a request and returns the response once its head has arrived.
    ///
    /// Cancel safe in that dropping the future resets the stream. With HTTP/1.1 it closes the connection.
    pub(super) async fn send(&self, mut request: Request<RequestBody>) -> Result<Response<Incoming>, SendError> {
        match self {
            Self::Http2(sender) => sender.clone().try_send_request(request).await.map_err(send_error),
            Self::Http1(sender) => {
                let uri = use_origin_form(&mut request);
                let sent = sender.lock().unwrap_or_else(PoisonError::into_inner).try_send_request(request);
                sent.await.map_err(send_error).map_err(|mut error| {
                    if let SendError::Unsent { request, .. } = &mut error {
                        *request.uri_mut() = uri;
                    }
                    error
                })
            }
        }
    }
}

fn send_error(mut error: TrySendError<Request<RequestBody>>) -> SendError {
    match error.take_message() {
        Some(request) => SendError::Unsent { request: Box::new(request), source: error.into_error() },
        None => SendError::sent(error.into_error()),
    }
}

impl<F> Executor<F> for ConnectionExecutor
where
    F: Future<Output = ()> + Send + 'static,
{
    fn execute(&self, task: F) {
        let Self { streams, wake } = self.clone();
        spawn(async move {
            let mut task = pin!(task);
            poll_fn(|cx| {
                let polled = task.as_mut().poll(cx);
                if !streams.is_limit_known() {
                    wake.notify_one();
                }
                polled
            })
            .await;
        });
    }
}

/// Runs the dispatcher of a connection, and publishes the stream limit after each poll.
async fn dispatch<T>(
    mut dispatcher: http2::Connection<T, RequestBody, ConnectionExecutor>,
    executor: ConnectionExecutor,
) where
    T: Read + Write + Unpin + Send + 'static,
{
    let ConnectionExecutor { streams, wake } = executor;
    let mut idle = pin!(streams.idle());
    loop {
        let polled = poll_fn(|cx| {
            let polled = Pin::new(&mut dispatcher).poll(cx);
            match dispatcher.current_max_send_streams() {
                LIMIT_UNKNOWN => {}
                LIMIT_NOT_SET => streams.set_limit(DEFAULT_STREAM_LIMIT),
                limit => streams.set_limit(limit),
            }
            polled
        });
        tokio::select! {
            result = polled => return log_end(result),
            () = wake.notified() => {}
            () = &mut idle => return,
        }
    }
}

/// Spawns a task of a connection.
///
/// Such tasks end with the connection and its bodies, and hold no work that [`crate::Tasks`] would have to wait for.
fn spawn(task: impl Future<Output = ()> + Send + 'static) {
    TokioExecutor::new().execute(task);
}

fn log_end(result: Result<(), hyper::Error>) {
    if let Err(error) = result {
        tracing::debug!(%error, "connection to the API server ended");
    }
}

/// Reduces the URI of a request to path and query, names the server in the `Host` header instead, and returns the URI.
fn use_origin_form(request: &mut Request<RequestBody>) -> Uri {
    let path = request.uri().path_and_query().cloned().unwrap_or(PathAndQuery::from_static("/"));
    let uri = std::mem::replace(request.uri_mut(), Uri::from(path));
    let default_port = if uri.scheme() == Some(&Scheme::HTTPS) { 443 } else { 80 };
    let host = match (uri.host(), uri.port_u16()) {
        (Some(host), Some(port)) if port != default_port => HeaderValue::try_from(format!("{host}:{port}")),
        (host, _) => HeaderValue::from_str(host.unwrap_or_default()),
    };
    if let Ok(host) = host {
        request.headers_mut().entry(HOST).or_insert(host);
    }
    uri
}

#[cfg(test)]
pub(crate) mod tests;
