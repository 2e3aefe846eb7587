//! Pools of HTTP/2 connections that respect the stream limit of the server.
//!
//! At the server's stream limit (kube-apiserver: 100) hyper queues requests without a sign, and a watch could wait behind
//! other watches for ever. So a pool holds several connections, counts their streams, and opens another connection before
//! a request would queue. Kept by hand: hyper-util's client has one HTTP/2 connection for each server, and shows no streams.
//!
//! The server announces its limit when a connection opens ([`crate::connection`]). Until then the connection carries one
//! request, and later ones wait for the limit. With HTTP/1.1 each connection carries one request at a time.
//!
//! Each connection thread ([`crate::workers`]) has its own connections, so that no request crosses threads. Bound:
//! [`MAX_CONNECTIONS`] per pool and thread, or [`MAX_HTTP1_CONNECTIONS`].

use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use http::{Request, Response};
use hyper::body::Incoming;
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};

use crate::connect::Connector;
use crate::connection::Connection;
use crate::error::SendError;
use crate::request::{Purpose, RequestBody};
use crate::streams::{DEFAULT_STREAM_LIMIT, Streams};
use crate::workers;

/// How long a request waits for the limits of connections that are being set up. After that it assumes
/// [`DEFAULT_STREAM_LIMIT`].
const LIMIT_TIMEOUT: Duration = Duration::from_secs(5);
/// The maximum number of connections of one pool and thread.
pub(super) const MAX_CONNECTIONS: usize = 64;
/// The maximum with HTTP/1.1. It permits as many requests as HTTP/2 with the default limit.
const MAX_HTTP1_CONNECTIONS: usize = MAX_CONNECTIONS * DEFAULT_STREAM_LIMIT;

/// The connections of one identity and purpose to one server.
#[derive(Debug)]
pub(super) struct H2Pool {
    connector: Connector,
    /// The flow-control window of a stream.
    window: u32,
    /// The connections of each thread, indexed by [`workers::current_worker`].
    connections: [Mutex<Vec<Arc<PooledConnection>>>; workers::MAX_WORKERS + 1],
}

/// A connection and its streams. The first request connects.
#[derive(Debug, Default)]
struct PooledConnection {
    connection: OnceLock<Connection>,
    streams: Arc<Streams>,
}

/// The result of looking for a free stream.
enum Availability {
    /// A stream is free.
    Available(StreamPermit),
    /// A connection whose limit is not known yet may have a free stream once this changes.
    AwaitLimit(watch::Receiver<usize>),
    /// All streams of the maximum number of connections are in use.
    Exhausted,
}

/// A permit for one stream of a connection. Dropping it releases the stream.
#[derive(Debug)]
pub(super) struct StreamPermit(Arc<PooledConnection>);

/// Sends a request on a connection of its own.
pub(super) async fn send_unpooled(
    connector: &Connector,
    request: Request<RequestBody>,
) -> Result<(Response<Incoming>, StreamPermit), SendError> {
    let permit = StreamPermit::on(Arc::default());
    Ok((permit.send(connector, Purpose::Upgrade.window(), request).await?, permit))
}

impl H2Pool {
    /// Creates an empty pool. The first request connects.
    pub(super) fn new(connector: Connector, window: u32) -> Self {
        Self { connector, window, connections: Default::default() }
    }

    /// Sends a request and returns the response once its head has arrived, with the permit for its stream.
    ///
    /// If a connection from earlier requests closes before it sends anything of this one, the request goes to another
    /// connection. Cancel safe in that dropping the future resets the stream.
    pub(super) async fn send(
        &self,
        mut request: Request<RequestBody>,
    ) -> Result<(Response<Incoming>, StreamPermit), SendError> {
        loop {
            let permit = self.acquire().await.ok_or(SendError::Exhausted)?;
            let reused = permit.0.connection.get().is_some();
            match permit.send(&self.connector, self.window, request).await {
                Ok(response) => return Ok((response, permit)),
                Err(SendError::Unsent { request: unsent, .. }) if reused => request = *unsent,
                Err(error) => return Err(error),
            }
        }
    }

