//! Identifies the cluster that answers. Lost connections request another look, and receivers are notified when the cluster has
//! changed.

use std::sync::{Mutex, PoisonError};

use tokio::sync::{Notify, watch};

/// How often known content turned out to be of another cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ClusterChanges {
    /// Content on disk, including what the daemon started with.
    pub on_disk: u64,
    /// Content that this process had from the API server: another cluster answers now.
    pub(crate) from_server: u64,
}

/// Identifies the cluster that answers. One for each daemon, whether or not it keeps anything on disk.
#[derive(Debug, Default)]
pub struct ClusterWatch {
    /// The uid that the API server reported last.
    uid: Mutex<Option<String>>,
    changes: watch::Sender<ClusterChanges>,
    /// Signalled when the identity of the cluster is to be read again.
    doubt: Notify,
}

impl ClusterWatch {
    /// Records the uid of the API server's namespace kube-system. Notifies all receivers if it was another one before.
    pub(crate) fn confirm(&self, uid: &str) {
        let before = self.uid.lock().unwrap_or_else(PoisonError::into_inner).replace(uid.to_owned());
        if before.is_some_and(|before| before != uid) {
            self.changes.send_modify(|changes| changes.from_server += 1);
        }
    }

    /// How often content from the API server turned out to be of another cluster.
    pub(crate) fn changes_from_server(&self) -> u64 {
        self.changes.borrow().from_server
    }

    /// Notes how many files on disk were of another cluster. Returns whether that is more than before.
    pub(crate) fn found_on_disk(&self, files: u64) -> bool {
        self.changes.send_if_modified(|changes| {
            let is_new = changes.on_disk < files;
            changes.on_disk = files;
            is_new
        })
    }

    /// Returns a receiver that is notified when known content turns out to be of another cluster.
    #[must_use]
    pub fn changes(&self) -> watch::Receiver<ClusterChanges> {
        self.changes.subscribe()
    }

    /// Notes that a connection was lost: another cluster may answer now.
    pub(crate) fn doubt(&self) {
        self.doubt.notify_one();
    }

    /// Resolves when a connection was lost since the last call. Cancel safe.
    pub(crate) async fn doubted(&self) {
        self.doubt.notified().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn receivers_are_notified_when_another_cluster_answers_and_not_when_the_first_one_does() {
        let watch = ClusterWatch::default();
        let mut changes = watch.changes();
        watch.confirm("one");
        watch.confirm("one");
        assert!(!changes.has_changed().unwrap());
        watch.confirm("two");
        assert!(changes.has_changed().unwrap());
        assert_eq!(*changes.borrow_and_update(), ClusterChanges { on_disk: 0, from_server: 1 });
        assert!(watch.found_on_disk(1) && !watch.found_on_disk(1));
        assert_eq!(*changes.borrow_and_update(), ClusterChanges { on_disk: 1, from_server: 1 });
    }
}
