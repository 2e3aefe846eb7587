//! All views of the daemon: opened by the first client, closed when unused for a while.

mod following;
mod open_views;

use std::collections::HashSet;
use std::sync::{Arc, Weak};
use std::time::Duration;

use http::HeaderMap;
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;
use weir_kube::{GroupResource, Identity, KUBELET, ResourceRequest, Verb, VerbClass};
use weir_runtime::{ChainVersion, ServingReceiver};
use weir_store::CacheDifference;
use weir_store::cache::Collection;
use weir_store::disk::DiskCache;
use weir_store::{ResourceStores, StoreHandle, StoreKey, StoreReader};
use weir_upstream::{Delegation, Tasks};

pub use self::open_views::Opener;
use self::open_views::{OpenViews, SharedViews, ViewKey};
use super::api_services::ApiServices;
use super::chain_stamps::ChainStamps;
use super::component_view::ComponentView;
use super::metrics::CacheMetrics;
use super::object::ViewObject;
use super::permit::Permit;
use super::readers::Component;
use super::refresh::{Others, Refresh};
use super::scope::{self, ScopePolicy};
use super::state::{Shows, View, ViewSnapshot};
use super::status::CacheStatus;
use super::watch_memory::{FLOOR, WatchMemory};
use crate::cached_resources::CachedResources;
use weir_process::ledger::{Ledger, OverShare, Owner};
use weir_process::sync::MutexGuard;

/// How often views that no client reads are looked for.
const IDLE_CHECK: Duration = Duration::from_secs(10);
/// How long a client may read nothing after its position has left the history. At most twice as long.
const STUCK: Duration = Duration::from_secs(1);

/// The settings of the views.
#[derive(Clone)]
#[expect(missing_debug_implementations, reason = "kube's client has none")]
pub struct ViewsConfig {
    /// The cached resources.
    pub resources: CachedResources,
    /// The client components, in lower case, whose lists of Secrets are cached.
    pub secrets_for: Vec<String>,
    /// The stores that views show.
    pub stores: ResourceStores,
    /// Asks which API groups the API server itself serves.
    pub client: kube::Client,
    /// Counts what views send.
    pub metrics: Arc<CacheMetrics>,
    /// The bytes that are held for each owner.
    pub ledger: Ledger,
    /// The most bytes that all histories together keep alive, and with them what watches have yet to send.
    pub watch_memory: usize,
}

/// All views.
pub struct Views {
    this: Weak<Self>,
    /// The resources that are cached whatever the filters are.
    named: HashSet<GroupResource>,
    /// Whether a resource that a filter matches is cached, too.
    matched: bool,
    secrets_for: Vec<String>,
    stores: ResourceStores,
    api_services: Arc<ApiServices>,
    metrics: Arc<CacheMetrics>,
    watch_memory: WatchMemory,
    chain_stamps: Arc<ChainStamps>,
    ledger: Ledger,
    serving: ServingReceiver,
    tasks: Tasks,
    open: SharedViews,
}

impl Views {
    /// Creates an empty set of views. They start when the first filter set is active.
    #[must_use]
    pub fn new(config: ViewsConfig, serving: ServingReceiver, tasks: Tasks) -> Arc<Self> {
        let ViewsConfig { resources, secrets_for, stores, client, metrics, watch_memory, ledger } = config;
        let views = Arc::new_cyclic(|this| Self {
            this: this.clone(),
            named: resources.named().into_iter().collect(),
            matched: resources == CachedResources::Default,
            secrets_for,
            api_services: ApiServices::new(client, stores.disk(), tasks.clone()),
            stores,
            metrics,
            watch_memory: WatchMemory::new(watch_memory),
            chain_stamps: Arc::default(),
            ledger,
            serving,
            tasks,
            open: SharedViews::default(),
        });
        views.tasks.spawn_until_stop(limit_watches(Arc::downgrade(&views)));
        views
    }

    /// Whether views are shared by clients. Else there are only private ones.
    pub fn are_shared(&self) -> bool {
        self.matched || !self.named.is_empty()
    }

    /// Whether shared views serve a client's reads of a resource.
    pub fn serve(&self, component: &str, request: &ResourceRequest) -> bool {
        self.named.contains(&request.resource) || (self.matched && self.is_matched(component, request))
    }

