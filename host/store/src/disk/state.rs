//! The cache on disk as one thread at a time uses it: the open file, or why there is none, and what is in it.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use ring::rand::{SecureRandom as _, SystemRandom};
use tokio::time::Instant;

use super::config::{Confidentiality, DiskConfig, StoreName};
use super::database::Database;
use super::error::DiskError;
use super::metrics::DiskMetrics;
use super::persisted::Persisted;
use super::predecessors;
use super::reading::{Reading, lock};
use super::recovery;
use super::seal::CacheKey;
use super::store_row::StoreRow;
use super::value_index::ValueIndex;
use crate::cache::{ObjectFormat, Snapshot};
use weir_upstream::clock;

/// The delay after a failure of the file system. Each further one doubles it.
const FIRST_RETRY: Duration = Duration::from_secs(1);
const MAX_RETRY: Duration = Duration::from_secs(300);
/// The most things whose errors are known to be logged.
const MAX_REPORTED: usize = 1024;

/// Everything that the file contains, and what is to be written next.
pub(super) struct DiskState {
    pub(super) config: DiskConfig,
    pub(super) metrics: Arc<DiskMetrics>,
    database: Option<Database>,
    /// The stores on disk by id.
    pub(super) rows: BTreeMap<u64, StoreRow>,
    /// The stores that are read or written.
    pub(super) open: HashMap<StoreName, Persisted>,
    /// What is read beside this, and the values that the next commit writes.
    pub(super) reading: Arc<Reading>,
    /// The values on disk; `None` until the file is open.
    pub(super) index: Option<ValueIndex>,
    /// The stores that did not fit, with the bytes that they had.
    pub(super) too_large: HashMap<StoreName, u64>,
    /// The uid of the cluster that the file is of, if the file has it.
    pub(super) cluster: Option<String>,
    /// The uid of the cluster that the daemon talks to, once known.
    pub(super) confirmed: Option<String>,
    /// How many files were of another cluster than the one that the daemon talks to.
    pub(super) foreign: u64,
    /// The cluster of the last one of them.
    pub(super) counted_foreign: Option<String>,
    pub(super) compacted: Option<Instant>,
    /// Whether that failed: the next attempt is not urgent.
    pub(super) compaction_failed: bool,
    /// When the file was rewritten because it was not at its path any more.
    pub(super) rewritten: Option<Instant>,
    /// How long the daemon had been ready when that was counted last for the files that are set aside.
    pub(super) tended: Option<Duration>,
    /// When expired values were removed.
    pub(super) swept: Option<Instant>,
    /// Since when an API server can be reached.
    pub(super) online_since: Option<Instant>,
    pub(super) key: Option<Arc<CacheKey>>,
    /// When the file is opened again after a failure. Until then it is read, if that is possible.
    retry_at: Option<Instant>,
    /// Whether it may be read until then.
    may_be_read: bool,
    /// Whether the open file is only read.
    is_read_only: bool,
    /// The daemon stops.
    closed: bool,
    /// Failures since the last commit.
    failures: u32,
    /// Why the file has to be replaced.
    damage: Option<DiskError>,
    /// What was logged: each thing and reason once.
    pub(super) reported: HashSet<(String, &'static str)>,
}

impl DiskState {
    pub(super) fn new(config: DiskConfig, metrics: Arc<DiskMetrics>) -> Self {
        let reading = Arc::new(Reading::new(config.clone()));
        Self {
            config,
            metrics,
            reading,
            database: None,
            rows: BTreeMap::new(),
            open: HashMap::new(),
            index: None,
            too_large: HashMap::new(),
            cluster: None,
            confirmed: None,
            foreign: 0,
            counted_foreign: None,
            compacted: None,
            compaction_failed: false,
            rewritten: None,
            tended: None,
            swept: None,
            online_since: None,
            key: None,
            retry_at: None,
            may_be_read: false,
            is_read_only: false,
            closed: false,
            failures: 0,
            damage: None,
            reported: HashSet::new(),
        }
    }

    /// When the file is opened again after a failure.
    pub(super) fn retry_at(&self) -> Option<Instant> {
        self.retry_at
    }

    /// Whether the file is only read for now: it could not be written, and is tried again.
    pub(super) fn is_read_only(&self) -> bool {
        self.is_read_only
    }

