//! All views of the daemon: opened by the first client, closed when unused for a while.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use weir_kube::{GroupResource, Query, ResourceRequest};
use weir_runtime::ServingReceiver;
use weir_store::cache::Collection;
use weir_store::disk::DiskCache;
use weir_store::{ResourceStores, StoreKey};
use weir_upstream::{Identity, Tasks};

use super::refresh::Refresh;
use super::state::View;

/// How long a view that no client reads is kept.
const IDLE: Duration = Duration::from_secs(600);
/// The most views.
const MAX_VIEWS: usize = 256;

/// How wide a reflector of a resource is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ScopePolicy {
    /// All objects, read with the daemon's own identity: every node needs all of them, and many clients read them.
    Whole,
    /// What the request selects, read with the identity of its client: the local Node, the node's pods and their Secrets.
    Requested,
}

impl ScopePolicy {
    /// A node reads only its own Node and pods, and only the Secrets and ConfigMaps of its pods.
    fn of(resource: &GroupResource) -> Self {
        match (resource.group.as_str(), resource.resource.as_str()) {
            ("", "pods" | "nodes" | "secrets" | "configmaps") => Self::Requested,
            _ => Self::Whole,
        }
    }
}

/// The settings of the views.
#[derive(Debug, Clone)]
pub struct ViewsConfig {
    /// The cached resources.
    pub resources: Vec<GroupResource>,
    /// The stores that views show.
    pub stores: ResourceStores,
}

/// What distinguishes a view from others.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct ViewKey {
    /// The identity with which the objects are read upstream.
    reader: Identity,
    collection: Collection,
    /// The client component, in lower case; `None` for the unfiltered view that peers read.
    component: Option<String>,
}

/// All views.
pub struct Views {
    config: ViewsConfig,
    serving: ServingReceiver,
    tasks: Tasks,
    open: Mutex<OpenViews>,
}

#[derive(Default)]
struct OpenViews {
    views: HashMap<ViewKey, OpenView>,
    /// The highest version that clients have got, by resource.
    handed_out: HashMap<GroupResource, Arc<AtomicU64>>,
}

struct OpenView {
    view: Arc<View>,
    used: Instant,
    stop: CancellationToken,
}

impl Views {
    /// Creates an empty set of views. They start when the first filter set is active.
    #[must_use]
    pub fn new(config: ViewsConfig, serving: ServingReceiver, tasks: Tasks) -> Arc<Self> {
        Arc::new(Self { config, serving, tasks, open: Mutex::default() })
    }

    /// Whether views serve reads of a resource.
    pub(crate) fn serve(&self, resource: &GroupResource) -> bool {
        self.config.resources.contains(resource)
    }

    /// The identity with which the objects that serve a read are read upstream; `None` if no view serves the read. Clients
    /// with another identity need permission.
    pub(crate) fn reader(&self, identity: Identity, request: &ResourceRequest) -> Option<Identity> {
        if !self.serve(&request.resource) || request.subresource.is_some() {
            return None;
        }
        match ScopePolicy::of(&request.resource) {
            ScopePolicy::Whole => Some(Identity::Daemon),
            ScopePolicy::Requested => {
                (identity == Identity::Node && self.config.stores.can_read_as(identity)).then_some(identity)
            }
        }
    }

    /// Returns the view that serves a read of an authorized client, and opens it if it is not; `None` if no view does.
    ///
    /// A get is served by the view of a collection: the whole one, or one that is open and has the object.
    pub(crate) fn view(
        self: &Arc<Self>,
        component: &str,
        reader: Identity,
        request: &ResourceRequest,
        query: &Query,
    ) -> Option<Arc<View>> {
        let component = Some(component.to_ascii_lowercase());
        let collection = match (ScopePolicy::of(&request.resource), &request.name) {
            (ScopePolicy::Whole, _) => Collection::whole(request),
            (ScopePolicy::Requested, Some(name)) => return self.find(component.as_deref(), reader, request, name),
            (ScopePolicy::Requested, None) => {
                let selector = |key| query.first(key).unwrap_or_default();
                Collection::narrowed(request, selector("fieldSelector"), selector("labelSelector"))
            }
        };
        self.open_view(&ViewKey { reader, collection, component })
    }

