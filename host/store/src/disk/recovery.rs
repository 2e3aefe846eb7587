//! Opens the database file, and another one in place of one that does not fit.
//!
//! Files that do not fit are set aside, and used again when they fit. From a damaged file the stores that are whole are taken
//! over; nothing else of it is.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use weir_kube::node_name;

use super::aside::{Aside, online};
use super::config::{DiskConfig, OpenStorage, create_parent};
use super::database::{Database, open_storage};
use super::error::DiskError;
use super::metrics::DiskMetrics;
use super::seal::{CacheKey, unseal};
use super::store_row::{StoreRow, segment_place};
use super::value_class::ValueClass;

/// The most bytes that are taken over from a damaged file.
const MAX_SALVAGE: u64 = 64 << 20;

/// An open file with its content.
pub(super) struct Opened {
    pub(super) database: Database,
    pub(super) rows: BTreeMap<u64, StoreRow>,
    pub(super) cluster: Option<String>,
    /// The stores whose rows are damaged.
    pub(super) damaged: Vec<(u64, DiskError)>,
}

/// A store that is whole.
struct WholeStore {
    id: u64,
    row: StoreRow,
    segments: Vec<(u64, Vec<u8>)>,
}

/// Opens the file, and verifies that it is of this release, of this node, and of this cluster, if its identity is known. Where there
/// is no file, one that was set aside is brought back if it fits.
pub(super) fn open(
    config: &DiskConfig,
    metrics: &Arc<DiskMetrics>,
    cluster: Option<&str>,
    is_verified: bool,
) -> Result<Opened, DiskError> {
    if !config.path.exists()
        && let Some(back) = fitting(config, metrics, cluster)
    {
        std::fs::rename(&back, &config.path)?;
        tracing::info!(file = %back.display(), "a watch cache that was set aside fits, and is used again");
    }
    let database = Database::open(open_storage(&*config.storage)?, metrics.clone(), !is_verified)?;
    if is_unused(&database)?
        && let Some(back) = fitting(config, metrics, cluster)
    {
        // The process that created the file wrote no content.
        database.close();
        std::fs::rename(&back, &config.path)?;
        tracing::info!(file = %back.display(), "a watch cache that was set aside fits, and is used again");
        return open_storage_of(config, &config.storage, metrics, cluster);
    }
    identified(database, config, cluster)
}

/// Whether a file was created, and nothing was written to it.
fn is_unused(database: &Database) -> Result<bool, DiskError> {
    Ok(database.meta("format")?.is_none() && database.meta("node")?.is_none())
}

/// Verifies the file without a change of it. It can be read then.
pub(super) fn verify(
    config: &DiskConfig,
    metrics: &Arc<DiskMetrics>,
    cluster: Option<&str>,
) -> Result<Database, DiskError> {
    let database = Database::open(open_storage(&*config.readable)?, metrics.clone(), true)?;
    if is_unused(&database)? && fitting(config, metrics, cluster).is_some() {
        database.close();
        return Err(DiskError::Damaged("nothing was written to it, and another file fits".to_owned()));
    }
    Ok(identified(database, config, cluster)?.database)
}

/// Opens the file to read from it while it cannot be written, or one that was set aside or is of an earlier release, and fits. What
/// is written goes to memory.
pub(super) fn open_readable(
    config: &DiskConfig,
    metrics: &Arc<DiskMetrics>,
    cluster: Option<&str>,
) -> Result<Opened, DiskError> {
    let read = |config: &DiskConfig| open_storage_of(config, &config.readable, metrics, cluster);
    let others = || {
        let aside = fitting(config, metrics, cluster).map(|path| config.of_file(path));
        aside.into_iter().chain(config.predecessors()).find_map(|other| read(&other).ok())
    };
    let database = open_storage(&*config.readable).and_then(|it| Database::open(it, metrics.clone(), true));
    let is_unused = database.as_ref().map_or(Ok(true), is_unused)?;
    if is_unused && let Some(other) = others() {
        database.into_iter().for_each(Database::close);
        return Ok(other);
    }
    identified(database?, config, cluster).or_else(|error| others().ok_or(error))
}

fn open_storage_of(
    config: &DiskConfig,
    storage: &OpenStorage,
    metrics: &Arc<DiskMetrics>,
    cluster: Option<&str>,
) -> Result<Opened, DiskError> {
    let database = Database::open(open_storage(&**storage)?, metrics.clone(), true)?;
    identified(database, config, cluster)
}

fn identified(database: Database, config: &DiskConfig, cluster: Option<&str>) -> Result<Opened, DiskError> {
    match identify(&database, config, cluster) {
        Ok((rows, cluster, damaged)) => Ok(Opened { database, rows, cluster, damaged }),
        Err(error) => {
            database.close();
            Err(error)
        }
    }
}

