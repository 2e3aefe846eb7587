//! Indexes the objects of a store for one lookup: only objects that change are indexed again, and their bytes are those of
//! the store.

use std::sync::Arc;

use tokio::sync::watch::Sender;
use weir_kube::LabelSelector;
use weir_spec::{CachedObject, LookupSpec, Presence};

use super::cache::{Object, ObjectFormat, Snapshot, StoreEvent};
use super::error::ReflectorError;
use super::indexed_objects::Delta;
use super::reflector_state::ReflectorState;
use super::resource_stores::StoreHandle;
use super::snapshot::{LookupId, Store};
use super::store_key::StoreKey;

/// Keeps the objects of one lookup equal to those of a store while [`LookupFollower::run`] runs.
pub(super) struct LookupFollower {
    writer: LookupWriter,
    followed: Option<Followed>,
    /// The format of the indexed objects.
    format: Option<ObjectFormat>,
    /// Whether the indexed objects were all of a store, perhaps of an earlier one.
    is_complete: bool,
}

/// Writes the objects and the state of one lookup.
#[derive(Clone)]
pub(super) struct LookupWriter {
    pub(super) lookup: Arc<LookupSpec>,
    pub(super) id: LookupId,
    pub(super) objects: Arc<Store>,
    pub(super) state: Sender<ReflectorState>,
}

/// The store that a lookup reads.
struct Followed {
    store: StoreHandle,
    /// The position in the store's history; `None` if the objects must be compared.
    position: Option<u64>,
    narrowed: Option<Narrowed>,
}

/// What a lookup selects of a store that has more.
struct Narrowed {
    name: Option<String>,
    labels: LabelSelector,
}

impl LookupFollower {
    pub(super) fn new(writer: LookupWriter) -> Self {
        Self { writer, followed: None, format: None, is_complete: false }
    }

    /// Reads this store from now on. A store that is read already is not read again.
    pub(super) fn follow(&mut self, store: StoreHandle) {
        if self.followed.as_ref().is_some_and(|followed| Arc::ptr_eq(&followed.store, &store)) {
            return;
        }
        let narrowed = match store.collection().is_whole() {
            true => Narrowed::of(&self.writer.lookup),
            false => None,
        };
        self.followed = Some(Followed { store, position: None, narrowed });
    }

    /// Reads no store. The objects stay.
    pub(super) fn close(&mut self) {
        self.followed = None;
    }

    /// Removes all objects.
    pub(super) fn clear(&mut self) {
        if let Some(followed) = &mut self.followed {
            followed.position = None;
        }
        self.is_complete = false;
        self.writer.apply(self.removed(|_| true));
    }

    /// Runs until the API server does not serve the resource. Cancel-safe.
    pub(super) async fn run(&mut self) {
        let Some(store) = self.followed.as_ref().map(|followed| followed.store.clone()) else {
            return std::future::pending().await;
        };
        let (mut events, mut states) = (store.subscribe(), store.state());
        loop {
            // In this order: objects that count as synced are indexed before the lookup does.
            let state = states.borrow_and_update().clone();
            if is_not_served(&state) {
                return;
            }
            events.borrow_and_update();
            if state.synced || !self.is_complete {
                self.apply();
                self.is_complete = state.synced;
                if state.synced {
                    self.writer.set_missing(Presence::Absent);
                }
                self.writer.set_state(&state);
            } else {
                // Those of the version that was served before.
                self.writer.set_state(&ReflectorState { synced: true, ..state });
            }
            // The handle keeps the senders alive.
            tokio::select! {
                _ = events.changed() => {}
                _ = states.changed() => {}
            }
        }
    }

    /// Whether all objects of some store are indexed.
    pub(super) fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// Waits until the API server serves the resource of the store again.
    pub(super) async fn served_again(&self) {
        match &self.followed {
            // The handle keeps the sender alive.
            Some(followed) => drop(followed.store.state().wait_for(|state| !is_not_served(state)).await),
            None => std::future::pending().await,
        }
    }

