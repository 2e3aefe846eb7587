//! The trace cache of one filter: its recorded traces as a tree of host calls. If every host call on an object returns
//! what it returned before, the module need not be called. Typically nine of ten Services lack the annotation that a
//! filter looks for, and the slices of one Service are cut by the same pool.
//!
//! The cache relies on the contract: a filter is a pure function of what it reads. A verdict is replayed after
//! [`AGREED`](tree::AGREED) calls have returned it. A call that contradicts the tree proves that the module is not a
//! pure function. The filter then disables the cache until the next reload.
//!
//! A batch replays from the tree that was published when it began. At its end it publishes the traces that it has
//! recorded. Bounds: [`NODES`](tree::NODES) nodes of a few hundred bytes, and some megabytes of string sets. A full
//! tree is cleared. If it recorded more calls than it replayed, the next [`REST`] calls are not recorded.

mod tree;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;
use weir_document::Document;

pub(super) use self::tree::Contradiction;
use self::tree::{Found, TraceTree};
use crate::{Scope, Trace, Verdict};

/// The number of scopes that are kept for the next batches.
const SCOPES: usize = 4;
/// The number of calls that are not recorded after a tree was cleared that recorded more calls than it replayed.
const REST: u64 = 4096;

/// The trace cache of one filter, shared by all its batches.
#[derive(Debug, Default)]
pub(super) struct TraceCache {
    tree: ArcSwap<TraceTree>,
    disabled: AtomicBool,
    /// The numbers of replayed objects and recorded calls since the tree was cleared.
    replayed: AtomicU64,
    recorded: AtomicU64,
    /// The number of next calls that are not recorded.
    resting: AtomicU64,
    scopes: Mutex<Vec<Scope>>,
}

/// The trace cache as one batch uses it.
#[derive(Debug)]
pub(super) struct BatchCache<'a> {
    cache: &'a TraceCache,
    published: Arc<TraceTree>,
    /// The published tree, until the batch records something.
    tree: Arc<TraceTree>,
    scope: Option<Scope>,
    enabled: bool,
    resting: bool,
    replayed: u64,
    recorded: u64,
    unrecorded: u64,
}

/// The result of a replay.
#[derive(Debug)]
pub(super) enum Replay {
    /// The verdict.
    Replayed(Verdict),
    /// There is no verdict. The caller calls the module.
    Call {
        /// Whether its trace is worth recording.
        record: bool,
    },
}

impl TraceCache {
    /// Begins a batch. `scope` creates a scope for its lookups.
    pub(super) fn begin(&self, scope: impl FnOnce() -> Scope) -> BatchCache<'_> {
        let published = self.tree.load_full();
        let scope = self.scopes().pop().unwrap_or_else(scope);
        BatchCache {
            cache: self,
            tree: published.clone(),
            published,
            scope: Some(scope),
            enabled: !self.disabled.load(Ordering::Acquire),
            resting: self.resting.load(Ordering::Relaxed) > 0,
            replayed: 0,
            recorded: 0,
            unrecorded: 0,
        }
    }

    /// Disables the cache. Returns whether it was enabled.
    pub(super) fn disable(&self) -> bool {
        !self.disabled.swap(true, Ordering::AcqRel)
    }

    fn scopes(&self) -> std::sync::MutexGuard<'_, Vec<Scope>> {
        self.scopes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl BatchCache<'_> {
    /// Replays the filter on an object. The scope holds the lookups of the replay until [`Scope::end`].
    pub(super) fn replay(&mut self, object: &Document) -> (Replay, Option<&mut Scope>) {
        if !self.enabled {
            return (Replay::Call { record: false }, None);
        }
        let Some(scope) = self.scope.as_mut() else { return (Replay::Call { record: false }, None) };
        scope.begin(None);
        let replay = match self.tree.replay(object, scope) {
            Found::Verdict(verdict) => {
                self.replayed += 1;
                Replay::Replayed(verdict)
            }
            Found::Unknown if self.resting => {
                self.unrecorded += 1;
                Replay::Call { record: false }
            }
            Found::Unknown => Replay::Call { record: true },
            Found::Unpredictable => Replay::Call { record: false },
        };
        (replay, Some(scope))
    }

    /// Adds the trace of a call that returned a verdict.
    ///
    /// # Errors
    /// If it contradicts an earlier one. The module is then not a pure function of what it reads.
    pub(super) fn add(&mut self, trace: &Trace, keep: bool) -> Result<(), Contradiction> {
        if !self.enabled || self.tree.holds(trace, keep) {
            return Ok(());
        }
        self.recorded += 1;
        Arc::make_mut(&mut self.tree).add(trace, keep)
    }

    /// Disables replay for the rest of the batch.
    pub(super) fn disable(&mut self) {
        self.enabled = false;
    }

    /// Ends the batch and publishes the recorded traces, unless another batch has published since. In that case the
    /// traces are discarded, and later calls record them again.
    pub(super) fn end(mut self) {
        let cache = self.cache;
        if let Some(scope) = self.scope.take() {
            let mut scopes = cache.scopes();
            if scopes.len() < SCOPES {
                scopes.push(scope);
            }
        }
        let replayed = count(&cache.replayed, self.replayed);
        let recorded = count(&cache.recorded, self.recorded);
        if self.unrecorded > 0 {
            let rest = |left: u64| Some(left.saturating_sub(self.unrecorded));
            let _ = cache.resting.fetch_update(Ordering::Relaxed, Ordering::Relaxed, rest);
        }
        if !self.enabled || Arc::ptr_eq(&self.tree, &self.published) {
            return;
        }
        if self.tree.clears() != self.published.clears() {
            cache.replayed.store(0, Ordering::Relaxed);
            cache.recorded.store(0, Ordering::Relaxed);
            if replayed < recorded {
                cache.resting.store(REST, Ordering::Relaxed);
            }
        }
        cache.tree.compare_and_swap(&self.published, self.tree);
    }
}

fn count(counter: &AtomicU64, more: u64) -> u64 {
    if more == 0 { counter.load(Ordering::Relaxed) } else { counter.fetch_add(more, Ordering::Relaxed) + more }
}
