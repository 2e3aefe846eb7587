//! All stores of the daemon: opened by collection, shared by all readers of one, closed when their last handle
//! is dropped.

use std::collections::HashMap;
use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Instant;

use http::HeaderMap;
use tokio_util::sync::CancellationToken;
use weir_kube::{GroupResource, LabelSelector};
use weir_spec::LookupSpec;
use weir_upstream::{DelegatedCredential, Delegation, Tasks};

use super::cache::{CheckConfig, Collection, ObjectContent, ReflectorClient, ResourceReflector, ResourceStore};
use super::cluster_watch::ClusterWatch;
use super::disk::{Confidentiality, DiskCache, DiskStoreStatus, PersistHandle, StoreName};
use super::peers::{PeerOrder, Peers};
use super::store_reader::{ImpersonatedUser, StoreReader};
use super::timing::ReflectorTiming;
use super::uplink::UplinkLimit;

/// What stores are filled from.
#[derive(Clone, Default)]
#[expect(missing_debug_implementations, reason = "kube's client has none")]
pub struct ResourceStoresConfig {
    /// Reads with the daemon's own identity; `None` without an API server.
    pub daemon: Option<ReflectorClient>,
    /// Reads with the node credential; `None` if there is none.
    pub node: Option<ReflectorClient>,
    /// Reads as a user that the daemon impersonates; `None` if it impersonates nobody.
    pub users: Option<UserClients>,
    /// Reads with the credential that a client delegates; `None` if no store is filled for such clients.
    pub delegated: Option<DelegatedClients>,
    /// The other Weirs of the pool, from which stores of the daemon's identity may be filled.
    pub peers: Peers,
    /// Timeouts and intervals of reflectors.
    pub timing: ReflectorTiming,
    /// Bounds what lists take from the link to the API server.
    pub uplink: Option<UplinkLimit>,
    /// Where stores outlive the process; `None` keeps them in memory only.
    pub disk: Option<Arc<DiskCache>>,
    /// How stores are compared with the API server.
    pub check: CheckConfig,
    /// The resources of which clients read whole stores. Lookups of them read the same ones.
    pub shared: Vec<GroupResource>,
}

/// Returns the client of a user; `None` if it cannot be impersonated.
pub type UserClients = Arc<dyn Fn(&ImpersonatedUser) -> Option<ReflectorClient> + Send + Sync>;

/// Returns the client that sends with a delegated credential.
pub type DelegatedClients = Arc<dyn Fn(DelegatedCredential) -> ReflectorClient + Send + Sync>;

/// The open stores. Clones share them.
#[derive(Clone)]
pub struct ResourceStores(Arc<Inner>);

struct Inner {
    config: ResourceStoresConfig,
    cluster: Arc<ClusterWatch>,
    tasks: Tasks,
    open: Mutex<HashMap<StoreId, Weak<OpenStore>>>,
    /// Delegated credentials by their owner. An entry without a delegation and without a store is removed.
    delegated: Mutex<HashMap<Arc<str>, DelegatedCredential>>,
}

/// What distinguishes a store from others.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct StoreId {
    reader: StoreReader,
    collection: Collection,
}

/// Keeps a store open. Clones share it.
#[must_use = "a store is closed when its last handle is dropped"]
#[derive(Clone)]
pub struct StoreHandle(Arc<OpenStore>);

/// Stops the reflector of the store when it is dropped.
struct OpenStore {
    id: StoreId,
    store: Arc<ResourceStore>,
    stop: CancellationToken,
    stores: Weak<Inner>,
    opened: Instant,
    /// Keeps the store on disk while it is open.
    _persist: Option<PersistHandle>,
}

impl StoreId {
    /// The name of the store on disk.
    fn name(&self) -> StoreName {
        StoreName::new(&self.reader.to_string(), &self.collection)
    }

    fn confidentiality(&self) -> Confidentiality {
        match (self.collection.resource.group.as_str(), self.collection.resource.resource.as_str()) {
            ("", "secrets") => Confidentiality::Encrypted,
            _ => Confidentiality::Plain,
        }
    }

    /// Whether the store is kept on disk. Secrets are only for the kubelet that needs them to restart pods.
    fn is_persistent(&self) -> bool {
        match self.reader {
            StoreReader::Private(_) => false,
            StoreReader::Daemon => self.confidentiality() == Confidentiality::Plain,
            StoreReader::Node | StoreReader::User(_) | StoreReader::Client(_) => true,
        }
    }
}

impl ResourceStores {
    /// Creates an empty set. [`ResourceStores::confirm_cluster`] has to run beside it.
    #[must_use]
    pub fn new(config: ResourceStoresConfig, tasks: Tasks) -> Self {
        let cluster = config.disk.as_ref().map_or_else(Arc::default, |disk| disk.cluster_watch());
        Self(Arc::new(Inner { config, cluster, tasks, open: Mutex::default(), delegated: Mutex::default() }))
    }

