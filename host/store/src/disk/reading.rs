//! Reads of the cache that do not wait for the thread that writes: neither for a commit, nor, at the start, until all of a
//! large file is verified.
//!
//! While the file is verified, it is read as it is: each store and value is sealed, so that what is read is what was written, or
//! counts as not read. A missing value is looked for again once the file is verified.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

use super::aside::Aside;
use super::commit_times::CommitTimes;
use super::conditions::{Conditions, DiskCondition};
use super::config::{Confidentiality, DiskConfig, StoreName};
use super::database::{Database, open_storage};
use super::error::DiskError;
use super::persisted::Persisted;
use super::predecessors;
use super::recovery;
use super::seal::CacheKey;
use super::store_row::StoreRow;
use super::store_status::StoresOnDisk;
use super::values::{CachedValue, is_confidential, unseal_value};
use super::waiting::WaitingValues;
use crate::cache::Snapshot;

/// What is read beside the thread that writes.
pub(super) struct Reading {
    config: DiskConfig,
    source: Mutex<Source>,
    /// The files of earlier releases that are not taken over yet; `None` until something is read.
    predecessors: Mutex<Option<Predecessors>>,
    /// Signalled when the file is verified, or cannot be.
    changed: watch::Sender<()>,
    /// The uid of the cluster that the daemon talks to, once known.
    confirmed: Mutex<Option<String>>,
    /// What was read, for the next commit to continue from.
    pub(super) restored: Mutex<HashMap<StoreName, Persisted>>,
    /// What of the stores in use is on disk.
    pub(super) on_disk: StoresOnDisk,
    /// What is wrong with the file.
    pub(super) conditions: Conditions,
    /// How long commits take.
    pub(super) times: CommitTimes,
    /// The values that wait for a commit, for callers that must not wait for the file.
    pub(super) waiting: Mutex<WaitingValues>,
    /// The values that a commit writes.
    pub(super) writing: Mutex<WaitingValues>,
}

/// Where reads come from.
enum Source {
    /// The file was not opened yet.
    Unopened,
    /// There is none.
    Empty,
    /// It does not fit, and neither does another one.
    NoneFits,
    /// It is not verified yet, or does not fit, and this one does, which was set aside.
    Unverified(Database),
    /// It does not fit. This one does, and will be in its place: it waits for the disk, which may be slow.
    Replacing(Database),
    /// It cannot be read before it is verified.
    Unreadable,
    /// It cannot be read before it is opened to be written, which mends or replaces it.
    Damaged,
    Verified(Database),
}

/// The files of earlier releases that are not taken over yet.
#[derive(Clone, Default)]
struct Predecessors {
    files: Vec<Unmerged>,
    /// Whether another one cannot be read before it is taken over.
    has_others: bool,
}

/// One of them.
#[derive(Clone)]
struct Unmerged {
    database: Database,
    /// Whether its values count.
    is_first: bool,
}

