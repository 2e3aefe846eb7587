//! The objects of all lookups and the node's addresses, published as immutable snapshots.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;
use tokio::sync::broadcast;

use super::change::{Change, MAX_KEYS, QUEUE_LENGTH};
use super::indexed_objects::{Delta, IndexedObjects};
use super::last_known::LastKnown;
use weir_spec::{CachedObject, InterfaceAddress, LookupSpec, Presence, Selection};

/// Distinguishes a lookup from an earlier, equal one that is still stopping.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LookupId(pub(super) u64);

/// One consistent version of the objects of all lookups. That of one resource is a [`Snapshot`](crate::cache::Snapshot).
#[derive(Debug, Clone)]
pub struct LookupSnapshot {
    version: u64,
    /// One per lookup that is open. They are a few, and a search by comparison is faster than a hash of the lookup: a filter
    /// reads once or more per object.
    lookups: Vec<LookupObjects>,
    last_known: Arc<LastKnown>,
    addresses: Arc<[InterfaceAddress]>,
}

/// The objects of one lookup.
#[derive(Debug, Clone)]
struct LookupObjects {
    lookup: Arc<LookupSpec>,
    id: LookupId,
    objects: Arc<IndexedObjects>,
    /// What is known of an object that is not among these.
    missing: Presence,
}

pub(super) struct Store {
    state: ArcSwap<LookupSnapshot>,
    /// Serializes writers. Readers never wait.
    writing: Mutex<()>,
    changes: broadcast::Sender<Arc<Change>>,
}

impl Store {
    pub(super) fn new(last_known: Arc<LastKnown>) -> Self {
        let state = LookupSnapshot { version: 0, lookups: Vec::new(), last_known, addresses: Arc::new([]) };
        Self {
            state: ArcSwap::from_pointee(state),
            writing: Mutex::default(),
            changes: broadcast::Sender::new(QUEUE_LENGTH),
        }
    }

    pub(super) fn snapshot(&self) -> Arc<LookupSnapshot> {
        self.state.load_full()
    }

    pub(super) fn version(&self) -> u64 {
        self.state.load().version
    }

    pub(super) fn subscribe(&self) -> broadcast::Receiver<Arc<Change>> {
        self.changes.subscribe()
    }

    /// Adds a lookup without objects. It replaces an equal one that is still stopping.
    pub(super) fn add(&self, lookup: &Arc<LookupSpec>, id: LookupId) {
        self.write(|state| {
            state.lookups.retain(|entry| entry.lookup != *lookup);
            let (lookup, missing) = (lookup.clone(), Presence::NotKnown);
            state.lookups.push(LookupObjects { lookup, id, objects: Arc::default(), missing });
        });
    }

    /// Removes a lookup and its objects.
    pub(super) fn remove(&self, id: LookupId) {
        self.write(|state| state.lookups.retain(|entry| entry.id != id));
    }

    /// The current objects of a lookup.
    pub(super) fn objects(&self, id: LookupId) -> Option<Arc<IndexedObjects>> {
        self.state.load().lookups.iter().find(|entry| entry.id == id).map(|entry| entry.objects.clone())
    }

    /// Applies deltas of a lookup and notifies receivers of the changed keys. Ignores a lookup that was removed.
    ///
    /// INVARIANT: only one task writes the objects of a lookup, so objects read before the lock are current under it.
    pub(super) fn apply(&self, lookup: &Arc<LookupSpec>, id: LookupId, deltas: Vec<Delta>) {
        let Some((next, keys)) = self.objects(id).and_then(|objects| objects.next(deltas)) else {
            return;
        };
        let mut applied = false;
        self.write(|state| {
            if let Some(entry) = state.lookups.iter_mut().find(|entry| entry.id == id) {
                entry.objects = Arc::new(next);
                applied = true;
            }
        });
        if applied {
            let lookup = lookup.clone();
            self.notify(if keys.len() > MAX_KEYS {
                Change::AllObjects { lookup }
            } else {
                Change::Objects { lookup, keys }
            });
        }
    }

    /// Sets what is known of objects that a lookup does not have.
    pub(super) fn set_missing(&self, lookup: &Arc<LookupSpec>, id: LookupId, missing: Presence) {
        let differs = |entry: &&LookupObjects| entry.id == id && entry.missing != missing;
        if !self.state.load().lookups.iter().any(|entry| differs(&entry)) {
            return;
        }
        self.write(|state| {
            if let Some(entry) = state.lookups.iter_mut().find(|entry| entry.id == id) {
                entry.missing = missing;
            }
        });
        self.notify(Change::AllObjects { lookup: lookup.clone() });
    }