    /// Whether a filter matches a resource whose reads do not depend on the user, and that is worth a watch.
    fn is_matched(&self, component: &str, request: &ResourceRequest) -> bool {
        let GroupResource { resource, group } = &request.resource;
        // Nothing reads events and leases so often that a watch pays. Component statuses are the one kind that the API server
        // itself lists but does not watch.
        if matches!(resource.as_str(), "events" | "leases" | "componentstatuses") {
            return false;
        }
        let serving = self.serving.borrow();
        let chain = serving.live().and_then(|set| set.chain(component, &request.resource, VerbClass::Read));
        chain.is_some() && self.api_services.is_local(group, &request.version)
    }

    /// Whether the API server itself is known to serve a group, and no aggregated API server.
    pub fn is_known_local(&self, group: &str, version: &str) -> bool {
        self.api_services.is_known_local(group, version)
    }

    /// The same of a resource that views serve, when the API server has said so.
    pub async fn is_found_local(&self, request: &ResourceRequest) -> bool {
        self.api_services.is_found_local(&request.resource.group, &request.version).await
    }

    /// The identity with which the objects that serve a read are read upstream; `None` if no view serves the read. Clients
    /// need permission for what they did not read themselves. `owner` returns the owner of the client's own credential.
    pub fn reader(
        &self,
        identity: Identity,
        headers: &HeaderMap,
        component: &str,
        request: &ResourceRequest,
        owner: impl FnOnce() -> Option<Arc<str>>,
    ) -> Option<StoreReader> {
        if request.subresource.is_some() || !self.serve(component, request) {
            return None;
        }
        scope::reader(identity, headers, request, self.keep_secrets_for(component), owner)
            .filter(|reader| self.stores.can_read_as(reader))
    }

    fn keep_secrets_for(&self, component: &str) -> bool {
        self.secrets_for.iter().any(|name| name.eq_ignore_ascii_case(component))
    }

    /// Whether the answer to a get is kept for the time without an API server: what a node reads to start, and the cached
    /// resources. Secrets are kept for kubelet with the rights of a node, and for the components that may keep them.
    pub fn may_remember(
        &self,
        identity: Identity,
        headers: &HeaderMap,
        component: &str,
        request: &ResourceRequest,
    ) -> bool {
        let (is_node, is_kubelet) = (scope::is_node(identity, headers), component.eq_ignore_ascii_case(KUBELET));
        match scope::is_confidential(&request.resource) {
            true => (is_node && is_kubelet) || self.keep_secrets_for(component),
            false => is_node || is_kubelet || self.serve(component, request),
        }
    }

    /// Whether there is a credential of this identity to read with.
    pub fn can_read_as(&self, reader: &StoreReader) -> bool {
        self.stores.can_read_as(reader)
    }

    /// Delegates the credential of a client's request to the stores that are read with it. `None` for other readers of stores.
    pub fn delegate(&self, reader: &StoreReader, credential: HeaderMap) -> Option<Delegation> {
        self.stores.delegate(reader, credential)
    }

    /// The resources that are cached whatever the filters are.
    pub fn named_resources(&self) -> Vec<GroupResource> {
        let mut named: Vec<_> = self.named.iter().cloned().collect();
        named.sort();
        named
    }

    /// Returns the view that serves a read of an authorized client, and opens it if it is not; `None` if no view does.
    ///
    /// A get is served by the view of a collection: the whole one, or one that some component reads and that has the object.
    ///
    /// # Errors
    /// The view would exceed the share of the owner.
    pub fn view(&self, permit: &Permit, opener: Opener<'_>) -> Result<Option<ComponentView>, OverShare> {
        let component = named(opener.component);
        let (reader, request) = (permit.reader(), permit.resource());
        let of_object = || {
            let name = request.name.as_ref().filter(|_| request.verb == Verb::Get)?;
            self.open().holding(reader, request, name).map(|view| view.collection.clone())
        };
        match permit.collection().cloned().or_else(of_object) {
            Some(collection) => self.open_view(reader, collection, &component, opener),
            None => Ok(None),
        }
    }

    /// Whether an open view serves gets of an object while no API server can be reached.
    pub fn hold(&self, reader: &StoreReader, request: &ResourceRequest) -> bool {
        let Some(name) = &request.name else { return false };
        match ScopePolicy::of(&request.resource) {
            ScopePolicy::Requested => {
                let found = self.open().holding(reader, request, name).cloned();
                // One that waits for its first list has nothing to serve, and one without a delegated credential misses what
                // has changed since.
                found.is_some_and(|view| view.is_current())
            }
            ScopePolicy::Whole => {
                let collection = Collection::whole(request);
                let open = self.open();
                let mut views = open.views.iter();
                views.any(|(key, found)| {
                    key.reader == StoreReader::Daemon
                        && key.collection == collection
                        && found.view.reflector_state().borrow().synced
                })
            }
        }
    }

