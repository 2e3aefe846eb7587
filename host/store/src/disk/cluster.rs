//! Whose cluster the file is of.

use super::error::DiskError;
use super::state::DiskState;

impl DiskState {
    /// Whether the file was of another cluster than this one. It is set aside then.
    pub(super) fn confirm_cluster(&mut self, uid: String) -> bool {
        // A file that is opened from now on is compared when it is opened.
        self.confirmed = Some(uid.clone());
        let known = self.with_database(|state, _| Ok(state.cluster.clone()));
        // What was restored came from the file that was open before.
        let known = known.unwrap_or_else(|| self.cluster.clone());
        if let Some(known) = known.filter(|known| *known != uid) {
            self.foreign = true;
            self.set_aside(DiskError::OtherCluster(known));
        }
        if self.cluster.as_ref() != Some(&uid) {
            self.with_database(|_, database| database.write(|batch| batch.put_meta("cluster", &uid)));
            self.cluster = Some(uid);
        }
        self.foreign
    }
}
