//! The open connections of one port: their number, their peers, and which of them are idle.
//!
//! A client that opens many connections must not shut others out. Each peer has a share: half of all connections. At its share
//! a peer loses its connection that has been idle longest, and when the port is full the peer with the most connections does.
//! If there is no idle one, the connection of a peer at its share is refused, and one at a full port waits.

mod peer_uid;
mod request_memory;

use std::collections::HashMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

pub(crate) use self::peer_uid::peer_uid;
use self::request_memory::{RequestCharge, RequestMemory};

/// [`OpenConnection::idle_since`] of a connection with requests.
const BUSY: u64 = u64::MAX;

/// The peer that opened a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ConnectionPeer {
    /// A program on another machine or in a pod, by its address.
    Address(IpAddr),
    /// A local program, by its uid; `None` if it is unknown.
    Local(Option<u32>),
}

/// The connections of one port.
#[derive(Debug)]
pub struct Connections {
    max: usize,
    share: usize,
    table: Mutex<Table>,
    requests: Arc<RequestMemory>,
    freed: Notify,
    created: Instant,
}

#[derive(Debug, Default)]
struct Table {
    open: HashMap<u64, Arc<OpenConnection>>,
    of_peer: HashMap<ConnectionPeer, usize>,
    next: u64,
}

#[derive(Debug)]
struct OpenConnection {
    number: u64,
    peer: ConnectionPeer,
    /// The number of requests.
    active: watch::Sender<usize>,
    /// Milliseconds after [`Connections::created`], or [`BUSY`].
    idle_since: AtomicU64,
    close: CancellationToken,
}

/// An open connection. It counts until all clones of it are dropped.
#[derive(Debug, Clone)]
pub struct Connection(Arc<Registered>);

#[derive(Debug)]
struct Registered {
    connections: Arc<Connections>,
    open: Arc<OpenConnection>,
}

/// A request of a connection, or a stream that was upgraded from it. The connection is not idle until it is dropped.
#[derive(Debug)]
pub struct ActiveRequest {
    connection: Connection,
    /// What its head takes of the memory.
    head: Option<RequestCharge>,
}

/// Why a connection is not admitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NotAdmitted {
    /// The peer has its share of connections, and all of them have requests.
    Share,
    /// The port is full, and all connections have requests.
    Full,
}

impl ConnectionPeer {
    /// Returns the peer that opened the connection from `client` to `server`.
    pub fn of(client: SocketAddr, server: Option<SocketAddr>) -> Self {
        let address = client.ip().to_canonical();
        match address.is_loopback() {
            true => Self::Local(server.and_then(|server| peer_uid(client, server))),
            false => Self::Address(address),
        }
    }
}

impl fmt::Display for ConnectionPeer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address) => write!(f, "{address}"),
            Self::Local(Some(uid)) => write!(f, "uid {uid}"),
            Self::Local(None) => f.write_str("a local process of unknown uid"),
        }
    }
}

impl Connections {
    /// Creates the table of a port that has at most `max` connections.
    #[must_use]
    pub fn new(max: usize) -> Arc<Self> {
        let (table, requests) = (Mutex::default(), Arc::default());
        Arc::new(Self { max, share: max.div_ceil(2), table, requests, freed: Notify::new(), created: Instant::now() })
    }

    /// Resolves when a connection has ended or become idle. One that did so before this call counts, if no call has seen it. Cancel-safe, for
    /// one caller.
    pub(crate) async fn freed(&self) {
        self.freed.notified().await;
    }

    /// Counts a connection, and closes an idle one if there is no room. `None`: there is neither room nor an idle connection.
    #[must_use]
    pub fn admit(self: &Arc<Self>, peer: ConnectionPeer) -> Option<Connection> {
        self.try_admit(peer).ok()
    }

