//! The trace cache of one filter: its recorded traces as a tree of host calls. An object on which every host call returns
//! what it returned before needs no call of the module: nine Services in ten are left alone by every filter for one
//! missing annotation, and of the slices of a Service that asks for it, all are cut by the same pool.
//!
//! This relies on the one rule of the contract: a filter is a pure function of what it reads. A verdict is replayed after
//! [`AGREED`](tree::AGREED) calls returned it. A call that contradicts the tree proves that the module is no pure function; the filter
//! then disables the cache for good.
//!
//! A batch replays from the tree that was published when it began, and publishes once, at its end, what it has recorded.
//! Bounds: [`NODES`](tree::NODES) nodes of a few hundred bytes, some megabytes of text sets. A full tree is cleared; one that
//! filled up with less use than cost is left empty for the next [`REST`] calls.

mod tree;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;
use weir_document::Document;

pub(super) use self::tree::Contradiction;
use self::tree::{Found, TraceTree};
use crate::{Scope, Trace};

/// Scopes that are kept for the next batches.
const SCOPES: usize = 4;
/// Calls that are not recorded after a tree was cleared that recorded more calls than it replayed.
const REST: u64 = 4096;

/// The trace cache of one filter, shared by all its batches.
#[derive(Debug, Default)]
pub(super) struct TraceCache {
    tree: ArcSwap<TraceTree>,
    disabled: AtomicBool,
    /// Objects that were replayed, and calls that were recorded, since the tree was cleared.
    replayed: AtomicU64,
    recorded: AtomicU64,
    /// Calls that are still not to be recorded.
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

/// What the trace cache has for an object.
#[derive(Debug)]
pub(super) enum Replay {
    /// The verdict, and the object as the filter leaves it.
    Replayed {
        /// Whether the client may see the object.
        keep: bool,
        /// The object after the filter's edits.
        object: Document,
    },
    /// Nothing: the module is to be called.
    Call {
        /// Whether its trace is worth recording.
        record: bool,
    },
}

impl TraceCache {
    /// A batch begins; `scope` makes a scope for its lookups.
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

    /// Nothing is replayed from here on. Returns whether anything was before.
    pub(super) fn disable(&self) -> bool {
        !self.disabled.swap(true, Ordering::AcqRel)
    }

    fn scopes(&self) -> std::sync::MutexGuard<'_, Vec<Scope>> {
        self.scopes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl BatchCache<'_> {
    /// Replays the filter on an object. The scope holds what the replay looked up, until [`Scope::end`].
    pub(super) fn replay(&mut self, object: &Document) -> (Replay, Option<&mut Scope>) {
        if !self.enabled {
            return (Replay::Call { record: false }, None);
        }
        let Some(scope) = self.scope.as_mut() else { return (Replay::Call { record: false }, None) };
        scope.begin(None);
        let replay = match self.tree.replay(object, scope) {
            Found::Verdict(keep, object) => {
                self.replayed += 1;
                Replay::Replayed { keep, object }
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
    /// When it contradicts an earlier one: the module is no pure function of what it reads.
    pub(super) fn add(&mut self, trace: &Trace, keep: bool) -> Result<(), Contradiction> {
        if !self.enabled || self.tree.holds(trace, keep) {
            return Ok(());
        }
        self.recorded += 1;
        Arc::make_mut(&mut self.tree).add(trace, keep)
    }

    /// Nothing is replayed in this batch from here on.
    pub(super) fn disable(&mut self) {
        self.enabled = false;
    }

    /// The batch is over: publishes what it has recorded, unless another batch was faster. Then the next calls record it.
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