    /// Returns a permit of the first connection with a free stream, or `None` if the pool is exhausted.
    ///
    /// Preferring the first connection lets surplus ones become idle and close. Cancel safe: dropping the future takes
    /// no permit.
    async fn acquire(&self) -> Option<StreamPermit> {
        let deadline = Instant::now() + LIMIT_TIMEOUT;
        let mut await_limits = true;
        loop {
            match self.try_acquire(await_limits) {
                Availability::Available(permit) => return Some(permit),
                Availability::Exhausted => return None,
                Availability::AwaitLimit(mut limit) => {
                    await_limits = timeout_at(deadline, limit.changed()).await.is_ok();
                }
            }
        }
    }

    fn try_acquire(&self, await_limits: bool) -> Availability {
        let Some(connections) = self.connections.get(workers::current_worker()) else { return Availability::Exhausted };
        let mut connections = connections.lock().unwrap_or_else(PoisonError::into_inner);
        // INVARIANT: stream counts increase only under this lock, so no connection exceeds its limit.
        connections.retain(|connection| !connection.is_closed());
        let mut unknown = None;
        let mut max = MAX_CONNECTIONS;
        for connection in connections.iter() {
            // Subscribe before reading the limit, so that no change is missed.
            let change = connection.streams.limit();
            let limit = match *change.borrow() {
                0 if await_limits => 1,
                0 => DEFAULT_STREAM_LIMIT,
                known => known,
            };
            let known = *change.borrow() != 0;
            if connection.is_ready() && connection.streams.count() < limit {
                return Availability::Available(StreamPermit::on(connection.clone()));
            }
            if await_limits && !known {
                unknown = Some(change);
            }
            if connection.is_http1() {
                max = MAX_HTTP1_CONNECTIONS;
            }
        }
        match unknown {
            // With HTTP/1.1 a new connection will have no stream left for a further request.
            Some(change) if max == MAX_CONNECTIONS => return Availability::AwaitLimit(change),
            _ if connections.len() >= max => return Availability::Exhausted,
            _ => {}
        }
        let connection = Arc::new(PooledConnection::default());
        connections.push(connection.clone());
        Availability::Available(StreamPermit::on(connection))
    }

    /// Removes all connections from the pool. The next request connects again; open streams continue undisturbed.
    pub(super) fn clear(&self) {
        for connections in &self.connections {
            connections.lock().unwrap_or_else(PoisonError::into_inner).clear();
        }
    }
}

impl PooledConnection {
    fn is_closed(&self) -> bool {
        self.connection.get().is_some_and(Connection::is_closed)
    }

    /// Returns whether the connection accepts a request, or has yet to be opened by one.
    fn is_ready(&self) -> bool {
        self.connection.get().is_none_or(Connection::is_ready)
    }

    fn is_http1(&self) -> bool {
        self.connection.get().is_some_and(Connection::is_http1)
    }
}

impl StreamPermit {
    fn on(connection: Arc<PooledConnection>) -> Self {
        connection.streams.open();
        Self(connection)
    }

    /// Sends a request on the connection, and opens it first if necessary.
    async fn send(
        &self,
        connector: &Connector,
        window: u32,
        request: Request<RequestBody>,
    ) -> Result<Response<Incoming>, SendError> {
        let PooledConnection { connection, streams } = &*self.0;
        let connection = match connection.get() {
            Some(connection) => connection.clone(),
            None => {
                let opened = Connection::open(connector, request.uri().clone(), window, streams.clone()).await?;
                // If another request connected meanwhile, this one uses its own connection, which then closes.
                let _ = connection.set(opened.clone());
                opened
            }
        };
        connection.send(request).await
    }
}

