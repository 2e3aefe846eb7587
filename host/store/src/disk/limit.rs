//! Keeps the cache on disk within its size: evicts stores, expired values, and free pages.

use std::collections::HashSet;
use std::time::Duration;

use tokio::time::Instant;

use super::config::StoreName;
use super::database::Database;
use super::error::DiskError;
use super::state::DiskState;
use super::values::{EXPIRY, expiry};
use weir_upstream::clock;

/// How often the file is compacted at most: that rewrites much of it.
const COMPACTION: Duration = Duration::from_secs(3600);
/// Free pages that do not count.
const FREE: u64 = 16 << 20;

impl DiskState {
    /// Evicts stores that nobody uses, oldest first, until the rest fits. If that is not enough, drops the largest ones.
    pub(super) fn enforce_limit(
        &mut self,
        database: &mut Database,
        used: &HashSet<StoreName>,
    ) -> Result<(), DiskError> {
        let mut evicted = Vec::new();
        while self.bytes() > self.config.max_bytes {
            let unused = self.rows.iter().filter(|(_, row)| !used.contains(&row.name)).min_by_key(|(_, row)| row.used);
            let unused = unused.map(|(id, _)| *id);
            let Some(id) = unused.or_else(|| self.largest()) else { break };
            let Some(row) = self.rows.remove(&id) else { break };
            evicted.push(id);
            self.open.remove(&row.name);
            if unused.is_none() {
                self.report(&row.name.to_string(), &DiskError::TooLarge);
                self.too_large.insert(row.name, row.bytes);
            } else {
                tracing::info!(store = %row.name, bytes = row.bytes, "store evicted from the watch cache on disk, nobody uses it");
            }
        }
        if !evicted.is_empty() {
            database.write(|batch| evicted.iter().try_for_each(|id| batch.remove_store(*id)))?;
        }
        self.compact(database)
    }

    /// The bytes of all stores.
    fn bytes(&self) -> u64 {
        self.rows.values().map(|row| row.bytes).sum()
    }

    fn largest(&self) -> Option<u64> {
        self.rows.iter().max_by_key(|(_, row)| row.bytes).map(|(id, _)| *id)
    }

    /// Whether a store that was too large fits now.
    pub(super) fn has_room(&mut self, name: &StoreName) -> bool {
        let Some(size) = self.too_large.get(name) else { return true };
        let fits = self.bytes() + size <= self.config.max_bytes;
        if fits {
            self.too_large.remove(name);
        }
        fits
    }

    /// Gives free pages back to the file system if there are more of them than of others.
    fn compact(&mut self, database: &mut Database) -> Result<(), DiskError> {
        let recently = self.compacted.is_some_and(|at| at.elapsed() < COMPACTION);
        if recently || database.file_len() <= 2 * self.bytes() + FREE {
            return Ok(());
        }
        self.compacted = Some(Instant::now());
        let before = database.file_len();
        database.compact()?;
        tracing::debug!(before, after = database.file_len(), "watch cache on disk compacted");
        Ok(())
    }
}

/// The names of expired values, and of those that expire first if all of them exceed the limit.
pub(super) fn superfluous_values(database: &Database, limit: u64) -> Result<Vec<String>, DiskError> {
    // A clock that is ahead, or a single answer, must not cost what is valid again once the time is right.
    let now = clock::agreed().unwrap_or(std::time::SystemTime::UNIX_EPOCH);
    let mut values: Vec<_> =
        database.values(EXPIRY)?.into_iter().map(|(name, size, head)| (expiry(&head), name, size)).collect();
    values.sort();
    let mut total: u64 = values.iter().map(|(_, _, size)| *size).sum();
    let superfluous = values.into_iter().take_while(|(expires, _, size)| {
        let remove = expires.is_none_or(|expires| expires <= now) || total > limit;
        total -= size;
        remove
    });
    Ok(superfluous.map(|(_, name, _)| name).collect())
}
