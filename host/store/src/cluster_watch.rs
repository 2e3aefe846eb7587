//! Which cluster answers: who makes it be asked again, and who is told when it is another one than before.

use std::sync::{Mutex, PoisonError};

use tokio::sync::{Notify, watch};

/// How often what was known turned out to be of another cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ClusterChanges {
    /// What was on disk, also when the daemon started with it.
    pub on_disk: u64,
    /// What the API server has told this process before: it is another one's now.
    pub told: u64,
}

/// Tells which cluster answers. One for each daemon, whether or not it keeps anything on disk.
#[derive(Debug, Default)]
pub struct ClusterWatch {
    /// What the API server has told last.
    uid: Mutex<Option<String>>,
    changes: watch::Sender<ClusterChanges>,
    /// Signalled when the cluster is to be asked again who it is.
    doubt: Notify,
}

impl ClusterWatch {
    /// Notes what the API server tells: the uid of its namespace kube-system. Everybody is told if it was another one before.
    pub fn confirm(&self, uid: &str) {
        let before = self.uid.lock().unwrap_or_else(PoisonError::into_inner).replace(uid.to_owned());
        if before.is_some_and(|before| before != uid) {
            self.changes.send_modify(|changes| changes.told += 1);
        }
    }

    /// How often what the API server had told turned out to be of another cluster.
    pub(crate) fn told(&self) -> u64 {
        self.changes.borrow().told
    }

    /// Notes how many files on disk were of another cluster. Returns whether that is more than before.
    pub(crate) fn found_on_disk(&self, files: u64) -> bool {
        self.changes.send_if_modified(|changes| {
            let is_new = changes.on_disk < files;
            changes.on_disk = files;
            is_new
        })
    }

    /// Tells when what was known turns out to be of another cluster.
    #[must_use]
    pub fn changes(&self) -> watch::Receiver<ClusterChanges> {
        self.changes.subscribe()
    }

    /// Notes that a connection was lost: another cluster may answer now.
    pub fn doubt(&self) {
        self.doubt.notify_one();
    }

    /// Resolves when a connection was lost since the last call. Cancel safe.
    pub async fn doubted(&self) {
        self.doubt.notified().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everybody_is_told_when_another_cluster_answers_and_not_when_the_first_one_does() {
        let watch = ClusterWatch::default();
        let mut changes = watch.changes();
        watch.confirm("one");
        watch.confirm("one");
        assert!(!changes.has_changed().unwrap());
        watch.confirm("two");
        assert!(changes.has_changed().unwrap());
        assert_eq!(*changes.borrow_and_update(), ClusterChanges { on_disk: 0, told: 1 });
        assert!(watch.found_on_disk(1) && !watch.found_on_disk(1));
        assert_eq!(*changes.borrow_and_update(), ClusterChanges { on_disk: 1, told: 1 });
    }
}