    /// Uses the open file, which it opens if the delay after the last failure has passed; until then it is only read. A failure
    /// closes the file: what cannot be trusted is set aside, everything else waits for the next attempt. `None`: there is no
    /// file.
    pub(super) fn with_database<T>(
        &mut self,
        operation: impl FnOnce(&mut Self, &mut Database) -> Result<T, DiskError>,
    ) -> Option<T> {
        let is_due = self.retry_at.is_none_or(|at| Instant::now() >= at);
        let mut database = match self.database.take() {
            Some(database) if self.is_read_only && is_due => {
                database.close();
                self.forget_content();
                self.reopen()?
            }
            Some(database) => database,
            None => self.reopen()?,
        };
        match operation(self, &mut database) {
            Ok(result) => {
                self.metrics.size(database.file_len());
                self.database = Some(database);
                Some(result)
            }
            Err(error) => {
                self.fail(database, error);
                None
            }
        }
    }

    /// Opens the file. A file of another node, cluster or release is set aside, and so is a damaged one. One that cannot be
    /// written is read.
    fn reopen(&mut self) -> Option<Database> {
        self.is_read_only = false;
        if self.closed {
            return None;
        }
        if self.retry_at().is_some_and(|at| Instant::now() < at) {
            return self.may_be_read.then(|| self.open_readable()).flatten();
        }
        let cluster = self.confirmed.clone();
        let opened = match self.damage.take() {
            Some(error) => Err(error),
            None => {
                let is_verified = self.verify_first();
                // Also one that does not fit: another process may use it, and only opening it shows that.
                let opened = recovery::open(&self.config, &self.metrics, cluster.as_deref(), is_verified);
                opened.inspect_err(|error| {
                    if let DiskError::OtherCluster(cluster) = error {
                        self.note_foreign(cluster);
                    }
                    self.report(&self.config.file_name(), error);
                })
            }
        };
        let opened = opened.or_else(|error| {
            if error.is_temporary() {
                return Err(error);
            }
            let key = self.present_key();
            let created = recovery::replace(&self.config, &self.metrics, cluster.as_deref(), &error, key.as_deref());
            created.inspect_err(|error| self.report(&self.config.file_name(), error))
        });
        let opened = opened.and_then(|opened| {
            let key = self.present_key();
            predecessors::take_over(opened, &self.config, &self.metrics, cluster.as_deref(), key.as_deref())
                .inspect_err(|error| self.report(&self.config.file_name(), error))
        });
        match opened {
            Ok(opened) => {
                if self.retry_at.take().is_some() {
                    tracing::info!(file = self.config.file_name(), "watch cache on disk is in use again");
                }
                for (id, error) in opened.damaged {
                    self.report(&format!("store {id:016x}"), &error);
                }
                self.rows = opened.rows;
                self.cluster = opened.cluster;
                self.reading.read_from(&opened.database);
                self.reading.taken_over();
                Some(opened.database)
            }
            Err(error) => {
                if matches!(error, DiskError::Locked) {
                    self.reading.is_in_use();
                }
                self.suspend(error);
                self.may_be_read.then(|| self.open_readable()).flatten()
            }
        }
    }

    /// Verifies the file before it is opened to be written: what is read must not wait for a disk that is slow to write, or
    /// hangs. Returns whether that has succeeded.
    pub(super) fn verify_first(&self) -> bool {
        if self.closed || !self.reading.is_unverified() {
            return false;
        }
        let verified = recovery::verify(&self.config, &self.metrics, self.confirmed.as_deref());
        match &verified {
            Ok(database) => self.reading.read_from(database),
            Err(_) => self.reading.not_verified(),
        }
        verified.is_ok()
    }

    /// Opens the file to read from it. Nothing that shows then is done anything about before it can be written.
    fn open_readable(&mut self) -> Option<Database> {
        let opened = recovery::open_readable(&self.config, &self.metrics, self.confirmed.as_deref());
        // Opening it verifies all of it. It is not tried again before it may be written.
        self.may_be_read = opened.is_ok();
        let opened = opened.ok()?;
        self.is_read_only = true;
        (self.rows, self.cluster) = (opened.rows, opened.cluster);
        self.reading.read_from(&opened.database);
        Some(opened.database)
    }

    /// Whether the file is open.
    pub(super) fn is_open(&self) -> bool {
        self.database.is_some()
    }

    /// Closes the file for good.
    pub(super) fn close(&mut self) {
        self.closed = true;
        if let Some(database) = self.database.take() {
            database.close();
        }
    }

    /// Closes the file after an error.
    fn fail(&mut self, database: Database, error: DiskError) {
        self.report(&self.config.file_name(), &error);
        database.close();
        self.suspend(error);
    }

    /// Opens the file after a delay: at once if it is damaged for the first time, because it is replaced then. Each store is
    /// read again, or written in full.
    fn suspend(&mut self, error: DiskError) {
        self.forget_content();
        let at_once = self.failures == 0 && !error.is_temporary();
        let delay = match at_once {
            true => Duration::ZERO,
            false => FIRST_RETRY.saturating_mul(1 << self.failures.min(16)).min(MAX_RETRY),
        };
        self.failures += 1;
        self.may_be_read = error.may_be_read();
        self.retry_at = Some(Instant::now() + delay);
        // In a file that is only read, apparent damage may be another process writing.
        self.damage = (!error.is_temporary() && !self.is_read_only).then_some(error);
    }