/// The file to read.
struct Readable {
    database: Database,
    is_verified: bool,
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Reading {
    pub(super) fn new(config: DiskConfig) -> Self {
        Self {
            config,
            source: Mutex::new(Source::Unopened),
            predecessors: Mutex::default(),
            changed: watch::Sender::default(),
            confirmed: Mutex::default(),
            restored: Mutex::default(),
            on_disk: StoresOnDisk::default(),
            conditions: Conditions::default(),
            times: CommitTimes::default(),
            waiting: Mutex::default(),
            writing: Mutex::default(),
        }
    }

    pub(super) fn file_name(&self) -> String {
        self.config.file_name()
    }

    /// What is wrong with the file, and whether its disk is slow.
    pub(super) fn conditions(&self) -> Vec<DiskCondition> {
        let slow = self.times.condition(&self.file_name(), self.config.commit_interval);
        self.conditions.get().into_iter().chain(slow).collect()
    }

    /// Reads come from this file from now on. It is verified.
    pub(super) fn read_from(&self, database: &Database) {
        self.put_source(Source::Verified(database.clone()));
    }

    /// Notes that the file is not what it should be.
    pub(super) fn not_verified(&self) {
        let source = self.open_unverified();
        self.put_source(match source {
            (Source::Unverified(database), true) => Source::Replacing(database),
            (Source::Empty, _) => Source::NoneFits,
            (source, _) => {
                source.close();
                Source::Damaged
            }
        });
    }

    /// Notes that another process writes the file: what it reads changes meanwhile.
    pub(super) fn is_in_use(&self) {
        self.put_source(Source::Damaged);
    }

    /// Notes that the file has all that earlier releases have left.
    pub(super) fn taken_over(&self) {
        let before = lock(&self.predecessors).replace(Predecessors::default());
        before.into_iter().flat_map(|it| it.files).for_each(|unmerged| unmerged.database.close());
    }

    /// The files of earlier releases that are not taken over yet.
    fn unmerged(&self, own: Option<&Database>) -> Predecessors {
        let mut unmerged = lock(&self.predecessors);
        let unmerged = unmerged.get_or_insert_with(|| {
            let cluster = lock(&self.confirmed).clone();
            let mut found = Predecessors::default();
            for pending in predecessors::pending(&self.config, own) {
                match pending.open_unverified(cluster.as_deref()) {
                    Ok(database) => found.files.push(Unmerged { database, is_first: pending.is_first }),
                    Err(error) => found.has_others |= !error.is_misfit(),
                }
            }
            found
        });
        unmerged.clone()
    }

    fn put_source(&self, source: Source) {
        let before = std::mem::replace(&mut *lock(&self.source), source);
        self.changed.send_replace(());
        before.close();
    }

    /// Whether nobody has tried to verify the file yet.
    pub(super) fn is_unverified(&self) -> bool {
        matches!(*lock(&self.source), Source::Unopened | Source::Empty | Source::Unverified(_) | Source::Unreadable)
    }

    /// Changes when the file is verified, or cannot be.
    pub(super) fn subscribe(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    /// Notes the cluster: nothing of another one is read. Returns whether it was another one before.
    pub(super) fn confirm_cluster(&self, uid: &str) -> bool {
        let before = lock(&self.confirmed).replace(uid.to_owned());
        // They are opened again if they are of this one.
        let unmerged = lock(&self.predecessors).take();
        unmerged.into_iter().flat_map(|it| it.files).for_each(|unmerged| unmerged.database.close());
        before.is_some_and(|before| before != uid)
    }

    /// The stores that were read since the last call.
    pub(super) fn take_restored(&self) -> HashMap<StoreName, Persisted> {
        std::mem::take(&mut *lock(&self.restored))
    }

    /// Opens the file that the thread that writes will use, and returns whether it is one that was set aside.
    fn open_unverified(&self) -> (Source, bool) {
        let cluster = lock(&self.confirmed).clone();
        let own = open_fitting(&self.config, cluster.as_deref());
        let is_replaced = match &own {
            Ok((_, is_unused)) => *is_unused,
            Err(DiskError::Io(error)) => error.kind() == std::io::ErrorKind::NotFound,
            Err(error) => error.is_misfit(),
        };
        let (mut fitting, mut is_clear) = (None, is_replaced);
        let aside = Aside::of(&self.config.path);
        let mut candidates = aside.candidates(cluster.is_some()).filter(|_| is_replaced);
        while let (None, Some(path)) = (&fitting, candidates.next()) {
            match open_fitting(&self.config.of_file(path), cluster.as_deref()) {
                Ok((database, false)) => fitting = Some(database),
                Ok((database, true)) => database.close(),
                // It may have to be mended.
                Err(error) => is_clear &= error.is_misfit(),
            }
        }
        match (own, fitting) {
            (own, Some(fitting)) => {
                own.into_iter().for_each(|(own, _)| own.close());
                (Source::Unverified(fitting), true)
            }
            (Ok((own, _)), None) => (Source::Unverified(own), false),
            (Err(_), None) => (if is_clear { Source::Empty } else { Source::Unreadable }, false),
        }
    }

    /// The file to read; `None` if that has to wait, and `Some(None)` if there is none.
    fn readable(&self) -> Option<Option<Readable>> {
        let mut source = lock(&self.source);
        if matches!(*source, Source::Unopened) {
            *source = self.open_unverified().0;
        }
        let readable = match &*source {
            Source::Unverified(database) | Source::Replacing(database) => {
                Readable { database: database.clone(), is_verified: false }
            }
            Source::Verified(database) => Readable { database: database.clone(), is_verified: true },
            Source::Empty | Source::NoneFits => return Some(None),
            Source::Unopened | Source::Unreadable | Source::Damaged => return None,
        };
        drop(source);
        let confirmed = lock(&self.confirmed).clone();
        recovery::check(&readable.database, &self.config, confirmed.as_deref()).ok()?;
        Some(Some(readable))
    }

    /// Reads a store; `None` if that has to wait for the file.
    pub(super) fn load(&self, name: &StoreName, confidentiality: Confidentiality) -> Option<Option<Snapshot>> {
        let own = self.readable()?;
        if let Some(restored) = lock(&self.restored).get(name) {
            return Some(Some(restored.snapshot()));
        }
        let unmerged = self.unmerged(own.as_ref().map(|own| &own.database));
        let is_merged = unmerged.files.is_empty() && !unmerged.has_others;
        let is_complete = own.as_ref().is_none_or(|own| own.is_verified) && is_merged;
        // Of equal versions, the last one counts.
        let mut rows: Vec<_> =
            unmerged.files.iter().flat_map(|it| rows_of(&it.database, name).unwrap_or_default()).collect();
        if let Some(own) = &own {
            rows.extend(rows_of(&own.database, name).ok()?);
        }
        if rows.is_empty() && is_complete {
            return Some(None);
        }
        let key = match confidentiality {
            Confidentiality::Plain => None,
            Confidentiality::Encrypted => Some(self.key()?),
        };
        let id_of_key = key.as_ref().map(|key| &key.id);
        let rows = rows.into_iter().filter(|found| found.row.key.as_ref() == id_of_key);
        let FoundRow { database, id, row } = rows.max_by_key(|found| found.row.version)?;
        let loaded = Persisted::load(&database, id, row, key.as_ref()).ok()?;
        let (snapshot, row) = (loaded.snapshot(), loaded.row.clone());
        lock(&self.restored).insert(name.clone(), loaded);
        self.on_disk.add(&row);
        Some(Some(snapshot))
    }

    /// A value, even if it has expired; `None` if that has to wait for the file.
    pub(super) fn value(&self, name: &str) -> Option<Option<CachedValue>> {
        if let Some(pending) = self.pending(name) {
            return Some(pending);
        }
        let own = self.readable()?;
        let mut is_complete = true;
        let mut found = match &own {
            Some(own) => {
                is_complete = own.is_verified;
                own.database.value(name).ok()?
            }
            None => None,
        };
        if found.is_none() {
            let unmerged = self.unmerged(own.as_ref().map(|own| &own.database));
            let mut first = unmerged.files.iter().filter(|unmerged| unmerged.is_first).peekable();
            is_complete &= first.peek().is_none() && !unmerged.has_others;
            found = first.find_map(|unmerged| unmerged.database.value(name).ok().flatten());
        }
        let Some(blob) = found else { return is_complete.then_some(None) };
        let key = if is_confidential(&blob) { Some(self.key()?) } else { None };
        let value = unseal_value(name, &blob, key.as_ref()).ok()?;
        Some(Some(value))
    }

    /// The identity of the cluster; `None` if that has to wait for the file.
    pub(super) fn cluster(&self) -> Option<Option<String>> {
        if let Some(confirmed) = lock(&self.confirmed).clone() {
            return Some(Some(confirmed));
        }
        let own = self.readable()?.map(|own| own.database);
        let unmerged = self.unmerged(own.as_ref());
        let mut databases = own.iter().chain(unmerged.files.iter().map(|unmerged| &unmerged.database));
        Some(databases.find_map(|database| database.meta("cluster").ok().flatten()))
    }

    /// A value that is not on disk yet; `Some(None)` if it is about to be removed.
    pub(super) fn pending(&self, name: &str) -> Option<Option<CachedValue>> {
        // In this order: values go from the one to the other while the other is locked.
        let waiting = lock(&self.waiting).get(name).cloned();
        let pending = waiting.or_else(|| lock(&self.writing).get(name).cloned())?;
        Some(pending.map(|pending| pending.value))
    }

    /// The key, if it is where it belongs: to create or move it is for the thread that writes.
    fn key(&self) -> Option<CacheKey> {
        let file = &self.config.key_file;
        file.path().exists().then(|| CacheKey::load(file).ok()).flatten()
    }
}

impl Source {
    fn close(self) {
        if let Self::Unverified(database) | Self::Replacing(database) | Self::Verified(database) = self {
            database.close();
        }
    }
}

/// Opens a file that fits, and returns whether nothing was written to it.
fn open_fitting(config: &DiskConfig, cluster: Option<&str>) -> Result<(Database, bool), DiskError> {
    let database = open_storage(&*config.readable).and_then(Database::open_unverified)?;
    match recovery::check(&database, config, cluster) {
        Ok(is_unused) => Ok((database, is_unused)),
        Err(error) => {
            database.close();
            Err(error)
        }
    }
}

/// A row, and where it is.
struct FoundRow {
    database: Database,
    id: u64,
    row: StoreRow,
}

/// The rows of a store that are whole.
fn rows_of(database: &Database, name: &StoreName) -> Result<Vec<FoundRow>, DiskError> {
    let rows = database.stores()?.into_iter();
    let rows = rows.filter_map(|(id, blob)| Some((id, StoreRow::unseal(id, &blob).ok()?)));
    let rows = rows.filter(|(_, row)| row.name == *name);
    Ok(rows.map(|(id, row)| FoundRow { database: database.clone(), id, row }).collect())
}
