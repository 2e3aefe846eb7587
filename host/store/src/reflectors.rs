//! The lookups of all filters: each has its objects indexed, from a store that clients' views and other lookups may share.
//! Equal lookups share an index. A lookup is closed when its last handle is dropped.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use weir_spec::{InterfaceAddress, LookupSpec};

use super::change::Changes;
use super::error::ReflectorError;
use super::last_known::LastKnown;
use super::lookup::{LookupSource, LookupTask};
use super::lookup_follower::LookupWriter;
use super::reflector_state::ReflectorState;
use super::resource_stores::ResourceStores;
use super::snapshot::{LookupId, LookupSnapshot, Store};
use super::store_reader::StoreReader;

/// The status of one lookup, as the admin port reports it.
#[derive(Debug, Clone)]
pub struct ReflectorStatus {
    /// The lookup.
    pub lookup: Arc<LookupSpec>,
    /// Its state.
    pub state: ReflectorState,
    /// The number of its objects.
    pub objects: usize,
    /// Whether the objects are from disk, and the API server has not confirmed them yet.
    pub stale: bool,
    /// The time since the API server sent anything for them; `None` if it has not sent anything yet.
    pub lag: Option<Duration>,
}

/// The lookups and their objects. Clones share them.
#[derive(Debug, Clone)]
pub struct Reflectors(Arc<Inner>);

pub(super) struct Inner {
    stores: ResourceStores,
    store: Arc<Store>,
    last_known: Arc<LastKnown>,
    open: Mutex<OpenReflectors>,
}

#[derive(Debug, Default)]
struct OpenReflectors {
    reflectors: HashMap<Arc<LookupSpec>, Weak<Registration>>,
    last_id: u64,
}

/// Keeps a lookup open. Clones share it.
#[must_use = "a lookup is closed when its last handle is dropped"]
#[derive(Debug, Clone)]
pub struct ReflectorHandle(Arc<Registration>);

/// Closes the lookup and removes its objects when it is dropped.
#[derive(Debug)]
struct Registration {
    lookup: Arc<LookupSpec>,
    id: LookupId,
    state: watch::Receiver<ReflectorState>,
    source: LookupSource,
    stop: CancellationToken,
    reflectors: Weak<Inner>,
}

impl Reflectors {
    /// Creates an empty set that reads these stores. Without an API server every lookup reports
    /// [`ReflectorError::NoServer`].
    #[must_use]
    pub fn new(stores: ResourceStores) -> Self {
        let last_known = Arc::new(LastKnown::new(stores.disk(), &stores.cluster_watch()));
        let store = Arc::new(Store::new(last_known.clone()));
        Self(Arc::new(Inner { stores, store, last_known, open: Mutex::default() }))
    }

    /// Reads from disk what was last known of objects, once. Cancel-safe.
    pub async fn load_last_known(&self) {
        self.0.last_known.load().await;
    }

    /// Returns the objects that are gone and of which filters use what was last known.
    #[must_use]
    pub fn standing_in(&self) -> Vec<String> {
        self.0.last_known.standing_in()
    }

    /// Returns a handle to a lookup, and opens it if it is not.
    pub fn open(&self, lookup: &LookupSpec) -> ReflectorHandle {
        let inner = &self.0;
        let mut open = inner.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(registration) = open.reflectors.get(lookup).and_then(Weak::upgrade) {
            return ReflectorHandle(registration);
        }
        open.last_id += 1;
        let id = LookupId(open.last_id);
        let lookup = Arc::new(lookup.clone());
        let (sender, state) = watch::channel(ReflectorState::default());
        let (stop, source) = (CancellationToken::new(), LookupSource::default());
        inner.store.add(&lookup, id);
        if inner.stores.can_read_as(&StoreReader::Daemon) {
            let writer = LookupWriter { lookup: lookup.clone(), id, objects: inner.store.clone(), state: sender };
            let task = LookupTask::new(inner.stores.clone(), writer, source.clone());
            inner.stores.spawn(stop.clone(), task.run());
        } else {
            let error = ReflectorError::NoServer { resource: lookup.resource.clone() };
            sender.send_modify(|state| state.error = Some(error));
        }
        let reflectors = Arc::downgrade(inner);
        let registration = Arc::new(Registration { lookup: lookup.clone(), id, state, source, stop, reflectors });
        open.reflectors.insert(lookup, Arc::downgrade(&registration));
        ReflectorHandle(registration)
    }

