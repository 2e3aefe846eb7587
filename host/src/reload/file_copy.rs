//! The copy of the last good configuration: a file `last-good` in the cache directory, with a digest in its first line.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use arc_swap::ArcSwapOption;

use crate::logging::Told;
use weir_process::files::{self, replace_now};
use weir_spec::Digest;

/// The name of the file.
pub(crate) const NAME: &str = "last-good";
/// The largest one in bytes: a ConfigMap has at most 1 MiB, which grows in JSON.
const MAX: usize = 16 << 20;

/// The place of the copy.
#[derive(Debug, Clone)]
pub(super) struct FileCopy {
    path: PathBuf,
    /// What is to be written.
    last: Arc<ArcSwapOption<Vec<u8>>>,
    /// What the log has said of it.
    told: Told,
}

impl FileCopy {
    pub(super) fn new(directory: &Path) -> Self {
        Self { path: directory.join(NAME), last: Arc::default(), told: Told::default() }
    }

    /// Returns what was written. A damaged file counts as none.
    pub(super) async fn read(&self) -> Option<Vec<u8>> {
        let text = files::read(&self.path, MAX).await.ok()?;
        let parts =
            text.iter().position(|byte| *byte == b'\n').and_then(|at| Some((text.get(..at)?, text.get(at + 1..)?)));
        let whole = parts.filter(|(digest, bytes)| *digest == Digest::of(bytes).to_string().as_bytes());
        if self.told.is_news("damaged", whole.is_none()) {
            let path = self.path.display();
            tracing::warn!(%path, reason = "it is not what was written", "the copy of the last good configuration is not used");
        }
        whole.map(|(_, bytes)| bytes.to_vec())
    }

    /// Waits until what was written before is on disk.
    #[cfg(test)]
    pub(super) async fn written(&self) {
        while self.last.load().is_some() {
            tokio::task::yield_now().await;
        }
        // It is being written, and the next one waits for it.
        files::writing(files::folder_of(&self.path), || Ok(())).await.unwrap();
    }

    /// Replaces the file. Nobody waits for it, a disk may hang, and of two the later one stays. A failure is logged: the watch
    /// cache has the other copy.
    pub(super) fn write(&self, bytes: Vec<u8>) {
        self.last.store(Some(Arc::new(bytes)));
        let place = self.clone();
        files::begin(&self.path, "the copy of the last good configuration cannot be written", move || {
            while let Some(bytes) = place.last.swap(None) {
                replace_now(&place.path, &[format!("{}\n", Digest::of(&bytes)).as_bytes(), &bytes].concat())?;
            }
            Ok(())
        });
    }
}
