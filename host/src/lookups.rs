//! The cluster view of filters: the store of the reflectors in the daemon, files in `weir run` and `weir check`.

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, try_join_all};
use weir_document::{CachedObject, Selection};
use weir_kube::{InterfaceAddress, LookupSpec};
use weir_runtime::{ClusterView, Endpoint, LookupSource, LookupSubscription, Lookups, Snapshot};
use weir_store::{FileObjects, FileObjectsError, ReflectorHandle, Reflectors};

/// The cluster view of the daemon, backed by reflectors.
#[derive(Debug)]
pub struct ReflectorView {
    reflectors: Reflectors,
    node_name: Box<str>,
    endpoint: Option<Endpoint>,
    /// The last snapshot, which is shared until the store changes.
    last: ArcSwapOption<ReflectorSnapshot>,
}

/// A snapshot of the store.
#[derive(Debug)]
struct ReflectorSnapshot(Arc<weir_store::StoreSnapshot>);

/// A fixed cluster view from files, for `weir run`, `weir check` and tests.
#[derive(Debug, Clone)]
pub struct FileView {
    objects: Arc<FileSnapshot>,
    node_name: Box<str>,
    endpoint: Option<Endpoint>,
}

#[derive(Debug)]
struct FileSnapshot(FileObjects);

/// Opens reflectors for the lookups of filters.
#[derive(Debug)]
pub struct ReflectorLookups {
    reflectors: Reflectors,
    view: Arc<ReflectorView>,
}

impl ReflectorView {
    /// Reads from these reflectors. `endpoint` is the address at which pods reach the daemon.
    #[must_use]
    pub fn new(reflectors: Reflectors, node_name: &str, endpoint: Option<Endpoint>) -> Self {
        Self { reflectors, node_name: node_name.into(), endpoint, last: ArcSwapOption::empty() }
    }
}

impl FileView {
    /// Collects the objects that [`weir_store::read_objects`] returned. An object replaces an earlier one of the same kind,
    /// namespace and name.
    ///
    /// # Errors
    /// The error names the first invalid object.
    pub fn new(
        node_name: &str,
        objects: impl IntoIterator<Item = serde_json::Value>,
        addresses: Vec<InterfaceAddress>,
        endpoint: Option<Endpoint>,
    ) -> Result<Self, FileObjectsError> {
        let objects = Arc::new(FileSnapshot(FileObjects::new(objects, addresses)?));
        Ok(Self { objects, node_name: node_name.into(), endpoint })
    }
}

impl ReflectorLookups {
    /// Opens the reflectors of this view.
    #[must_use]
    pub fn new(view: ReflectorView) -> Self {
        Self { reflectors: view.reflectors.clone(), view: Arc::new(view) }
    }
}

/// Keeps the reflectors of one filter open.
#[derive(Debug)]
struct OpenReflectors(#[expect(dead_code, reason = "held for its drop")] Vec<ReflectorHandle>);

impl LookupSubscription for OpenReflectors {}

impl ClusterView for ReflectorView {
    fn snapshot(&self) -> Arc<dyn Snapshot> {
        let now = self.reflectors.snapshot();
        if let Some(last) = self.last.load_full().filter(|last| Arc::ptr_eq(&last.0, &now)) {
            return last;
        }
        let snapshot = Arc::new(ReflectorSnapshot(now));
        self.last.store(Some(snapshot.clone()));
        snapshot
    }

    fn version(&self) -> u64 {
        self.reflectors.version()
    }

    fn node_name(&self) -> &str {
        &self.node_name
    }

    fn secure_endpoint(&self) -> Option<Endpoint> {
        self.endpoint.clone()
    }
}

impl ClusterView for FileView {
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

impl Snapshot for ReflectorSnapshot {
    fn version(&self) -> u64 {
        self.0.version()
    }

    fn get(&self, lookup: &LookupSpec, namespace: Option<&str>, name: &str) -> Option<Arc<CachedObject>> {
        self.0.get(lookup, namespace, name)
    }

    fn find(
        &self,
        lookup: &LookupSpec,
        namespace: Option<&str>,
        label_selector: &str,
    ) -> Result<Arc<Selection>, String> {
        self.0.find(lookup, namespace, label_selector)
    }

    fn addresses(&self) -> Arc<[InterfaceAddress]> {
        self.0.addresses()
    }
}

impl Snapshot for FileSnapshot {
    fn version(&self) -> u64 {
        0
    }

    fn get(&self, lookup: &LookupSpec, namespace: Option<&str>, name: &str) -> Option<Arc<CachedObject>> {
        self.0.get(lookup, namespace, name)
    }

    fn find(
        &self,
        lookup: &LookupSpec,
        namespace: Option<&str>,
        label_selector: &str,
    ) -> Result<Arc<Selection>, String> {
        self.0.find(lookup, namespace, label_selector)
    }

    fn addresses(&self) -> Arc<[InterfaceAddress]> {
        self.0.addresses()
    }
}

impl LookupSource for ReflectorLookups {
    fn view(&self) -> Arc<dyn ClusterView> {
        self.view.clone()
    }

    fn follow(&self, lookups: Vec<Arc<LookupSpec>>) -> BoxFuture<'static, Result<Lookups, String>> {
        let handles: Vec<_> = lookups.iter().map(|lookup| self.reflectors.open(lookup)).collect();
        async move {
            try_join_all(handles.iter().map(|handle| handle.synced())).await.map_err(|error| error.to_string())?;
            Ok(Box::new(OpenReflectors(handles)) as Lookups)
        }
        .boxed()
    }
}