    /// Whether there is a credential of this identity to read with.
    #[must_use]
    pub fn can_read_as(&self, reader: &StoreReader) -> bool {
        match reader {
            StoreReader::Client(_) => self.0.config.delegated.is_some(),
            StoreReader::Private(reader) => self.can_read_as(reader),
            _ => self.0.client(reader).is_some(),
        }
    }

    /// Delegates the credential of a client's request to the stores that are read with it, until the result is dropped. `None` if
    /// the reader is not a client.
    #[must_use]
    pub fn delegate(&self, reader: &StoreReader, credential: HeaderMap) -> Option<Delegation> {
        match reader {
            StoreReader::Client(owner) => Some(self.0.delegated_by(owner).delegate(credential)),
            StoreReader::Private(reader) => self.delegate(reader, credential),
            _ => None,
        }
    }

    /// Returns the store of a collection, read with this identity, and opens it if it is not. `None` if there is no
    /// credential of the identity.
    ///
    /// An opened store starts with its objects on disk, if they are there.
    pub fn open(&self, reader: &StoreReader, collection: &Collection) -> Option<StoreHandle> {
        let id = StoreId { reader: reader.clone(), collection: collection.clone() };
        let mut open = self.0.open();
        if let Some(found) = open.get(&id).and_then(Weak::upgrade) {
            return Some(StoreHandle(found));
        }
        let opened = Arc::new(self.0.open_store(&id, Arc::downgrade(&self.0))?);
        open.insert(id, Arc::downgrade(&opened));
        Some(StoreHandle(opened))
    }

    /// Opens the store that a lookup reads, in a version that the API server serves: the whole one if clients share it, else
    /// one that has what the lookup selects. A metadata-only lookup reads an open store of whole objects if there is one.
    pub(super) fn open_lookup(&self, lookup: &LookupSpec, version: &str) -> Option<StoreHandle> {
        let own = Collection::of_lookup(lookup, version);
        // The API server reports an invalid selector.
        let selectable = LabelSelector::parse(&own.label_selector).is_ok();
        if selectable && self.0.config.shared.contains(&lookup.resource) {
            return self.open(&StoreReader::Daemon, &own.widened());
        }
        let with_content = Collection { content: ObjectContent::WithoutManagedFields, ..own.clone() };
        let found = self.find(with_content).filter(|_| lookup.metadata_only);
        found.or_else(|| self.open(&StoreReader::Daemon, &own))
    }

    /// The API versions in which the daemon reads all objects of a resource.
    pub(super) fn versions_in_use(&self, resource: &GroupResource) -> Vec<String> {
        let open = self.0.open();
        let whole = |id: &&StoreId| {
            let StoreId { reader, collection } = id;
            *reader == StoreReader::Daemon && collection.resource == *resource && collection.is_whole()
        };
        let mut versions: Vec<_> = open.keys().filter(whole).map(|id| id.collection.version.clone()).collect();
        versions.sort();
        versions
    }

    /// Returns a store that the daemon reads if it is open.
    fn find(&self, collection: Collection) -> Option<StoreHandle> {
        self.0.open().get(&StoreId { reader: StoreReader::Daemon, collection }).and_then(Weak::upgrade).map(StoreHandle)
    }

    /// The client and the timing of the daemon's own reads; `None` without an API server.
    pub(super) fn daemon(&self) -> Option<(ReflectorClient, ReflectorTiming)> {
        Some((self.0.config.daemon.clone()?, self.0.config.timing))
    }

    /// Runs a task until it ends, until `stop`, or until the daemon stops.
    pub(super) fn spawn(&self, stop: CancellationToken, task: impl Future<Output = ()> + Send + 'static) {
        self.0.spawn(stop, task);
    }

    /// All open stores, in a stable order.
    #[must_use]
    pub fn all(&self) -> Vec<StoreHandle> {
        // The lock is not held when a handle is dropped: the last one takes it.
        let mut open: Vec<_> = self.0.open().values().filter_map(Weak::upgrade).map(StoreHandle).collect();
        open.sort_by_key(|store| store.0.id.name());
        open
    }

    /// Returns the watch of the cluster that answers.
    #[must_use]
    pub fn cluster_watch(&self) -> Arc<ClusterWatch> {
        self.0.cluster.clone()
    }

    /// The cache on disk, if there is one.
    #[must_use]
    pub fn disk(&self) -> Option<Arc<DiskCache>> {
        self.0.config.disk.clone()
    }
}

impl Inner {
    fn client(&self, reader: &StoreReader) -> Option<ReflectorClient> {
        match reader {
            StoreReader::Daemon => self.config.daemon.clone(),
            StoreReader::Node => self.config.node.clone(),
            StoreReader::User(user) => self.config.users.as_ref().and_then(|client| client(user)),
            StoreReader::Client(owner) => self.config.delegated.as_ref().map(|client| client(self.delegated_by(owner))),
            StoreReader::Private(reader) => self.client(reader),
        }
    }

    /// Returns the delegated credential of this client.
    fn delegated_by(&self, owner: &Arc<str>) -> DelegatedCredential {
        let mut delegated = self.delegated.lock().unwrap_or_else(PoisonError::into_inner);
        delegated.retain(|_, credential| credential.is_used());
        delegated.entry(owner.clone()).or_default().clone()
    }

