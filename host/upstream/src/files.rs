//! Files whose content matters: certificates, keys, tokens, kubeconfigs. Tells when one of them reads differently,
//! however it was replaced: written over, renamed into place, or by a swap of the kubelet's `..data` link.
//!
//! Memory: a digest; the files are small and read anew for each notice of their directories.

use std::hash::{BuildHasher, Hash, Hasher};
use std::path::{Path, PathBuf};

use crate::Notices;

/// Larger files are none of those.
const LARGEST: u64 = 4 << 20;

/// Some files, and what they said last.
#[derive(Debug)]
pub struct Files {
    paths: Vec<PathBuf>,
    notices: Notices,
    seen: u64,
}

impl Files {
    /// Begins with what the files say now.
    #[must_use]
    pub fn new(paths: Vec<PathBuf>) -> Self {
        let mut directories: Vec<PathBuf> = paths.iter().map(|path| directory(path)).collect();
        directories.sort();
        directories.dedup();
        // Watched before it is read, so that no change falls between.
        let notices = Notices::new(directories);
        let seen = digest(&paths);
        Self { paths, notices, seen }
    }

    /// Resolves when a file reads differently from when that was last told. Cancel-safe.
    pub async fn changed(&mut self) {
        loop {
            self.notices.next().await;
            let now = digest(&self.paths);
            if now != self.seen {
                self.seen = now;
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
        // A file that cannot be read says so: that it can be read again is a change.
        let content = std::fs::metadata(path).ok().filter(|file| file.is_file() && file.len() <= LARGEST);
        content.and_then(|_| std::fs::read(path).ok()).hash(&mut hasher);
    }
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn a_file_that_reads_differently_is_told_and_its_neighbours_are_not() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("tls.crt");
        std::fs::write(&path, "one").unwrap();
        let mut files = Files::new(vec![path.clone(), directory.path().join("tls.key")]);
        std::fs::write(directory.path().join("other"), "x").unwrap();
        std::fs::write(&path, "one").unwrap();
        assert!(tokio::time::timeout(Duration::from_millis(300), files.changed()).await.is_err());
        std::fs::write(directory.path().join("aside"), "two").unwrap();
        std::fs::rename(directory.path().join("aside"), &path).unwrap();
        tokio::time::timeout(Duration::from_secs(30), files.changed()).await.expect("told");
        std::fs::remove_file(&path).unwrap();
        tokio::time::timeout(Duration::from_secs(30), files.changed()).await.expect("told");
    }
}