    /// Whether the API server refuses the reader of a permit any of the resource's objects that an open view shows.
    pub fn is_refused(&self, permit: &Permit) -> bool {
        let open = self.open();
        open.of(permit.reader(), &permit.resource().resource).any(|(_, view)| view.is_refused())
    }

    /// Returns an object, hidden or not, as an open view shows it to a component, beside all objects of that view. `None`: no view of
    /// the component has it.
    pub fn shown_to(
        &self,
        component: &str,
        reader: &StoreReader,
        request: &ResourceRequest,
    ) -> Option<(Arc<ViewSnapshot>, Arc<ViewObject>)> {
        let open = self.open();
        let period = open.period(&named(component), &request.resource)?;
        with_object(&open, reader, request, |key| key.period == period)
    }

    /// Returns an object as any open view has it, whichever components that is for.
    pub fn shown(
        &self,
        reader: &StoreReader,
        request: &ResourceRequest,
    ) -> Option<(Arc<ViewSnapshot>, Arc<ViewObject>)> {
        with_object(&self.open(), reader, request, |_| true)
    }

    /// Returns the unfiltered view of all objects of a resource, and opens it if it is not. `None`: the resource is not cached.
    pub fn unfiltered(&self, request: &ResourceRequest) -> Option<ComponentView> {
        let cached = self.named.contains(&request.resource) && ScopePolicy::of(&request.resource) == ScopePolicy::Whole;
        let collection = cached.then(|| Collection::whole(request))?;
        // All peers share it.
        let opener = Opener { component: "peers", owner: &Owner::Daemon, opens: true };
        self.open_view(&StoreReader::Daemon, collection, &None, opener).ok().flatten()
    }

    fn open_view(
        &self,
        reader: &StoreReader,
        collection: Collection,
        component: &Component,
        opener: Opener<'_>,
    ) -> Result<Option<ComponentView>, OverShare> {
        let key = |open: &mut OpenViews| {
            self.follow(open);
            let period = open.period(component, &collection.resource)?;
            Some(open.found_by(component, ViewKey { reader: reader.clone(), collection, period, copy: 0 }))
        };
        let found = self.open.find_or_open(&self.ledger, opener, key, |open, key| {
            let store = self.stores.open(&key.reader, &key.collection)?;
            let counters = self.metrics.counters(&key.collection.resource);
            let chain = open.chain(component, &key.collection.resource);
            let shows = Shows { period: key.period.clone(), chain };
            let view = Arc::new(View::new(store, component, shows, counters, self.watch_memory.clone()));
            self.refresh(&view);
            Some(view)
        })?;
        Ok(found.map(|(view, open)| {
            let view = ComponentView::new(view, component);
            drop(open);
            view
        }))
    }

    /// Keeps a view up to date until it is closed.
    fn refresh(&self, view: &Arc<View>) {
        let (serving, stamps) = (self.serving.clone(), self.chain_stamps.clone());
        let refresh = Refresh::new(view.clone(), Box::new(self.this.clone()), serving, stamps);
        let closed = view.closed().clone();
        self.tasks.spawn_until_stop(async move { closed.run_until_cancelled(refresh.run()).await.unwrap_or_default() });
    }

    /// The stamps of the chains that the views show.
    pub fn chain_stamps(&self) -> &Arc<ChainStamps> {
        &self.chain_stamps
    }

    /// The cache on disk, if there is one.
    pub fn disk(&self) -> Option<Arc<DiskCache>> {
        self.stores.disk()
    }

    /// All stores with their views, in a stable order.
    pub fn status(&self) -> Vec<CacheStatus> {
        let stores = self.stores.all();
        let open = self.open();
        let views = |store: &StoreHandle| {
            let same = |key: &ViewKey| key.reader == *store.reader() && key.collection == *store.collection();
            let found = open.views.iter().filter(|(key, _)| same(key));
            let mut views: Vec<_> = found.map(|(_, found)| found.view.clone()).collect();
            views.sort_by_cached_key(|view| view.component_names());
            views
        };
        stores.iter().map(|store| CacheStatus::of(store, views(store))).collect()
    }

