//! Other Weirs of the node's pool, from which stores may be filled instead of the API server.
//!
//! For each collection, the nodes of a pool have an order, by a hash of their names. A node asks the peers before it, then
//! the API server. So one node of a pool reads each collection over the uplink, different collections over different
//! uplinks, and no two nodes wait for each other. A node that cannot reach the API server asks the other peers, too.

use std::fmt;
use std::sync::Arc;

use ring::digest::{SHA256, digest};
use tokio::sync::watch;
use weir_kube::GroupResource;
use weir_upstream::Upstream;

/// The resources that peers share. Any node's Weir may read all of them with its own identity, and none is confidential.
const SHARED: [(&str, &str); 9] = [
    ("services", ""),
    ("endpoints", ""),
    ("namespaces", ""),
    ("endpointslices", "discovery.k8s.io"),
    ("servicecidrs", "networking.k8s.io"),
    ("ingresses", "networking.k8s.io"),
    ("ingressclasses", "networking.k8s.io"),
    ("nodepools", "apps.openyurt.io"),
    ("nodebuckets", "apps.openyurt.io"),
];

/// One other Weir.
#[derive(Clone)]
pub struct PeerClient {
    node: Arc<str>,
    upstream: Arc<Upstream>,
    /// Whether it sent again and again what differs from the API server. Clones share it.
    is_distrusted: Arc<watch::Sender<bool>>,
}

/// The peers to ask for one thing, a collection or a module. The nodes of a pool agree on the order.
#[derive(Debug, Clone, Default)]
pub struct PeerOrder {
    /// In the order to ask them.
    pub peers: Vec<PeerClient>,
    /// So many are asked before the API server, or a registry. The rest are asked while that cannot be reached.
    pub before: usize,
}

/// The other Weirs of the pool.
#[derive(Debug, Clone, Default)]
pub struct Peers {
    own: Arc<str>,
    peers: Arc<[PeerClient]>,
}

impl PeerClient {
    /// Creates the client of the Weir on a node.
    #[must_use]
    pub fn new(node: &str, upstream: Arc<Upstream>) -> Self {
        Self { node: node.into(), upstream, is_distrusted: Arc::default() }
    }

    /// The node of the peer.
    #[must_use]
    pub fn node(&self) -> &Arc<str> {
        &self.node
    }

    /// Reads no objects from the peer any more, until the daemon is restarted.
    pub(crate) fn distrust(&self) {
        if !self.is_distrusted.send_replace(true) {
            tracing::warn!(peer = %self.node, "what the peer sent differs from the API server for the second time: no objects are read from it until a restart");
        }
    }

    /// Whether no objects are read from the peer.
    #[must_use]
    pub(crate) fn is_distrusted(&self) -> bool {
        *self.is_distrusted.borrow()
    }

    /// Resolves when no objects are read from the peer any more. Cancel safe.
    pub(crate) async fn until_distrusted(&self) {
        // The sender lives as long as `self`.
        let _ = self.is_distrusted.subscribe().wait_for(|is_distrusted| *is_distrusted).await;
    }

    /// The client of the peer.
    #[must_use]
    pub fn upstream(&self) -> &Arc<Upstream> {
        &self.upstream
    }
}

impl Peers {
    /// Creates the set of peers of a node.
    #[must_use]
    pub fn new(own: &str, peers: Vec<PeerClient>) -> Self {
        Self { own: own.into(), peers: peers.into() }
    }

    /// Returns whether peers serve a resource to each other.
    #[must_use]
    pub fn share(resource: &GroupResource) -> bool {
        SHARED.contains(&(&*resource.resource, &*resource.group))
    }

    /// All peers.
    #[must_use]
    pub fn all(&self) -> &[PeerClient] {
        &self.peers
    }

    /// All peers in an order of this node's own: the nodes of a pool do not all begin with the same one.
    pub fn in_own_order(&self) -> impl Iterator<Item = &PeerClient> {
        let mut peers: Vec<_> = self.peers.iter().collect();
        peers.sort_by_key(|peer| (peer.node < self.own, peer.node.clone()));
        peers.into_iter()
    }

    /// The peers to ask for a collection of a resource, in this order.
    pub(crate) fn order(&self, resource: &GroupResource, collection: &str) -> PeerOrder {
        if !Self::share(resource) {
            return PeerOrder::default();
        }
        self.order_for(collection)
    }

    /// The peers to ask for what has this name, in this order.
    #[must_use]
    pub fn order_for(&self, name: &str) -> PeerOrder {
        let own = rank(&self.own, name);
        let mut ranked: Vec<_> = self.peers.iter().map(|peer| (rank(&peer.node, name), peer.clone())).collect();
        ranked.sort_by_key(|(rank, _)| *rank);
        let before = ranked.iter().filter(|(rank, _)| *rank < own).count();
        PeerOrder { peers: ranked.into_iter().map(|(_, peer)| peer).collect(), before }
    }
}

/// The place of a node in the order for a collection or a module. It is the same in every version of Weir.
fn rank(node: &str, name: &str) -> [u8; 32] {
    let mut rank = [0; 32];
    let hash = digest(&SHA256, format!("{node}\n{name}").as_bytes());
    for (to, from) in rank.iter_mut().zip(hash.as_ref()) {
        *to = *from;
    }
    rank
}

impl fmt::Debug for PeerClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PeerClient").field(&self.node).finish()
    }
}

#[cfg(test)]
mod tests {
    use weir_upstream::{UpstreamConfig, UpstreamMetrics};

    use super::*;

    fn order(own: &str, (resource, group): (&str, &str)) -> PeerOrder {
        peers(own, &NODES).order(&GroupResource::new(resource, group), &format!("/apis/{group}/v1/{resource}"))
    }

    fn peers(own: &str, all: &[&str]) -> Peers {
        let metrics: Arc<UpstreamMetrics> = Arc::default();
        let peer = |node: &&&str| {
            let config = kube::Config::new(format!("http://{node}/peer").parse().unwrap());
            let upstream = Upstream::new(&UpstreamConfig::new(config), metrics.clone()).unwrap();
            PeerClient::new(node, Arc::new(upstream))
        };
        Peers::new(own, all.iter().filter(|node| **node != own).map(|node| peer(&node)).collect())
    }

    const NODES: [&str; 5] = ["a", "b", "c", "d", "e"];

    #[test]
    fn all_nodes_agree_on_one_order_in_which_one_of_them_asks_nobody() {
        for resource in SHARED {
            let mut asked: Vec<usize> = NODES
                .iter()
                .map(|own| {
                    let PeerOrder { peers, before } = order(own, resource);
                    assert_eq!(peers.len(), 4);
                    for peer in &peers[..before] {
                        let theirs = order(&peer.node, resource);
                        let asked = &theirs.peers[..theirs.before];
                        assert!(asked.iter().all(|other| *other.node != **own), "no two ask each other");
                    }
                    before
                })
                .collect();
            asked.sort_unstable();
            assert_eq!(asked, [0, 1, 2, 3, 4], "{resource:?}");
        }
    }

    #[test]
    fn collections_are_read_by_different_nodes() {
        let first = |resource| NODES.iter().position(|own| order(own, resource).before == 0).unwrap();
        let readers: std::collections::BTreeSet<_> = SHARED.into_iter().map(first).collect();
        assert!(readers.len() > 1, "{readers:?}");
    }

    #[test]
    fn what_only_one_node_may_read_is_not_asked_of_peers() {
        for resource in ["secrets", "configmaps", "pods", "nodes"] {
            assert!(NODES.iter().all(|own| order(own, (resource, "")).peers.is_empty()), "{resource}");
        }
    }
}
