//! The database file: its tables, and one transaction for each batch of changes.
//!
//! redb verifies the checksums of all pages when it opens a file, and may panic on what passes all the same. A panic is an
//! error here: nothing that the file contains ends the daemon.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};

use redb::{Builder, ConcurrencyMode, ReadTransaction, ReadableDatabase as _, ReadableTable, Table, TableDefinition};

use super::error::DiskError;
use super::metrics::DiskMetrics;
use super::storage::{CountedStorage, OpenedStorage, UnlockedStorage};

/// Format version, node and cluster.
const META: TableDefinition<&str, &str> = TableDefinition::new("meta");
/// The stores by id.
const STORES: TableDefinition<u64, &[u8]> = TableDefinition::new("stores");
/// Pieces of segments by store, sequence number and index.
const SEGMENTS: TableDefinition<(u64, u64, u32), &[u8]> = TableDefinition::new("segments");
/// Single values with an expiry.
const VALUES: TableDefinition<&str, &[u8]> = TableDefinition::new("values");

/// redb's memory for pages.
const PAGE_CACHE: usize = 4 << 20;
/// redb gives a value that is larger than a page a power of two of pages. Pieces fill them but for this overhead.
const PAGE: usize = 4096;
const OVERHEAD: usize = 64;
/// The largest piece has so many pages.
const MAX_PAGES: usize = 16;

/// An open database file. A clone reads while another thread writes; it is closed for all at once.
#[derive(Clone)]
pub(super) struct Database {
    handle: Arc<RwLock<Option<Handle>>>,
    storage: OpenedStorage,
}

enum Handle {
    Writable(redb::Database),
    Readable(redb::ReadOnlyDatabase),
}

/// The tables in one write transaction.
pub(super) struct WriteBatch<'a> {
    meta: Table<'a, &'static str, &'static str>,
    stores: Table<'a, u64, &'static [u8]>,
    segments: Table<'a, (u64, u64, u32), &'static [u8]>,
    values: Table<'a, &'static str, &'static [u8]>,
}

impl Database {
    /// Opens a database and verifies its checksums, or creates an empty one.
    pub(super) fn open(storage: OpenedStorage, metrics: Arc<DiskMetrics>, verify: bool) -> Result<Self, DiskError> {
        let counted = CountedStorage::new(storage.backend.clone(), metrics);
        let database = guarded(|| {
            let mut builder = Builder::new();
            builder.set_cache_size(PAGE_CACHE).set_check_integrity_on_open(verify);
            Ok(builder.create_with_backend(counted)?)
        })?;
        Ok(Self { handle: Arc::new(RwLock::new(Some(Handle::Writable(database)))), storage })
    }

    /// Opens a database to read from it before another thread has verified and mended it. Nothing in it is verified but what
    /// is sealed.
    pub(super) fn open_unverified(storage: OpenedStorage) -> Result<Self, DiskError> {
        let unlocked = UnlockedStorage::new(storage.backend.clone());
        let database = guarded(|| {
            let mut builder = Builder::new();
            // In this mode redb reads beside a process that writes, and leaves it to that to mend the file.
            builder.set_cache_size(PAGE_CACHE).set_concurrency_mode(ConcurrencyMode::SingleWriter);
            Ok(builder.open_read_only_with_backend(unlocked)?)
        })?;
        Ok(Self { handle: Arc::new(RwLock::new(Some(Handle::Readable(database)))), storage })
    }

    fn reading<T>(&self, read: impl FnOnce(ReadTransaction) -> Result<T, DiskError>) -> Result<T, DiskError> {
        guarded(|| {
            let handle = self.handle.read().unwrap_or_else(PoisonError::into_inner);
            read(match handle.as_ref().ok_or_else(closed)? {
                Handle::Writable(database) => database.begin_read()?,
                Handle::Readable(database) => database.begin_read()?,
            })
        })
    }

