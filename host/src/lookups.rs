//! The cluster view of filters: reflectors in the daemon, files in `weir run` and `weir check`.

use std::collections::HashSet;
use std::sync::Arc;

use arc_swap::ArcSwapOption;
use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, try_join_all};
use weir_kube::GroupResource;
use weir_runtime::{ClusterView, Endpoint, LookupSource, Lookups, Snapshot};
use weir_spec::{CachedObject, InterfaceAddress, LookupSpec, Presence, Selection};
use weir_store::{FileObjects, FileObjectsError, LookupSnapshot, ReflectorHandle, Reflectors};

/// The cluster view of the daemon: snapshots of the reflectors' store.
#[derive(Debug)]
pub struct ReflectorView {
    reflectors: Reflectors,
    node_name: Box<str>,
    endpoint: Option<Endpoint>,
    /// The last snapshot. It is reused until the store changes.
    last: ArcSwapOption<ReflectorSnapshot>,
}

/// The cluster view of `weir run`, `weir check` and tests: objects from files, which never change.
#[derive(Debug, Clone)]
pub struct FileView {
    snapshot: Arc<FileSnapshot>,
    node_name: Box<str>,
    endpoint: Option<Endpoint>,
}

/// Opens reflectors for the lookups of filters, and returns the view of their store.
#[derive(Debug)]
pub struct ReflectorLookups(Arc<ReflectorView>);

/// A snapshot of the store.
#[derive(Debug)]
struct ReflectorSnapshot(Arc<LookupSnapshot>);

/// The objects from files, which have one version only, and the resources that the cluster of them does not serve.
#[derive(Debug)]
struct FileSnapshot(FileObjects, NotServed);

/// Resources, each with the versions that a lookup can read, of which an API server serves none.
pub type NotServed = HashSet<(GroupResource, Vec<String>)>;

/// The functions of [`Snapshot`], a trait of the runtime, by the queries of a type of the store. Neither crate knows the other.
macro_rules! delegated {
    () => {
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

        fn count(&self, lookup: &LookupSpec) -> usize {
            self.0.count(lookup)
        }

        fn objects_to_read(&self, lookup: &LookupSpec, namespace: Option<&str>, label_selector: &str) -> usize {
            self.0.objects_to_read(lookup, namespace, label_selector)
        }

        fn addresses(&self) -> Arc<[InterfaceAddress]> {
            self.0.addresses()
        }
    };
}

impl ReflectorView {
    /// Creates a view of these reflectors. `endpoint` is the address at which pods reach the daemon.
    #[must_use]
    pub fn new(reflectors: Reflectors, node_name: &str, endpoint: Option<Endpoint>) -> Self {
        Self { reflectors, node_name: node_name.into(), endpoint, last: ArcSwapOption::empty() }
    }
}

impl FileView {
    /// Creates a view without objects, of a node without a name.
    #[must_use]
    pub fn empty() -> Self {
        let snapshot = Arc::new(FileSnapshot(FileObjects::default(), NotServed::new()));
        Self { snapshot, node_name: Box::default(), endpoint: None }
    }

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
        let snapshot = Arc::new(FileSnapshot(FileObjects::new(objects, addresses)?, NotServed::new()));
        Ok(Self { snapshot, node_name: node_name.into(), endpoint })
    }

    /// Of a cluster that does not serve these resources: nothing is known of their objects. Without this, an object that no file has
    /// does not exist.
    #[must_use]
    pub fn of_cluster_without(self, resources: NotServed) -> Self {
        let snapshot = FileSnapshot(self.snapshot.0.clone(), resources);
        Self { snapshot: Arc::new(snapshot), ..self }
    }
}

impl ReflectorLookups {
    /// Creates the source of this view.
    #[must_use]
    pub fn new(view: ReflectorView) -> Self {
        Self(Arc::new(view))
    }
}

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
        self.snapshot.clone()
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
    delegated!();

    fn version(&self) -> u64 {
        self.0.version()
    }

    fn presence(&self, lookup: &LookupSpec, namespace: Option<&str>, name: &str) -> Presence {
        self.0.presence(lookup, namespace, name)
    }

    fn last_known(&self, lookup: &LookupSpec, namespace: Option<&str>, name: &str) -> Option<Arc<CachedObject>> {
        self.0.last_known(lookup, namespace, name)
    }

    fn find_last_known(
        &self,
        lookup: &LookupSpec,
        namespace: Option<&str>,
        label_selector: &str,
    ) -> Result<Arc<Selection>, String> {
        self.0.find_last_known(lookup, namespace, label_selector)
    }
}

impl Snapshot for FileSnapshot {
    delegated!();

    fn version(&self) -> u64 {
        0
    }

    fn presence(&self, lookup: &LookupSpec, namespace: Option<&str>, name: &str) -> Presence {
        match self.get(lookup, namespace, name) {
            Some(_) => Presence::Present,
            None if self.1.contains(&(lookup.resource.clone(), lookup.versions.clone())) => Presence::NotServed,
            None => Presence::Absent,
        }
    }
}

impl LookupSource for ReflectorLookups {
    fn view(&self) -> Arc<dyn ClusterView> {
        self.0.clone()
    }

    fn follow(&self, lookups: Vec<Arc<LookupSpec>>) -> BoxFuture<'static, Result<Lookups, String>> {
        let handles: Vec<ReflectorHandle> = lookups.iter().map(|lookup| self.0.reflectors.open(lookup)).collect();
        let reflectors = self.0.reflectors.clone();
        async move {
            reflectors.load_last_known().await;
            try_join_all(handles.iter().map(|handle| handle.synced())).await.map_err(|error| error.to_string())?;
            // They keep the reflectors open.
            Ok(Box::new(handles) as Lookups)
        }
        .boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_resource_that_is_not_served_nothing_is_known() {
        let pool = serde_json::json!({"apiVersion": "apps.openyurt.io/v1beta2", "kind": "NodePool", "metadata": {"name": "a"}});
        let lookup = |versions: &[&str]| LookupSpec {
            versions: versions.iter().map(|version| (*version).to_owned()).collect(),
            ..LookupSpec::all("nodepools.apps.openyurt.io".parse().unwrap())
        };
        let (newer, older) = (lookup(&["v1beta2"]), lookup(&["v1alpha1"]));
        let view = FileView::new("edge-a", [pool], Vec::new(), None).unwrap();
        let presence = |view: &FileView, lookup, name| view.snapshot().presence(lookup, None, name);
        assert_eq!(presence(&view, &older, "a"), Presence::Absent);
        let view = view.of_cluster_without([(older.resource.clone(), older.versions.clone())].into());
        assert_eq!(presence(&view, &older, "a"), Presence::NotServed);
        assert_eq!(presence(&view, &newer, "a"), Presence::Present);
        assert_eq!(presence(&view, &newer, "b"), Presence::Absent, "this version is served");
    }
}
