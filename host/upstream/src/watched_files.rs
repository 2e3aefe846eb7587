//! Detects changes of small files: certificates, keys, tokens and kubeconfigs.
//!
//! It compares contents, so it does not matter how a file was replaced: overwritten, renamed into place, or by the
//! kubelet's swap of the `..data` link. It reads all files again whenever their directories change. Memory: one digest.

use std::hash::{BuildHasher, Hash, Hasher};
use std::path::{Path, PathBuf};

use crate::DirectoryWatcher;

/// Larger files are treated as missing.
const MAX_FILE_SIZE: u64 = 4 << 20;

/// A set of files, and the digest of their last known contents.
#[derive(Debug)]
pub struct WatchedFiles {
    paths: Vec<PathBuf>,
    directories: DirectoryWatcher,
    digest: u64,
}

impl WatchedFiles {
    /// Starts watching. The current contents are the first known ones.
    #[must_use]
    pub fn new(paths: Vec<PathBuf>) -> Self {
        let mut directories: Vec<PathBuf> = paths.iter().map(|path| directory(path)).collect();
        directories.sort();
        directories.dedup();
        // Watch before reading, so that no change is missed.
        let directories = DirectoryWatcher::new(directories);
        let digest = digest(&paths);
        Self { paths, directories, digest }
    }

    /// Resolves when the contents differ from the last known ones. Cancel safe: no change is lost.
    pub async fn changed(&mut self) {
        loop {
            self.directories.changed().await;
            let now = digest(&self.paths);
            if now != self.digest {
                self.digest = now;
                return;
            }
        }
    }
}

fn directory(path: &Path) -> PathBuf {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
        _ => PathBuf::from("."),
    }
}

fn digest(paths: &[PathBuf]) -> u64 {
    let mut hasher = foldhash::quality::FixedState::default().build_hasher();
    for path in paths {
        // Hashes `None` for an unreadable file, so that a change of readability counts too.
        let content = std::fs::metadata(path).ok().filter(|file| file.is_file() && file.len() <= MAX_FILE_SIZE);
        content.and_then(|_| std::fs::read(path).ok()).hash(&mut hasher);
    }
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn a_changed_file_is_reported_but_not_its_neighbours() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("tls.crt");
        std::fs::write(&path, "one").unwrap();
        let mut files = WatchedFiles::new(vec![path.clone(), directory.path().join("tls.key")]);
        std::fs::write(directory.path().join("other"), "x").unwrap();
        std::fs::write(&path, "one").unwrap();
        assert!(tokio::time::timeout(Duration::from_millis(300), files.changed()).await.is_err());
        std::fs::write(directory.path().join("aside"), "two").unwrap();
        std::fs::rename(directory.path().join("aside"), &path).unwrap();
        tokio::time::timeout(Duration::from_secs(30), files.changed()).await.expect("reported");
        std::fs::remove_file(&path).unwrap();
        tokio::time::timeout(Duration::from_secs(30), files.changed()).await.expect("reported");
    }
}
