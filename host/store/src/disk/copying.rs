//! Copies the content of one file into another one: from an earlier release's, and to give free pages back to the file system.
//!
//! Memory: the segments of one store at a time, and [`BATCH`] bytes of values.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;

use super::aside::Aside;
use super::config::DiskConfig;
use super::database::{Database, open_storage};
use super::error::DiskError;
use super::metrics::DiskMetrics;
use super::recovery::whole;
use super::seal::CacheKey;
use super::store_row::StoreRow;

/// So many bytes of values are copied in one transaction.
const BATCH: u64 = 4 << 20;

/// Writes the content of the open file to a new one, which takes its place: it has no free pages. The old one is read meanwhile.
///
/// # Errors
/// There is no room for a second file, or it cannot be written. The old one stays.
pub(super) fn compacted(
    config: &DiskConfig,
    metrics: &Arc<DiskMetrics>,
    database: &Database,
) -> Result<Database, DiskError> {
    let new = config.of_file(Aside::of(&config.path).successor());
    has_room(&config.path, database.file_len())?;
    let written = write_copy(&new, metrics, database);
    if written.is_err() {
        // It takes room that the old one may need.
        let _ = std::fs::remove_file(&new.path);
    }
    let written = written?;
    std::fs::rename(&new.path, &config.path)?;
    // The new file is in its place, whether or not that is on disk yet.
    if let Some(directory) = config.path.parent().and_then(|directory| File::open(directory).ok()) {
        let _ = directory.sync_all();
    }
    Ok(written)
}

/// Whether a second file fits, and leaves as much room again: a full disk stops the node.
fn has_room(path: &Path, bytes: u64) -> Result<(), DiskError> {
    let space = rustix::fs::statvfs(path.parent().unwrap_or(path)).map_err(io::Error::from)?;
    let free = space.f_bavail.saturating_mul(space.f_frsize);
    if free < bytes.saturating_mul(2) { Err(DiskError::Full) } else { Ok(()) }
}

fn write_copy(new: &DiskConfig, metrics: &Arc<DiskMetrics>, database: &Database) -> Result<Database, DiskError> {
    match std::fs::remove_file(&new.path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error.into()),
        _ => {}
    }
    let copy = Database::open(open_storage(&*new.storage)?, metrics.clone(), false)?;
    let metas = database.metas()?;
    copy.write(|batch| metas.iter().try_for_each(|(name, value)| batch.put_meta(name, value)))?;
    let copied = copy_stores(database, &copy, None).and_then(|stores| copy_values(database, &copy).map(|()| stores));
    match copied.map_err(CopyError::into_inner)? {
        CopiedStores { damaged: 0, .. } => Ok(copy),
        // It may be the disk that fails.
        CopiedStores { damaged, .. } => Err(DiskError::Damaged(format!("{damaged} stores are not whole"))),
    }
}

/// Which of two files has failed.
pub(super) enum CopyError {
    Read(DiskError),
    Write(DiskError),
}

impl CopyError {
    fn into_inner(self) -> DiskError {
        match self {
            Self::Read(error) | Self::Write(error) => error,
        }
    }
}

/// How many stores were copied, and how many were not because they are not whole.
#[derive(Debug, Default)]
pub(super) struct CopiedStores {
    pub(super) stores: usize,
    damaged: usize,
}

/// Copies the stores that are whole, and that the other file lacks or has in an earlier version.
pub(super) fn copy_stores(from: &Database, to: &Database, key: Option<&CacheKey>) -> Result<CopiedStores, CopyError> {
    let present = rows_of(to).map_err(CopyError::Write)?.into_iter();
    let present: HashMap<_, _> = present.map(|(id, row)| ((row.name, row.key), (id, row.version))).collect();
    let mut copied = CopiedStores::default();
    for (id, row) in rows_of(from).map_err(CopyError::Read)? {
        let before = present.get(&(row.name.clone(), row.key.clone()));
        if before.is_some_and(|(_, version)| *version >= row.version) {
            continue;
        }
        let Some(segments) = whole(from, id, &row, key) else {
            copied.damaged += 1;
            continue;
        };
        let written = to.write(|batch| {
            before.iter().try_for_each(|(before, _)| batch.remove_store(*before))?;
            batch.remove_store(id)?;
            batch.put_store(id, &row.seal(id)?)?;
            segments.iter().try_for_each(|(sequence, blob)| batch.put_segment(id, *sequence, blob))
        });
        written.map_err(CopyError::Write)?;
        copied.stores += 1;
    }
    Ok(copied)
}

/// The rows that are whole.
fn rows_of(database: &Database) -> Result<Vec<(u64, StoreRow)>, DiskError> {
    let rows = database.stores()?.into_iter();
    Ok(rows.filter_map(|(id, blob)| Some((id, StoreRow::unseal(id, &blob).ok()?))).collect())
}

/// Copies all values. Each is verified when it is read.
pub(super) fn copy_values(from: &Database, to: &Database) -> Result<(), CopyError> {
    let mut batch = Vec::new();
    let mut bytes = 0;
    for (name, size, _) in from.values(0).map_err(CopyError::Read)? {
        batch.extend(from.value(&name).map_err(CopyError::Read)?.map(|blob| (name, blob)));
        bytes += size;
        if bytes >= BATCH {
            put_values(to, &std::mem::take(&mut batch))?;
            bytes = 0;
        }
    }
    put_values(to, &batch)
}

fn put_values(to: &Database, values: &[(String, Vec<u8>)]) -> Result<(), CopyError> {
    to.write(|batch| values.iter().try_for_each(|(name, blob)| batch.put_value(name, blob))).map_err(CopyError::Write)
}
