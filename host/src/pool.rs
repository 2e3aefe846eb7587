//! What this Weir does for the others of its pool, each recognized by the client certificate of its node: [`answers`] to their reads
//! of shared resources, reports and modules, and the [`relay`] of their connections to the API servers.

mod answers;
mod error;
mod relay;

use std::num::NonZeroU64;
use std::sync::Arc;

use weir_access::AccessError;
use weir_front::Peer;
use weir_kube::node_of_user;
use weir_store::UplinkLimit;

use self::error::PeerError;
pub use self::relay::RelayMetrics;
use self::relay::Relays;
use crate::local_status::LocalStatus;
use crate::modules::ModuleCache;
use crate::serve::Handlers;
use crate::serve::respond::StatusError;

/// What peers get.
pub(crate) struct Pool {
    handlers: Arc<Handlers>,
    /// The nodes of the other Weirs of the pool.
    peer_nodes: Vec<String>,
    local_status: Option<Arc<LocalStatus>>,
    /// `None`: peers get no modules.
    modules: Option<Arc<ModuleCache>>,
    /// `None`: `CONNECT` is no method of this daemon.
    relays: Option<Relays>,
}

/// What [`Pool`] is made of.
pub(crate) struct PoolParts {
    pub(crate) peer_nodes: Vec<String>,
    /// Bytes a second that are relayed; `None` relays nothing.
    pub(crate) relay_rate: Option<NonZeroU64>,
    pub(crate) relay_metrics: Arc<RelayMetrics>,
    pub(crate) local_status: Option<Arc<LocalStatus>>,
    pub(crate) modules: Option<Arc<ModuleCache>>,
}

impl Pool {
    pub(crate) fn new(handlers: Arc<Handlers>, parts: PoolParts) -> Self {
        let PoolParts { peer_nodes, relay_rate, relay_metrics, local_status, modules } = parts;
        let rate = relay_rate.filter(|_| !peer_nodes.is_empty()).map(UplinkLimit::new);
        let relays = rate.map(|rate| Relays::new(&peer_nodes, rate, relay_metrics));
        Self { handlers, peer_nodes, local_status, modules, relays }
    }

    /// The node of another Weir of the pool, by its verified certificate.
    fn node_of(&self, peer: &Peer) -> Result<&str, PeerError> {
        let subject = peer.subject().map_err(|error| StatusError::from(AccessError::Certificate(error)))?;
        let node = subject.and_then(|subject| node_of_user(&subject.user, &subject.groups));
        let known = node.and_then(|node| self.peer_nodes.iter().find(|known| **known == *node));
        known.map(String::as_str).ok_or(PeerError::NotAPeer)
    }
}