    /// Returns the unfiltered view of all objects of a resource, and opens it if it is not. `None`: the resource is not cached.
    pub(crate) fn unfiltered(self: &Arc<Self>, request: &ResourceRequest) -> Option<Arc<View>> {
        let cached = self.serve(&request.resource) && ScopePolicy::of(&request.resource) == ScopePolicy::Whole;
        let collection = cached.then(|| Collection::whole(request))?;
        self.open_view(&ViewKey { reader: Identity::Daemon, collection, component: None })
    }

    /// Finds an open view that has an object, or that knows that it does not exist.
    fn find(
        &self,
        component: Option<&str>,
        identity: Identity,
        request: &ResourceRequest,
        name: &str,
    ) -> Option<Arc<View>> {
        let open = self.open();
        let namespace = request.namespace.as_deref();
        let same = |key: &ViewKey| {
            key.component.as_deref() == component
                && key.reader == identity
                && key.collection.resource == request.resource
        };
        let views: Vec<_> = open.views.iter().filter(|(key, _)| same(key)).map(|(_, found)| &found.view).collect();
        let key = StoreKey::new(namespace.unwrap_or_default(), name);
        let has = views.iter().find(|view| view.snapshot().objects.contains_key(&key));
        has.or_else(|| views.iter().find(|view| view.covers(namespace, name))).map(|view| (*view).clone())
    }

    /// Returns a view if it is open.
    fn get(&self, key: &ViewKey) -> Option<Arc<View>> {
        let mut open = self.open();
        let found = open.views.get_mut(key)?;
        found.used = Instant::now();
        Some(found.view.clone())
    }

    /// Returns a view, and opens it if it is not; `None` if there are too many.
    fn open_view(self: &Arc<Self>, key: &ViewKey) -> Option<Arc<View>> {
        if let Some(view) = self.get(key) {
            return Some(view);
        }
        let mut open = self.open();
        if open.views.len() >= MAX_VIEWS {
            tracing::warn!(collection = %key.collection, component = key.component.as_deref().unwrap_or("peers"), limit = MAX_VIEWS, "too many views, the request is forwarded");
            return None;
        }
        let store = self.config.stores.open(key.reader, &key.collection)?;
        let handed_out = open.handed_out(&key.collection.resource).load(Ordering::Acquire);
        let view = Arc::new(View::new(store, handed_out));
        let stop = CancellationToken::new();
        let refresh = Refresh::new(view.clone(), key.component.clone(), self.serving.clone());
        self.spawn(stop.clone(), refresh.run());
        open.views.insert(key.clone(), OpenView { view: view.clone(), used: Instant::now(), stop });
        tracing::info!(collection = %key.collection, component = key.component.as_deref().unwrap_or("peers"), "view opened");
        Some(view)
    }

    fn spawn(&self, stop: CancellationToken, task: impl Future<Output = ()> + Send + 'static) {
        self.tasks.spawn_until_stop(async move {
            tokio::select! {
                () = stop.cancelled() => {}
                () = task => {}
            }
        });
    }

    /// The cache on disk, if there is one.
    pub(crate) fn disk(&self) -> Option<Arc<DiskCache>> {
        self.config.stores.disk()
    }

    /// Notes that a client got this version of a resource, whichever way.
    pub(crate) fn hand_out(&self, resource: &GroupResource, version: u64) {
        let mut open = self.open();
        open.handed_out(resource).fetch_max(version, Ordering::AcqRel);
        for (key, found) in &open.views {
            if key.collection.resource == *resource {
                found.view.hand_out(version);
            }
        }
    }

    /// Closes views that no client has read for a while. Runs until it is dropped.
    pub(crate) async fn close_idle(self: Arc<Self>) {
        let mut interval = tokio::time::interval(IDLE / 10);
        loop {
            interval.tick().await;
            let mut open = self.open();
            // An open watch holds the view.
            let idle = |found: &OpenView| found.used.elapsed() > IDLE && Arc::strong_count(&found.view) <= 2;
            open.views.retain(|key, found| {
                let keep = !idle(found);
                if !keep {
                    found.stop.cancel();
                    tracing::info!(collection = %key.collection, component = key.component.as_deref().unwrap_or("peers"), "view closed, no client reads it");
                }
                keep
            });
        }
    }

    fn open(&self) -> std::sync::MutexGuard<'_, OpenViews> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OpenViews {
    fn handed_out(&mut self, resource: &GroupResource) -> &Arc<AtomicU64> {
        self.handed_out.entry(resource.clone()).or_default()
    }
}

impl std::fmt::Debug for Views {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Views").field("open", &self.open().views.len()).finish_non_exhaustive()
    }
}
