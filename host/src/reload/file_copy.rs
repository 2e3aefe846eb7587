//! The copy of the last good configuration: a file `last-good` in the cache directory, with a digest in its first line.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwapOption;

use crate::bounded_file::read_file;
use weir_runtime::Digest;

/// The name of the file.
const NAME: &str = "last-good";
/// The largest one in bytes: a ConfigMap has at most 1 MiB, which grows in JSON.
const MAX: usize = 16 << 20;

/// The place of the copy.
#[derive(Debug, Clone)]
pub(super) struct FileCopy {
    path: PathBuf,
    /// What is to be written.
    last: Arc<ArcSwapOption<Vec<u8>>>,
    turn: Arc<Mutex<()>>,
}

impl FileCopy {
    pub(super) fn new(directory: &Path) -> Self {
        Self { path: directory.join(NAME), last: Arc::default(), turn: Arc::default() }
    }

    /// Returns what was written. A damaged file counts as none.
    pub(super) async fn read(&self) -> Option<Vec<u8>> {
        let path = self.path.clone();
        let text = tokio::task::spawn_blocking(move || read_file(&path, MAX)).await.ok()?.ok()?;
        let parts =
            text.iter().position(|byte| *byte == b'\n').and_then(|at| Some((text.get(..at)?, text.get(at + 1..)?)));
        let whole = parts.filter(|(digest, bytes)| *digest == Digest::of(bytes).to_string().as_bytes());
        if whole.is_none() {
            let path = self.path.display();
            tracing::warn!(%path, reason = "it is not what was written", "the copy of the last good configuration is not used");
        }
        whole.map(|(_, bytes)| bytes.to_vec())
    }

    /// Waits until what was written before is on disk.
    #[cfg(test)]
    pub(super) async fn written(&self) {
        let place = self.clone();
        let is_written = move || {
            let _turn = place.turn.lock().unwrap_or_else(PoisonError::into_inner);
            place.last.load().is_none()
        };
        while !tokio::task::spawn_blocking(is_written.clone()).await.unwrap() {}
    }

    /// Replaces the file. Nobody waits for it, a disk may hang, and of two the later one stays. A failure is logged: the watch
    /// cache has the other copy.
    pub(super) fn write(&self, bytes: Vec<u8>) {
        let place = self.clone();
        place.last.store(Some(Arc::new(bytes)));
        tokio::task::spawn_blocking(move || {
            let _turn = place.turn.lock().unwrap_or_else(PoisonError::into_inner);
            let Some(bytes) = place.last.swap(None) else { return };
            if let Err(error) = place.replace(&bytes) {
                let path = place.path.display();
                tracing::warn!(%path, %error, "the copy of the last good configuration cannot be written");
            }
        });
    }

    fn replace(&self, bytes: &[u8]) -> io::Result<()> {
        let folder = self.path.parent().unwrap_or(Path::new("."));
        DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        let temporary = self.path.with_extension("new");
        let options = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&temporary);
        let mut file = options?;
        writeln!(file, "{}", Digest::of(bytes))?;
        file.write_all(bytes)?;
        file.sync_all()?;
        std::fs::rename(&temporary, &self.path)?;
        File::open(folder)?.sync_all()
    }
}
