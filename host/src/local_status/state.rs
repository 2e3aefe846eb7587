//! The local status of the node's pods: what was reported, and what clients see of it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use weir_runtime::ChainVersion;
use weir_store::disk::DiskCache;
use weir_store::{ResourceStores, StoreHandle, StoreReader};
use weir_upstream::{Upstream, clock};

use super::endpoints::PodReport;
use super::metrics::LocalStatusMetrics;
use super::node_pods::NodePods;
use super::overlay::{OverlaidPod, Overlay, PodKey};
use super::saved_status::{SavedPod, SavedReader, SavedStatus, StoredPod};
use weir_kube::{InvalidStatus, PodStatus, StatusPatch};

/// What the local status is made from.
pub(crate) struct LocalStatusConfig {
    /// The name of this node.
    pub(crate) node: String,
    /// The stores of the daemon.
    pub(crate) stores: ResourceStores,
    /// Knows whether an API server responds.
    pub(crate) upstream: Arc<Upstream>,
    /// Where reports outlive the process.
    pub(crate) disk: Option<Arc<DiskCache>>,
    /// Identifies the boot of the node; `None` if it is not known.
    pub(crate) boot_id: Option<String>,
    /// How long a peer may give no sign of life.
    pub(crate) peer_silence: Duration,
    /// Counts reports.
    pub(crate) metrics: Arc<LocalStatusMetrics>,
}

/// What kubelet has reported and the API server has not.
pub struct LocalStatus {
    pub(super) node: Arc<str>,
    pub(super) pods: NodePods,
    pub(super) upstream: Arc<Upstream>,
    pub(super) disk: Option<Arc<DiskCache>>,
    pub(super) boot_id: Option<String>,
    pub(super) peer_silence: Duration,
    metrics: Arc<LocalStatusMetrics>,
    pub(super) state: Mutex<State>,
    overlay: ArcSwap<Overlay>,
    /// Changes with the overlay.
    pub(super) generation: watch::Sender<u64>,
    /// Distinguishes the versions of this process from those of a former one.
    pub(super) epoch: u64,
    pub(super) phase: watch::Sender<Phase>,
    /// Signalled when there is something to save.
    pub(super) changed: Notify,
}

/// How far the local status is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// The file on disk is not read yet.
    Starting,
    /// Nothing was reported so far.
    Idle,
    /// Something was reported. From then on the filter stays in all chains, even if it changes nothing: its removal would
    /// cost some clients a list.
    Active,
}

#[derive(Debug, Default)]
pub(super) struct State {
    /// The identity of kubelet, and the store from which it reads its pods; `None` until it reports a pod.
    pub(super) kubelet: Option<(StoreReader, StoreHandle)>,
    /// The pods by the node that reports them, and uid.
    pub(super) pods: BTreeMap<PodKey, LocalPod>,
    /// The other Weirs of the pool, by node.
    pub(super) peers: BTreeMap<Arc<str>, PeerState>,
    /// The nodes whose pods count as not ready.
    pub(super) silent: BTreeSet<Arc<str>>,
}

/// What is known of a peer.
#[derive(Debug)]
pub(super) struct PeerState {
    /// When it gave the last sign of life; else when this process started.
    pub(super) heard: Instant,
    /// Whether its Weir knows reports, or is not known not to.
    pub(super) is_supported: bool,
    /// The version of its last message.
    pub(super) version: Option<u64>,
}

impl Default for PeerState {
    fn default() -> Self {
        Self { heard: Instant::now(), is_supported: true, version: None }
    }
}

/// A pod of this node, or of a peer's.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct LocalPod {
    pub(super) node: Arc<str>,
    /// The namespace and the name; empty for pods of peers.
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) report: PodReport,
    /// When it was reported.
    pub(super) since: Instant,
    /// What the API server had of the pod at that time.
    pub(super) stored: StoredPod,
    /// Whether a former process has left the report: the API server may have a later one.
    pub(super) is_former: bool,
    /// Whether the API server has taken the report.
    pub(super) is_accepted: bool,
    /// At this version, the API server's objects say what the report says; and since when that is known.
    pub(super) handed_over: Option<(u64, Instant)>,
}