    fn forget_content(&mut self) {
        self.open.clear();
        self.rows.clear();
        self.index = None;
    }

    /// Notes that the file works.
    pub(super) fn succeed(&mut self) {
        if std::mem::take(&mut self.failures) > 0 {
            self.reported.clear();
        }
    }

    /// Logs an error once, and counts it.
    pub(super) fn report(&mut self, thing: &str, error: &DiskError) {
        self.metrics.error(error.reason());
        // Clients name stores by their selectors.
        if self.reported.len() >= MAX_REPORTED {
            self.reported.clear();
        }
        if self.reported.insert((thing.to_owned(), error.reason())) {
            let source = std::error::Error::source(error).map(ToString::to_string).unwrap_or_default();
            tracing::warn!(thing, %error, source, "watch cache on disk is not usable");
        }
    }

    /// Reads a store. Damaged parts are reported and dropped, alone if possible. Parts encrypted with another key are reported,
    /// and stays until something else is written in its place: the key may come back.
    pub(super) fn load(&mut self, name: &StoreName, confidentiality: Confidentiality) -> Option<Snapshot> {
        if let Some(open) = self.open.get(name) {
            return Some(open.snapshot());
        }
        let loaded = self.with_database(|state, database| state.read(database, name, confidentiality))??;
        let snapshot = loaded.snapshot();
        self.open.insert(name.clone(), loaded);
        Some(snapshot)
    }

    fn read(
        &mut self,
        database: &Database,
        name: &StoreName,
        confidentiality: Confidentiality,
    ) -> Result<Option<Persisted>, DiskError> {
        if !self.rows.values().any(|row| row.name == *name) {
            return Ok(None);
        }
        let key = match self.key_for(confidentiality) {
            Ok(key) => key,
            Err(error) => {
                self.report(&name.to_string(), &error);
                return Ok(None);
            }
        };
        let id_of_key = key.as_ref().map(|key| &key.id);
        let Some((id, row)) = self.rows.iter().find(|(_, row)| row.name == *name && row.key.as_ref() == id_of_key)
        else {
            let reason = "the store was encrypted with another key, or must be encrypted";
            self.report(&name.to_string(), &DiskError::Key(reason.to_owned()));
            return Ok(None);
        };
        let (id, row) = (*id, row.clone());
        match Persisted::load(database, id, row, key.as_deref()) {
            Ok(loaded) => Ok(Some(loaded)),
            Err(error) if error.is_temporary() => Err(error),
            Err(error) => {
                self.report(&name.to_string(), &error);
                database.write(|batch| batch.remove_store(id))?;
                self.rows.remove(&id);
                Ok(None)
            }
        }
    }

    /// The state on disk of a store that is about to be written.
    pub(super) fn persisted(
        &mut self,
        database: &Database,
        name: &StoreName,
        confidentiality: Confidentiality,
        format: &ObjectFormat,
    ) -> Result<Persisted, DiskError> {
        if let Some(open) = self.open.get(name) {
            return Ok(open.clone());
        }
        if let Some(loaded) = self.read(database, name, confidentiality)? {
            return Ok(loaded);
        }
        let key = self.key_for(confidentiality)?;
        let row = StoreRow::new(name.clone(), key.as_ref().map(|key| key.id.as_str()), format);
        Ok(Persisted::empty(new_id()?, row))
    }

    /// Sets everything on disk aside, because it is of another cluster. `keeps_reported`: waiting values that the API server
    /// sent since the start are kept, because they are of the present one.
    pub(super) fn set_aside(&mut self, error: DiskError, keeps_reported: bool) {
        self.report(&self.config.file_name(), &error);
        if let Some(database) = self.database.take() {
            database.close();
        }
        self.forget_content();
        for values in [&self.reading.writing, &self.reading.waiting] {
            match keeps_reported {
                true => lock(values).retain_reported(),
                false => lock(values).clear(),
            }
        }
        drop(self.reading.take_restored());
        self.damage = Some(error);
        self.with_database(|_, _| Ok(()));
    }
}

/// A new id for a store. Ids are random, so that a segment of a dropped store never passes for one of its successor.
fn new_id() -> Result<u64, DiskError> {
    let mut id = [0; 8];
    SystemRandom::new().fill(&mut id).map_err(|_| DiskError::Io(std::io::Error::other("no random numbers")))?;
    Ok(u64::from_le_bytes(id))
}

/// The time of day, in seconds since 1970.
pub(super) fn unix_seconds() -> u64 {
    clock::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
