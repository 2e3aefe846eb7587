//! What filters may read beside their object: the runtime's view of the reflectors, and of files.

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, try_join_all};
use weir_document::{CachedObject, Selection};
use weir_kube::{Address, Lookup};
use weir_runtime::{ClusterView, Endpoint, LookupSource, LookupSubscription, Lookups, Snapshot};
use weir_store::{FeedHandle, Feeds, FileObjects, FilesError};

/// The daemon's world: its feeds, its node, its endpoint.
#[derive(Debug)]
pub struct FeedWorld {
    feeds: Feeds,
    node_name: Box<str>,
    endpoint: Option<Endpoint>,
    /// The last state that was given out: as long as it is the present one, it is given out again.
    last: ArcSwapOption<StoreSnapshot>,
}

/// One state of the feeds.
#[derive(Debug)]
struct StoreSnapshot(Arc<weir_store::Snapshot>);

/// A world from files: what `weir run`, `weir check` and tests give a filter. It never changes.
#[derive(Debug, Clone)]
pub struct FileWorld {
    objects: Arc<FileSnapshot>,
    node_name: Box<str>,
    endpoint: Option<Endpoint>,
}

#[derive(Debug)]
struct FileSnapshot(FileObjects);

/// Lookups answered from feeds, which are opened and kept for them.
#[derive(Debug)]
pub struct FeedLookups {
    feeds: Feeds,
    world: Arc<FeedWorld>,
}

impl FeedWorld {
    /// Over some feeds; `endpoint` is where pods reach the daemon.
    #[must_use]
    pub fn new(feeds: Feeds, node_name: &str, endpoint: Option<Endpoint>) -> Self {
        Self { feeds, node_name: node_name.into(), endpoint, last: ArcSwapOption::empty() }
    }
}

impl FileWorld {
    /// A world of these objects, as [`weir_store::read_objects`] gives them. A later object replaces an earlier one of the
    /// same kind, namespace and name.
    ///
    /// # Errors
    /// [`FilesError`], naming the object.
    pub fn new(
        node_name: &str,
        objects: impl IntoIterator<Item = serde_json::Value>,
        addresses: Vec<Address>,
        endpoint: Option<Endpoint>,
    ) -> Result<Self, FilesError> {
        let objects = Arc::new(FileSnapshot(FileObjects::new(objects, addresses)?));
        Ok(Self { objects, node_name: node_name.into(), endpoint })
    }
}

impl FeedLookups {
    /// Over the feeds of a world.
    #[must_use]
    pub fn new(world: FeedWorld) -> Self {
        Self { feeds: world.feeds.clone(), world: Arc::new(world) }
    }
}

/// Keeps the feeds of one filter open.
#[derive(Debug)]
struct FeedHandles(#[expect(dead_code, reason = "held for its drop")] Vec<FeedHandle>);

impl LookupSubscription for FeedHandles {}

impl ClusterView for FeedWorld {
    fn snapshot(&self) -> Arc<dyn Snapshot> {
        let now = self.feeds.snapshot();
        if let Some(last) = self.last.load_full().filter(|last| Arc::ptr_eq(&last.0, &now)) {
            return last;
        }
        let snapshot = Arc::new(StoreSnapshot(now));
        self.last.store(Some(snapshot.clone()));
        snapshot
    }

    fn version(&self) -> u64 {
        self.feeds.version()
    }

    fn node_name(&self) -> &str {
        &self.node_name
    }

    fn secure_endpoint(&self) -> Option<Endpoint> {
        self.endpoint.clone()
    }
}

impl ClusterView for FileWorld {
    fn snapshot(&self) -> Arc<dyn Snapshot> {
        self.objects.clone()
    }

    fn version(&self) -> u64 {
        0
    }

    fn node_name(&self) -> &str {
        &self.node_name
    }

    fn secure_endpoint(&self) -> Option<Endpoint> {
        self.endpoint.clone()
    }
}

impl Snapshot for StoreSnapshot {
    fn version(&self) -> u64 {
        self.0.version()
    }

    fn get(&self, lookup: &Lookup, namespace: Option<&str>, name: &str) -> Option<Arc<CachedObject>> {
        self.0.get(lookup, namespace, name)
    }

    fn find(&self, lookup: &Lookup, namespace: Option<&str>, label_selector: &str) -> Result<Arc<Selection>, String> {
        self.0.find(lookup, namespace, label_selector)
    }

    fn addresses(&self) -> Arc<[Address]> {
        self.0.addresses()
    }
}

impl Snapshot for FileSnapshot {
    fn version(&self) -> u64 {
        0
    }

    fn get(&self, lookup: &Lookup, namespace: Option<&str>, name: &str) -> Option<Arc<CachedObject>> {
        self.0.get(lookup, namespace, name)
    }

    fn find(&self, lookup: &Lookup, namespace: Option<&str>, label_selector: &str) -> Result<Arc<Selection>, String> {
        self.0.find(lookup, namespace, label_selector)
    }

    fn addresses(&self) -> Arc<[Address]> {
        self.0.addresses()
    }
}

impl LookupSource for FeedLookups {
    fn view(&self) -> Arc<dyn ClusterView> {
        self.world.clone()
    }

    fn follow(&self, lookups: Vec<Arc<Lookup>>) -> BoxFuture<'static, Result<Lookups, String>> {
        let handles: Vec<_> = lookups.iter().map(|lookup| self.feeds.open(lookup)).collect();
        async move {
            try_join_all(handles.iter().map(|handle| handle.synced())).await.map_err(|error| error.to_string())?;
            Ok(Box::new(FeedHandles(handles)) as Lookups)
        }
        .boxed()
    }
}