pub(super) type Content = (BTreeMap<u64, StoreRow>, Option<String>, Vec<(u64, DiskError)>);

/// Verifies that a file is of this release, of this node, and of this cluster, if its identity is known. Returns whether nothing
/// was written to it.
pub(super) fn check(database: &Database, config: &DiskConfig, cluster: Option<&str>) -> Result<bool, DiskError> {
    let (format, node) = (database.meta("format")?, database.meta("node")?);
    let own = config.form.format;
    let is_new = match (format.as_deref(), node) {
        (None, None) => true,
        // Older releases took the name as it was given.
        (Some(format), Some(node)) if format == own && node_name(&node).as_ref() == Ok(&config.node_name) => false,
        (Some(format), Some(node)) if format == own => return Err(DiskError::OtherNode(node)),
        (format, _) => return Err(DiskError::Format(format!("{:?}", format.unwrap_or_default()))),
    };
    match (database.meta("cluster")?, cluster) {
        (Some(known), Some(cluster)) if known != cluster => Err(DiskError::OtherCluster(known)),
        _ => Ok(is_new),
    }
}

fn identify(database: &Database, config: &DiskConfig, cluster: Option<&str>) -> Result<Content, DiskError> {
    if check(database, config, cluster)? {
        database.write(|batch| {
            batch.put_meta("format", config.form.format)?;
            batch.put_meta("node", &config.node_name)
        })?;
    }
    if let (None, Some(cluster)) = (database.meta("cluster")?, cluster) {
        database.write(|batch| batch.put_meta("cluster", cluster))?;
    }
    rows(database)
}

/// The rows of a file. Those that are damaged are removed.
pub(super) fn rows(database: &Database) -> Result<Content, DiskError> {
    let (mut rows, mut damaged) = (BTreeMap::new(), Vec::new());
    for (id, blob) in database.stores()? {
        match StoreRow::unseal(id, &blob) {
            Ok(row) => drop(rows.insert(id, row)),
            Err(error) => damaged.push((id, error)),
        }
    }
    if !damaged.is_empty() {
        database.write(|batch| damaged.iter().try_for_each(|(id, _)| batch.remove_store(*id)))?;
    }
    Ok((rows, database.meta("cluster")?, damaged))
}

/// The file that was set aside and fits now. A file that nothing was written to fits, but is of no use.
fn fitting(config: &DiskConfig, metrics: &Arc<DiskMetrics>, cluster: Option<&str>) -> Option<PathBuf> {
    let fits = |path: &PathBuf| {
        let config = config.of_file(path.clone());
        let fits = |database: &Database| {
            let of_node = database.meta("node").ok().flatten();
            of_node.is_some() && identify(database, &config, cluster).is_ok()
        };
        peek(&config, metrics, fits).unwrap_or(false)
    };
    Aside::of(&config.path).candidates(cluster.is_some()).find(fits)
}

/// Whether a file has nothing from an API server: no objects, and no values but the daemon's own.
fn is_empty(config: &DiskConfig, metrics: &Arc<DiskMetrics>) -> bool {
    let is_own = |(name, _, _): &(String, u64, Vec<u8>)| ValueClass::of(name) == ValueClass::Own;
    let is_empty = |database: &Database| {
        database.stores().is_ok_and(|stores| stores.is_empty())
            && database.values(0).is_ok_and(|values| values.iter().all(is_own))
    };
    peek(config, metrics, is_empty).unwrap_or(false)
}

/// Looks into a file that is not in use. Only the parts that are read are verified.
fn peek<T>(config: &DiskConfig, metrics: &Arc<DiskMetrics>, look: impl FnOnce(&Database) -> T) -> Result<T, DiskError> {
    let database = Database::open(open_storage(&*config.readable)?, metrics.clone(), false)?;
    let seen = look(&database);
    database.close();
    Ok(seen)
}

