//! Keeps in a file of the cache directory since when no API server can be reached, for a start during the outage: one
//! unanswered probe confirms it then, instead of three.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use weir_upstream::{Upstream, clock};

use crate::time_file::read_time;

/// The name of the file: one line with a time such as `2026-11-23T03:00:00.5Z`. It exists during an outage.
const NAME: &str = "offline-since";

/// The file of the outage.
#[derive(Debug)]
pub(crate) struct OutageFile(PathBuf);

impl OutageFile {
    pub(crate) fn new(directory: &Path) -> Self {
        Self(directory.join(NAME))
    }

    /// Continues the outage of the file, then keeps the file up to date. Runs until it is dropped.
    pub(crate) async fn run(self, upstream: Arc<Upstream>) {
        if let Some(since) = self.read() {
            upstream.resume_outage(since).await;
        }
        loop {
            let is_reachable = upstream.is_reachable();
            self.write(upstream.offline_since().filter(|_| !is_reachable));
            upstream.reachable_changed(is_reachable).await;
        }
    }

    fn read(&self) -> Option<SystemTime> {
        let since: SystemTime = read_time(&self.0)?.into();
        Some(since.min(clock::now()))
    }

    fn write(&self, since: Option<SystemTime>) {
        let written = match since.and_then(|since| jiff::Timestamp::try_from(since).ok()) {
            Some(since) => {
                let temporary = self.0.with_extension("new");
                std::fs::write(&temporary, format!("{since}\n")).and_then(|()| std::fs::rename(&temporary, &self.0))
            }
            None => match std::fs::remove_file(&self.0) {
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
                removed => removed,
            },
        };
        if let Err(error) = written {
            tracing::debug!(file = %self.0.display(), %error, "the time of the outage cannot be kept on disk");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_exists_during_an_outage_alone() {
        let folder = tempfile::tempdir().unwrap();
        let file = OutageFile::new(folder.path());
        assert_eq!(file.read(), None);
        let since: SystemTime = "2020-01-02T03:04:05Z".parse::<jiff::Timestamp>().unwrap().into();
        file.write(Some(since));
        assert_eq!(file.read(), Some(since));
        file.write(None);
        file.write(None);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
        file.write(Some(clock::now() + std::time::Duration::from_secs(3600)));
        assert!(file.read().unwrap() <= clock::now(), "an outage does not begin in the future");
        std::fs::write(folder.path().join(NAME), "soon").unwrap();
        assert_eq!(file.read(), None);
    }
}