    fn open_store(&self, id: &StoreId, stores: Weak<Self>) -> Option<OpenStore> {
        let client = self.client(&id.reader)?;
        let peers = match id.reader {
            StoreReader::Daemon => self.config.peers.order(&id.collection.resource, &id.collection.to_string()),
            _ => PeerOrder::default(),
        };
        let reflector = ResourceReflector::new(client, id.collection.clone(), self.config.timing)
            .with_uplink_limit(self.config.uplink.clone())
            .private(id.reader.is_private())
            .with_peers(peers);
        let store = reflector.store();
        let stop = CancellationToken::new();
        self.spawn(stop.clone(), follow_cluster(store.clone(), self.cluster.clone()));
        let disk = self.config.disk.clone().filter(|_| id.is_persistent());
        if disk.is_some() {
            store.begin_restore();
        }
        self.spawn(stop.clone(), reflector.check(self.config.check.clone(), id.name().to_string()).run());
        self.spawn(stop.clone(), reflector.consistent_reads().run());
        let (id_of, store_of, stop_of) = (id.clone(), store.clone(), stop.clone());
        let opened = |persist| OpenStore {
            id: id_of,
            store: store_of,
            stop: stop_of,
            stores,
            opened: Instant::now(),
            _persist: persist,
        };
        let Some(disk) = disk else {
            self.spawn(stop.clone(), reflector.run());
            return Some(opened(None));
        };
        let (name, confidentiality) = (id.name(), id.confidentiality());
        let persist = disk.persist(name.clone(), store.clone(), confidentiality);
        let opened = opened(Some(persist));
        self.spawn(stop.clone(), async move {
            match disk.restore(&name, confidentiality).await {
                Some(snapshot)
                    if store.room().allows(snapshot.objects.values().map(|object| object.bytes.len()).sum()) =>
                {
                    store.set_refused(disk.store_status(&name).is_some_and(|status| status.refused));
                    let (objects, version) = (snapshot.objects.size(), snapshot.version);
                    tracing::info!(store = %name, objects, version, "store restored from disk");
                    reflector.run_restored(snapshot, disk.other_cluster()).await;
                }
                _ => reflector.run().await,
            }
        });
        Some(opened)
    }

    fn spawn(&self, stop: CancellationToken, task: impl Future<Output = ()> + Send + 'static) {
        self.tasks.spawn_until_stop(async move {
            tokio::select! {
                () = stop.cancelled() => {}
                () = task => {}
            }
        });
    }

    fn open(&self) -> std::sync::MutexGuard<'_, HashMap<StoreId, Weak<OpenStore>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Requests another look at the cluster when a store has lost its connection, and another list of the store when the cluster has
/// changed: its versions may continue the former ones.
async fn follow_cluster(store: Arc<ResourceStore>, cluster: Arc<ClusterWatch>) {
    let (mut changes, mut questions) = (cluster.changes(), store.trust().questions());
    let mut known = changes.borrow_and_update().from_server;
    loop {
        tokio::select! {
            changed = changes.changed() => {
                let found = changes.borrow_and_update().from_server;
                if changed.is_err() {
                    return;
                }
                if std::mem::replace(&mut known, found) != found {
                    store.note_cluster_change(found);
                }
            }
            () = questions.next() => cluster.doubt(),
        }
    }
}

impl StoreHandle {
    /// The collection of the store.
    #[must_use]
    pub fn collection(&self) -> &Collection {
        &self.0.id.collection
    }

    /// When it was opened, before its first list.
    #[must_use]
    pub fn opened(&self) -> Instant {
        self.0.opened
    }

    /// The identity with which the store is read.
    #[must_use]
    pub fn reader(&self) -> &StoreReader {
        &self.0.id.reader
    }

    /// Whether there are other handles of the store.
    #[must_use]
    pub fn is_shared(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }

    /// What of the store is on disk; `None` if nothing is.
    #[must_use]
    pub fn disk_status(&self) -> Option<DiskStoreStatus> {
        self.0.stores.upgrade()?.config.disk.as_ref()?.store_status(&self.0.id.name())
    }
}

impl Deref for StoreHandle {
    type Target = Arc<ResourceStore>;

    fn deref(&self) -> &Self::Target {
        &self.0.store
    }
}

impl Drop for OpenStore {
    fn drop(&mut self) {
        self.stop.cancel();
        let Some(stores) = self.stores.upgrade() else { return };
        let mut open = stores.open();
        // The same collection may have been opened again since the last handle was dropped.
        if open.get(&self.id).is_some_and(|found| found.strong_count() == 0) {
            open.remove(&self.id);
        }
    }
}

impl fmt::Debug for ResourceStores {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResourceStores").field("open", &self.0.open().len()).finish_non_exhaustive()
    }
}

impl fmt::Debug for StoreHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("StoreHandle").field(&self.0.id).finish()
    }
}
