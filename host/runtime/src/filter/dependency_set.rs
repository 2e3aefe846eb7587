//! The dependency set of one filter: the values that its calls read besides their objects. It distinguishes relevant
//! changes of the cluster from others. A Node's heartbeat is irrelevant for a filter that reads the Node's pool label.
//!
//! The dependencies of a call are stored with its outcome. If the cluster has changed since the call's snapshot, they
//! are validated at once. Each later change of the cluster validates the dependencies that it affects. If a value
//! differs, the generation advances, and every outcome of an earlier generation is out of date.
//!
//! Bounded by [`DEPENDENCIES`]. Beyond the bound, every change of the cluster counts as relevant, which causes more
//! re-lists but no wrong outcomes. The lock is held to store the dependencies of one call, or to copy [`CHUNK`]
//! pointers. Values are read without it.

mod change_set;
mod table;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

pub use self::change_set::ChangeSet;
use self::table::Table;
use super::version::ChainVersion;
use crate::{ClusterView, Dependencies, Epoch, Snapshot};

/// The maximum number of dependencies of one filter.
pub(super) const DEPENDENCIES: usize = 100_000;
/// The number of dependencies that are copied from the table at once.
const CHUNK: usize = 512;

/// The dependency set of one filter. Clones share it.
#[derive(Debug, Clone)]
pub(crate) struct DependencySet(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    epoch: Arc<Epoch>,
    table: Mutex<Table>,
    generation: watch::Sender<u64>,
}

impl Default for DependencySet {
    fn default() -> Self {
        let generation = ChainVersion::tick();
        let epoch = Arc::new(Epoch::new(generation));
        Self(Arc::new(Inner { epoch, table: Mutex::default(), generation: watch::Sender::new(generation) }))
    }
}

impl DependencySet {
    /// Returns the epoch, for the instances of the filter.
    #[must_use]
    pub(crate) fn epoch(&self) -> Arc<Epoch> {
        self.0.epoch.clone()
    }

    /// Returns the generation. It grows when outcomes become out of date.
    pub(super) fn generation(&self) -> u64 {
        *self.0.generation.borrow()
    }

    /// Subscribes to the generation.
    pub(super) fn subscribe(&self) -> watch::Receiver<u64> {
        self.0.generation.subscribe()
    }

    /// Stores the dependencies of a call whose outcome is about to be used.
    pub(super) fn store(&self, dependencies: &Dependencies, view: &dyn ClusterView) {
        if dependencies.is_empty() {
            return;
        }
        let mut table = self.lock();
        if !dependencies.iter().all(|(dependency, value)| table.store(dependency, value)) {
            // Two calls read different values, so the outcome of one of them is out of date. The table is empty then, without
            // those of this call that were stored already.
            self.advance(&mut table);
            for (dependency, value) in dependencies.iter() {
                table.store(dependency, value);
            }
        }
        let mark = self.0.epoch.mark();
        drop(table);
        dependencies.mark_stored(mark);
        // The dependencies are in the table before the versions are compared, so that a later change finds them.
        let is_current = dependencies.snapshot().is_none_or(|snapshot| snapshot.version() == view.version());
        if !is_current {
            let now = view.snapshot();
            if dependencies.iter().any(|(dependency, value)| dependency.value(&*now) != value) {
                self.invalidate();
            }
        }
    }

    /// Validates the dependencies that a change affects. Advances the generation and returns true if a value differs.
    /// Yields to other tasks between chunks.
    pub(super) async fn validate(&self, snapshot: &dyn Snapshot, changes: &ChangeSet) -> bool {
        let (scan, generation) = {
            let table = self.lock();
            (table.concerned(changes), self.generation())
        };
        let Some(mut scan) = scan else { return self.invalidate_since(generation) };
        loop {
            let chunk = {
                let table = self.lock();
                if self.generation() != generation {
                    // All stored dependencies are already out of date.
                    return true;
                }
                table.chunk(&mut scan, CHUNK)
            };
            let Some(chunk) = chunk else { return false };
            if chunk.iter().any(|stored| stored.dependency.value(snapshot) != stored.value) {
                return self.invalidate_since(generation);
            }
            tokio::task::yield_now().await;
        }
    }

    /// Advances the generation: all earlier outcomes are out of date.
    pub(super) fn invalidate(&self) {
        self.advance(&mut self.lock());
    }

    /// Like [`DependencySet::invalidate`], unless the generation has advanced since.
    fn invalidate_since(&self, generation: u64) -> bool {
        let mut table = self.lock();
        if self.generation() == generation {
            self.advance(&mut table);
        }
        true
    }

    /// INVARIANT: the table's lock is held while the table is cleared and the generation advances. A stored dependency
    /// therefore belongs to the generation of its mark.
    fn advance(&self, table: &mut Table) {
        *table = Table::default();
        let generation = ChainVersion::tick();
        self.0.epoch.advance(generation);
        self.0.generation.send_replace(generation);
    }

    /// Returns the number of stored dependencies.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.lock().len()
    }

    /// Returns whether no dependency is stored.
    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns all stored dependencies with their values.
    pub(super) fn all(&self) -> Vec<(crate::Dependency, u64)> {
        self.lock().all()
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.0.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