    /// Notes the version that a stream from the API server gave to a client, as a chain version of its component shows it; `None`:
    /// failure policies decided on some of it.
    pub fn end_stream(&self, component: &str, resource: &GroupResource, version: u64, shown_by: Option<ChainVersion>) {
        let open = self.open();
        let period = open.period(&named(component), resource);
        let is_of = |key: &ViewKey| key.collection.resource == *resource && Some(&key.period) == period.as_ref();
        open.views.iter().filter(|(key, _)| is_of(key)).for_each(|(_, found)| found.view.end_stream(version, shown_by));
    }

    /// Forgets the stamps when the cluster's history is found to be another one. Runs until it is dropped.
    pub async fn follow_history(self: Arc<Self>, mut differences: broadcast::Receiver<CacheDifference>) {
        loop {
            match differences.recv().await {
                Ok(found) if !found.goes_on => {}
                Ok(_) | Err(RecvError::Lagged(_)) => self.chain_stamps.forget(),
                Err(RecvError::Closed) => return,
            }
        }
    }

    /// Closes views that no client has read for a while. Runs until it is dropped.
    pub async fn close_idle(self: Arc<Self>) {
        let mut interval = tokio::time::interval(IDLE_CHECK);
        loop {
            interval.tick().await;
            self.open().close_idle();
        }
    }

    /// The open views, which show what the filter set in force makes, or begin to.
    fn open(&self) -> MutexGuard<'_, OpenViews> {
        let mut open = self.open.lock();
        self.follow(&mut open);
        open
    }

    fn follow(&self, open: &mut OpenViews) {
        let set = self.serving.borrow().live().cloned();
        let forks = set.map(|set| open.follow(set)).unwrap_or_default();
        forks.iter().for_each(|view| self.refresh(view));
    }
}

/// Finds an object in one of these views of a reader.
fn with_object(
    open: &OpenViews,
    reader: &StoreReader,
    request: &ResourceRequest,
    is_asked: impl Fn(&ViewKey) -> bool,
) -> Option<(Arc<ViewSnapshot>, Arc<ViewObject>)> {
    let key = StoreKey::new(request.namespace.as_deref().unwrap_or_default(), request.name.as_deref()?);
    let mut views = open.of(reader, &request.resource).filter(|(of, _)| is_asked(of));
    views.find_map(|(_, view)| {
        let snapshot = view.snapshot();
        let object = snapshot.objects.get(&key)?.clone();
        Some((snapshot, object))
    })
}

impl Others for Weak<Views> {
    fn follow(&self) -> Option<()> {
        // To ask for the open views is enough.
        self.upgrade().map(|views| drop(views.open()))
    }

    fn note_degraded(&self, of: &Arc<View>, version: u64) {
        let Some(views) = self.upgrade() else { return };
        let open = views.open();
        let own = open.views.iter().find(|(_, found)| Arc::ptr_eq(&found.view, of)).map(|(key, _)| key);
        let is_other =
            |key: &ViewKey| own.is_some_and(|own| key != own && key.has_store_of(own) && key.period == own.period);
        open.views.iter().filter(|(key, _)| is_other(key)).for_each(|(_, found)| found.view.end_stream(version, None));
    }
}

/// A client component as views name it.
fn named(component: &str) -> Component {
    Some(component.to_ascii_lowercase().into())
}

/// Closes the connections of clients that do not read their watches, and divides the memory of watches.
async fn limit_watches(views: Weak<Views>) {
    let mut interval = tokio::time::interval(STUCK);
    loop {
        interval.tick().await;
        let Some(views) = views.upgrade() else { return };
        let open: Vec<_> = views.open().views.values().map(|found| found.view.clone()).collect();
        open.iter().for_each(|view| view.close_stuck_watches());
        divide(&views.watch_memory, &open, &views.stores.all());
        // A view is dropped outside the lock: its store may be the last handle.
        drop(open);
        views.open().recount(&views.ledger);
    }
}

/// Takes memory from the views that hold more than a fair share if little is left. The histories of stores hold few bytes of their
/// own: the events of their views keep the same objects alive.
fn divide(memory: &WatchMemory, views: &[Arc<View>], stores: &[StoreHandle]) {
    let limit = memory.total();
    stores.iter().for_each(|store| store.limit_history((limit / 4 / stores.len()).max(FLOOR)));
    if !memory.is_scarce() {
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

impl std::fmt::Debug for Views {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Views").field("open", &self.open().views.len()).finish_non_exhaustive()
    }
}
