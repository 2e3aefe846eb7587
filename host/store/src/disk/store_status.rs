//! What of the stores that are in use is on disk, for reports. Reading it never waits for the file.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::config::StoreName;
use super::state::{DiskState, unix_seconds};

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
    pub refused: bool,
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
        let rows = state.open.values().map(|persisted| &persisted.row);
        let committed = rows.filter(|row| row.used > 0).map(|row| {
            let (version, objects, bytes) = (row.version, row.objects, row.bytes);
            (row.name.clone(), DiskStoreStatus { version, objects, bytes, refused: row.refused, committed: row.used })
        });
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = committed.collect();
    }

    pub(super) fn get(&self, name: &StoreName) -> Option<DiskStoreStatus> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(name).copied()
    }
}
