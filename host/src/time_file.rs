//! Keeps the time of day in a file of the cache directory, for a start without a clock and without the API server.

use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::{Duration, SystemTime};

use weir_process::files;
use weir_upstream::clock;

/// The name of the file: one line with a time such as `2026-11-23T03:00:00Z`.
pub(crate) const NAME: &str = "last-time";
/// The longest such file in bytes.
const MAX: usize = 256;
/// How often it is written. Flash wears.
const INTERVAL: Duration = Duration::from_secs(600);
/// How soon after the start, until the time is known.
const FIRST: Duration = Duration::from_secs(5);

/// Reads a time or a duration from a file. One that is not readable counts as none, and is logged.
pub(crate) async fn read_time<T: FromStr>(path: &Path) -> Option<T> {
    let text = match files::read(path, MAX).await {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return None,
        read => read.map_err(|error| error.to_string()),
    };
    let time = text.and_then(|text| {
        let text = String::from_utf8_lossy(&text);
        text.trim().parse().map_err(|_| "it holds no time".to_owned())
    });
    time.inspect_err(|reason| {
        tracing::warn!(path = %path.display(), reason, "a time on disk cannot be read, and is done without");
    })
    .ok()
}

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
