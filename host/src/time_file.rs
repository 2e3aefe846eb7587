//! Keeps the time of day in a file of the cache directory, for a start without a clock and without the API server.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use weir_upstream::clock;

/// The name of the file: one line with a time such as `2026-11-23T03:00:00Z`.
const NAME: &str = "last-time";
/// How often it is written. Flash wears.
const INTERVAL: Duration = Duration::from_secs(600);
/// How soon after the start, until the time is known.
const FIRST: Duration = Duration::from_secs(5);

/// The file of the last known time.
#[derive(Debug, Clone)]
pub(crate) struct TimeFile(PathBuf);

impl TimeFile {
    /// Reads the file. What is not readable counts as none.
    pub(crate) fn restore(directory: &Path) -> Self {
        let file = Self(directory.join(NAME));
        let text = std::fs::read_to_string(&file.0).unwrap_or_default();
        if let Ok(time) = text.trim().parse::<jiff::Timestamp>() {
            let machine = clock::now();
            clock::restore(time.into());
            if SystemTime::from(time) > machine {
                tracing::warn!(%time, "the clock of this machine is wrong, the last known time counts until the API server tells it");
            }
        }
        file
    }

    /// Writes the file now and then. Runs until it is dropped.
    pub(crate) async fn run(self) {
        let mut wait = FIRST;
        loop {
            tokio::time::sleep(wait).await;
            if self.save() {
                wait = INTERVAL;
            }
        }
    }

    /// Writes the time if two witnesses agree on it: a single one does not outlive the process. Returns whether they do.
    pub(crate) fn save(&self) -> bool {
        let Some(time) = clock::agreed().and_then(|time| jiff::Timestamp::try_from(time).ok()) else { return false };
        let temporary = self.0.with_extension("new");
        let written =
            std::fs::write(&temporary, format!("{time:.0}\n")).and_then(|()| std::fs::rename(&temporary, &self.0));
        if let Err(error) = written {
            tracing::debug!(file = %self.0.display(), %error, "the time cannot be kept on disk");
        }
        true
    }
}
