//! Gives the pods back to the API server: a report is dropped when the API server's objects say the same, or after a while.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use weir_kube::PodStatus;
use weir_store::StoreHandle;

use super::endpoints::PodReport;
use super::overlay::PodKey;
use super::saved_status::SavedStatus;
use super::state::{LocalPod, LocalStatus, State};

/// How often reports are compared with the API server's objects while it can be reached.
const COMPARE: Duration = Duration::from_millis(500);
/// How long a report holds while the API server can be reached.
const MAX_HAND_OVER: Duration = Duration::from_secs(60);
/// How long a report that was handed over covers objects of older versions: views may have to catch up.
const CATCH_UP: Duration = Duration::from_secs(10);
/// After this time without a reader of the node's pods, kubelet is no client any more.
const UNREAD: Duration = Duration::from_secs(900);

/// Since when conditions hold that end something after a while.
#[derive(Debug, Default)]
struct Since {
    online: Option<Instant>,
    unread: Option<Instant>,
}

/// Whether a store has what the API server says: after a start it is empty at first, then as it was on disk.
fn follows(store: &StoreHandle) -> bool {
    store.state().borrow().synced && !store.is_stale()
}

impl LocalStatus {
    /// Restores what is on disk, saves changes, and hands reports over. Runs until it is dropped.
    pub(crate) async fn run(self: Arc<Self>) {
        self.restore().await;
        let mut interval = tokio::time::interval(COMPARE);
        interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut since = Since::default();
        loop {
            tokio::select! {
                () = self.changed.notified() => self.save().await,
                _ = interval.tick() => self.hand_over(&mut since),
            }
        }
    }

    async fn save(&self) {
        let Some(disk) = &self.disk else { return };
        match self.to_saved() {
            Some(saved) => saved.write(disk).await,
            None => SavedStatus::remove(disk).await,
        }
    }

    fn hand_over(&self, since: &mut Since) {
        let mut state = self.state();
        let is_reachable = self.upstream.is_reachable();
        self.check_silence(&mut state, is_reachable);
        if !is_reachable {
            *since = Since::default();
            self.publish(&state);
            return;
        }
        let now = Instant::now();
        let online = *since.online.get_or_insert(now);
        self.forget_kubelet(&mut state, &mut since.unread);
        let own = state.kubelet.as_ref().map(|(_, store)| store.clone()).filter(follows);
        let mut dropped = Vec::new();
        state.pods.retain(|PodKey { uid, .. }, pod| {
            let is_gone = own.as_ref().filter(|_| pod.node == self.node).is_some_and(|store| {
                let stored = self.pods.get(store, &pod.namespace, &pod.name);
                stored.is_none_or(|stored| stored.metadata.uid.as_deref() != Some(uid))
            });
            let is_over = match pod.handed_over {
                Some((_, at)) => at.elapsed() > CATCH_UP,
                // As long as a peer says it, the API server does not.
                None if pod.node != self.node && !pod.is_accepted => false,
                None => pod.since.max(online).elapsed() > MAX_HAND_OVER,
            };
            if is_gone || is_over {
                dropped.push((pod.clone(), is_gone));
            }
            !is_gone && !is_over
        });
        if let Some(store) = &own {
            self.take_later(&mut state, store);
        }
        self.compare(&mut state, own.as_ref());
        self.publish(&state);
        // Now it is true.
        for (pod, deleted) in dropped {
            let agreed = pod.handed_over.is_some();
            let LocalPod { node, namespace, name, .. } = pod;
            tracing::info!(%node, namespace, name, agreed, deleted, "the API server's objects of a pod are shown again");
        }
    }

    /// Takes what kubelet has reported to the API server, where a former process has left an earlier report. Addresses identify
    /// it: only kubelet writes them.
    fn take_later(&self, state: &mut State, own: &StoreHandle) {
        for pod in state.pods.values_mut().filter(|pod| pod.is_former && !pod.is_accepted && pod.handed_over.is_none())
        {
            let Some(stored) = self.pods.get(own, &pod.namespace, &pod.name) else { continue };
            let Ok(status) = PodStatus::of(&stored) else { continue };
            let reported = pod.report.status().map(|status| &status.addresses);
            if pod.stored.version.is_some()
                && status.addresses != pod.stored.addresses
                && reported != Some(&status.addresses)
            {
                pod.accept(&stored, status);
            }
        }
    }

    /// Marks the pods of which the API server's objects say what kubelet has reported.
    fn compare(&self, state: &mut State, own: Option<&StoreHandle>) {
        let is_taken = |pod: &LocalPod| {
            let PodReport::Reported(reported) = &pod.report else { return false };
            let stored = || {
                let stored = self.pods.get(own.filter(|_| pod.node == self.node)?, &pod.namespace, &pod.name)?;
                Some(PodStatus::of(&stored).ok()?.is_same_for_endpoints(reported))
            };
            pod.handed_over.is_none() && (pod.is_accepted || stored().unwrap_or_default())
        };
        let taken: HashSet<_> =
            state.pods.iter().filter(|(_, pod)| is_taken(pod)).map(|(key, _)| key.clone()).collect();
        if taken.is_empty() {
            return;
        }
        let Some((version, differing)) = self.differing(&taken) else { return };
        let version = version.max(own.map_or(0, |store| store.snapshot().version));
        for (key, pod) in &mut state.pods {
            if taken.contains(key) && !differing.contains(key) {
                pod.handed_over = Some((version, Instant::now()));
            }
        }
    }

    /// The pods whose reports change an EndpointSlice or Endpoints object, and the latest version of these. `None` while a
    /// store does not follow the API server.
    fn differing(&self, pods: &HashSet<PodKey>) -> Option<(u64, HashSet<PodKey>)> {
        let overlay = self.overlay();
        let publishes = |namespace: &str, name: &str| self.pods.publishes_not_ready(namespace, name);
        let (mut latest, mut differing) = (0, HashSet::new());
        for store in self.pods.endpoint_stores() {
            if !follows(&store) {
                return None;
            }
            let snapshot = store.snapshot();
            latest = latest.max(snapshot.version);
            for object in snapshot.objects.values() {
                let document = snapshot.format.document(object.bytes.clone());
                let Ok(found) = overlay.pods_in(&document) else { continue };
                for key in found.into_iter().filter(|key| pods.contains(key)) {
                    let mut edited = document.clone();
                    let applied = overlay.only(&key).apply(&mut edited, &publishes);
                    if applied.is_err() || edited.is_edited() {
                        differing.insert(key);
                    }
                }
            }
        }
        Some((latest, differing))
    }

    /// Kubelet reads its pods all the time. If nobody does, it has another way to the API server, and will not report here.
    fn forget_kubelet(&self, state: &mut State, unread: &mut Option<Instant>) {
        if state.kubelet.as_ref().is_none_or(|(_, store)| store.is_shared()) {
            *unread = None;
        } else if unread.get_or_insert_with(Instant::now).elapsed() > UNREAD {
            tracing::info!("kubelet does not read its pods through Weir any more");
            (state.kubelet, *unread) = (None, None);
            state.pods.clear();
            self.changed.notify_one();
        }
    }
}