    /// Indexes what has changed since the last call.
    fn apply(&mut self) {
        let Some(followed) = &self.followed else { return };
        let (snapshot, end) = followed.store.snapshot_and_position();
        let limit = |position| usize::try_from(end.saturating_sub(position)).unwrap_or(usize::MAX);
        let position = followed.position.filter(|_| self.format.as_ref() == Some(&snapshot.format));
        let events = position.and_then(|position| followed.store.events_from(position, limit(position)).ok());
        let deltas = match events {
            Some(events) => events.iter().filter_map(|event| followed.delta(&snapshot.format, event)).collect(),
            None => self.compare(followed, &snapshot),
        };
        self.writer.apply(deltas);
        self.format = Some(snapshot.format.clone());
        if let Some(followed) = &mut self.followed {
            followed.position = Some(end);
        }
    }

    /// The difference between the indexed objects and those of the store. Unchanged objects are put again, which has no
    /// effect. If their format has changed, all objects count as changed.
    fn compare(&self, followed: &Followed, snapshot: &Snapshot) -> Vec<Delta> {
        let selected = |object: &Arc<Object>| followed.selects(&snapshot.format, object);
        let same_format = self.format.as_ref() == Some(&snapshot.format);
        let mut deltas = self.removed(|key| !(same_format && snapshot.objects.get(key).is_some_and(&selected)));
        let present = snapshot.objects.values().filter(|object| selected(object));
        deltas.extend(present.map(|object| put(&snapshot.format, object)));
        deltas
    }

    /// The removal of indexed objects.
    fn removed(&self, condition: impl Fn(&StoreKey) -> bool) -> Vec<Delta> {
        let indexed = self.writer.objects.objects(self.writer.id);
        let keys = indexed.iter().flat_map(|objects| objects.keys());
        keys.filter(|key| condition(key)).map(|key| Delta::Remove(key.clone())).collect()
    }
}

impl Followed {
    fn delta(&self, format: &ObjectFormat, event: &StoreEvent) -> Option<Delta> {
        match &event.new {
            Some(new) if self.selects(format, new) => Some(put(format, new)),
            _ => event.key().map(|key| Delta::Remove(key.clone())),
        }
    }

    fn selects(&self, format: &ObjectFormat, object: &Object) -> bool {
        let Some(Narrowed { name, labels }) = &self.narrowed else { return true };
        if name.as_ref().is_some_and(|name| name != object.key.name()) {
            return false;
        }
        if labels.is_empty() {
            return true;
        }
        // Unreadable labels count as absent.
        let document = format.document(object.bytes.clone());
        labels.matches(|label| document.label(label).ok().flatten())
    }
}

impl Narrowed {
    /// `None` if the lookup selects all objects.
    fn of(lookup: &LookupSpec) -> Option<Self> {
        // A lookup with an invalid selector does not share a store.
        let labels = LabelSelector::parse(lookup.label_selector.as_deref().unwrap_or_default()).ok()?;
        (lookup.name.is_some() || !labels.is_empty()).then(|| Self { name: lookup.name.clone(), labels })
    }
}

fn put(format: &ObjectFormat, object: &Object) -> Delta {
    let document = format.document(object.bytes.clone());
    Delta::Put(object.key.clone(), Arc::new(CachedObject::new(document)))
}

fn is_not_served(state: &ReflectorState) -> bool {
    matches!(state.error, Some(ReflectorError::NotServed { .. }))
}

impl LookupWriter {
    pub(super) fn apply(&self, deltas: Vec<Delta>) {
        self.objects.apply(&self.lookup, self.id, deltas);
    }

    pub(super) fn set_missing(&self, missing: Presence) {
        self.objects.set_missing(&self.lookup, self.id, missing);
    }

    pub(super) fn set_state(&self, new: &ReflectorState) {
        self.state.send_if_modified(|state| {
            let changed = state != new;
            state.clone_from(new);
            changed
        });
    }

    pub(super) fn set_error(&self, error: ReflectorError) {
        self.state.send_if_modified(|state| {
            let changed = state.error.as_ref() != Some(&error);
            if changed {
                tracing::warn!(resource = %self.lookup.resource, %error, synced = state.synced, "discovery failed, retrying");
                state.error = Some(error);
            }
            changed
        });
    }
}
