//! What filters may read beside their object, answered from the feeds.

use std::sync::Arc;

use super::feeds::Feeds;
use crate::wasm::{Endpoint, Snapshot, ClusterView};

/// The daemon's world: its feeds, its node, its endpoint.
#[derive(Debug, Clone)]
pub struct FeedWorld {
    feeds: Feeds,
    endpoint: Option<Endpoint>,
}

impl FeedWorld {
    /// Over some feeds; `endpoint` is where pods reach the daemon.
    #[must_use]
    pub fn new(feeds: Feeds, endpoint: Option<Endpoint>) -> Self {
        Self { feeds, endpoint }
    }

    /// The feeds behind it.
    #[must_use]
    pub fn feeds(&self) -> &Feeds {
        &self.feeds
    }
}

impl ClusterView for FeedWorld {
    fn snapshot(&self) -> Arc<dyn Snapshot> {
        self.feeds.snapshot()
    }

    fn version(&self) -> u64 {
        self.feeds.version()
    }

    fn node_name(&self) -> &str {
        self.feeds.node_name()
    }

    fn secure_endpoint(&self) -> Option<Endpoint> {
        self.endpoint.clone()
    }
}
