//! The dependency set of one filter: what its calls read beside their objects, so that a change that counts is told from
//! one that does not. A Node's heartbeat is no change to a filter that read the Node's pool label.
//!
//! A call's dependencies are stored with its outcome. If the cluster has moved on since the call's snapshot, they are
//! validated at once; from then on each change of the cluster validates those that it concerns. Where a value differs
//! the generation moves, and every outcome of an earlier generation is out of date.
//!
//! Bounded by [`DEPENDENCIES`]; beyond, every change of the cluster counts, which costs re-lists, never correctness. The lock
//! is held for one call's dependencies, or to copy [`CHUNK`] pointers; values are read without it.

mod change_set;
mod table;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

pub use self::change_set::ChangeSet;
use self::table::Table;
use super::version::tick;
use crate::{ClusterView, Dependencies, Epoch, Snapshot};

/// Dependencies of one filter.
pub(super) const DEPENDENCIES: usize = 100_000;
/// Dependencies that are taken from the table at a time.
const CHUNK: usize = 512;

/// The dependency set of one filter. Clones share it.
#[derive(Debug, Clone)]
pub struct DependencySet(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    epoch: Arc<Epoch>,
    table: Mutex<Table>,
    generation: watch::Sender<u64>,
}

impl Default for DependencySet {
    fn default() -> Self {
        let generation = tick();
        let epoch = Arc::new(Epoch::new(generation));
        Self(Arc::new(Inner { epoch, table: Mutex::default(), generation: watch::Sender::new(generation) }))
    }
}

impl DependencySet {
    /// For the instances of the filter.
    #[must_use]
    pub fn epoch(&self) -> Arc<Epoch> {
        self.0.epoch.clone()
    }

    /// Grows when outcomes become out of date. Follow it with [`DependencySet::subscribe`].
    pub(super) fn generation(&self) -> u64 {
        *self.0.generation.borrow()
    }

    /// The generation as a channel.
    pub(super) fn subscribe(&self) -> watch::Receiver<u64> {
        self.0.generation.subscribe()
    }

    /// Stores the dependencies of a call whose outcome is about to be used.
    pub(super) fn store(&self, dependencies: &Dependencies, view: &dyn ClusterView) {
        if dependencies.is_empty() {
            return;
        }
        let mut table = self.lock();
        for (dependency, value) in dependencies.iter() {
            if !table.store(dependency, value) {
                // Two calls read different values: the outcome of one of them is out of date.
                self.advance(&mut table);
                table.store(dependency, value);
            }
        }
        let mark = self.0.epoch.mark();
        drop(table);
        dependencies.mark_stored(mark);
        // Stored before the versions are compared: a later change finds them in the table.
        let is_current = dependencies.snapshot().is_none_or(|snapshot| snapshot.version() == view.version());
        if !is_current {
            let now = view.snapshot();
            if dependencies.iter().any(|(dependency, value)| dependency.value(&*now) != value) {
                self.invalidate();
            }
        }
    }

    /// Reads again what a change concerns, and moves the generation if a value differs. Returns whether it did. Gives way
    /// to other tasks between chunks.
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
                    // All that was stored is out of date already.
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

    /// All outcomes so far are out of date.
    pub(super) fn invalidate(&self) {
        self.advance(&mut self.lock());
    }

    /// As [`DependencySet::invalidate`], unless it has happened since.
    fn invalidate_since(&self, generation: u64) -> bool {
        let mut table = self.lock();
        if self.generation() == generation {
            self.advance(&mut table);
        }
        true
    }

    /// INVARIANT: the table is cleared and the generation moved under the table's lock, so that what a call stores belongs
    /// to the generation that it is marked with.
    fn advance(&self, table: &mut Table) {
        *table = Table::default();
        let generation = tick();
        self.0.epoch.advance(generation);
        self.0.generation.send_replace(generation);
    }

    /// How many dependencies are stored.
    #[must_use]
    pub fn len(&self) -> usize {
        self.lock().len()
    }

    /// Whether none is stored.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All stored dependencies, for tests and diagnosis.
    #[must_use]
    pub fn all(&self) -> Vec<(crate::Dependency, u64)> {
        self.lock().all()
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.0.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
