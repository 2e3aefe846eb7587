//! What all requests share: the store, the catalogue, the policy, the hook, and what tests observe.
//!
//! Lives as long as the server. Each part says what bounds it.

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
use crate::fixed::Fixed;
use crate::kept::Kept;
use crate::record::{Gauge, Record};
use crate::store::Store;
use crate::stream::PodLog;

/// The server behind its connections.
pub(crate) struct Plane {
    pub(crate) store: Store,
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) access: Access,
    pub(crate) record: Record,
    pub(crate) watches: Gauge,
    /// Log streams and upgraded connections.
    pub(crate) streams: Gauge,
    pub(crate) signals: watch::Sender<Signals>,
    pub(crate) bookmarks: Duration,
    pub(crate) fixed: Fixed,
    pub(crate) lists: Kept,
    gzip: RwLock<Gzip>,
    hook: RwLock<Option<Hook>>,
    /// Echoes of upgraded connections; ended with the server.
    tasks: Mutex<JoinSet<()>>,
    logs: Mutex<BTreeMap<(String, String), PodLog>>,
}

/// What all running watches are told; each counter says that it happened once more.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Signals {
    pub(crate) closed: u64,
    pub(crate) end: End,
    pub(crate) bookmark: u64,
}

// === impl Plane ===

impl Plane {
    pub(crate) fn new(
        store: Store,
        catalog: Arc<Catalog>,
        access: Access,
        record: Record,
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
            fixed: Fixed::default(),
            lists: Kept::default(),
            gzip: RwLock::new(gzip),
            hook: RwLock::default(),
            tasks: Mutex::default(),
            logs: Mutex::default(),
        }
    }

    /// The namespaces that every cluster has.
    pub(crate) fn seed(&self) {
        for name in ["default", "kube-node-lease", "kube-public", "kube-system"] {
            let namespace = json!({
                "apiVersion": "v1",
                "kind": "Namespace",
                "metadata": {"name": name, "labels": {"kubernetes.io/metadata.name": name}},
                "spec": {"finalizers": ["kubernetes"]},
                "status": {"phase": "Active"},
            });
            // A server built without namespaces has none.
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

    /// Runs something until it ends or the server does.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        while tasks.try_join_next().is_some() {}
        tasks.spawn(task);
    }

    /// Ends what [`Plane::spawn`] started.
    pub(crate) fn stop(&self) {
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        tasks.abort_all();
    }

    /// The log of a pod's only container, made when first asked for.
    pub(crate) fn log(&self, namespace: &str, pod: &str) -> PodLog {
        let mut logs = self.logs.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (namespace.to_owned(), pod.to_owned());
        logs.entry(key).or_default().clone()
    }
}