    /// Replaces the addresses of the node.
    pub(super) fn set_addresses(&self, addresses: Arc<[InterfaceAddress]>) {
        let mut changed = false;
        self.write(|state| {
            changed = state.addresses != addresses;
            state.addresses = addresses;
        });
        if changed {
            self.notify(Change::Addresses);
        }
    }

    fn notify(&self, change: Change) {
        // Sending fails only if there is no receiver.
        let _ = self.changes.send(Arc::new(change));
    }

    fn write(&self, step: impl FnOnce(&mut LookupSnapshot)) {
        let _guard = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let mut next = LookupSnapshot::clone(&self.state.load());
        next.version += 1;
        step(&mut next);
        self.state.store(Arc::new(next));
    }
}

impl LookupSnapshot {
    fn objects(&self, lookup: &LookupSpec) -> Option<&Arc<IndexedObjects>> {
        self.lookups.iter().find(|entry| *entry.lookup == *lookup).map(|entry| &entry.objects)
    }

    /// Grows with every change of the store; equal versions are the same state.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.version
    }

    /// One object; `None` if it does not exist. `lookup` is an open one.
    #[must_use]
    pub fn get(&self, lookup: &LookupSpec, namespace: Option<&str>, name: &str) -> Option<Arc<CachedObject>> {
        Some(self.objects(lookup)?.get(namespace.unwrap_or_default(), name)?.clone())
    }

    /// What is known of one object.
    #[must_use]
    pub fn presence(&self, lookup: &LookupSpec, namespace: Option<&str>, name: &str) -> Presence {
        match self.lookups.iter().find(|entry| *entry.lookup == *lookup) {
            Some(entry) if entry.objects.get(namespace.unwrap_or_default(), name).is_some() => Presence::Present,
            Some(entry) => entry.missing,
            None => Presence::NotKnown,
        }
    }

    /// One object, or what was last known of it when this function was called.
    #[must_use]
    pub fn last_known(&self, lookup: &LookupSpec, namespace: Option<&str>, name: &str) -> Option<Arc<CachedObject>> {
        match self.get(lookup, namespace, name) {
            Some(object) => {
                self.last_known.note(lookup, namespace.unwrap_or_default(), name, self.version, &object);
                Some(object)
            }
            None => self.last_known.get(lookup, namespace.unwrap_or_default(), name),
        }
    }

    /// The objects that a label selector matches, sorted by namespace and name. `None` as namespace means all namespaces.
    ///
    /// # Errors
    /// The selector is malformed.
    pub fn find(
        &self,
        lookup: &LookupSpec,
        namespace: Option<&str>,
        label_selector: &str,
    ) -> Result<Arc<Selection>, String> {
        match self.objects(lookup) {
            Some(objects) => objects.find(namespace, label_selector),
            None => IndexedObjects::default().find(namespace, label_selector),
        }
    }

    /// Finds objects as [`Self::find`] does. If nothing matches or can be seen, returns what this function last returned.
    ///
    /// # Errors
    /// The selector is malformed.
    pub fn find_last_known(
        &self,
        lookup: &LookupSpec,
        namespace: Option<&str>,
        label_selector: &str,
    ) -> Result<Arc<Selection>, String> {
        let found = self.find(lookup, namespace, label_selector)?;
        if found.objects().is_empty() {
            return Ok(self.last_known.selection(lookup, namespace, label_selector).unwrap_or(found));
        }
        self.last_known.note_selection(lookup, namespace, label_selector, self.version, &found);
        Ok(found)
    }

    /// The number of objects of a lookup.
    #[must_use]
    pub fn count(&self, lookup: &LookupSpec) -> usize {
        self.objects(lookup).map_or(0, |objects| objects.count())
    }

    /// How many objects [`LookupSnapshot::find`] reads: none if it remembers the selection.
    #[must_use]
    pub fn objects_to_read(&self, lookup: &LookupSpec, namespace: Option<&str>, label_selector: &str) -> usize {
        self.objects(lookup).map_or(0, |objects| objects.to_read(namespace, label_selector))
    }

    /// The addresses of the node.
    #[must_use]
    pub fn addresses(&self) -> Arc<[InterfaceAddress]> {
        self.addresses.clone()
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store").field("state", &self.state.load()).finish_non_exhaustive()
    }
}
