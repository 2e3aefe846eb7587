//! What all feeds hold at this moment, as one pointer; where each feed publishes its steps.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;
use tokio::sync::broadcast;

use super::change::{BEHIND, Change, MAX_KEYS};
use super::store::{Delta, Objects};
use weir_document::{CachedObject, Selection};
use weir_kube::{Address, Lookup};

/// Distinguishes a feed from an earlier one of the same lookup that is still being stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FeedId(pub(super) u64);

/// One consistent state of everything.
#[derive(Debug, Clone)]
pub struct Snapshot {
    version: u64,
    feeds: HashMap<Arc<Lookup>, (FeedId, Arc<Objects>), foldhash::fast::RandomState>,
    addresses: Arc<[Address]>,
}

pub(super) struct Hub {
    state: ArcSwap<Snapshot>,
    /// Held while a next state is made: writers take turns, readers never wait.
    writing: Mutex<()>,
    changes: broadcast::Sender<Arc<Change>>,
}

impl Hub {
    pub(super) fn new() -> Self {
        let state = Snapshot { version: 0, feeds: HashMap::default(), addresses: Arc::new([]) };
        Self { state: ArcSwap::from_pointee(state), writing: Mutex::default(), changes: broadcast::Sender::new(BEHIND) }
    }

    pub(super) fn snapshot(&self) -> Arc<Snapshot> {
        self.state.load_full()
    }

    pub(super) fn version(&self) -> u64 {
        self.state.load().version
    }

    pub(super) fn subscribe(&self) -> broadcast::Receiver<Arc<Change>> {
        self.changes.subscribe()
    }

    /// A feed begins, empty.
    pub(super) fn add(&self, lookup: &Arc<Lookup>, id: FeedId) {
        self.write(|state| {
            state.feeds.insert(lookup.clone(), (id, Arc::default()));
        });
    }

    /// A feed has ended.
    pub(super) fn remove(&self, lookup: &Arc<Lookup>, id: FeedId) {
        self.write(|state| {
            if state.feeds.get(lookup).is_some_and(|(present, _)| *present == id) {
                state.feeds.remove(lookup);
            }
        });
    }

    /// The feed's objects at this moment.
    pub(super) fn objects(&self, lookup: &Lookup, id: FeedId) -> Option<Arc<Objects>> {
        self.state.load().feeds.get(lookup).filter(|(present, _)| *present == id).map(|(_, objects)| objects.clone())
    }

    /// Takes steps of a feed and tells what they changed. Nothing for a feed that has ended. INVARIANT: one task writes a
    /// feed, so what is read before the lock is still so under it.
    pub(super) fn apply(&self, lookup: &Arc<Lookup>, id: FeedId, deltas: Vec<Delta>) {
        let Some((next, keys)) = self.objects(lookup, id).and_then(|objects| objects.next(deltas)) else {
            return;
        };
        let mut taken = false;
        self.write(|state| {
            if let Some((_, objects)) = state.feeds.get_mut(lookup).filter(|(present, _)| *present == id) {
                *objects = Arc::new(next);
                taken = true;
            }
        });
        if taken {
            let lookup = lookup.clone();
            self.tell(if keys.len() > MAX_KEYS {
                Change::Whole { lookup }
            } else {
                Change::Objects { lookup, keys: keys.iter().map(super::store::Key::to_object_key).collect() }
            });
        }
    }

    /// The node's addresses are these now.
    pub(super) fn set_addresses(&self, addresses: Arc<[Address]>) {
        let mut changed = false;
        self.write(|state| {
            changed = state.addresses != addresses;
            state.addresses = addresses;
        });
        if changed {
            self.tell(Change::Addresses);
        }
    }

    fn tell(&self, change: Change) {
        // No receiver: nobody wants to know.
        let _ = self.changes.send(Arc::new(change));
    }

    fn write(&self, step: impl FnOnce(&mut Snapshot)) {
        let _turn = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let mut next = Snapshot::clone(&self.state.load());
        next.version += 1;
        step(&mut next);
        self.state.store(Arc::new(next));
    }
}

impl Snapshot {
    /// Grows with every change of anything in it; equal versions are the same state.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.version
    }

    fn objects(&self, lookup: &Lookup) -> Option<&Arc<Objects>> {
        self.feeds.get(lookup).map(|(_, objects)| objects)
    }

    /// One object, or nothing. `lookup` is one that a feed was opened with.
    #[must_use]
    pub fn get(&self, lookup: &Lookup, namespace: Option<&str>, name: &str) -> Option<Arc<CachedObject>> {
        Some(self.objects(lookup)?.get(namespace.unwrap_or_default(), name)?.object.clone())
    }

    /// The objects of a namespace (or all) that a label selector matches, sorted by namespace and name.
    ///
    /// # Errors
    /// A malformed selector.
    pub fn find(
        &self,
        lookup: &Lookup,
        namespace: Option<&str>,
        label_selector: &str,
    ) -> Result<Arc<Selection>, String> {
        match self.objects(lookup) {
            Some(objects) => objects.find(namespace, label_selector),
            None => Objects::default().find(namespace, label_selector),
        }
    }

    /// The node's addresses at this moment.
    #[must_use]
    pub fn addresses(&self) -> Arc<[Address]> {
        self.addresses.clone()
    }
}

impl fmt::Debug for Hub {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hub").field("state", &self.state.load()).finish_non_exhaustive()
    }
}