impl LocalPod {
    pub(super) fn new(node: Arc<str>, namespace: &str, name: &str, report: PodReport) -> Self {
        Self {
            node,
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            report,
            since: Instant::now(),
            stored: StoredPod::default(),
            is_former: false,
            is_accepted: false,
            handed_over: None,
        }
    }

    /// Notes that the API server has this report of kubelet's.
    pub(super) fn accept(&mut self, pod: &Pod, status: PodStatus) {
        self.stored = StoredPod::of(pod, &status);
        (self.report, self.is_accepted) = (PodReport::Reported(status), true);
    }

    /// The value of the metric's label, and in `/caches`.
    pub(super) fn state(&self) -> &'static str {
        match (&self.report, self.handed_over) {
            (_, Some(_)) => "handed-over",
            (PodReport::Awaited, None) => "awaited",
            (PodReport::Reported(_), None) => "reported",
        }
    }
}

impl LocalStatus {
    /// Creates an empty local status. It reads the disk when it runs.
    pub(crate) fn new(config: LocalStatusConfig) -> Arc<Self> {
        let LocalStatusConfig { node, stores, upstream, disk, boot_id, peer_silence, metrics } = config;
        let epoch = clock::timestamp().as_millisecond().unsigned_abs() << 20;
        let node: Arc<str> = node.into();
        Arc::new(Self {
            pods: NodePods::new(node.clone(), stores),
            node,
            upstream,
            disk,
            boot_id,
            peer_silence,
            epoch,
            metrics,
            state: Mutex::default(),
            overlay: ArcSwap::default(),
            generation: watch::Sender::new(ChainVersion::tick()),
            phase: watch::Sender::new(Phase::Starting),
            changed: Notify::new(),
        })
    }

    /// Whether this is the identity of the node's kubelet, whose reports count.
    pub(crate) fn is_kubelet(&self, reader: &StoreReader) -> bool {
        self.pods.is_kubelet(reader)
    }

    /// Notes that kubelet reports its pods through Weir.
    pub(crate) fn follow(&self, kubelet: &StoreReader) {
        let mut state = self.state();
        if state.kubelet.as_ref().is_some_and(|(known, _)| known == kubelet) {
            return;
        }
        state.kubelet = self.pods.open(kubelet).map(|store| (kubelet.clone(), store));
        drop(state);
        self.changed.notify_one();
    }

    /// Whether something is known of a pod that the API server does not say.
    pub(crate) fn holds(&self, namespace: &str, name: &str) -> bool {
        self.state().pods.values().any(|pod| pod.namespace == namespace && pod.name == name)
    }

    /// Keeps what a patch says of a pod, which did not reach the API server.
    ///
    /// # Errors
    /// The patch is malformed.
    pub(crate) fn keep(&self, namespace: &str, name: &str, patch: &[u8]) -> Result<(), InvalidStatus> {
        let kept = self.kept(namespace, name, patch);
        self.metrics.report(if matches!(kept, Ok(true)) { "kept" } else { "ignored" });
        kept.map(drop)
    }

    fn kept(&self, namespace: &str, name: &str, patch: &[u8]) -> Result<bool, InvalidStatus> {
        let patch = StatusPatch::parse(patch)?;
        let uid = patch.uid()?;
        let mut state = self.state();
        let Some((_, store)) = &state.kubelet else { return Ok(false) };
        let pod = self.pods.get(store, namespace, name);
        // Another pod may have had this name.
        let Some(pod) = pod.filter(|pod| pod.metadata.uid.as_deref() == Some(uid)) else {
            tracing::debug!(
                namespace,
                name,
                uid,
                "kubelet reports a pod that is not among the cached pods of this node"
            );
            return Ok(false);
        };
        // The patch is the difference to what the API server has, and not to an earlier report.
        let stored = PodStatus::of(&pod)?;
        let reported = stored.patched(&patch)?;
        let key = self.own(uid);
        let known = state.pods.get(&key);
        if known.is_none() && reported.is_same_for_endpoints(&stored) && reported.phase == stored.phase {
            return Ok(false);
        }
        let report = PodReport::Reported(reported);
        if known.is_some_and(|known| known.report == report && known.handed_over.is_none()) {
            return Ok(true);
        }
        log_report(namespace, name, &report);
        let stored = StoredPod::of(&pod, &stored);
        let pod = LocalPod { stored, ..LocalPod::new(self.node.clone(), namespace, name, report) };
        state.pods.insert(key, pod);
        self.publish(&state);
        Ok(true)
    }

