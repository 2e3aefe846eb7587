//! What of the stores that are in use is on disk, for reports. Reading it never waits for the file.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

use super::config::StoreName;
use super::reading::lock;
use super::state::{DiskState, unix_seconds};
use super::store_row::StoreRow;

/// One store on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiskStoreStatus {
    /// The resourceVersion.
    pub version: u64,
    /// The number of objects.
    pub objects: u64,
    /// The bytes on disk.
    pub bytes: u64,
    /// Whether the API server refused the reader of the store.
    pub(crate) refused: bool,
    /// When the store was committed last, in seconds since 1970.
    committed: u64,
}

impl DiskStoreStatus {
    /// The time since the last commit, by the system clock.
    #[must_use]
    pub fn age(&self) -> Duration {
        Duration::from_secs(unix_seconds().saturating_sub(self.committed))
    }
}

/// The stores on disk as of the last commit.
#[derive(Debug, Default)]
pub(super) struct StoresOnDisk(Mutex<BTreeMap<StoreName, DiskStoreStatus>>);

impl StoresOnDisk {
    pub(super) fn update(&self, state: &DiskState) {
        // Locked first: what is read meanwhile is in the one or in the other.
        let mut on_disk = lock(&self.0);
        let restored = lock(&state.reading.restored);
        let rows = restored.values().chain(state.open.values()).map(|persisted| &persisted.row);
        *on_disk = rows.filter_map(status).collect();
    }

    /// Adds a store that was read.
    pub(super) fn add(&self, row: &StoreRow) {
        lock(&self.0).extend(status(row));
    }

    pub(super) fn get(&self, name: &StoreName) -> Option<DiskStoreStatus> {
        lock(&self.0).get(name).copied()
    }
}

/// The status of a store that was committed.
fn status(row: &StoreRow) -> Option<(StoreName, DiskStoreStatus)> {
    let (version, objects, bytes) = (row.version, row.objects, row.bytes);
    let status = DiskStoreStatus { version, objects, bytes, refused: row.refused, committed: row.used };
    (row.used > 0).then(|| (row.name.clone(), status))
}
