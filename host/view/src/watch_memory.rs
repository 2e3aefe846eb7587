//! The memory of all watches together: the histories of all views, and the encoded events that clients have yet to read.
//!
//! A view takes what it needs as long as there is room. Without room, it evicts its own oldest events, down to a floor that
//! each view has. Once a second, views that hold more than a fair share give the rest back.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use weir_store::StoreHandle;

use super::state::View;

/// The bytes that each view may use in any case. An idle view uses none of them.
const FLOOR: usize = 64 << 10;

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

    /// Takes from those that hold more than a fair share if little is left. The histories of stores hold few bytes of their
    /// own: the events of their views keep the same objects alive.
    pub(super) fn divide(&self, views: &[Arc<View>], stores: &[StoreHandle]) {
        let limit = self.0.limit;
        stores.iter().for_each(|store| store.limit_history((limit / 4 / stores.len()).max(FLOOR)));
        if self.0.used.load(Ordering::Relaxed) < limit / 8 * 7 {
            return;
        }
        let mut held: Vec<_> = views.iter().map(|view| (view.history_size().1, view)).collect();
        held.sort_by_key(|(bytes, _)| *bytes);
        let (mut rest, mut count) = (limit / 4 * 3, held.len());
        for (bytes, view) in held {
            let share = rest / count.max(1);
            if bytes > share {
                view.trim_history(share);
            }
            rest = rest.saturating_sub(bytes.min(share));
            count -= 1;
        }
    }
}
