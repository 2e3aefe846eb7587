//! What a store reports of itself: its size, its version, and how far it may be behind the API server.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::resource_store::ResourceStore;
use super::trust::Continuity;
use crate::ReflectorError;

/// A store at one moment.
#[derive(Debug, Clone)]
pub struct StoreStatus {
    /// The number of objects.
    pub objects: usize,
    /// The bytes of the objects.
    pub bytes: usize,
    /// The bytes of a list that is on its way.
    pub arriving: usize,
    /// The resourceVersion.
    pub version: u64,
    /// Whether the objects are complete.
    pub synced: bool,
    /// Whether the objects come from disk, and the API server has not confirmed their version yet.
    pub stale: bool,
    /// The node of the peer that fills the store; `None` if the API server does.
    pub peer: Option<Arc<str>>,
    /// Why the last list or watch failed.
    pub error: Option<ReflectorError>,
    /// The time since the API server sent anything; `None` if it has not sent anything yet.
    pub lag: Option<Duration>,
    /// The bytes that the API server sent, as they came over the network.
    pub received: u64,
    /// The events in the history.
    pub events: usize,
    /// The bytes that the history keeps alive.
    pub event_bytes: usize,
}

impl ResourceStore {
    /// Whether the API server has answered the reader of the store 401 or 403, and nothing else since: nobody gets its objects.
    #[must_use]
    pub fn is_refused(&self) -> bool {
        self.trust().is_refused()
    }

    /// Whether the objects are stale for nothing but that nobody knows yet whether the API server's history goes on from them.
    #[must_use]
    pub fn awaits_history(&self) -> bool {
        self.is_following() && self.trust().continuity() == Continuity::Unknown
    }
}

impl fmt::Debug for ResourceStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let snapshot = self.snapshot();
        f.debug_struct("ResourceStore")
            .field("version", &snapshot.version)
            .field("objects", &snapshot.objects.size())
            .finish_non_exhaustive()
    }
}