    fn own(&self, uid: &str) -> PodKey {
        PodKey { node: self.node.clone(), uid: uid.into() }
    }

    /// Notes that the API server has taken a patch. `pod` is its answer.
    pub(crate) fn accept(&self, pod: &Pod) -> Result<(), InvalidStatus> {
        let status = PodStatus::of(pod)?;
        let mut state = self.state();
        let uid = pod.metadata.uid.as_deref().unwrap_or_default();
        if let Some(known) = state.pods.get_mut(&self.own(uid)).filter(|known| known.handed_over.is_none()) {
            known.accept(pod, status);
            self.metrics.report("accepted");
            self.publish(&state);
        }
        Ok(())
    }

    /// Drops what is known of a pod: the API server says that it does not exist, or is another one.
    pub(crate) fn forget(&self, namespace: &str, name: &str) {
        let mut state = self.state();
        state.pods.retain(|_, pod| pod.namespace != namespace || pod.name != name);
        self.publish(&state);
    }

    /// Shows clients the present state.
    pub(super) fn publish(&self, state: &State) {
        let overlaid = |pod: &LocalPod| OverlaidPod {
            is_own: pod.node == self.node,
            node: pod.node.clone(),
            report: pod.report.clone(),
            until: pod.handed_over.map(|(version, _)| version),
        };
        let overlay: Overlay = state.pods.iter().map(|(key, pod)| (key.uid.clone(), overlaid(pod))).collect();
        let overlay = overlay.with_silent(state.silent.clone());
        for name in ["awaited", "reported", "handed-over"] {
            self.metrics.set_pods(name, state.pods.values().filter(|pod| pod.state() == name).count());
        }
        if *self.overlay.load_full() == overlay {
            return;
        }
        let is_empty = overlay.is_empty();
        self.overlay.store(Arc::new(overlay));
        self.generation.send_replace(ChainVersion::tick());
        if !is_empty {
            self.phase.send_if_modified(|phase| {
                let is_first = *phase == Phase::Idle;
                if is_first {
                    *phase = Phase::Active;
                }
                is_first
            });
        }
        self.changed.notify_one();
    }

    /// What clients see instead of the API server's objects.
    pub(super) fn overlay(&self) -> Arc<Overlay> {
        self.overlay.load_full()
    }

    /// The state to keep on disk; `None` if kubelet is no client.
    pub(super) fn to_saved(&self) -> Option<SavedStatus> {
        let state = self.state();
        let (reader, _) = state.kubelet.as_ref()?;
        let own = state.pods.iter().filter(|(_, pod)| pod.node == self.node && pod.handed_over.is_none());
        let pods = own.map(|(PodKey { uid, .. }, pod)| {
            let (namespace, name) = (pod.namespace.clone(), pod.name.clone());
            let (status, stored) = (pod.report.status().cloned(), pod.stored.clone());
            (uid.to_string(), SavedPod { namespace, name, status, stored })
        });
        Some(SavedStatus { boot_id: self.boot_id.clone(), kubelet: SavedReader::of(reader)?, pods: pods.collect() })
    }

    /// The pods for `/caches`.
    pub(crate) fn to_json(&self) -> Value {
        let state = self.state();
        let pods = state.pods.iter().map(|(PodKey { uid, .. }, pod)| {
            let status = pod.report.status();
            json!({
                "node": pod.node, "namespace": pod.namespace, "name": pod.name, "uid": uid, "state": pod.state(),
                "addresses": status.map(|status| &status.addresses),
                "ready": status.is_some_and(PodStatus::is_ready),
                "phase": status.map(|status| &status.phase),
            })
        });
        Value::Array(pods.collect())
    }

    pub(super) fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn log_report(namespace: &str, name: &str, report: &PodReport) {
    let PodReport::Reported(status) = report else { return };
    tracing::info!(
        namespace, name, addresses = ?status.addresses, ready = status.is_ready(), phase = status.phase,
        "kubelet's report of a pod stands in for the API server's objects, which it did not reach"
    );
}

impl fmt::Debug for LocalStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalStatus").field("node", &self.node).finish_non_exhaustive()
    }
}
