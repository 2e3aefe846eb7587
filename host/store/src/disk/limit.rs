//! Keeps the cache on disk within its size: evicts stores, values, and free pages.
//!
//! Each store counts with its row, so that empty ones give way, too. Content of node components is evicted last.

use std::cmp::Reverse;
use std::collections::HashSet;
use std::time::{Duration, SystemTime};

use tokio::time::Instant;

use super::commit::SWEEP;
use super::config::StoreName;
use super::copying::compacted;
use super::database::Database;
use super::error::DiskError;
use super::reading::lock;
use super::state::DiskState;
use super::store_row::StoreRow;
use super::value_index::ValueIndex;
use super::waiting::WaitingValues;
use weir_upstream::clock;

/// How often the file is compacted at most: that rewrites much of it.
const COMPACTION: Duration = Duration::from_secs(3600);
/// How often it is compacted at most while it is larger than it may be.
const URGENT_COMPACTION: Duration = Duration::from_secs(60);
/// How long after a start or an outage permissions are kept that have expired.
const SETTLED: Duration = Duration::from_secs(3600);
/// Free pages that do not count.
const FREE: u64 = 16 << 20;
/// What a row takes on disk and in memory beside the names in it.
const ROW: u64 = 4 << 10;
/// The most stores of clients with a credential of their own. All rows are read at the start.
const MAX_CLIENT_STORES: usize = 2048;

impl DiskState {
    /// Whether no API server answers, so that nothing takes the place of what is evicted.
    pub(super) fn is_offline(&self) -> bool {
        self.config.connectivity.as_ref().is_some_and(|connectivity| !connectivity.is_working())
    }

    /// Evicts stores until the rest fits: first those that nobody uses, oldest first; then the largest ones. Those of clients
    /// go before those of node components and the daemon. In an outage none goes.
    pub(super) fn enforce_limit(
        &mut self,
        database: &mut Database,
        used: &HashSet<StoreName>,
    ) -> Result<(), DiskError> {
        if self.is_offline() {
            return Ok(());
        }
        let (mut bytes, mut of_clients) = (self.bytes(), self.rows.values().filter(|row| is_of_client(row)).count());
        let mut evicted = Vec::new();
        if bytes > self.config.max_bytes || of_clients > MAX_CLIENT_STORES {
            let mut rows: Vec<_> = self.rows.iter().map(|(id, row)| (rank(row, used), *id)).collect();
            rows.sort_unstable();
            for (_, id) in rows {
                let Some(row) = self.rows.get(&id) else { continue };
                let is_of_client = is_of_client(row);
                if bytes <= self.config.max_bytes && (of_clients <= MAX_CLIENT_STORES || !is_of_client) {
                    continue;
                }
                bytes -= weight(row);
                of_clients -= usize::from(is_of_client);
                evicted.push(id);
                self.note_evicted(id, used);
            }
        }
        if !evicted.is_empty() {
            database.write(|batch| evicted.iter().try_for_each(|id| batch.remove_store(*id)))?;
        }
        self.compact(database)
    }

    fn note_evicted(&mut self, id: u64, used: &HashSet<StoreName>) {
        let Some(row) = self.rows.remove(&id) else { return };
        self.open.remove(&row.name);
        if used.contains(&row.name) {
            self.report(&row.name.to_string(), &DiskError::TooLarge);
            let weight = weight(&row);
            self.too_large.insert(row.name, weight);
        } else {
            tracing::info!(store = %row.name, bytes = row.bytes, "store evicted from the watch cache on disk, nobody uses it");
        }
    }

    /// The bytes of all stores.
    pub(super) fn bytes(&self) -> u64 {
        self.rows.values().map(weight).sum()
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

    /// Gives free pages back to the file system if there are more of them than of others, or if the file is too large. Reads go on
    /// meanwhile.
    fn compact(&mut self, database: &mut Database) -> Result<(), DiskError> {
        let content = self.bytes() + self.index.as_ref().map_or(0, ValueIndex::bytes);
        let most = self.config.max_bytes.saturating_mul(2) + FREE;
        let is_urgent = database.file_len() > most && !self.compaction_failed;
        let pause = if is_urgent { URGENT_COMPACTION } else { COMPACTION };
        let recently = self.compacted.is_some_and(|at| at.elapsed() < pause);
        if recently || database.file_len() <= 2 * content + FREE {
            return Ok(());
        }
        self.compacted = Some(Instant::now());
        let before = database.file_len();
        let compacted = compacted(&self.config, &self.metrics, database);
        self.compaction_failed = compacted.is_err();
        match compacted {
            Ok(compacted) => {
                self.reading.read_from(&compacted);
                std::mem::replace(database, compacted).close();
                tracing::debug!(before, after = database.file_len(), "watch cache on disk compacted");
            }
            // The old file stays as it is, and is used on.
            Err(error) => self.report("compaction", &error),
        }
        Ok(())
    }

    /// Takes the values that came since the last commit. Later ones know from now on what is on disk.
    fn gather_waiting(&self, index: &ValueIndex, writing: &WaitingValues) -> WaitingValues {
        let mut waiting = lock(&self.reading.waiting);
        waiting.note_names(index.names(), writing);
        waiting.take()
    }

    /// Gathers the values that this commit writes, and makes room for them: returns the names of those that it removes.
    pub(super) fn take_superfluous(&mut self, database: &Database) -> Result<Vec<String>, DiskError> {
        let mut index = match self.index.take() {
            Some(index) => index,
            None => ValueIndex::load(database)?,
        };
        let reading = self.reading.clone();
        let mut values = lock(&reading.writing);
        let waiting = self.gather_waiting(&index, &values);
        values.append(waiting);
        // A commit for nothing wears flash.
        values.retain_removals(|name| index.contains(name));
        let dropped = values.take_dropped();
        if dropped > 0 {
            tracing::warn!(
                dropped,
                "responses and permissions were not written to the watch cache on disk, too many bytes wait for it"
            );
        }
        let is_offline = self.is_offline();
        index.note_outage(is_offline);
        self.online_since = if is_offline { None } else { self.online_since.or_else(|| Some(Instant::now())) };
        let mut gone = index.take_cleared(&values);
        index.add(&values);
        if self.swept.is_none_or(|at| at.elapsed() > SWEEP) {
            self.swept = Some(Instant::now());
            // A clock that is ahead must not cost what is valid again once it is set.
            let now = clock::agreed().unwrap_or(SystemTime::UNIX_EPOCH);
            // Permissions come from the API server alone, and after an outage only with the next request of their client.
            let is_settled = self.online_since.is_some_and(|since| since.elapsed() > SETTLED);
            gone.extend(index.take_expired(now, is_settled));
        }
        let superfluous = index.take_superfluous(self.config.max_bytes / 4);
        // One that is about to be written is not written at all.
        superfluous.iter().for_each(|name| values.remove(name));
        gone.extend(superfluous);
        self.index = Some(index);
        Ok(gone)
    }
}

/// What a store weighs on disk.
pub(super) fn weight(row: &StoreRow) -> u64 {
    row.bytes + ROW + row.name.to_string().len() as u64
}

fn is_of_client(row: &StoreRow) -> bool {
    row.name.identity().starts_with("client ")
}

/// Those of the lowest rank go first.
fn rank(row: &StoreRow, used: &HashSet<StoreName>) -> (bool, bool, u64, Reverse<u64>) {
    match used.contains(&row.name) {
        false => (false, !is_of_client(row), row.used, Reverse(row.bytes)),
        true => (true, !is_of_client(row), 0, Reverse(row.bytes)),
    }
}