    /// Subscribes to changes of the store.
    #[must_use]
    pub fn changes(&self) -> Changes {
        Changes(self.0.store.subscribe())
    }

    /// The version of the current snapshot.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.0.store.version()
    }

    /// The current version of the store. Cheap: a pointer is cloned.
    #[must_use]
    pub fn snapshot(&self) -> Arc<LookupSnapshot> {
        self.0.store.snapshot()
    }

    /// The status of all lookups, sorted by resource and name.
    #[must_use]
    pub fn status(&self) -> Vec<ReflectorStatus> {
        let open = self.0.open.lock().unwrap_or_else(PoisonError::into_inner);
        let registrations: Vec<_> = open.reflectors.values().filter_map(Weak::upgrade).collect();
        // Dropping the last reference to a registration takes the lock, so it must be free.
        drop(open);
        let status = |registration: &Arc<Registration>| {
            let source = registration.source.load();
            ReflectorStatus {
                lookup: registration.lookup.clone(),
                state: registration.state.borrow().clone(),
                objects: self.0.store.objects(registration.id).map_or(0, |objects| objects.count()),
                stale: source.as_ref().is_some_and(|store| store.is_stale()),
                lag: source.as_ref().and_then(|store| store.status().lag),
            }
        };
        let mut all: Vec<_> = registrations.iter().map(status).collect();
        all.sort_by(|a, b| a.lookup.resource.cmp(&b.lookup.resource).then_with(|| a.lookup.name.cmp(&b.lookup.name)));
        all
    }

    /// Replaces the addresses of the node.
    pub(crate) fn set_addresses(&self, addresses: Arc<[InterfaceAddress]>) {
        self.0.store.set_addresses(addresses);
    }
}

impl ReflectorHandle {
    /// The lookup.
    #[must_use]
    pub fn lookup(&self) -> &Arc<LookupSpec> {
        &self.0.lookup
    }

    /// The current state.
    #[must_use]
    pub fn state(&self) -> ReflectorState {
        self.0.state.borrow().clone()
    }

    /// Waits until the objects are complete: listed, or restored from disk. Cancel-safe.
    ///
    /// While the API server is unavailable, this waits without a limit. The caller sets a timeout and reads the reason from
    /// [`ReflectorHandle::state`].
    ///
    /// # Errors
    /// Returns a [`ReflectorError`] that needs action by an operator. The reflector keeps retrying, so a later call may
    /// succeed.
    pub async fn synced(&self) -> Result<(), ReflectorError> {
        let mut state = self.0.state.clone();
        let decided = |state: &ReflectorState| {
            state.synced || state.error.as_ref().is_some_and(ReflectorError::needs_operator_action)
        };
        let state = state.wait_for(decided).await.map(|state| state.clone());
        match state {
            Ok(ReflectorState { synced: false, error: Some(error) }) => Err(error),
            Ok(_) => Ok(()),
            // The task of the reflector has ended because the daemon is stopping; the caller is stopping, too.
            Err(_) => std::future::pending().await,
        }
    }

    /// Waits until the state differs from `seen` and returns it. Cancel-safe.
    pub async fn state_after(&self, seen: &ReflectorState) -> ReflectorState {
        let mut state = self.0.state.clone();
        let new = state.wait_for(|state| state != seen).await.map(|state| state.clone());
        match new {
            Ok(state) => state,
            Err(_) => std::future::pending().await,
        }
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.stop.cancel();
        let Some(inner) = self.reflectors.upgrade() else {
            return;
        };
        let mut open = inner.open.lock().unwrap_or_else(PoisonError::into_inner);
        // The same lookup may have been opened again since the last handle was dropped.
        if open.reflectors.get(&self.lookup).is_some_and(|registration| registration.strong_count() == 0) {
            open.reflectors.remove(&self.lookup);
        }
        inner.store.remove(self.id);
    }
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reflectors").field("store", &self.store).finish_non_exhaustive()
    }
}
