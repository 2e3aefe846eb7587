//! One commit: the changes of all stores and values in one transaction.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::config::{Confidentiality, StoreName};
use super::database::{Database, WriteBatch};
use super::error::DiskError;
use super::persisted::{Persisted, StoreDiff};
use super::reading::lock;
use super::recovery;
use super::seal::CacheKey;
use super::state::{DiskState, unix_seconds};
use crate::cache::ResourceStore;

/// How often expired values are removed.
pub(super) const SWEEP: Duration = Duration::from_secs(60);

/// The minimum time between two rewrites of a file that is not at its path.
const REWRITE: Duration = Duration::from_secs(60);

/// A store that is kept on disk.
#[derive(Debug, Clone)]
pub(super) struct PersistRequest {
    pub(super) name: StoreName,
    pub(super) store: Arc<ResourceStore>,
    pub(super) confidentiality: Confidentiality,
}

/// The new states of the written stores, and what has to be reported.
type CommitResult = (Vec<Persisted>, Vec<(String, DiskError)>);

/// A store with its changes.
struct ChangedStore {
    persisted: Persisted,
    diff: StoreDiff,
    key: Option<Arc<CacheKey>>,
}

impl DiskState {
    /// Commits what has changed. `force`: also versions that moved without a change of an object. Returns when the next
    /// commit is due without further changes.
    pub(super) fn commit(&mut self, requests: &[PersistRequest], force: bool) -> Option<Instant> {
        let used: HashSet<_> = requests.iter().map(|found| found.name.clone()).collect();
        // A store that was restored is kept until it is registered.
        self.open.retain(|name, persisted| used.contains(name) || persisted.committed.is_none());
        self.too_large.retain(|name, _| used.contains(name));
        let due = self.with_database(|state, database| {
            if state.is_read_only() {
                return Ok(state.retry_at());
            }
            state.keep_file(database);
            state.tend_aside(database)?;
            state.take_restored();
            let (pending, due) = state.pending(database, requests, force)?;
            let superfluous = state.take_superfluous(database)?;
            if pending.is_empty() && lock(&state.reading.writing).is_empty() && superfluous.is_empty() {
                return Ok(due);
            }
            let replaced = state.replaced_by(&pending);
            let (written, errors) = state.write(database, &pending, (&superfluous, &replaced))?;
            for (name, error) in errors {
                state.report(&name, &error);
            }
            lock(&state.reading.writing).clear();
            state.rows.retain(|id, _| !replaced.contains(id));
            for persisted in written {
                state.rows.insert(persisted.id, persisted.row.clone());
                if used.contains(&persisted.row.name) {
                    state.open.insert(persisted.row.name.clone(), persisted);
                }
            }
            state.metrics.commit();
            state.succeed();
            state.enforce_limit(database, &used)?;
            Ok(due)
        });
        due.unwrap_or_else(|| self.retry_at())
    }

    /// Rewrites the file if it was deleted or replaced while it is open: commits would go to a file that no start finds.
    fn keep_file(&mut self, database: &mut Database) {
        let recently = self.rewritten.is_some_and(|at| at.elapsed() < REWRITE);
        if recently || !database.is_moved_from(&self.config.path) {
            return;
        }
        self.rewritten = Some(Instant::now());
        let (file, error) = (self.config.file_name(), DiskError::Moved);
        self.metrics.error(error.reason());
        tracing::warn!(file, %error, "watch cache on disk is rewritten in full");
        match recovery::rewrite(&self.config, &self.metrics, self.confirmed.as_deref(), database) {
            Ok(rewritten) => {
                self.reading.read_from(&rewritten);
                std::mem::replace(database, rewritten).close();
            }
            Err(error) => self.report(&file, &error),
        }
    }

    /// Takes over what was read beside this, so that it is not read again to be written.
    fn take_restored(&mut self) {
        for (name, restored) in self.reading.take_restored() {
            if self.rows.get(&restored.id) == Some(&restored.row) {
                self.open.entry(name).or_insert(restored);
            }
        }
    }

