//! The open watches of a view: how far each of them is, and how one is ended that does not read.
//!
//! Watches queue nothing. Each keeps a position in the history, whose bytes are bounded. A watch whose position has left the
//! history cannot continue. It ends by itself as soon as it is asked for its next events. A client that reads nothing at all
//! never asks, and would keep alive what was written for it last, so that its connection is closed.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio_util::sync::CancellationToken;

use super::memo::MAX_SELECTORS;
use super::request_selector::RequestSelector;

/// The position of a watch that does not follow the history yet.
pub(super) const NOT_YET: u64 = u64::MAX;

/// All open watches of a view.
#[derive(Debug, Default)]
pub(super) struct Watchers {
    open: Mutex<WatcherTable>,
    /// Never removed, because events remember verdicts by index. The forks of a view share them, as they share events.
    selectors: Arc<Mutex<Vec<RequestSelector>>>,
}

#[derive(Debug, Default)]
struct WatcherTable {
    next: u64,
    watches: HashMap<u64, Arc<WatchProgress>>,
}

#[derive(Debug)]
struct WatchProgress {
    /// The events from here on have not been handed to the connection.
    position: AtomicU64,
    /// Its position had left the history already when that was checked last.
    late: AtomicBool,
    /// Closes the connection of the client.
    close: CancellationToken,
}

/// An open watch of a view. Dropping it forgets it.
#[derive(Debug)]
pub(super) struct OpenWatch {
    watchers: Arc<Watchers>,
    id: u64,
    progress: Arc<WatchProgress>,
    /// The index of its selector among those whose verdicts events remember.
    pub(super) selector: Option<usize>,
}

impl Watchers {
    /// Those of a fork of the view: none so far.
    pub(super) fn fork(&self) -> Self {
        Self { open: Mutex::default(), selectors: self.selectors.clone() }
    }

    /// The number of open watches.
    pub(super) fn len(&self) -> usize {
        self.table().watches.len()
    }

    /// The bytes of the selectors whose verdicts events remember.
    pub(super) fn selector_bytes(&self) -> usize {
        self.selectors().iter().map(RequestSelector::size).sum()
    }

    /// Counts and observes a watch until the result is dropped. `close` closes the connection of its client.
    pub(super) fn open(self: &Arc<Self>, selector: &RequestSelector, close: CancellationToken) -> OpenWatch {
        let position = AtomicU64::new(NOT_YET);
        let progress = Arc::new(WatchProgress { position, late: AtomicBool::new(false), close });
        let mut table = self.table();
        let id = table.next;
        table.next += 1;
        table.watches.insert(id, progress.clone());
        drop(table);
        let mut selectors = self.selectors();
        let known = selectors.iter().position(|known| known == selector);
        let index = known.or_else(|| {
            (selectors.len() < MAX_SELECTORS).then(|| {
                selectors.push(selector.clone());
                selectors.len() - 1
            })
        });
        drop(selectors);
        let selector = index.filter(|_| !selector.is_everything());
        OpenWatch { watchers: self.clone(), id, progress, selector }
    }

    /// Closes the connections of the clients that have not read since the last call, and whose position is before `start`.
    /// Returns how many.
    pub(super) fn close_stuck(&self, start: u64) -> usize {
        let is_stuck = |watch: &&Arc<WatchProgress>| {
            let late = watch.position.load(Ordering::Acquire) < start;
            late && watch.late.swap(true, Ordering::AcqRel) && !watch.close.is_cancelled()
        };
        let table = self.table();
        table.watches.values().filter(is_stuck).inspect(|watch| watch.close.cancel()).count()
    }

    fn selectors(&self) -> std::sync::MutexGuard<'_, Vec<RequestSelector>> {
        self.selectors.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn table(&self) -> std::sync::MutexGuard<'_, WatcherTable> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OpenWatch {
    /// Whether it is one of these.
    pub(super) fn is_of(&self, watchers: &Arc<Watchers>) -> bool {
        Arc::ptr_eq(&self.watchers, watchers)
    }

    /// Notes the position from which on the client still has to get events.
    pub(super) fn at(&self, position: u64) {
        self.progress.position.store(position, Ordering::Release);
        self.progress.late.store(false, Ordering::Release);
    }
}

impl Drop for OpenWatch {
    fn drop(&mut self) {
        self.watchers.table().watches.remove(&self.id);
    }
}
