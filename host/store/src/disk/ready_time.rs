//! For how long the daemon has been ready while an API server answered.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The time of this process in which a complete filter set was active and an API server answered, as its owner counts it. What was
/// set aside on disk goes after a day of it.
#[derive(Debug, Default)]
pub(super) struct ReadyTime(AtomicU64);

impl ReadyTime {
    /// Counts a time in which both held, to the second.
    pub(super) fn add(&self, time: Duration) {
        self.0.fetch_add(time.as_secs(), Ordering::Relaxed);
    }

    /// The sum.
    pub(super) fn total(&self) -> Duration {
        Duration::from_secs(self.0.load(Ordering::Relaxed))
    }
}
