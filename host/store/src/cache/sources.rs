//! Where a reflector reads its collection: the API server, or another Weir of the pool.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use weir_upstream::{Connectivity, Reconnects, Upstream, jitter};

use crate::peers::PeerOrder;
use crate::resource_client::ResourceClient;

/// How long a peer that failed is not asked.
const REST: Duration = Duration::from_secs(30);

/// The sources of one collection.
pub(super) struct Sources {
    api_server: ResourceClient,
    connectivity: Connectivity,
    peers: Vec<Peer>,
    /// So many peers are asked before the API server.
    before: usize,
    /// The index of the selected peer; `None`: the API server.
    active: Option<usize>,
}

struct Peer {
    node: Arc<str>,
    upstream: Arc<Upstream>,
    client: ResourceClient,
    /// It failed, and is not asked until then.
    rests_until: Option<Instant>,
}

impl Sources {
    /// The API server only.
    pub(super) fn new(api_server: ResourceClient, connectivity: Connectivity) -> Self {
        Self { api_server, connectivity, peers: Vec::new(), before: 0, active: None }
    }

    pub(super) fn set_peers(&mut self, PeerOrder { peers, before }: PeerOrder) {
        let peer = |peer: crate::PeerClient| Peer {
            node: peer.node().clone(),
            client: ResourceClient { client: peer.upstream().client(), ..self.api_server.clone() },
            upstream: peer.upstream().clone(),
            rests_until: None,
        };
        self.peers = peers.into_iter().map(peer).collect();
        self.before = before;
    }

    /// Selects the source of the next request. Returns the node of the peer if it is one.
    pub(super) fn select(&mut self) -> Option<Arc<str>> {
        let asked = if self.connectivity.is_failing() { self.peers.len() } else { self.before };
        let now = Instant::now();
        let usable = |peer: &Peer| peer.rests_until.is_none_or(|until| until <= now) && peer.upstream.is_reachable();
        self.active = self.peers.iter().take(asked).position(usable);
        self.peer().map(|peer| peer.node.clone())
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
            () = peer.upstream.unreachable() => {}
            () = reconnects.next(), if is_asked_offline_only => {}
        }
    }

    fn peer(&self) -> Option<&Peer> {
        self.active.and_then(|index| self.peers.get(index))
    }
}
