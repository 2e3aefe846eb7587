//! What the admin port shows of stores and views.

use std::sync::Arc;

use weir_runtime::ChainVersion;
use weir_store::cache::{Collection, StoreStatus};
use weir_store::disk::DiskStoreStatus;
use weir_store::{StoreHandle, StoreReader};

use super::object::ViewOutcome;
use super::state::View;

/// A store and its views. There are at most as many as the limits of stores and views allow.
#[derive(Debug)]
pub struct CacheStatus {
    /// What the store holds.
    pub collection: Collection,
    /// The identity with which it is read.
    pub reader: StoreReader,
    /// Size, version and state.
    pub store: StoreStatus,
    /// What of it is on disk; `None` if nothing is.
    pub disk: Option<DiskStoreStatus>,
    /// Its views.
    pub views: Vec<(String, Arc<View>)>,
}

/// A view at one moment.
#[derive(Debug)]
pub struct ViewStatus {
    /// The version that clients get.
    pub version: u64,
    /// The version of the chain that made the outcomes; `None` without a chain.
    pub chain: Option<ChainVersion>,
    /// The version up to which a client that continues gets the present state; `None` until the API server has said.
    pub stamp: Option<u64>,
    /// Open watches.
    pub watches: usize,
    /// Objects that clients do not see.
    pub hidden: usize,
    /// Objects that clients see changed.
    pub edited: usize,
    /// The bytes of the changed objects.
    pub edited_bytes: usize,
    /// Objects whose last good outcome stands in, or that have none, because a filter failed.
    pub degraded: usize,
    /// The events in the history.
    pub events: usize,
    /// The bytes that the history keeps alive.
    pub event_bytes: usize,
}

impl CacheStatus {
    pub(super) fn of(store: &StoreHandle, views: Vec<(String, Arc<View>)>) -> Self {
        Self {
            collection: store.collection().clone(),
            reader: store.reader().clone(),
            store: store.status(),
            disk: store.disk_status(),
            views,
        }
    }
}

impl View {
    /// Counts outcomes. The cost is one pass over the objects.
    pub fn status(&self) -> ViewStatus {
        let (events, event_bytes) = self.history_size();
        let snapshot = self.snapshot();
        let (mut hidden, mut edited, mut edited_bytes) = (0, 0, 0);
        for object in snapshot.objects.values() {
            match &object.outcome {
                ViewOutcome::Hidden => hidden += 1,
                ViewOutcome::Edited(bytes) => {
                    edited += 1;
                    edited_bytes += bytes.len();
                }
                ViewOutcome::Unchanged | ViewOutcome::Failed(_) => {}
            }
        }
        ViewStatus {
            version: snapshot.version,
            chain: snapshot.chain,
            stamp: self.stamp(),
            watches: self.open_watches(),
            hidden,
            edited,
            edited_bytes,
            degraded: self.degraded_objects(),
            events,
            event_bytes,
        }
    }
}
