//! The connections that wait for room at a full port, so that the port accepts further ones meanwhile: one of a client that is at
//! its share is refused at once, even if others wait.
//!
//! Bounds: [`WAITING`] connections, each for [`PATIENCE`]. When they are full, the client with the most of them loses its newest.

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::time::Instant;

use crate::connections::ConnectionPeer;

/// The most connections that wait. Further ones are refused, so that no client can fill the table of open files.
const WAITING: usize = 64;
/// How long a connection waits for room.
const PATIENCE: Duration = Duration::from_secs(30);

/// An accepted connection.
#[derive(Debug)]
pub(crate) struct AcceptedClient<S = TcpStream> {
    pub(crate) stream: S,
    pub(crate) address: SocketAddr,
    pub(crate) peer: ConnectionPeer,
}

/// The connections that wait, the oldest first.
#[derive(Debug)]
pub(crate) struct WaitingClients<S = TcpStream>(VecDeque<(Instant, AcceptedClient<S>)>);

impl<S> Default for WaitingClients<S> {
    fn default() -> Self {
        Self(VecDeque::new())
    }
}

impl<S> WaitingClients<S> {
    /// Lets a connection wait. Returns one that is refused for it, which may be itself.
    pub(crate) fn push(&mut self, client: AcceptedClient<S>) -> Option<AcceptedClient<S>> {
        self.0.push_back((Instant::now() + PATIENCE, client));
        if self.0.len() <= WAITING {
            return None;
        }
        let mut of_peer: HashMap<ConnectionPeer, usize> = HashMap::new();
        for (_, client) in &self.0 {
            *of_peer.entry(client.peer).or_default() += 1;
        }
        let newest = |peer| self.0.iter().rposition(|(_, client)| client.peer == peer);
        let (_, newest) = of_peer.into_iter().map(|(peer, count)| (count, newest(peer))).max()?;
        Some(self.0.remove(newest?)?.1)
    }

    /// Returns the connection that has waited longest, and until when it would.
    pub(crate) fn pop(&mut self) -> Option<(Instant, AcceptedClient<S>)> {
        self.0.pop_front()
    }

    /// Puts back what [`Self::pop`] returned.
    pub(crate) fn put_back(&mut self, until: Instant, client: AcceptedClient<S>) {
        self.0.push_front((until, client));
    }

    /// Until when the connection that has waited longest goes on waiting.
    pub(crate) fn until(&self) -> Option<Instant> {
        self.0.front().map(|(until, _)| *until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(uid: u32) -> AcceptedClient<()> {
        let peer = ConnectionPeer::Local(Some(uid));
        AcceptedClient { stream: (), address: SocketAddr::from(([127, 0, 0, 1], 1)), peer }
    }

    #[tokio::test(start_paused = true)]
    async fn the_client_with_the_most_loses_its_newest() {
        let mut waiting = WaitingClients::default();
        for _ in 0..WAITING {
            assert!(waiting.push(client(1000)).is_none());
        }
        let first = waiting.until();
        tokio::time::advance(Duration::from_secs(1)).await;
        let refused = waiting.push(client(0)).unwrap();
        assert_eq!(refused.peer, ConnectionPeer::Local(Some(1000)));
        assert_eq!(waiting.push(client(1000)).unwrap().peer, ConnectionPeer::Local(Some(1000)));
        assert_eq!(waiting.until(), first, "the oldest goes on waiting");
        let mut left = Vec::new();
        while let Some((_, client)) = waiting.pop() {
            left.push(client.peer);
        }
        assert_eq!((left.len(), left.last()), (WAITING, Some(&ConnectionPeer::Local(Some(0)))));
    }
}
