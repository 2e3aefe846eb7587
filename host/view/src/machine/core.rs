//! What a chain shows of a store, and the history of it.

use std::sync::Arc;

use rpds::RedBlackTreeMapSync;
use weir_store::StoreKey;
use weir_store::cache::{History, HistoryGap};

use crate::machine::event::{Cause, Event, Object};

/// The objects of a view by key, hidden ones included.
pub(crate) type Objects<O> = RedBlackTreeMapSync<StoreKey, Arc<O>>;

/// An event of the store, with the outcome of its object.
#[derive(Debug)]
pub(crate) struct Changed<O: Object> {
    /// The version that the store reached with it.
    pub(crate) version: u64,
    /// The object; `None` if only the version moved.
    pub(crate) key: Option<StoreKey>,
    /// The object with its outcome; `None` if it was deleted.
    pub(crate) new: Option<Arc<O>>,
    /// Whether a list has said that the objects are the same at this version: a new history begins.
    pub(crate) is_list: bool,
    /// What is kept beside the event.
    pub(crate) memo: O::Memo,
}

/// A part of a view's history.
#[derive(Debug)]
pub(crate) struct Events<O: Object> {
    /// The events.
    pub(crate) events: Vec<Arc<Event<O>>>,
    /// Whether none follows so far.
    pub(crate) is_end: bool,
}

/// The state of a view.
#[derive(Debug, Clone)]
pub(crate) struct ViewCore<O: Object> {
    version: u64,
    objects: Objects<O>,
    history: History<Arc<Event<O>>>,
    /// The version from which the history leads to the present state.
    start: u64,
    /// The position of that version. Events of before are for open watches alone.
    first: u64,
    /// The number of changes that the view has taken.
    taken: u64,
}

impl<O: Object> ViewCore<O> {
    /// An empty view whose history has room for so many events.
    #[must_use]
    pub(crate) fn new(max_events: usize) -> Self {
        let history = History::new(max_events, usize::MAX);
        Self { version: 0, objects: Objects::new_sync(), history, start: 0, first: 0, taken: 0 }
    }

    /// The version that the view has reached.
    #[must_use]
    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    /// The objects.
    #[must_use]
    pub(crate) fn objects(&self) -> &Objects<O> {
        &self.objects
    }

    /// The number of the newest change that the view has taken. Changes are counted.
    #[must_use]
    pub(crate) fn taken(&self) -> u64 {
        self.taken
    }

    /// The events, for their size and their positions.
    #[must_use]
    pub(crate) fn history(&self) -> &History<Arc<Event<O>>> {
        &self.history
    }

    /// The version from which a watch can continue with the history alone.
    #[must_use]
    pub(crate) fn start(&self) -> u64 {
        self.start
    }

    /// The position of that version.
    pub(crate) fn first(&self) -> u64 {
        self.first
    }

    /// The events from a position on, at most `limit`.
    ///
    /// # Errors
    /// [`HistoryGap`] if some of them were evicted.
    pub(crate) fn events_from(&self, position: u64, limit: usize) -> Result<Events<O>, HistoryGap> {
        let events = self.history.from(position, limit)?;
        let is_end = position + events.len() as u64 == self.history.end();
        Ok(Events { events, is_end })
    }

    /// The position after the events up to a version.
    pub(crate) fn position_after(&self, version: u64) -> u64 {
        let later = self.history.iter_from(self.first).rev().take_while(|(_, event)| event.version > version);
        self.history.end() - later.count() as u64
    }

    /// Takes events of the store.
    pub(crate) fn apply(&mut self, changes: impl IntoIterator<Item = Changed<O>>) {
        for Changed { version, key, new, is_list, memo } in changes {
            let old = key.as_ref().and_then(|key| self.objects.get(key).cloned());
            let key = key.filter(|_| old.is_some() || new.is_some());
            self.append(Cause::Upstream, version, key, (old, new), memo);
            if is_list {
                (self.start, self.first) = (self.version, self.history.end());
            }
        }
    }

    /// Takes a change: the outcomes that differ are published at one position. Without one only the number is noted.
    pub(crate) fn take(&mut self, outcomes: impl IntoIterator<Item = (StoreKey, Arc<O>, O::Memo)>) {
        self.taken += 1;
        for (key, new, memo) in outcomes {
            let Some(old) = self.objects.get(&key).cloned() else { continue };
            if new.shows_the_same(&old) {
                self.objects.insert_mut(key, new);
            } else {
                self.append(Cause::Change, self.version, Some(key), (Some(old), Some(new)), memo);
            }
        }
    }

    /// Takes the objects of a list: a new history begins. Open watches get what differs, deletions first, with the version of
    /// before: a client that is cut off between two of them continues there. The same version again is what the view has.
    pub(crate) fn jump(&mut self, version: u64, objects: Objects<O>, memo: impl Fn() -> O::Memo) {
        if version == self.version && self.taken > 0 {
            return;
        }
        let before = self.objects.clone();
        let from = self.version;
        for (key, old) in &before {
            let new = objects.get(key);
            if new.is_none_or(|new| is_other(old, new)) {
                self.append(Cause::Left, from, Some(key.clone()), (Some(old.clone()), new.cloned()), memo());
            }
        }
        let differs = |(key, new): &(&StoreKey, &Arc<O>)| before.get(*key).is_none_or(|old| is_other(old, new));
        let mut changed: Vec<_> = objects.iter().filter(differs).collect();
        changed.sort_by_key(|(_, new)| new.version());
        for (key, new) in changed {
            let states = (before.get(key).cloned(), Some(new.clone()));
            self.append(Cause::Listed, new.version(), Some(key.clone()), states, memo());
        }
        self.append(Cause::Listed, version, None, (None, None), memo());
        self.objects = objects;
        (self.start, self.first) = (self.version, self.history.end());
    }

    /// Restarts with other objects, whose difference from the former ones is unknown: a change. Open watches end.
    pub(crate) fn reset(&mut self, version: u64, objects: Objects<O>) {
        self.history.clear();
        (self.version, self.objects) = (version, objects);
        (self.start, self.first) = (version, self.history.end());
        self.taken += 1;
    }

    /// Sets the most bytes that the history keeps alive, and evicts the oldest events beyond.
    pub(crate) fn limit(&mut self, bytes: usize) {
        self.history.set_max_bytes(bytes);
        let evicted = self.history.evict();
        self.forget(&evicted);
    }

    fn append(
        &mut self,
        cause: Cause,
        version: u64,
        key: Option<StoreKey>,
        (old, new): (Option<Arc<O>>, Option<Arc<O>>),
        memo: O::Memo,
    ) {
        match (&key, &new) {
            (Some(key), Some(new)) => self.objects.insert_mut(key.clone(), new.clone()),
            (Some(key), None) => drop(self.objects.remove_mut(key)),
            (None, _) => {}
        }
        self.version = self.version.max(version);
        let event = Event { version: self.version, cause, key, old, new, memo };
        let bytes = event.size();
        let evicted = self.history.append(Arc::new(event), bytes);
        self.forget(&evicted);
    }

    fn forget(&mut self, evicted: &[Arc<Event<O>>]) {
        if let Some(last) = evicted.last() {
            self.start = self.start.max(last.version);
            self.first = self.first.max(self.history.start());
        }
    }
}

fn is_other<O: Object>(old: &Arc<O>, new: &Arc<O>) -> bool {
    old.version() != new.version() || !new.shows_the_same(old)
}
