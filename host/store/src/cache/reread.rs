//! A reflector whose store differs from the API server leaves the source and lists all objects again.

use std::sync::Arc;

use super::check::{ApiServer, CheckConfig, StoreCheck};
use super::consistent::ConsistentReads;
use super::reflector::ResourceReflector;
use super::trust::Doubt;

impl ResourceReflector {
    /// Returns what compares the store with the API server. `name` is that of the store.
    #[must_use]
    pub(crate) fn check(&self, config: CheckConfig, name: String) -> StoreCheck {
        let (store, connectivity, delegated) =
            (self.store.clone(), self.sources.connectivity().clone(), self.delegated.clone());
        StoreCheck { server: self.server(), store, connectivity, delegated, is_private: self.is_private, name, config }
    }

    /// Returns what brings the store to the API server's newest version when a reader asks for it.
    #[must_use]
    pub(crate) fn consistent_reads(&self) -> ConsistentReads {
        ConsistentReads { server: self.server(), store: self.store.clone() }
    }

    fn server(&self) -> ApiServer {
        ApiServer {
            client: self.sources.api_server().clone(),
            collection: self.collection.clone(),
            encoding: self.encoding,
            timeout: self.timing.response_timeout,
            uplink: self.uplink.clone(),
            received: Arc::default(),
        }
    }

    /// Leaves the source of objects that differ from the API server's. Returns whether to list them again.
    pub(super) fn apply_doubt(&mut self) -> bool {
        self.cluster_change = self.store.trust().cluster_change();
        let is_distrusted = self.sources.is_distrusted();
        let doubt = self.store.trust().doubted().or(is_distrusted.then_some(Doubt::Stale));
        if let Some(doubt) = doubt.filter(|_| !self.must_relist) {
            self.sources.blame(doubt, self.timing.peer_rest);
            self.store.set_foreign();
            self.must_relist = true;
        }
        self.must_relist
    }

    /// Notes that a list is in the store.
    pub(super) fn settle(&mut self) {
        if std::mem::take(&mut self.must_relist) {
            self.sources.settle();
            self.store.settle(self.cluster_change);
        }
        self.accepted();
    }

    /// Notes that the source has answered a list or a watch. That a peer has says nothing of the API server.
    pub(super) fn accepted(&self) {
        if !self.reads_from_peer() {
            self.store.set_refused(false);
        }
    }
}
