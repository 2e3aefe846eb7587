//! Where a reflector reads its collection: the API server, or another Weir of the pool.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use weir_upstream::{Connectivity, Reconnects, jitter};

use crate::peers::{PeerClient, PeerOrder};
use crate::resource_client::ResourceClient;

/// The most bytes that the objects of a peer may take, with what a store keeps beside each of them. A larger store is read from
/// the API server.
pub(super) const MAX_OF_PEER: usize = 64 << 20;
/// How long a peer that failed is not asked.
const REST: Duration = Duration::from_secs(30);
/// How long a peer is not asked whose objects were ahead of the API server.
const LONG_REST: Duration = Duration::from_secs(3600);

/// The sources of one collection.
pub(super) struct Sources {
    api_server: ResourceClient,
    connectivity: Connectivity,
    peers: Vec<Peer>,
    /// So many peers are asked before the API server.
    before: usize,
    /// The index of the selected peer; `None`: the API server.
    active: Option<usize>,
    /// The peer that was selected last, since the objects were read anew.
    last: Option<usize>,
}

struct Peer {
    peer: PeerClient,
    client: ResourceClient,
    /// It failed, and is not asked until then.
    rests_until: Option<Instant>,
}

impl Sources {
    /// The API server only.
    pub(super) fn new(api_server: ResourceClient, connectivity: Connectivity) -> Self {
        Self { api_server, connectivity, peers: Vec::new(), before: 0, active: None, last: None }
    }

    pub(super) fn set_peers(&mut self, PeerOrder { peers, before }: PeerOrder) {
        let peer = |peer: PeerClient| Peer {
            client: ResourceClient { client: peer.upstream().client(), ..self.api_server.clone() },
            peer,
            rests_until: None,
        };
        self.peers = peers.into_iter().map(peer).collect();
        self.before = before;
    }

    /// Selects the source of the next request. Returns the node of the peer if it is one. `anew`: the objects differed from the
    /// API server's, which is asked itself if it can be reached.
    pub(super) fn select(&mut self, anew: bool) -> Option<Arc<str>> {
        let asked = match self.connectivity.is_failing() {
            true => self.peers.len(),
            false if anew => 0,
            false => self.before,
        };
        let now = Instant::now();
        let usable = |found: &Peer| {
            let is_rested = found.rests_until.is_none_or(|until| until <= now);
            is_rested && !found.peer.is_distrusted() && found.peer.upstream().is_reachable()
        };
        self.active = self.peers.iter().take(asked).position(usable);
        self.last = self.active.or(self.last);
        self.peer().map(|found| found.peer.node().clone())
    }

    /// Notes that the objects differ from the API server's. `is_forged`: whoever sent them is not asked again.
    pub(super) fn blame(&mut self, is_forged: bool) {
        let Some(found) = self.last.and_then(|index| self.peers.get_mut(index)) else { return };
        found.rests_until = Some(Instant::now() + LONG_REST);
        if is_forged {
            found.peer.distrust();
        }
    }

    /// Whether a peer sent the objects that is distrusted by now.
    pub(super) fn is_distrusted(&self) -> bool {
        self.last.and_then(|index| self.peers.get(index)).is_some_and(|found| found.peer.is_distrusted())
    }

    /// Notes that the objects were read anew.
    pub(super) fn settle(&mut self) {
        self.last = self.active;
    }

    pub(super) fn connectivity(&self) -> &Connectivity {
        &self.connectivity
    }

    /// The client of the API server.
    pub(super) fn api_server(&self) -> &ResourceClient {
        &self.api_server
    }

    /// The client of the selected source.
    pub(super) fn client(&self) -> &ResourceClient {
        self.peer().map_or(&self.api_server, |peer| &peer.client)
    }

    /// Whether the selected source is a peer.
    pub(super) fn is_peer(&self) -> bool {
        self.peer().is_some()
    }

    /// Notes that the selected peer failed. `false`: the source is the API server.
    pub(super) fn peer_failed(&mut self) -> bool {
        let peer = self.active.and_then(|index| self.peers.get_mut(index));
        let is_peer = peer.is_some();
        if let Some(peer) = peer {
            peer.rests_until = Some(Instant::now() + jitter(REST));
        }
        is_peer
    }

    /// Resolves when there is a better source than the selected peer: it is down, or the API server is back. Never, if the API
    /// server is selected. Cancel safe.
    pub(super) async fn outdated(&self) {
        let Some(peer) = self.peer() else { return std::future::pending().await };
        let is_asked_offline_only = self.active.is_some_and(|index| index >= self.before);
        let mut reconnects: Reconnects = self.connectivity.reconnects();
        tokio::select! {
            () = peer.peer.upstream().unreachable() => {}
            () = peer.peer.until_distrusted() => {}
            () = reconnects.next(), if is_asked_offline_only => {}
        }
    }

    fn peer(&self) -> Option<&Peer> {
        self.active.and_then(|index| self.peers.get(index))
    }
}
