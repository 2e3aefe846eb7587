//! The copy of the last good configuration: a file `last-good` in the cache directory, with a digest in its first line.

use std::fs::File;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use crate::bounded_file::read_file;
use weir_runtime::Digest;

/// The name of the file.
const NAME: &str = "last-good";
/// The largest one in bytes: a ConfigMap has at most 1 MiB, which grows in JSON.
const MAX: usize = 16 << 20;

/// The place of the copy.
#[derive(Debug, Clone)]
pub(super) struct FileCopy(PathBuf);

impl FileCopy {
    pub(super) fn new(directory: &Path) -> Self {
        Self(directory.join(NAME))
    }

    /// Returns what was written. A damaged file counts as none.
    pub(super) async fn read(&self) -> Option<Vec<u8>> {
        let path = self.0.clone();
        let text = tokio::task::spawn_blocking(move || read_file(&path, MAX)).await.ok()?.ok()?;
        let at = text.iter().position(|byte| *byte == b'\n')?;
        let (digest, bytes) = (text.get(..at)?, text.get(at + 1..)?);
        (digest == Digest::of(bytes).to_string().as_bytes()).then(|| bytes.to_vec())
    }

    /// Replaces the file. A failure is logged: the watch cache has the other copy.
    pub(super) async fn write(&self, bytes: Vec<u8>) {
        let place = self.clone();
        let written = tokio::task::spawn_blocking(move || place.replace(&bytes)).await;
        if let Err(error) = written.map_err(io::Error::other).flatten() {
            let path = self.0.display();
            tracing::warn!(%path, %error, "the copy of the last good configuration cannot be written");
        }
    }

    fn replace(&self, bytes: &[u8]) -> io::Result<()> {
        let folder = self.0.parent().unwrap_or(Path::new("."));
        std::fs::create_dir_all(folder)?;
        let temporary = self.0.with_extension("new");
        let mut file = File::create(&temporary)?;
        writeln!(file, "{}", Digest::of(bytes))?;
        file.write_all(bytes)?;
        file.sync_all()?;
        std::fs::rename(&temporary, &self.0)?;
        File::open(folder)?.sync_all()
    }
}