    /// Changes the tables in one transaction: all of it is on disk when this returns, or nothing.
    pub(super) fn write<T>(
        &self,
        change: impl FnOnce(&mut WriteBatch) -> Result<T, DiskError>,
    ) -> Result<T, DiskError> {
        guarded(|| {
            let handle = self.handle.read().unwrap_or_else(PoisonError::into_inner);
            let Some(Handle::Writable(database)) = handle.as_ref() else { return Err(closed()) };
            let transaction = database.begin_write()?;
            let mut batch = WriteBatch {
                meta: transaction.open_table(META)?,
                stores: transaction.open_table(STORES)?,
                segments: transaction.open_table(SEGMENTS)?,
                values: transaction.open_table(VALUES)?,
            };
            let result = change(&mut batch)?;
            drop(batch);
            transaction.commit()?;
            Ok(result)
        })
    }

    /// An entry of the meta table. `None` also in a new file.
    pub(super) fn meta(&self, name: &str) -> Result<Option<String>, DiskError> {
        self.reading(|transaction| match transaction.open_table(META) {
            Ok(meta) => Ok(meta.get(name)?.map(|value| value.value().to_owned())),
            Err(redb::TableError::TableDoesNotExist(_)) => Ok(None),
            Err(error) => Err(error.into()),
        })
    }

    /// All entries of the meta table.
    pub(super) fn metas(&self) -> Result<Vec<(String, String)>, DiskError> {
        self.reading(|transaction| {
            let row = |(name, value): (redb::AccessGuard<&str>, redb::AccessGuard<&str>)| {
                (name.value().to_owned(), value.value().to_owned())
            };
            transaction.open_table(META)?.iter()?.map(|found| found.map(row).map_err(Into::into)).collect()
        })
    }

    /// All rows of stores: ids and blobs.
    pub(super) fn stores(&self) -> Result<Vec<(u64, Vec<u8>)>, DiskError> {
        self.reading(|transaction| {
            let table = transaction.open_table(STORES)?;
            table
                .iter()?
                .map(|row| row.map(|(id, blob)| (id.value(), blob.value().to_vec())).map_err(Into::into))
                .collect()
        })
    }

    /// Reads the segments of a store in order.
    pub(super) fn segments(
        &self,
        store: u64,
        mut read: impl FnMut(u64, Vec<u8>) -> Result<(), DiskError>,
    ) -> Result<(), DiskError> {
        self.reading(|transaction| {
            let table = transaction.open_table(SEGMENTS)?;
            let mut current: Option<(u64, Vec<u8>)> = None;
            for row in table.range((store, 0, 0)..=(store, u64::MAX, u32::MAX))? {
                let (key, piece) = row?;
                let (_, sequence, _) = key.value();
                match &mut current {
                    Some((last, blob)) if *last == sequence => blob.extend_from_slice(piece.value()),
                    _ => {
                        if let Some((last, blob)) = current.replace((sequence, piece.value().to_vec())) {
                            read(last, blob)?;
                        }
                    }
                }
            }
            current.map_or(Ok(()), |(last, blob)| read(last, blob))
        })
    }

    /// One value.
    pub(super) fn value(&self, name: &str) -> Result<Option<Vec<u8>>, DiskError> {
        self.reading(|transaction| {
            let table = transaction.open_table(VALUES)?;
            Ok(table.get(name)?.map(|blob| blob.value().to_vec()))
        })
    }

    /// All values: names, sizes and the first bytes of their blobs, at most `head`.
    pub(super) fn values(&self, head: usize) -> Result<Vec<(String, u64, Vec<u8>)>, DiskError> {
        self.reading(|transaction| {
            let table = transaction.open_table(VALUES)?;
            let row = |(name, blob): (redb::AccessGuard<&str>, redb::AccessGuard<&[u8]>)| {
                let blob = blob.value();
                (name.value().to_owned(), blob.len() as u64, blob.iter().take(head).copied().collect())
            };
            table.iter()?.map(|found| found.map(row).map_err(Into::into)).collect()
        })
    }

    /// The size of the file.
    pub(super) fn file_len(&self) -> u64 {
        self.storage.backend.len().unwrap_or(0)
    }

