//! Modules by digest, in the cache directory: artifacts of registries as OCI layouts with their signatures, and modules of
//! ConfigMaps. What is read has the digest that names it, whatever has happened to the disk.

use std::collections::BTreeSet;
use std::fs::{DirBuilder, File};
use std::io::{self, Write as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use tokio::sync::watch;
use tokio::time::Instant;

use weir_process::files::{self, read_now};
use weir_registry::Layout;
use weir_spec::{Digest, MAX_MODULE};

/// The folder in the cache directory.
const FOLDER: &str = "modules";
/// How many bytes of modules that are not in use are kept, so that a roll-back needs no registry.
const UNUSED: u64 = 128 << 20;

/// How long a peer may wait for an artifact that nobody has asked for here: all nodes of a pool learn of a configuration within
/// this time.
const BEGIN: Duration = Duration::from_secs(5);
/// How long a peer may wait for a pull, before it asks again.
const WAIT: Duration = Duration::from_secs(20);

/// Modules by digest.
#[derive(Debug)]
pub struct ModuleCache {
    folder: PathBuf,
    /// The artifacts that are being pulled.
    pulling: watch::Sender<BTreeSet<Digest>>,
}

/// An artifact is being pulled, until this is dropped.
#[derive(Debug)]
pub(super) struct Pull<'a>(&'a ModuleCache, Digest);

/// What has come of waiting for an artifact.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// The file of its layout.
    Here(PathBuf),
    /// It is on its way.
    Pulling,
    /// Nobody pulls it here.
    Absent,
}

impl ModuleCache {
    /// The folder.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Opens the modules of a cache directory. Where the folder cannot be created, none is kept.
    #[must_use]
    pub fn open(cache: &Path) -> Self {
        let folder = cache.join(FOLDER);
        if let Err(error) = DirBuilder::new().recursive(true).mode(0o700).create(&folder) {
            tracing::warn!(path = %folder.display(), %error, "modules cannot be kept on disk");
        }
        Self { folder, pulling: watch::Sender::default() }
    }

    /// Returns the file of an artifact's layout.
    pub(crate) fn layout_file(&self, artifact: Digest) -> PathBuf {
        layout_file(&self.folder, artifact)
    }

    /// Notes that an artifact is being pulled.
    pub(super) fn begin_pull(&self, artifact: Digest) -> Pull<'_> {
        self.pulling.send_modify(|pulling| {
            pulling.insert(artifact);
        });
        Pull(self, artifact)
    }

    /// Returns an artifact for a peer. If `waits`, it waits for a pull, and for one to begin.
    pub(crate) async fn arrival(&self, artifact: Digest, waits: bool) -> Arrival {
        let began = Instant::now();
        let mut pulls = self.pulling.subscribe();
        loop {
            let is_pulling = pulls.borrow_and_update().contains(&artifact);
            let file = self.layout_file(artifact);
            let place = file.clone();
            let is_here = move || place.try_exists();
            if !is_pulling && files::at(&self.folder, files::DEADLINE, is_here).await.unwrap_or(false) {
                return Arrival::Here(file);
            }
            let (end, at_end) = match is_pulling {
                true => (began + WAIT, Arrival::Pulling),
                false => (began + BEGIN, Arrival::Absent),
            };
            if !waits || tokio::time::timeout_at(end, pulls.changed()).await.is_err() {
                return at_end;
            }
        }
    }

    /// Returns the file of a module that is no artifact.
    pub(super) fn module_file(&self, digest: Digest) -> PathBuf {
        self.folder.join(format!("sha256-{}.wasm", digest.hex()))
    }

    /// Returns a module. One that is damaged is dropped.
    pub(super) fn module(&self, digest: Digest) -> Option<Bytes> {
        let path = self.module_file(digest);
        let bytes = read_now(&path, MAX_MODULE).ok()?;
        if Digest::of(&bytes) == digest {
            return Some(bytes.into());
        }
        tracing::warn!(path = %path.display(), reason = "it has another digest", "a module in the cache is damaged: it will be read again");
        let _ = std::fs::remove_file(&path);
        None
    }

    /// Keeps a module.
    pub(super) fn keep_module(&self, digest: Digest, module: &[u8]) -> io::Result<()> {
        DirBuilder::new().recursive(true).mode(0o700).create(&self.folder)?;
        // Removed if it cannot be written in full.
        let mut part = tempfile::NamedTempFile::new_in(&self.folder)?;
        part.write_all(module)?;
        part.as_file().sync_all()?;
        part.persist(self.module_file(digest))?;
        File::open(&self.folder)?.sync_all()
    }

    /// Keeps the layout of an artifact.
    pub(super) fn keep_layout(&self, artifact: Digest, layout: &Layout) -> io::Result<()> {
        layout.save(&self.layout_file(artifact))
    }

    /// Drops what is not in use, but the latest of it, and what interrupted pulls have left of artifacts that are not in use.
    pub(super) fn retain(&self, used: &[Digest]) -> io::Result<()> {
        let used: Vec<_> = used.iter().map(|digest| format!("sha256-{}", digest.hex())).collect();
        let mut unused: Vec<(SystemTime, u64, PathBuf)> = Vec::new();
        for entry in std::fs::read_dir(&self.folder)? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if !used.iter().any(|used| name.starts_with(used.as_str())) {
                let metadata = entry.metadata()?;
                unused.push((metadata.modified()?, metadata.len(), entry.path()));
            }
        }
        unused.sort_by(|one, other| other.cmp(one));
        let mut total = 0;
        for (_, size, path) in unused {
            total += size;
            if total > UNUSED {
                std::fs::remove_file(&path)?;
                tracing::info!(path = %path.display(), "a module that is not in use is dropped from the cache");
            }
        }
        Ok(())
    }
}