    /// The stores that have changes to commit, and when the version of another one is due.
    fn pending(
        &mut self,
        database: &Database,
        requests: &[PersistRequest],
        force: bool,
    ) -> Result<(Vec<ChangedStore>, Option<Instant>), DiskError> {
        let (mut pending, mut next) = (Vec::new(), None);
        let mut names = HashSet::new();
        for PersistRequest { name, store, confidentiality } in requests {
            // Stores restored from another cluster's file never go back to disk.
            let is_foreign = store.may_be_foreign() || (self.foreign > 0 && store.is_stale());
            let unusable = !store.state().borrow().synced || is_foreign;
            // One that is closed and opened again is registered twice for a moment.
            if unusable || !self.has_room(name) || !names.insert(name) {
                continue;
            }
            let format = store.snapshot().format.clone();
            let persisted = self.persisted(database, name, *confidentiality, &format);
            let key = self.key_for(*confidentiality);
            let (persisted, key) = match (persisted, key) {
                (Ok(persisted), Ok(key)) => (persisted, key),
                (Err(error), _) if error.is_temporary() => return Err(error),
                (Err(error), _) | (_, Err(error)) => {
                    self.report(&name.to_string(), &error);
                    continue;
                }
            };
            let diff = persisted.diff(store);
            let due = persisted.committed.map(|at| at + self.config.bookmark_interval);
            let is_new = !self.rows.contains_key(&persisted.id);
            let moved = diff.version() != persisted.row.version;
            let is_due = force || due.is_none_or(|due| due <= Instant::now());
            let marked = diff.is_refused() != persisted.row.refused;
            if is_new || diff.changes_objects() || marked || (moved && is_due) {
                pending.push(ChangedStore { persisted, diff, key });
            } else if moved {
                next = next.into_iter().chain(due).min();
            } else {
                self.open.entry(name.clone()).or_insert(persisted);
            }
        }
        Ok((pending, next))
    }

    /// The stores on disk of the same names that another key has encrypted.
    fn replaced_by(&self, pending: &[ChangedStore]) -> Vec<u64> {
        let is_new = |found: &&ChangedStore| !self.rows.contains_key(&found.persisted.id);
        let new: HashSet<_> = pending.iter().filter(is_new).map(|found| &found.persisted.row.name).collect();
        let rows = self.rows.iter().filter(|(_, row)| !new.is_empty() && new.contains(&row.name));
        rows.map(|(id, _)| *id).collect()
    }

    /// Writes everything in one transaction.
    fn write(
        &mut self,
        database: &Database,
        pending: &[ChangedStore],
        (superfluous, replaced): (&[String], &[u64]),
    ) -> Result<CommitResult, DiskError> {
        let reading = self.reading.clone();
        let needs_key =
            lock(&reading.writing).iter().any(|(_, value)| value.as_ref().is_some_and(|it| it.confidential));
        let key = match needs_key {
            true => self.key_for(Confidentiality::Encrypted),
            false => Ok(None),
        };
        let (mut errors, mut sizes) = (Vec::new(), Vec::new());
        let mut put = |batch: &mut WriteBatch, name: &str, blob: Vec<u8>| {
            sizes.push((name.to_owned(), blob.len() as u64));
            batch.put_value(name, &blob)
        };
        let written = database.write(|batch| {
            let mut written = Vec::with_capacity(pending.len());
            for found in pending {
                written.push(found.write(batch, &mut errors)?);
            }
            replaced.iter().try_for_each(|id| batch.remove_store(*id))?;
            superfluous.iter().try_for_each(|name| batch.remove_value(name))?;
            // Reads of them wait for this alone, and not until it is on disk.
            for (name, value) in lock(&reading.writing).iter() {
                match (value, &key) {
                    (None, _) => batch.remove_value(name)?,
                    (Some(value), Ok(key)) => {
                        let key = key.as_deref().filter(|_| value.confidential);
                        put(batch, name, value.seal(name, key)?)?;
                    }
                    (Some(value), Err(_)) if !value.confidential => put(batch, name, value.seal(name, None)?)?,
                    // Values that the key has encrypted stay for its return, as those of stores.
                    (Some(_), Err(_)) => {}
                }
            }
            reading.times.begin();
            Ok(written)
        });
        self.reading.times.end(self.config.commit_interval);
        let written = written?;
        if let Some(index) = &mut self.index {
            sizes.iter().for_each(|(name, size)| index.resize(name, *size));
        }
        errors.extend(key.err().map(|error| ("values".to_owned(), error)));
        Ok((written, errors))
    }
}

impl ChangedStore {
    /// Writes the changes; or the whole store, if what is on disk of it turns out to be damaged.
    fn write(&self, batch: &mut WriteBatch, errors: &mut Vec<(String, DiskError)>) -> Result<Persisted, DiskError> {
        let (key, used) = (self.key.as_deref(), unix_seconds());
        match self.persisted.write(batch, &self.diff, key, used) {
            Err(error @ DiskError::Damaged(_)) => {
                errors.push((self.persisted.row.name.to_string(), error));
                self.persisted.write(batch, &Persisted::rewritten(&self.diff), key, used)
            }
            result => result,
        }
    }
}