    /// Counts a connection, as [`Self::admit`] does.
    ///
    /// # Errors
    /// Why it is not admitted.
    pub(crate) fn try_admit(self: &Arc<Self>, peer: ConnectionPeer) -> Result<Connection, NotAdmitted> {
        let mut table = self.table();
        if table.of_peer.get(&peer).is_some_and(|open| *open >= self.share) {
            let idle = table.longest_idle(Some(peer)).ok_or(NotAdmitted::Share)?;
            table.evict(&idle);
        } else if table.open.len() >= self.max {
            let most = table.of_peer.iter().max_by_key(|(_, open)| **open).map(|(peer, _)| *peer);
            let idle = table.longest_idle(most).or_else(|| table.longest_idle(None)).ok_or(NotAdmitted::Full)?;
            table.evict(&idle);
        }
        let open = Arc::new(OpenConnection {
            number: table.next,
            peer,
            active: watch::Sender::new(0),
            idle_since: AtomicU64::new(self.now()),
            close: CancellationToken::new(),
        });
        table.next += 1;
        table.open.insert(open.number, open.clone());
        *table.of_peer.entry(peer).or_default() += 1;
        Ok(Connection(Arc::new(Registered { connections: self.clone(), open })))
    }

    fn now(&self) -> u64 {
        u64::try_from(self.created.elapsed().as_millis()).unwrap_or(BUSY - 1)
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    /// The connection that has been idle longest, of one peer or of all.
    fn longest_idle(&self, of: Option<ConnectionPeer>) -> Option<Arc<OpenConnection>> {
        let connections = self.open.values().filter(|open| of.is_none_or(|peer| open.peer == peer));
        let idle = connections.map(|open| (open.idle_since.load(Ordering::Acquire), open));
        let (_, open) = idle.filter(|(since, _)| *since != BUSY).min_by_key(|(since, open)| (*since, open.number))?;
        Some(open.clone())
    }

    fn evict(&mut self, open: &OpenConnection) {
        self.remove(open);
        open.close.cancel();
    }

    fn remove(&mut self, open: &OpenConnection) {
        if self.open.remove(&open.number).is_some()
            && let Some(count) = self.of_peer.get_mut(&open.peer)
        {
            *count -= 1;
            if *count == 0 {
                self.of_peer.remove(&open.peer);
            }
        }
    }
}

impl ActiveRequest {
    /// The connection of the request.
    pub fn connection(&self) -> &Connection {
        &self.connection
    }

    /// The same request, whose head counts until it is dropped.
    pub(crate) fn with_head(mut self, head: RequestCharge) -> Self {
        self.head = Some(head);
        self
    }
}

impl Connection {
    /// The peer that opened it.
    pub fn peer(&self) -> ConnectionPeer {
        self.0.open.peer
    }

    /// Closes the connection at once when it is cancelled.
    pub fn close(&self) -> &CancellationToken {
        &self.0.open.close
    }

    /// What the requests of its port take of the memory.
    pub(crate) fn requests(&self) -> &Arc<RequestMemory> {
        &self.0.connections.requests
    }

    /// The number of requests.
    pub(crate) fn active(&self) -> watch::Receiver<usize> {
        self.0.open.active.subscribe()
    }

    /// Counts a request until its response is complete.
    pub fn begin(&self) -> ActiveRequest {
        self.0.open.active.send_modify(|active| {
            *active += 1;
            self.0.open.idle_since.store(BUSY, Ordering::Release);
        });
        ActiveRequest { connection: self.clone(), head: None }
    }

