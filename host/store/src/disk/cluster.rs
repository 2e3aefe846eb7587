//! Whose cluster the file is of.

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
