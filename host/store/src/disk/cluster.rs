//! Whose cluster the file is of.

use std::sync::Arc;

use tokio::sync::watch;

use super::cache::DiskCache;
use super::error::DiskError;
use super::state::DiskState;

/// Whether what is on disk is of the cluster that the daemon talks to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ClusterCheck {
    /// The API server has not answered yet.
    Unknown,
    /// The API server has given no answer to the first request.
    Unreachable,
    Same,
    /// What was restored before is of another cluster.
    Other,
}

/// How often what was known turned out to be of another cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ClusterChanges {
    /// What was on disk, also when the daemon started with it.
    pub on_disk: u64,
    /// What the API server has told this process before: it is another one's now.
    pub told: u64,
}

impl DiskCache {
    /// Compares the identity of the cluster, the uid of its namespace kube-system, with that of the file. A file of another
    /// cluster is set aside.
    pub async fn confirm_cluster(self: &Arc<Self>, uid: String) {
        // A read of a disk that hangs holds what this waits for.
        let (reading, told_now) = (self.reading.clone(), uid.clone());
        let exchanged = tokio::task::spawn_blocking(move || reading.confirm_cluster(&told_now)).await;
        let is_exchanged = exchanged.unwrap_or_default();
        let told = u64::from(is_exchanged);
        let confirmed = self.blocking(move |state, requests| {
            // Before the next commit, which writes to the present cluster's file.
            requests.iter().filter(|_| is_exchanged).for_each(|request| request.store.set_foreign());
            (state.confirm_cluster(uid), state.foreign)
        });
        let confirmed = confirmed.await;
        let (is_set_aside, is_foreign) = confirmed.unwrap_or_default();
        self.cluster.send_replace(if is_foreign { ClusterCheck::Other } else { ClusterCheck::Same });
        let on_disk = u64::from(is_set_aside);
        self.changes.send_if_modified(|changes| {
            changes.on_disk += on_disk;
            changes.told += told;
            on_disk + told > 0
        });
        self.wake.notify_one();
    }

    /// Notes that a connection was lost: another cluster may answer now.
    pub fn doubt_cluster(&self) {
        self.doubt.notify_one();
    }

    /// Resolves when a connection was lost since the last call. Cancel safe.
    pub async fn cluster_doubted(&self) {
        self.doubt.notified().await;
    }

    /// Tells when what was known turns out to be of another cluster.
    #[must_use]
    pub fn cluster_changes(&self) -> watch::Receiver<ClusterChanges> {
        self.changes.subscribe()
    }

    /// Notes that the API server does not tell the identity of the cluster for now, which is what the cache is for.
    pub fn cluster_unreachable(&self) {
        self.cluster.send_if_modified(|check| {
            let first = *check == ClusterCheck::Unknown;
            if first {
                *check = ClusterCheck::Unreachable;
            }
            first
        });
    }

    /// Resolves when what was restored turns out to be of another cluster.
    pub async fn other_cluster(self: Arc<Self>) {
        let mut cluster = self.cluster.subscribe();
        if cluster.wait_for(|check| *check == ClusterCheck::Other).await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

impl DiskState {
    /// Whether the file was of another cluster than this one. It is set aside then.
    pub(super) fn confirm_cluster(&mut self, uid: String) -> bool {
        // A file that is opened from now on is compared when it is opened.
        let told = self.confirmed.replace(uid.clone());
        let is_first = told.is_none_or(|told| told == uid);
        let known = self.with_database(|state, _| Ok(state.cluster.clone()));
        // What was restored came from the file that was open before.
        let known = known.unwrap_or_else(|| self.cluster.clone());
        let other = known.filter(|known| *known != uid);
        let is_other = other.is_some();
        if let Some(known) = other {
            self.foreign = true;
            self.set_aside(DiskError::OtherCluster(known), is_first);
        }
        if self.cluster.as_ref() != Some(&uid) {
            self.with_database(|_, database| database.write(|batch| batch.put_meta("cluster", &uid)));
            self.cluster = Some(uid);
        }
        is_other
    }
}