    /// Resolves when the connection has had no request for this long. Cancel-safe.
    pub async fn idle(&self, limit: Duration) {
        let Registered { connections, open } = &*self.0;
        let mut active = self.active();
        // This owns the sender.
        while active.wait_for(|active| *active == 0).await.is_ok() {
            let since = open.idle_since.load(Ordering::Acquire);
            if since == BUSY {
                continue;
            }
            let end = connections.created + Duration::from_millis(since) + limit;
            let begun = active.wait_for(|active| *active > 0);
            // A request that has begun and ended between two looks shows only in the time of its end.
            if tokio::time::timeout_at(end, begun).await.is_err() && open.idle_since.load(Ordering::Acquire) == since {
                return;
            }
        }
    }
}

impl Drop for ActiveRequest {
    fn drop(&mut self) {
        let Registered { connections, open } = &*self.connection.0;
        open.active.send_modify(|active| {
            *active = active.saturating_sub(1);
            if *active == 0 {
                open.idle_since.store(connections.now(), Ordering::Release);
                connections.freed.notify_one();
            }
        });
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        self.connections.table().remove(&self.open);
        self.connections.freed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    const ROOT: ConnectionPeer = ConnectionPeer::Local(Some(0));
    const TENANT: ConnectionPeer = ConnectionPeer::Local(Some(1000));
    const OTHER: ConnectionPeer = ConnectionPeer::Address(IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1)));

    fn open(connections: &Arc<Connections>, peer: ConnectionPeer, count: usize) -> Vec<Connection> {
        (0..count).map(|_| connections.try_admit(peer).unwrap()).collect()
    }

    fn closed(connections: &[Connection]) -> Vec<usize> {
        let closed = connections.iter().enumerate().filter(|(_, connection)| connection.close().is_cancelled());
        closed.map(|(number, _)| number).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn a_peer_at_its_share_loses_the_connection_that_is_idle_longest() {
        let connections = Connections::new(8);
        let (root, tenant) = (open(&connections, ROOT, 1), open(&connections, TENANT, 4));
        let first = tenant[0].begin();
        tokio::time::advance(Duration::from_secs(1)).await;
        drop(first);
        let busy = tenant[1].begin();
        let newer = open(&connections, TENANT, 2);
        assert_eq!((closed(&tenant), closed(&root)), (vec![2, 3], vec![]));
        let requests: Vec<_> = [&tenant[0], &newer[0], &newer[1]].map(Connection::begin).into();
        assert_eq!(connections.try_admit(TENANT).unwrap_err(), NotAdmitted::Share);
        assert!(connections.try_admit(OTHER).is_ok());
        drop((requests, busy, tenant, newer, root));
        assert!(connections.table().open.is_empty() && connections.table().of_peer.is_empty());
    }

    #[tokio::test]
    async fn a_full_port_closes_an_idle_connection_of_the_peer_with_the_most_or_has_no_room() {
        let connections = Connections::new(4);
        let (root, tenant) = (open(&connections, ROOT, 2), open(&connections, TENANT, 1));
        let other = open(&connections, OTHER, 1);
        let newest = open(&connections, OTHER, 1);
        assert_eq!((closed(&root), closed(&tenant), closed(&other)), (vec![0], vec![], vec![]));
        let requests: Vec<_> = [&root[1], &tenant[0], &other[0], &newest[0]].map(Connection::begin).into();
        assert_eq!(connections.try_admit(TENANT).unwrap_err(), NotAdmitted::Full);
        // Those that were closed before.
        while connections.freed().now_or_never().is_some() {}
        drop(requests);
        drop(root);
        connections.freed().await;
        assert!(connections.try_admit(TENANT).is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_is_idle_after_its_last_request() {
        let connections = Connections::new(1);
        let connection = connections.try_admit(ROOT).unwrap();
        let begun = Instant::now();
        let limit = Duration::from_secs(10);
        tokio::join!(connection.idle(limit), async {
            tokio::time::sleep(Duration::from_secs(5)).await;
            let request = connection.begin();
            tokio::time::sleep(Duration::from_secs(60)).await;
            drop(request);
        });
        assert_eq!(begun.elapsed().as_secs(), 75);
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_takes_no_time_counts() {
        let connections = Connections::new(1);
        let connection = connections.try_admit(ROOT).unwrap();
        let begun = Instant::now();
        tokio::join!(connection.idle(Duration::from_secs(10)), async {
            for _ in 0..5 {
                tokio::time::sleep(Duration::from_secs(4)).await;
                drop(connection.begin());
            }
        });
        assert_eq!(begun.elapsed().as_secs(), 30);
    }
}
