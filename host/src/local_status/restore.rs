//! What is on disk of the local status, at the start.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use weir_kube::PodStatus;
use weir_store::StoreHandle;

use super::endpoints::PodReport;
use super::saved_status::{SavedPod, SavedStatus};
use super::state::{LocalPod, LocalStatus, Phase};

/// The longest time that the start waits for the disk.
const RESTORE: Duration = Duration::from_secs(5);

impl LocalStatus {
    /// Takes what is on disk. After a restart of the node, the addresses of its pods are most likely dead.
    pub(super) async fn restore(&self) {
        let saved = match &self.disk {
            // Requests wait for this: not longer for a disk that hangs.
            Some(disk) => tokio::time::timeout(RESTORE, SavedStatus::read(disk)).await.ok().flatten(),
            None => None,
        };
        if let Some(SavedStatus { boot_id, kubelet, pods }) = saved {
            let reader = kubelet.reader();
            let store = self.pods.open(&reader);
            let rebooted = boot_id.is_some() && self.boot_id.is_some() && boot_id != self.boot_id;
            let own = match &store {
                Some(store) => self.on_disk(store).await,
                None => Vec::new(),
            };
            let mut pods = if rebooted { self.awaited(&own) } else { former(&self.node, pods) };
            // A kill may have lost that a report ended, because the API server has another pod of this name.
            let exists = |uid: &str| own.iter().any(|pod| pod.metadata.uid.as_deref() == Some(uid));
            pods.retain(|uid, _| own.is_empty() || exists(uid));
            let mut state = self.state();
            let known = store.map(|store| (reader, store));
            state.kubelet = state.kubelet.take().or(known);
            state.pods.extend(pods);
            self.publish(&state);
            self.changed.notify_one();
        }
        // The lock: no report comes in between.
        let _state = self.state();
        self.phase.send_replace(if self.overlay().is_empty() { Phase::Idle } else { Phase::Active });
    }

    /// Waits until what is on disk is read: it must not replace later reports.
    pub(crate) async fn restored(&self) {
        // The sender lives as long as this.
        let _ = self.phase.subscribe().wait_for(|phase| *phase != Phase::Starting).await;
    }

    /// The pods of this node, as they were on disk.
    async fn on_disk(&self, store: &StoreHandle) -> Vec<Pod> {
        if tokio::time::timeout(RESTORE, store.restored()).await.is_err() {
            tracing::warn!(timeout = ?RESTORE, "the pods of this node are not restored from disk yet, their endpoints stay as they are");
        }
        self.pods.all(store)
    }

    /// The pods that had addresses before the node was restarted.
    fn awaited(&self, own: &[Pod]) -> BTreeMap<Arc<str>, LocalPod> {
        let pods = own.iter().filter_map(|pod| {
            let on_host = pod.spec.as_ref().and_then(|spec| spec.host_network).unwrap_or_default();
            let status = PodStatus::of(pod).ok()?;
            if on_host || status.is_terminal() || status.addresses.is_empty() {
                return None;
            }
            let (uid, namespace) = (pod.metadata.uid.as_deref()?, pod.metadata.namespace.as_deref()?);
            let name = pod.metadata.name.as_deref()?;
            Some((uid.into(), LocalPod::new(self.node.clone(), namespace, name, PodReport::Awaited)))
        });
        let pods: BTreeMap<_, _> = pods.collect();
        tracing::info!(
            pods = pods.len(),
            "the node was restarted: the endpoints of its pods are not ready until kubelet reports them"
        );
        pods
    }
}

/// The pods as they were reported before this daemon started.
fn former(node: &Arc<str>, pods: BTreeMap<String, SavedPod>) -> BTreeMap<Arc<str>, LocalPod> {
    let local = |SavedPod { namespace, name, status }| LocalPod::new(node.clone(), &namespace, &name, status.into());
    pods.into_iter().map(|(uid, pod)| (uid.into(), local(pod))).collect()
}
