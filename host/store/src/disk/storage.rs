//! The storage of the database: which file it is, and wrappers that count what is written, and that read without locks.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::ops::Bound;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use redb::backends::FileBackend;
use redb::{BackendError, StorageBackend};

use super::metrics::DiskMetrics;

/// How much of a file is copied at once.
const CHUNK: u64 = 1 << 20;

/// A storage, and the file that it is, by device and inode.
#[derive(Debug, Clone)]
pub(super) struct OpenedStorage {
    pub(super) backend: Arc<dyn StorageBackend>,
    file: Option<(u64, u64)>,
}

impl<T: StorageBackend> From<Arc<T>> for OpenedStorage {
    fn from(backend: Arc<T>) -> Self {
        Self { backend, file: None }
    }
}

impl OpenedStorage {
    /// A storage in a file.
    pub(super) fn in_file(file: File) -> io::Result<Self> {
        let metadata = file.metadata()?;
        let backend = Arc::new(FileBackend::new(file).map_err(io::Error::other)?);
        Ok(Self { backend, file: Some((metadata.dev(), metadata.ino())) })
    }

    /// Whether another file is at the path, or none. A path that cannot be read counts as unchanged.
    pub(super) fn is_moved_from(&self, path: &Path) -> bool {
        let Some(file) = self.file else { return false };
        match std::fs::symlink_metadata(path) {
            Ok(found) => (found.dev(), found.ino()) != file,
            Err(error) => matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory),
        }
    }

    pub(super) fn copy_to(&self, path: &Path) -> io::Result<()> {
        let mut copy = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
        let (mut offset, length) = (0, self.backend.len()?);
        while offset < length {
            let mut chunk = vec![0; usize::try_from(CHUNK.min(length - offset)).map_err(io::Error::other)?];
            self.backend.read(offset, &mut chunk)?;
            copy.write_all(&chunk)?;
            offset += chunk.len() as u64;
        }
        copy.sync_all()
    }
}

/// Reads a storage beside the one that may write to it. redb reads a file that was not closed only if a
/// writer is alive. This storage pretends that there is one, to verify the file.
#[derive(Debug)]
pub(super) struct UnlockedStorage {
    inner: Arc<dyn StorageBackend>,
    /// redb asks for the writer while it has the header locked; before, for other protocols of locks.
    has_header: AtomicBool,
}

impl UnlockedStorage {
    pub(super) fn new(inner: Arc<dyn StorageBackend>) -> Self {
        Self { inner, has_header: AtomicBool::new(false) }
    }
}

impl StorageBackend for UnlockedStorage {
    fn len(&self) -> io::Result<u64> {
        self.inner.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.inner.read(offset, out)
    }

    fn set_len(&self, _: u64) -> io::Result<()> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn write(&self, _: u64, _: &[u8]) -> io::Result<()> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }

    fn try_lock_shared_range(&self, _: Bound<u64>, _: Bound<u64>) -> Result<bool, BackendError> {
        Ok(true)
    }

    fn lock_shared_range(&self, _: Bound<u64>, _: Bound<u64>) -> Result<(), BackendError> {
        self.has_header.store(true, Ordering::Relaxed);
        Ok(())
    }

    fn unlock_range(&self, _: Bound<u64>, _: Bound<u64>) -> Result<(), BackendError> {
        Ok(())
    }

    fn query_lock_range(&self, _: Bound<u64>, _: Bound<u64>) -> Result<bool, BackendError> {
        Ok(self.has_header.load(Ordering::Relaxed))
    }
}

/// Forwards to a storage, and counts the written bytes.
pub(super) struct CountedStorage {
    inner: Arc<dyn StorageBackend>,
    metrics: Arc<DiskMetrics>,
}

impl CountedStorage {
    pub(super) fn new(inner: Arc<dyn StorageBackend>, metrics: Arc<DiskMetrics>) -> Self {
        Self { inner, metrics }
    }
}

impl fmt::Debug for CountedStorage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

impl StorageBackend for CountedStorage {
    fn len(&self) -> io::Result<u64> {
        self.inner.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.inner.read(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.inner.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.inner.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.metrics.wrote(data.len() as u64);
        self.inner.write(offset, data)
    }

    fn close(&self) -> io::Result<()> {
        self.inner.close()
    }

    fn try_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.inner.try_lock_range(start, end)
    }

    fn try_lock_shared_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.inner.try_lock_shared_range(start, end)
    }

    fn lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.inner.lock_range(start, end)
    }

    fn lock_shared_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.inner.lock_shared_range(start, end)
    }

    fn unlock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.inner.unlock_range(start, end)
    }

    fn query_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.inner.query_lock_range(start, end)
    }
}
