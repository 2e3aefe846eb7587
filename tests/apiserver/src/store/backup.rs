//! Backups of etcd: all objects as they were at a version, which a restore puts back.

use std::collections::BTreeMap;

use super::{Collection, ObjectStore};

/// The objects at one version.
#[derive(Debug)]
pub struct Backup {
    revision: u64,
    collections: BTreeMap<String, Collection>,
}

impl Backup {
    /// The version of the last write before it.
    #[must_use]
    pub fn revision(&self) -> u64 {
        self.revision
    }
}

impl ObjectStore {
    /// Copies all objects.
    #[must_use]
    pub fn backup(&self) -> Backup {
        let state = self.state();
        Backup { revision: state.revision, collections: copied(&state.collections, 0) }
    }

    /// Puts a backup back: the objects, and the version from which writes go on. What was written since is gone, and the same
    /// versions number other writes. Watches end. Close the connections, too, as the restart of an API server does.
    pub fn restore(&self, backup: &Backup) {
        let mut state = self.state();
        let epoch = state.collections.values().map(|collection| collection.epoch).max().unwrap_or_default() + 1;
        // Uids stay as they are numbered: those of new objects are new ones in any history.
        state.collections = copied(&backup.collections, epoch);
        state.revision = backup.revision;
        state.compacted = 0;
        self.head.send_replace(backup.revision);
    }
}

/// A snapshot of etcd has the events, too.
fn copied(collections: &BTreeMap<String, Collection>, epoch: u64) -> BTreeMap<String, Collection> {
    let copy = |collection: &Collection| Collection {
        objects: collection.objects.clone(),
        history: collection.history.clone(),
        epoch: epoch.max(collection.epoch),
    };
    collections.iter().map(|(name, collection)| (name.clone(), copy(collection))).collect()
}