impl Drop for Pull<'_> {
    fn drop(&mut self) {
        self.0.pulling.send_modify(|pulling| {
            pulling.remove(&self.1);
        });
    }
}

/// Returns the file of an artifact's layout in a folder: `weir save` gives it this name, too.
pub(crate) fn layout_file(folder: &Path, artifact: Digest) -> PathBuf {
    folder.join(format!("sha256-{}.tar", artifact.hex()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_damaged_does_not_count() {
        let folder = tempfile::tempdir().unwrap();
        let cache = ModuleCache::open(folder.path());
        let digest = Digest::of(b"module");
        assert_eq!(cache.module(digest), None);
        cache.keep_module(digest, b"module").unwrap();
        assert_eq!(cache.module(digest).as_deref(), Some(&b"module"[..]));
        std::fs::write(cache.module_file(digest), "modulE").unwrap();
        assert_eq!(cache.module(digest), None);
        assert!(!cache.module_file(digest).exists());
    }

    #[tokio::test(start_paused = true)]
    async fn peers_wait_for_a_pull_and_for_one_to_begin() {
        let folder = tempfile::tempdir().unwrap();
        let cache = ModuleCache::open(folder.path());
        let digest = Digest::of(b"module");
        let file = cache.layout_file(digest);
        assert_eq!(cache.arrival(digest, false).await, Arrival::Absent);
        let began = Instant::now();
        assert_eq!(cache.arrival(digest, true).await, Arrival::Absent);
        assert_eq!(began.elapsed(), BEGIN);
        let pull = cache.begin_pull(digest);
        assert_eq!(cache.arrival(digest, false).await, Arrival::Pulling);
        assert_eq!(cache.arrival(digest, true).await, Arrival::Pulling);
        assert_eq!(began.elapsed(), BEGIN + WAIT);
        std::fs::write(&file, "").unwrap();
        assert_eq!(cache.arrival(digest, false).await, Arrival::Pulling, "it may not be complete");
        let (arrival, ()) = tokio::join!(cache.arrival(digest, true), async { drop(pull) });
        assert_eq!(arrival, Arrival::Here(file));
    }

    #[test]
    fn what_is_in_use_stays_and_of_the_rest_the_latest() {
        let folder = tempfile::tempdir().unwrap();
        let cache = ModuleCache::open(folder.path());
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1 << 30);
        let digests: Vec<_> = (0..4_u8).map(|n| Digest::of(&[n])).collect();
        for (age, digest) in digests.iter().enumerate() {
            let file = File::create(cache.module_file(*digest)).unwrap();
            file.set_len(UNUSED / 2 + 1).unwrap();
            file.set_modified(now - Duration::from_secs(age as u64)).unwrap();
        }
        cache.retain(&digests[2..3]).unwrap();
        let stays: Vec<_> = digests.iter().map(|digest| cache.module_file(*digest).exists()).collect();
        assert_eq!(stays, [true, false, true, false]);
    }
}