/// Sets the file aside because of an error, and opens one that was set aside before and fits, or else a new one. A new one takes
/// the stores over that are whole, if the error is damage: it is complete before it is in the place of the damaged one.
pub(super) fn replace(
    config: &DiskConfig,
    metrics: &Arc<DiskMetrics>,
    cluster: Option<&str>,
    error: &DiskError,
    key: Option<&CacheKey>,
) -> Result<Opened, DiskError> {
    let aside = Aside::of(&config.path);
    let is_damage = matches!(error, DiskError::Damaged(_));
    let salvaged =
        if is_damage { salvage(config, metrics, cluster, key).unwrap_or_default() } else { Salvage::default() };
    if std::fs::symlink_metadata(&config.path).is_err() {
        // There is nothing to set aside. Storages of tests are no files.
        create(config, metrics, cluster, &salvaged)?;
        return open_storage_of(config, &config.storage, metrics, cluster);
    }
    // Of a file of which nothing is whole, there is nothing to lose by another one.
    let has_nothing = salvaged.stores.is_empty() && salvaged.values.is_empty();
    let fits = if is_damage && has_nothing { fitting(config, metrics, cluster) } else { None };
    let back = if fits.is_some() {
        fits
    } else if is_damage {
        let new = config.of_file(aside.successor());
        create(&new, metrics, cluster, &salvaged)?;
        Some(new.path)
    } else {
        if is_empty(config, metrics) {
            // One that was set aside before has more.
            std::fs::remove_file(&config.path)?;
        }
        fitting(config, metrics, cluster)
    };
    aside.exchange(error, back.as_deref())?;
    let opened = open_storage_of(config, &config.storage, metrics, cluster)?;
    opened.database.write(|batch| batch.put_meta(&online(error.reason()), "0"))?;
    tracing::warn!(
        file = %config.path.display(), reason = error.reason(), stores = opened.rows.len(),
        "watch cache on disk was set aside, another file is used"
    );
    Ok(opened)
}

/// Rewrites the open file, which is not at its path any more, in full. A file in its place is set aside.
pub(super) fn rewrite(
    config: &DiskConfig,
    metrics: &Arc<DiskMetrics>,
    cluster: Option<&str>,
    database: &Database,
) -> Result<Database, DiskError> {
    let aside = Aside::of(&config.path);
    let successor = aside.successor();
    create_parent(&successor)?;
    database.copy_to(&successor)?;
    aside.exchange(&DiskError::Moved, Some(&successor))?;
    Ok(open_storage_of(config, &config.storage, metrics, cluster)?.database)
}

/// Writes a new file with these stores and values.
fn create(
    config: &DiskConfig,
    metrics: &Arc<DiskMetrics>,
    cluster: Option<&str>,
    salvaged: &Salvage,
) -> Result<(), DiskError> {
    let storage = open_storage(&*config.storage)?;
    storage.backend.set_len(0)?;
    drop(storage);
    let opened = open_storage_of(config, &config.storage, metrics, cluster)?;
    let written = opened.database.write(|batch| {
        for WholeStore { id, row, segments } in &salvaged.stores {
            batch.put_store(*id, &row.seal(*id)?)?;
            segments.iter().try_for_each(|(sequence, blob)| batch.put_segment(*id, *sequence, blob))?;
        }
        salvaged.values.iter().try_for_each(|(name, blob)| batch.put_value(name, blob))?;
        salvaged.cluster.iter().try_for_each(|cluster| batch.put_meta("cluster", cluster))
    });
    opened.database.close();
    written
}

#[derive(Default)]
struct Salvage {
    stores: Vec<WholeStore>,
    /// Each value is verified when it is read.
    values: Vec<(String, Vec<u8>)>,
    cluster: Option<String>,
}

/// Reads the stores that are whole. Encrypted ones are verified if their key is there; otherwise that is done when they are read.
fn salvage(
    config: &DiskConfig,
    metrics: &Arc<DiskMetrics>,
    cluster: Option<&str>,
    key: Option<&CacheKey>,
) -> Result<Salvage, DiskError> {
    peek(config, metrics, |database| {
        let (rows, cluster, _) = identify(database, config, cluster)?;
        let mut left = MAX_SALVAGE;
        let mut stores = Vec::new();
        for (id, row) in rows {
            let fits = row.bytes <= left;
            if let Some(segments) = fits.then(|| whole(database, id, &row, key)).flatten() {
                left -= row.bytes;
                stores.push(WholeStore { id, row, segments });
            }
        }
        let values = database.values(usize::MAX).unwrap_or_default().into_iter();
        let values = values.take_while(|(_, size, _)| {
            let fits = *size <= left;
            left = left.saturating_sub(*size);
            fits
        });
        Ok(Salvage { stores, values: values.map(|(name, _, blob)| (name, blob)).collect(), cluster })
    })?
}

/// The segments of a store, if all of them are there and are what was written.
pub(super) fn whole(
    database: &Database,
    id: u64,
    row: &StoreRow,
    key: Option<&CacheKey>,
) -> Option<Vec<(u64, Vec<u8>)>> {
    let key = key.filter(|key| row.key.as_ref() == Some(&key.id));
    let is_verified = row.key.is_none() || key.is_some();
    let (mut segments, mut expected) = (Vec::new(), row.segments.clone());
    let read = database.segments(id, |sequence, blob| {
        if is_verified {
            unseal(&segment_place(id, sequence), &blob, key)?;
        }
        if expected.next() != Some(sequence) {
            return Err(DiskError::Damaged("a segment is missing".to_owned()));
        }
        segments.push((sequence, blob));
        Ok(())
    });
    (read.is_ok() && expected.is_empty()).then_some(segments)
}
