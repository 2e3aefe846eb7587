//! The memory of all watches together: the histories of all views, and the encoded events that clients have yet to read.
//!
//! A view takes what it needs as long as there is room. Without room, it evicts its own oldest events, down to a floor that
//! each view has. Once a second, views that hold more than a fair share give the rest back.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The bytes that each view may use in any case. An idle view uses none of them.
pub(super) const FLOOR: usize = 64 << 10;

/// The limit, and what is used of it. Clones share both.
#[derive(Debug, Clone)]
pub(super) struct WatchMemory(Arc<Usage>);

#[derive(Debug)]
struct Usage {
    limit: usize,
    used: AtomicUsize,
}

impl WatchMemory {
    pub(super) fn new(limit: usize) -> Self {
        Self(Arc::new(Usage { limit, used: AtomicUsize::new(0) }))
    }

    pub(super) fn add(&self, bytes: usize) {
        self.0.used.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(super) fn sub(&self, bytes: usize) {
        self.0.used.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// How much a view may use that uses `own` bytes now.
    pub(super) fn limit(&self, own: usize) -> usize {
        let others = self.0.used.load(Ordering::Relaxed).saturating_sub(own);
        self.0.limit.saturating_sub(others).max(FLOOR)
    }

    /// The bytes for all histories together.
    pub(super) fn total(&self) -> usize {
        self.0.limit
    }

    /// Whether little is left.
    pub(super) fn is_scarce(&self) -> bool {
        self.0.used.load(Ordering::Relaxed) >= self.0.limit / 8 * 7
    }
}
