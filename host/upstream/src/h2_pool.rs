//! Pools of HTTP/2 connections that respect the stream limit of the server.
//!
//! hyper-util's pooled client opens one HTTP/2 connection per server. At the server's stream limit (kube-apiserver: 100)
//! it queues requests without a sign. So a pool holds several such clients, counts their streams, and opens another
//! connection before a request would queue.
//!
//! A connection reports its limit with its first SETTINGS frame ([`crate::stream_limit`]). Until then it carries one
//! request, and later ones wait for the limit. With HTTP/1.1 the limit only divides the pool.
//!
//! Each connection thread ([`crate::workers`]) has its own connections, so that no request crosses threads. Bound:
//! [`MAX_CONNECTIONS`] per pool and thread.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};

use crate::connect::{Client, ClientBuilder};
use crate::stream_limit::{DEFAULT_STREAM_LIMIT, StreamLimit};
use crate::workers;

/// How long a request waits for the limits of connections that are being set up. After that it assumes
/// [`DEFAULT_STREAM_LIMIT`].
const LIMIT_TIMEOUT: Duration = Duration::from_secs(5);
/// The maximum number of connections of one pool and thread.
pub(super) const MAX_CONNECTIONS: usize = 64;

/// The connections of one identity and purpose to one server.
#[derive(Debug)]
pub(super) struct H2Pool {
    builder: ClientBuilder,
    /// The connections of each thread, indexed by [`workers::current_worker`].
    connections: [Mutex<Vec<Arc<PooledConnection>>>; workers::MAX_WORKERS + 1],
}

/// A client that holds one HTTP/2 connection, and its number of open streams.
#[derive(Debug)]
struct PooledConnection {
    client: Client,
    streams: AtomicUsize,
    limit: StreamLimit,
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

impl H2Pool {
    /// Creates an empty pool. The first request connects.
    pub(super) fn new(builder: ClientBuilder) -> Self {
        Self { builder, connections: Default::default() }
    }

    /// Returns a permit of the first connection with a free stream, or `None` if the pool is exhausted.
    ///
    /// Preferring the first connection lets surplus ones become idle and close. Cancel safe: dropping the future takes
    /// no permit.
    pub(super) async fn acquire(&self) -> Option<StreamPermit> {
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
        let mut unknown = None;
        for connection in connections.iter() {
            // Subscribe before reading the limit, so that no change is missed.
            let change = connection.limit.subscribe();
            let limit = match *change.borrow() {
                0 if await_limits => 1,
                0 => DEFAULT_STREAM_LIMIT,
                known => known,
            };
            let known = *change.borrow() != 0;
            if connection.streams.load(Ordering::Acquire) < limit {
                return Availability::Available(StreamPermit::on(connection.clone()));
            }
            if await_limits && !known {
                unknown = Some(change);
            }
        }
        if let Some(change) = unknown {
            return Availability::AwaitLimit(change);
        }
        if connections.len() >= MAX_CONNECTIONS {
            return Availability::Exhausted;
        }
        let (client, limit) = self.builder.build();
        let connection = Arc::new(PooledConnection { client, streams: AtomicUsize::new(0), limit });
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

impl StreamPermit {
    fn on(connection: Arc<PooledConnection>) -> Self {
        connection.streams.fetch_add(1, Ordering::AcqRel);
        Self(connection)
    }

    /// Returns the client to send the request with.
    pub(super) fn client(&self) -> &Client {
        &self.0.client
    }
}

impl Drop for StreamPermit {
    fn drop(&mut self) {
        self.0.streams.fetch_sub(1, Ordering::AcqRel);
        // If connecting failed, the limit stays unknown. Wake the waiting requests, so that one of them connects.
        self.0.limit.send_if_modified(|limit| *limit == 0);
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;
    use crate::connect::{Protocols, client_builder};

    fn empty_pool() -> H2Pool {
        let config = kube::Config::new("http://127.0.0.1:1".parse().unwrap());
        H2Pool::new(client_builder(&config, Duration::from_secs(1), Protocols::Any).unwrap())
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
        connections(&pool)[0].limit.send_replace(3);
        permits.extend((0..2).map(|_| acquire_now(&pool).unwrap()));
        assert_eq!(connections(&pool).len(), 1);
        permits.push(acquire_now(&pool).unwrap());
        assert_eq!(connections(&pool).len(), 2);
        connections(&pool)[1].limit.send_replace(3);
        permits.clear();
        let mut all = vec![acquire_now(&pool).unwrap()];
        assert_eq!(connections(&pool).len(), 2, "a free stream is used before a new connection");
        while let Some(permit) = acquire_now(&pool) {
            connections(&pool).last().unwrap().limit.send_replace(3);
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
        connections(&pool)[0].limit.send_replace(2);
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
}
