//! Where a reflector reads its collection: the API server, or another Weir of the pool.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use weir_upstream::{Connectivity, Reconnects, jitter};

use super::trust::Doubt;
use crate::peers::{PeerClient, PeerOrder};
use crate::resource_client::ResourceClient;

/// The most bytes that the objects of a peer may take, with what a store keeps beside each of them. A larger store is read from
/// the API server.
pub(super) const MAX_OF_PEER: usize = 64 << 20;
/// How long a peer that failed is not asked.
const REST: Duration = Duration::from_secs(30);
/// How long it is remembered that the objects of a peer differed. An honest one relays what the API server had before an upgrade
/// or a restore, or what another peer forged: that happens once, and not again with what it sends afterwards.
const MEMORY: Duration = Duration::from_secs(7 * 24 * 3600);

/// The sources of one collection.
pub(super) struct Sources {
    api_server: ResourceClient,
    connectivity: Connectivity,
    peers: Vec<Peer>,
    /// So many peers are asked before the API server.
    before: usize,
    /// The index of the selected peer; `None`: the API server.
    active: Option<usize>,
    /// The peer that was selected last, since the objects were listed again.
    last: Option<usize>,
}

struct Peer {
    peer: PeerClient,
    client: ResourceClient,
    /// It failed, and is not asked until then.
    rests_until: Option<Instant>,
    /// It failed because it did not have the events after the store's version.
    is_expired: bool,
    differed: Option<Differed>,
}

/// A peer whose objects differed from the API server's.
struct Differed {
    at: Instant,
    /// The version of the store when the peer was asked again. It has sent later versions since.
    asked_again: Option<u64>,
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
            is_expired: false,
            differed: None,
        };
        self.peers = peers.into_iter().map(peer).collect();
        self.before = before;
    }

    /// Selects the source of the next request, for a store of this version. Returns the node of the peer if it is one.
    /// `must_relist`: the objects differed from the API server's, which is the source if it can be reached.
    pub(super) fn select(&mut self, must_relist: bool, version: u64) -> Option<Arc<str>> {
        let asked = match self.connectivity.is_failing() {
            true => self.peers.len(),
            false if must_relist => 0,
            false => self.before,
        };
        let now = Instant::now();
        let usable = |found: &Peer| {
            let is_rested = found.rests_until.is_none_or(|until| until <= now);
            is_rested && !found.peer.is_distrusted() && found.peer.upstream().is_reachable()
        };
        self.active = self.peers.iter().take(asked).position(usable);
        self.last = self.active.or(self.last);
        if let Some(differed) = self.active_peer().and_then(|peer| peer.differed.as_mut()) {
            differed.asked_again.get_or_insert(version);
        }
        self.peer().map(|found| found.peer.node().clone())
    }

    /// Notes what speaks against the objects: the peer that sent them rests. If an object differs for the second time, which it
    /// has sent since the first time, it is not asked again.
    pub(super) fn blame(&mut self, doubt: Doubt, rest: Duration) {
        let Some(found) = self.last.and_then(|index| self.peers.get_mut(index)) else { return };
        let now = Instant::now();
        (found.rests_until, found.is_expired) = (Some(now + rest), false);
        let Doubt::Different(version) = doubt else { return };
        let recent = found.differed.take().filter(|differed| now.duration_since(differed.at) < MEMORY);
        if recent.and_then(|differed| differed.asked_again).is_some_and(|since| version > since) {
            found.peer.distrust();
        }
        found.differed = Some(Differed { at: now, asked_again: None });
    }

    /// Whether a peer sent the objects that is distrusted by now.
    pub(super) fn is_distrusted(&self) -> bool {
        self.last.and_then(|index| self.peers.get(index)).is_some_and(|found| found.peer.is_distrusted())
    }

    /// Records that the objects were listed again.
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

    /// Notes that the selected peer failed. `false`: the source is the API server, or a peer that has to be listed, because it
    /// does not have the events after the store's version, and the API server cannot be asked for them.
    pub(super) fn peer_failed(&mut self, is_expired: bool) -> bool {
        if is_expired && self.connectivity.is_failing() {
            return false;
        }
        let peer = self.active_peer();
        let is_peer = peer.is_some();
        if let Some(peer) = peer {
            (peer.rests_until, peer.is_expired) = (Some(Instant::now() + jitter(REST)), is_expired);
        }
        is_peer
    }

    /// Notes that the API server does not have the events, either: peers are as good for a list.
    pub(super) fn expired(&mut self) {
        for peer in self.peers.iter_mut().filter(|peer| peer.is_expired) {
            (peer.rests_until, peer.is_expired) = (None, false);
        }
    }

    fn active_peer(&mut self) -> Option<&mut Peer> {
        self.active.and_then(|index| self.peers.get_mut(index))
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
