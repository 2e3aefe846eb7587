//! Whose cluster the file is of.

use std::sync::Arc;

use super::cache::DiskCache;
use super::error::DiskError;
use super::state::DiskState;
use crate::cluster_watch::ClusterWatch;

/// Whether what is on disk is of the cluster that the daemon talks to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ClusterCheck {
    /// The API server has not answered yet.
    Unknown,
    /// The API server has given no answer to the first request.
    Unreachable,
    Same,
    /// Stores that were restored before are of another cluster.
    Other,
}

impl DiskCache {
    /// Compares the identity of the cluster, the uid of its namespace kube-system, with that of the file. A file of another
    /// cluster is set aside.
    pub async fn confirm_cluster(self: &Arc<Self>, uid: String) {
        // In turn: a read of a disk that hangs holds what this waits for.
        let answered = uid.clone();
        let exchanged = self.read_on_thread(move |cache| cache.reading.confirm_cluster(&answered)).await;
        let is_exchanged = exchanged.unwrap_or_default();
        let reported = uid.clone();
        let change = self.cluster_watch.changes_from_server() + 1;
        let confirmed = self.blocking(move |state, requests| {
            // Before the next commit, which writes to the present cluster's file.
            requests.iter().filter(|_| is_exchanged).for_each(|request| request.store.note_cluster_change(change));
            state.confirm_cluster(uid);
            state.foreign > 0
        });
        let is_foreign = confirmed.await.unwrap_or_default();
        self.cluster.send_replace(if is_foreign { ClusterCheck::Other } else { ClusterCheck::Same });
        self.cluster_watch.confirm(&reported);
        self.wake.notify_one();
    }

    /// Notifies readers of a file that turned out to be of another cluster. A file that could not be opened for writing is
    /// compared when it is opened at last, on any path.
    pub(super) fn report_foreign(&self, state: &DiskState) {
        if self.cluster_watch.found_on_disk(state.foreign) {
            self.cluster.send_replace(ClusterCheck::Other);
        }
    }

    /// Returns the watch of the cluster that answers.
    #[must_use]
    pub fn cluster_watch(&self) -> Arc<ClusterWatch> {
        self.cluster_watch.clone()
    }

    /// Records that the identity of the cluster is unavailable for now. The cache is for such outages.
    pub(crate) fn cluster_unreachable(&self) {
        self.cluster.send_if_modified(|check| {
            let first = *check == ClusterCheck::Unknown;
            if first {
                *check = ClusterCheck::Unreachable;
            }
            first
        });
    }

    /// Resolves when what was restored turns out to be of another cluster.
    pub(crate) async fn other_cluster(self: Arc<Self>) {
        let mut cluster = self.cluster.subscribe();
        if cluster.wait_for(|check| *check == ClusterCheck::Other).await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

impl DiskState {
    /// Counts a file of another cluster: once, however often it cannot be replaced.
    pub(super) fn note_foreign(&mut self, cluster: &str) {
        if self.counted_foreign.as_deref() != Some(cluster) {
            self.counted_foreign = Some(cluster.to_owned());
            self.foreign += 1;
        }
    }

    /// Sets the file aside if it is of another cluster than this one.
    pub(super) fn confirm_cluster(&mut self, uid: String) {
        // A file that is opened from now on is compared when it is opened.
        let before = self.confirmed.replace(uid.clone());
        let is_first = before.is_none_or(|before| before == uid);
        let known = self.with_database(|state, _| Ok(state.cluster.clone()));
        // Restored stores came from the file that was open before.
        let known = known.unwrap_or_else(|| self.cluster.clone());
        if let Some(known) = known.filter(|known| *known != uid) {
            self.note_foreign(&known);
            self.set_aside(DiskError::OtherCluster(known), is_first);
        }
        if self.cluster.as_ref() != Some(&uid) {
            self.with_database(|_, database| database.write(|batch| batch.put_meta("cluster", &uid)));
            self.cluster = Some(uid);
        }
    }
}
