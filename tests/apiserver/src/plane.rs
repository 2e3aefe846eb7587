//! The shared state of all requests: the store, the catalogue, the policy, the hook, and what tests observe.
//!
//! It lives as long as the server. Each part documents its bound.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use serde_json::json;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::access::Access;
use crate::body::Gzip;
use crate::catalog::Catalog;
use crate::fault::{End, Hook};
use crate::fixed::FixedBodies;
use crate::list_cache::ListCache;
use crate::record::{Gauge, RequestLog};
use crate::store::ObjectStore;
use crate::stream::PodLog;

/// The server without its connections.
pub(crate) struct Plane {
    pub(crate) store: ObjectStore,
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) access: Access,
    pub(crate) record: RequestLog,
    pub(crate) watches: Gauge,
    /// Open log streams and upgraded connections.
    pub(crate) streams: Gauge,
    pub(crate) signals: watch::Sender<Signals>,
    pub(crate) bookmarks: Duration,
    pub(crate) fixed: FixedBodies,
    pub(crate) lists: ListCache,
    gzip: RwLock<Gzip>,
    hook: RwLock<Option<Hook>>,
    /// The echo tasks of upgraded connections. They end with the server.
    tasks: Mutex<JoinSet<()>>,
    logs: Mutex<BTreeMap<(String, String), PodLog>>,
}

/// The signals to all running watches. An increment of a counter is one signal.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Signals {
    pub(crate) closed: u64,
    pub(crate) end: End,
    pub(crate) bookmark: u64,
}

// === impl Plane ===

impl Plane {
    pub(crate) fn new(
        store: ObjectStore,
        catalog: Arc<Catalog>,
        access: Access,
        record: RequestLog,
        bookmarks: Duration,
        gzip: Gzip,
    ) -> Self {
        Self {
            store,
            catalog,
            access,
            record,
            watches: Gauge::new(),
            streams: Gauge::new(),
            signals: watch::Sender::new(Signals::default()),
            bookmarks,
            fixed: FixedBodies::default(),
            lists: ListCache::default(),
            gzip: RwLock::new(gzip),
            hook: RwLock::default(),
            tasks: Mutex::default(),
            logs: Mutex::default(),
        }
    }

    /// The namespaces of every new cluster.
    pub(crate) fn seed(&self) {
        for name in ["default", "kube-node-lease", "kube-public", "kube-system"] {
            let namespace = json!({
                "apiVersion": "v1",
                "kind": "Namespace",
                "metadata": {"name": name, "labels": {"kubernetes.io/metadata.name": name}},
                "spec": {"finalizers": ["kubernetes"]},
                "status": {"phase": "Active"},
            });
            // A server built without the namespace resource has none.
            let _ = self.store.put(namespace);
        }
    }

    pub(crate) fn gzip(&self) -> Gzip {
        *self.gzip.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn set_gzip(&self, gzip: Gzip) {
        *self.gzip.write().unwrap_or_else(PoisonError::into_inner) = gzip;
    }

    pub(crate) fn hook(&self) -> Option<Hook> {
        let hook = self.hook.read().unwrap_or_else(PoisonError::into_inner);
        hook.clone()
    }

    pub(crate) fn set_hook(&self, hook: Option<Hook>) {
        *self.hook.write().unwrap_or_else(PoisonError::into_inner) = hook;
    }

    /// Runs a task until it ends or the server is dropped.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        while tasks.try_join_next().is_some() {}
        tasks.spawn(task);
    }

    /// Ends the tasks of [`Plane::spawn`].
    pub(crate) fn stop(&self) {
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        tasks.abort_all();
    }

    /// The log of a pod's only container, created on first use.
    pub(crate) fn log(&self, namespace: &str, pod: &str) -> PodLog {
        let mut logs = self.logs.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (namespace.to_owned(), pod.to_owned());
        logs.entry(key).or_default().clone()
    }
}
