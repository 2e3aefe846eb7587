//! A storage in memory that records what is written, and that fails on demand.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex};
use std::time::Duration;

use redb::StorageBackend;

use super::*;
use crate::disk::overlay::Overlay;

/// One operation.
#[derive(Debug, Clone)]
pub(super) enum StorageOperation {
    Write(u64, Vec<u8>),
    Length(u64),
    Sync,
}

#[derive(Debug)]
pub(super) struct MemoryStorage {
    pub(super) data: Mutex<Vec<u8>>,
    pub(super) log: Mutex<Vec<StorageOperation>>,
    /// The capacity of the disk.
    pub(super) capacity: AtomicU64,
    /// Held while no write gets to the disk.
    pub(super) sync: Gate,
}

/// What waits until it is let through.
#[derive(Debug, Default)]
pub(super) struct Gate {
    /// Whether it is shut, and how many wait.
    state: Mutex<(bool, usize)>,
    changed: Condvar,
}

impl Gate {
    pub(super) fn shut(&self, is_shut: bool) {
        self.state.lock().unwrap().0 = is_shut;
        self.changed.notify_all();
    }

    pub(super) fn pass(&self) {
        let mut state = self.state.lock().unwrap();
        state.1 += 1;
        self.changed.notify_all();
        // A test in which somebody waits for this one would not end.
        let (mut state, _) = self.changed.wait_timeout_while(state, Duration::from_secs(20), |state| state.0).unwrap();
        state.1 -= 1;
    }

    /// Waits until somebody waits.
    pub(super) fn reached(&self) {
        drop(self.changed.wait_while(self.state.lock().unwrap(), |state| state.1 == 0).unwrap());
    }
}

impl MemoryStorage {
    pub(super) fn new(data: Vec<u8>) -> Arc<Self> {
        Arc::new(Self {
            data: Mutex::new(data),
            log: Mutex::default(),
            capacity: AtomicU64::new(u64::MAX),
            sync: Gate::default(),
        })
    }

    /// A cache on this storage.
    pub(super) fn config(self: &Arc<Self>) -> DiskConfig {
        let (storage, readable) = (self.clone(), self.clone());
        let config = DiskConfig::new(Path::new("/nonexistent"), "node");
        DiskConfig {
            storage: Arc::new(move || Ok(storage.clone().into())),
            readable: Arc::new(move || Ok(Arc::new(Overlay::new(readable.clone())?).into())),
            ..config
        }
    }
}

/// Applies an operation to an image of the storage.
pub(super) fn apply(image: &mut Vec<u8>, operation: &StorageOperation) {
    match operation {
        StorageOperation::Write(offset, bytes) => {
            let start = usize::try_from(*offset).unwrap();
            if image.len() < start + bytes.len() {
                image.resize(start + bytes.len(), 0);
            }
            image[start..start + bytes.len()].copy_from_slice(bytes);
        }
        StorageOperation::Length(length) => image.resize(usize::try_from(*length).unwrap(), 0),
        StorageOperation::Sync => {}
    }
}

impl MemoryStorage {
    fn operate(&self, operation: StorageOperation) -> io::Result<()> {
        let mut data = self.data.lock().unwrap();
        if let StorageOperation::Length(length) = operation
            && length > self.capacity.load(Ordering::Relaxed)
        {
            return Err(io::ErrorKind::StorageFull.into());
        }
        apply(&mut data, &operation);
        self.log.lock().unwrap().push(operation);
        Ok(())
    }
}

impl StorageBackend for MemoryStorage {
    fn len(&self) -> io::Result<u64> {
        Ok(self.data.lock().unwrap().len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let data = self.data.lock().unwrap();
        let start = usize::try_from(offset).unwrap();
        let found = data.get(start..start + out.len()).ok_or(io::ErrorKind::UnexpectedEof)?;
        out.copy_from_slice(found);
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.operate(StorageOperation::Length(len))
    }

    fn sync_data(&self) -> io::Result<()> {
        self.sync.pass();
        self.operate(StorageOperation::Sync)
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.operate(StorageOperation::Write(offset, data.to_vec()))
    }
}
