//! All reflectors of the daemon: opened by lookup, shared by equal lookups, stopped when their last handle is dropped.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use weir_kube::{InterfaceAddress, LookupSpec};
use weir_upstream::Tasks;

use super::change::Changes;
use super::error::ReflectorError;
use super::reflector::{Reflector, ReflectorClient, ReflectorState};
use super::snapshot::{ReflectorId, Store, StoreSnapshot};
use super::timing::ReflectorTiming;

/// The status of one reflector, as the admin port reports it.
#[derive(Debug, Clone)]
pub struct ReflectorStatus {
    /// The lookup that the reflector serves.
    pub lookup: Arc<LookupSpec>,
    /// Its state.
    pub state: ReflectorState,
    /// The number of objects in the store.
    pub objects: usize,
}

/// The reflectors and their store. Clones share them.
#[derive(Debug, Clone)]
pub struct Reflectors(Arc<Inner>);

pub(super) struct Inner {
    client: Option<ReflectorClient>,
    timing: ReflectorTiming,
    tasks: Tasks,
    store: Arc<Store>,
    open: Mutex<OpenReflectors>,
}

#[derive(Debug, Default)]
struct OpenReflectors {
    reflectors: HashMap<Arc<LookupSpec>, Weak<Registration>>,
    last_id: u64,
}

/// Keeps a reflector running. Clones share it.
#[must_use = "a reflector stops when its last handle is dropped"]
#[derive(Debug, Clone)]
pub struct ReflectorHandle(Arc<Registration>);

/// Stops the reflector and removes its objects when it is dropped.
#[derive(Debug)]
struct Registration {
    lookup: Arc<LookupSpec>,
    id: ReflectorId,
    state: watch::Receiver<ReflectorState>,
    stop: CancellationToken,
    reflectors: Weak<Inner>,
}

impl Reflectors {
    /// Creates an empty set. Without a client every reflector reports [`ReflectorError::NoServer`].
    #[must_use]
    pub fn new(client: Option<ReflectorClient>, tasks: Tasks) -> Self {
        Self::with_timing(client, tasks, ReflectorTiming::default())
    }

    /// Like [`Reflectors::new`], with other timeouts and intervals.
    #[must_use]
    pub fn with_timing(client: Option<ReflectorClient>, tasks: Tasks, timing: ReflectorTiming) -> Self {
        let store = Arc::new(Store::new());
        Self(Arc::new(Inner { client, timing, tasks, store, open: Mutex::default() }))
    }

    /// Returns a handle to the reflector of a lookup, and starts the reflector if there is none.
    pub fn open(&self, lookup: &LookupSpec) -> ReflectorHandle {
        let inner = &self.0;
        let mut open = inner.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(registration) = open.reflectors.get(lookup).and_then(Weak::upgrade) {
            return ReflectorHandle(registration);
        }
        open.last_id += 1;
        let id = ReflectorId(open.last_id);
        let lookup = Arc::new(lookup.clone());
        let (sender, state) = watch::channel(ReflectorState::default());
        let stop = CancellationToken::new();
        inner.store.add(&lookup, id);
        match &inner.client {
            Some(client) => {
                let reflector =
                    Reflector::new(client.clone(), lookup.clone(), id, inner.store.clone(), sender, inner.timing);
                let stop = stop.clone();
                inner.tasks.spawn_until_stop(async move {
                    tokio::select! {
                        () = stop.cancelled() => {}
                        () = reflector.run() => {}
                    }
                });
            }
            None => {
                let error = ReflectorError::NoServer { resource: lookup.resource.clone() };
                sender.send_modify(|state| state.error = Some(error));
            }
        }
        let registration =
            Arc::new(Registration { lookup: lookup.clone(), id, state, stop, reflectors: Arc::downgrade(inner) });
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
    pub fn snapshot(&self) -> Arc<StoreSnapshot> {
        self.0.store.snapshot()
    }

    /// The status of all reflectors, sorted by resource and name.
    #[must_use]
    pub fn status(&self) -> Vec<ReflectorStatus> {
        let open = self.0.open.lock().unwrap_or_else(PoisonError::into_inner);
        let registrations: Vec<_> = open.reflectors.values().filter_map(Weak::upgrade).collect();
        // Dropping the last reference to a registration takes the lock, so it must be free.
        drop(open);
        let status = |registration: &Arc<Registration>| ReflectorStatus {
            lookup: registration.lookup.clone(),
            state: registration.state.borrow().clone(),
            objects: self.0.store.objects(&registration.lookup, registration.id).map_or(0, |objects| objects.count()),
        };
        let mut all: Vec<_> = registrations.iter().map(status).collect();
        all.sort_by(|a, b| a.lookup.resource.cmp(&b.lookup.resource).then_with(|| a.lookup.name.cmp(&b.lookup.name)));
        all
    }

    /// Replaces the addresses of the node.
    pub fn set_addresses(&self, addresses: Arc<[InterfaceAddress]>) {
        self.0.store.set_addresses(addresses);
    }
}

impl ReflectorHandle {
    /// The lookup that the reflector serves.
    #[must_use]
    pub fn lookup(&self) -> &Arc<LookupSpec> {
        &self.0.lookup
    }

    /// The current state of the reflector.
    #[must_use]
    pub fn state(&self) -> ReflectorState {
        self.0.state.borrow().clone()
    }

    /// Waits until the first list has completed. Cancel-safe.
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
        // Another reflector may have been opened for the same lookup since the last handle was dropped.
        if open.reflectors.get(&self.lookup).is_some_and(|registration| registration.strong_count() == 0) {
            open.reflectors.remove(&self.lookup);
        }
        inner.store.remove(&self.lookup, self.id);
    }
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reflectors").field("store", &self.store).finish_non_exhaustive()
    }
}
