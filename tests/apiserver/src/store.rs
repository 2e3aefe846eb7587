//! The objects, their versions and their history: etcd and the watch cache in one.
//!
//! One counter numbers all writes. A write is decided and applied under one lock, so that read-modify-write never
//! races. An object is encoded once, when it is written. Memory: the objects, and per collection a ring of the last
//! `history` events with the states before and after. Past states are rebuilt from the ring.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::{Map, Value};
use tokio::sync::watch;

use self::history::History;
pub(crate) use self::history::{Event, ObjectChange};
pub(crate) use self::object::{Key, StoredObject, prefix};
use crate::catalog::{Catalog, Resource};

mod backup;
mod direct;
mod history;
mod object;

pub use self::backup::Backup;
pub use self::direct::StoreError;

/// All objects of the server. Clients see the changes of a test as if another client had made them.
#[derive(Debug)]
pub struct ObjectStore {
    state: Mutex<StoreState>,
    catalog: Arc<Catalog>,
    /// The latest version. Watches wait on it.
    head: watch::Sender<u64>,
    history: usize,
}

#[derive(Debug)]
struct StoreState {
    revision: u64,
    uids: u64,
    /// By qualified name.
    collections: BTreeMap<String, Collection>,
    /// The oldest version that new watches and page tokens may use.
    compacted: u64,
}

#[derive(Debug, Default)]
struct Collection {
    objects: BTreeMap<Key, Arc<StoredObject>>,
    history: History,
    /// Set when the collection is removed. Its watches then end.
    epoch: u64,
}

/// The decision about a write.
pub(crate) enum WriteDecision {
    /// Store this object. A value equal to the stored one changes nothing.
    Put(Map<String, Value>),
    /// Delete the object.
    Delete,
    /// Write nothing, for example in a dry run.
    Nothing,
}

/// The result of a write.
pub(crate) enum WriteResult {
    /// The stored object, and whether it is new.
    Stored(Arc<StoredObject>, bool),
    /// The last state of the deleted object.
    Deleted(Arc<StoredObject>),
    /// Nothing was written.
    Nothing,
}

/// A consistent state of a collection.
pub(crate) struct CollectionSnapshot {
    pub(crate) revision: u64,
    pub(crate) objects: Vec<Arc<StoredObject>>,
}

/// The reason that a past state or its events are unavailable.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Lost {
    /// Compacted, or no longer in the ring.
    Expired,
    /// Not yet reached.
    Future { current: u64 },
    /// The collection was removed.
    Removed,
}

// === impl ObjectStore ===

impl ObjectStore {
    pub(crate) fn new(catalog: Arc<Catalog>, history: usize) -> Self {
        Self {
            state: Mutex::new(StoreState { revision: 1, uids: 0, collections: BTreeMap::new(), compacted: 0 }),
            catalog,
            head: watch::Sender::new(1),
            history,
        }
    }

    fn state(&self) -> MutexGuard<'_, StoreState> {
        // A panic under the lock can only come from a test's closure. The state is consistent then, as writes are
        // applied after the closure returns.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The version of the last write.
    pub fn revision(&self) -> u64 {
        self.state().revision
    }

    /// A receiver that is notified of every write.
    pub(crate) fn head(&self) -> watch::Receiver<u64> {
        self.head.subscribe()
    }

    /// Makes older versions unavailable: new watches get 410, page tokens expire. Running watches continue.
    pub fn compact(&self) {
        let mut state = self.state();
        state.compacted = state.revision;
    }

    /// Increments the version without a change, as writes to other resources do.
    pub fn advance(&self) -> u64 {
        let mut state = self.state();
        state.revision += 1;
        self.head.send_replace(state.revision);
        state.revision
    }

    /// Removes a collection with all its objects. Its watches end.
    pub(crate) fn forget(&self, qualified: &str) {
        let mut state = self.state();
        state.revision += 1;
        let revision = state.revision;
        if let Some(collection) = state.collections.get_mut(qualified) {
            let epoch = collection.epoch + 1;
            *collection = Collection { epoch, ..Collection::default() };
        }
        self.head.send_replace(revision);
    }

    pub(crate) fn find(&self, qualified: &str, key: &Key) -> Option<Arc<StoredObject>> {
        let state = self.state();
        state.collections.get(qualified)?.objects.get(key).cloned()
    }

