//! Keeps the time of day in a file of the cache directory, for a start without a clock and without the API server.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use weir_process::{files, read_time};
use weir_upstream::clock;

/// The name of the file: one line with a time such as `2026-11-23T03:00:00Z`.
pub(crate) const NAME: &str = "last-time";
/// How often it is written. Flash wears.
const INTERVAL: Duration = Duration::from_secs(600);
/// How soon after the start, until the time is known.
const FIRST: Duration = Duration::from_secs(5);

/// The file of the last known time.
#[derive(Debug, Clone)]
pub(crate) struct TimeFile(PathBuf);

impl TimeFile {
    /// Reads the file. Unreadable content counts as none.
    pub(crate) async fn restore(directory: &Path) -> Self {
        let file = Self(directory.join(NAME));
        if let Some(time) = read_time::<jiff::Timestamp>(&file.0).await {
            let machine = clock::now();
            clock::restore(time.into());
            if SystemTime::from(time) > machine {
                tracing::warn!(%time, "the clock of this machine is wrong, the last known time counts until the API server reports it");
            }
        }
        file
    }

    /// Writes the file now and then. Runs until it is dropped.
    pub(crate) async fn run(self) {
        let mut wait = FIRST;
        loop {
            tokio::time::sleep(wait).await;
            if self.save().await {
                wait = INTERVAL;
            }
        }
    }

    /// Writes the time if two witnesses agree on it: a single one does not outlive the process. Returns whether they do.
    pub(crate) async fn save(&self) -> bool {
        let Some(time) = clock::agreed().and_then(|time| jiff::Timestamp::try_from(time).ok()) else { return false };
        if let Err(error) = files::replace(&self.0, format!("{time:.0}\n").into_bytes()).await {
            tracing::debug!(file = %self.0.display(), %error, "the time cannot be kept on disk");
        }
        true
    }
}
