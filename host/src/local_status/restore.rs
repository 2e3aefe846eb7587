//! What is on disk of the local status, at the start.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use weir_kube::PodStatus;
use weir_store::StoreHandle;

use super::endpoints::PodReport;
use super::overlay::PodKey;
use super::saved_status::{SavedPod, SavedStatus, StoredPod};
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
            pods.retain(|uid, pod| own.is_empty() || is_present(uid, pod, &own));
            let mut state = self.state();
            let known = store.map(|store| (reader, store));
            state.kubelet = state.kubelet.take().or(known);
            let key = |uid: Arc<str>| PodKey { node: self.node.clone(), uid };
            state.pods.extend(pods.into_iter().map(|(uid, pod)| (key(uid), pod)));
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
            let stored = StoredPod::of(pod, &status);
            let pod = LocalPod { stored, ..LocalPod::new(self.node.clone(), namespace, name, PodReport::Awaited) };
            Some((uid.into(), pod))
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
    let local = |SavedPod { namespace, name, status, stored }| {
        let pod = LocalPod::new(node.clone(), &namespace, &name, status.into());
        LocalPod { stored, is_former: true, ..pod }
    };
    pods.into_iter().map(|(uid, pod)| (uid.into(), local(pod))).collect()
}

/// Whether a pod is among those on disk. The disk has stores and reports of one time: if the pod there is another one than when
/// it was reported, kubelet has reported to the API server since then.
fn is_present(uid: &str, pod: &mut LocalPod, own: &[Pod]) -> bool {
    // A kill may have lost that a report ended, because the API server has another pod of this name.
    let Some(found) = own.iter().find(|own| own.metadata.uid.as_deref() == Some(uid)) else { return false };
    let is_later = pod.stored.version.is_some() && pod.stored.version != found.metadata.resource_version;
    if is_later && let Ok(status) = PodStatus::of(found) {
        pod.accept(found, status);
    }
    true
}