    /// Decides and applies one write. `decide` gets the current object and returns the decision.
    pub(crate) fn write<E>(
        &self,
        resource: &Resource,
        key: &Key,
        decide: impl FnOnce(Option<&StoredObject>) -> Result<WriteDecision, E>,
    ) -> Result<WriteResult, E> {
        let mut state = self.state();
        let qualified = resource.qualified();
        let old = state.collections.get(&qualified).and_then(|collection| collection.objects.get(key).cloned());
        match (decide(old.as_deref())?, old) {
            (WriteDecision::Nothing, _) | (WriteDecision::Delete, None) => Ok(WriteResult::Nothing),
            (WriteDecision::Put(body), Some(old)) if old.same_but_version(&body) => Ok(WriteResult::Stored(old, false)),
            (WriteDecision::Put(body), old) => {
                let created = old.is_none();
                let object = self.commit(&mut state, &qualified, key, body, old);
                Ok(WriteResult::Stored(object, created))
            }
            (WriteDecision::Delete, Some(old)) => {
                Ok(WriteResult::Deleted(self.remove(&mut state, &qualified, key, &old)))
            }
        }
    }

    /// Stores a body under the next version, with the fields that the server sets.
    fn commit(
        &self,
        state: &mut StoreState,
        qualified: &str,
        key: &Key,
        body: Map<String, Value>,
        old: Option<Arc<StoredObject>>,
    ) -> Arc<StoredObject> {
        state.revision += 1;
        state.uids += 1;
        let object = Arc::new(StoredObject::stamped(key.clone(), body, state.revision, state.uids, old.as_deref()));
        let collection = state.collections.entry(qualified.to_owned()).or_default();
        collection.objects.insert(key.clone(), Arc::clone(&object));
        let change = match old {
            Some(old) => ObjectChange::Modified { old, new: Arc::clone(&object) },
            None => ObjectChange::Added(Arc::clone(&object)),
        };
        collection.history.push(change, self.history);
        self.head.send_replace(object.revision);
        object
    }

    fn remove(&self, state: &mut StoreState, qualified: &str, key: &Key, old: &Arc<StoredObject>) -> Arc<StoredObject> {
        state.revision += 1;
        let last = Arc::new(old.at(state.revision));
        let collection = state.collections.entry(qualified.to_owned()).or_default();
        collection.objects.remove(key);
        let change = ObjectChange::Deleted { old: Arc::clone(old), last: Arc::clone(&last) };
        collection.history.push(change, self.history);
        self.head.send_replace(last.revision);
        last
    }

    /// The objects of one namespace or of all, in the latest state or at a version.
    pub(crate) fn snapshot(
        &self,
        qualified: &str,
        namespace: Option<&str>,
        at: Option<u64>,
    ) -> Result<CollectionSnapshot, Lost> {
        let state = self.state();
        let empty = Collection::default();
        let collection = state.collections.get(qualified).unwrap_or(&empty);
        let revision = at.unwrap_or(state.revision);
        if revision > state.revision {
            return Err(Lost::Future { current: state.revision });
        }
        if at.is_some() && revision < state.compacted.max(collection.history.lost()) {
            return Err(Lost::Expired);
        }
        let mut objects: BTreeMap<&Key, &Arc<StoredObject>> = match namespace {
            Some(namespace) => collection
                .objects
                .range((Bound::Included(Key::first(namespace)), Bound::Unbounded))
                .take_while(|(key, _)| key.namespace == namespace)
                .collect(),
            None => collection.objects.iter().collect(),
        };
        for event in collection.history.since(revision).rev() {
            let key = event.change.key();
            if namespace.is_some_and(|only| only != key.namespace) {
                continue;
            }
            match event.change.before() {
                Some(before) => objects.insert(key, before),
                None => objects.remove(key),
            };
        }
        Ok(CollectionSnapshot { revision, objects: objects.into_values().cloned().collect() })
    }

    /// The state of a watch that starts at `revision`; an error if later events are no longer in the ring.
    pub(crate) fn follow(&self, qualified: &str, revision: u64) -> Result<u64, Lost> {
        let state = self.state();
        let collection = state.collections.get(qualified);
        let lost = collection.map_or(0, |collection| collection.history.lost());
        if revision < state.compacted.max(lost) {
            return Err(Lost::Expired);
        }
        Ok(collection.map_or(0, |collection| collection.epoch))
    }

    /// At most `limit` events after `revision`, and the version up to which they are complete.
    pub(crate) fn events(
        &self,
        qualified: &str,
        epoch: u64,
        revision: u64,
        limit: usize,
    ) -> Result<(Vec<Event>, u64), Lost> {
        let state = self.state();
        let Some(collection) = state.collections.get(qualified) else {
            return Ok((Vec::new(), state.revision));
        };
        if collection.epoch != epoch {
            return Err(Lost::Removed);
        }
        if revision < collection.history.lost() {
            return Err(Lost::Expired);
        }
        let events: Vec<Event> = collection.history.since(revision).take(limit).cloned().collect();
        let upto = match events.last() {
            Some(last) if events.len() == limit => last.revision,
            _ => state.revision,
        };
        Ok((events, upto))
    }
}