    /// Whether the file is not at its path any more.
    pub(super) fn is_moved_from(&self, path: &Path) -> bool {
        self.storage.is_moved_from(path)
    }

    /// Copies the file, whatever became of its name. Between two transactions the copy is whole.
    pub(super) fn copy_to(&self, path: &Path) -> io::Result<()> {
        self.storage.copy_to(path)
    }

    /// Closes the file. redb may panic when it closes a damaged one.
    pub(super) fn close(self) {
        // The file is opened again, or replaced; what is wrong with it shows then.
        let _ = guarded(|| {
            let handle = self.handle.write().unwrap_or_else(PoisonError::into_inner).take();
            drop(handle);
            Ok(())
        });
    }
}

fn closed() -> DiskError {
    DiskError::Io(io::Error::other("it was closed"))
}

impl WriteBatch<'_> {
    pub(super) fn put_meta(&mut self, name: &str, value: &str) -> Result<(), DiskError> {
        self.meta.insert(name, value)?;
        Ok(())
    }

    pub(super) fn put_store(&mut self, id: u64, row: &[u8]) -> Result<(), DiskError> {
        self.stores.insert(id, row)?;
        Ok(())
    }

    /// Removes a store with its segments.
    pub(super) fn remove_store(&mut self, id: u64) -> Result<(), DiskError> {
        self.stores.remove(id)?;
        self.remove_segments(id)
    }

    pub(super) fn remove_segments(&mut self, store: u64) -> Result<(), DiskError> {
        self.segments.retain_in((store, 0, 0)..=(store, u64::MAX, u32::MAX), |_, _| false)?;
        Ok(())
    }

    /// Adds a segment, in pieces that waste few pages.
    pub(super) fn put_segment(&mut self, store: u64, sequence: u64, blob: &[u8]) -> Result<(), DiskError> {
        let (mut rest, mut index) = (blob, 0);
        while !rest.is_empty() {
            let (piece, after) = rest.split_at_checked(piece_len(rest.len())).unwrap_or((rest, &[]));
            self.segments.insert((store, sequence, index), piece)?;
            (rest, index) = (after, index + 1);
        }
        Ok(())
    }

    pub(super) fn segment(&self, store: u64, sequence: u64) -> Result<Vec<u8>, DiskError> {
        let mut blob = Vec::new();
        for row in self.segments.range((store, sequence, 0)..=(store, sequence, u32::MAX))? {
            blob.extend_from_slice(row?.1.value());
        }
        Ok(blob)
    }

    pub(super) fn remove_segment(&mut self, store: u64, sequence: u64) -> Result<(), DiskError> {
        self.segments.retain_in((store, sequence, 0)..=(store, sequence, u32::MAX), |_, _| false)?;
        Ok(())
    }

    pub(super) fn put_value(&mut self, name: &str, blob: &[u8]) -> Result<(), DiskError> {
        self.values.insert(name, blob)?;
        Ok(())
    }

    pub(super) fn remove_value(&mut self, name: &str) -> Result<(), DiskError> {
        self.values.remove(name)?;
        Ok(())
    }
}

/// The length of the next piece of so many bytes: a power of two of pages, filled, or the rest.
fn piece_len(rest: usize) -> usize {
    let mut pages = MAX_PAGES;
    while pages > 1 && pages * PAGE - OVERHEAD > rest {
        pages /= 2;
    }
    rest.min(pages * PAGE - OVERHEAD)
}

/// Runs an operation of redb. A panic becomes an error.
fn guarded<T>(operation: impl FnOnce() -> Result<T, DiskError>) -> Result<T, DiskError> {
    // The changes of the operation are discarded: the caller closes the database after this error.
    catch_unwind(AssertUnwindSafe(operation)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("without a message");
        Err(DiskError::Damaged(format!("the database library panicked: {text}")))
    })
}

/// Opens the storage, apart from the database: an error of the file system is not damage.
pub(super) fn open_storage(
    open: &(dyn Fn() -> io::Result<OpenedStorage> + Send + Sync),
) -> Result<OpenedStorage, DiskError> {
    open().map_err(Into::into)
}