impl Drop for StreamPermit {
    fn drop(&mut self) {
        self.0.streams.close();
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::{TcpListener, TcpStream};

    use super::*;
    use crate::connect::Protocols;
    use crate::connection::tests::{Http2Server, get};
    use crate::dial::Dialer;

    /// Responds to one request on one connection with HTTP/1.1.
    async fn serve_one(listener: TcpListener) -> TcpStream {
        let mut stream = listener.accept().await.unwrap().0;
        assert_ne!(stream.read(&mut [0; 4096]).await.unwrap(), 0);
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await.unwrap();
        stream
    }

    fn empty_pool() -> H2Pool {
        let config = kube::Config::new("http://127.0.0.1:1".parse().unwrap());
        let timeout = Duration::from_secs(1);
        H2Pool::new(Connector::new(&config, Dialer::direct(timeout), timeout, Protocols::Any).unwrap(), 1 << 20)
    }

    fn connections(pool: &H2Pool) -> Vec<Arc<PooledConnection>> {
        pool.connections[0].lock().unwrap().clone()
    }

    fn acquire_now(pool: &H2Pool) -> Option<StreamPermit> {
        pool.acquire().now_or_never().expect("no limit to wait for")
    }

    #[tokio::test]
    async fn another_connection_opens_before_streams_run_out_up_to_the_maximum() {
        let pool = empty_pool();
        let mut permits: Vec<_> = vec![acquire_now(&pool).unwrap()];
        connections(&pool)[0].streams.set_limit(3);
        permits.extend((0..2).map(|_| acquire_now(&pool).unwrap()));
        assert_eq!(connections(&pool).len(), 1);
        permits.push(acquire_now(&pool).unwrap());
        assert_eq!(connections(&pool).len(), 2);
        connections(&pool)[1].streams.set_limit(3);
        permits.clear();
        let mut all = vec![acquire_now(&pool).unwrap()];
        assert_eq!(connections(&pool).len(), 2, "a free stream is used before a new connection");
        while let Some(permit) = acquire_now(&pool) {
            connections(&pool).last().unwrap().streams.set_limit(3);
            all.push(permit);
        }
        assert_eq!(all.len(), 3 * MAX_CONNECTIONS);
    }

    #[tokio::test]
    async fn a_request_waits_while_the_limit_is_not_known() {
        let pool = empty_pool();
        let first = acquire_now(&pool).unwrap();
        let second = async { pool.acquire().await.unwrap() };
        tokio::pin!(second);
        assert!(second.as_mut().now_or_never().is_none());
        connections(&pool)[0].streams.set_limit(2);
        let second = second.await;
        assert!(Arc::ptr_eq(&first.0, &second.0));
        // The next connection may have another limit.
        let third = acquire_now(&pool).unwrap();
        assert!(!Arc::ptr_eq(&first.0, &third.0));
        assert!(pool.acquire().now_or_never().is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn a_waiting_request_continues_when_connecting_fails_or_takes_too_long() {
        let pool = empty_pool();
        let first = acquire_now(&pool).unwrap();
        let second = async { pool.acquire().await.unwrap() };
        tokio::pin!(second);
        assert!(second.as_mut().now_or_never().is_none());
        drop(first);
        let second = second.await;
        let began = Instant::now();
        let third = pool.acquire().await.unwrap();
        assert_eq!(began.elapsed(), LIMIT_TIMEOUT);
        assert!(Arc::ptr_eq(&second.0, &third.0), "the default limit is assumed");
    }

    #[tokio::test]
    async fn a_request_goes_to_another_connection_if_the_server_closes_this_one_for_further_requests() {
        let pool = empty_pool();
        let first = acquire_now(&pool).unwrap();
        let (connection, mut server) = Http2Server::connect(first.0.streams.clone()).await;
        first.0.connection.set(connection).unwrap();
        server.write_settings(Some(3)).await;
        first.0.streams.limit().wait_for(|limit| *limit == 3).await.unwrap();
        let mut watch = Box::pin(first.send(&pool.connector, pool.window, get("http://a/")));
        assert!(watch.as_mut().now_or_never().is_none());
        server.send_away().await;
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        let (response, _stream) = tokio::join!(pool.send(get(&url)), serve_one(listener));
        let (response, permit) = response.unwrap();
        assert_eq!(response.status(), 200);
        assert!(!Arc::ptr_eq(&first.0, &permit.0));
        assert_eq!(connections(&pool).len(), 1, "the closed connection left the pool");
        assert!(watch.as_mut().now_or_never().is_none(), "its open stream continues");
    }
}
