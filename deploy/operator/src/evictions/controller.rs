//! Watches pods, and sets the tolerations of those whose node asks for it.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::pin::pin;
use std::time::Duration;

use futures_util::StreamExt as _;
use kube::api::{Patch, PatchParams};
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client};

use super::duration::stay;
use super::pod::{PodApi, PodKey, PodRecord, WatchedPod, resource};
use super::queue::Queue;
use super::tolerations::{Change, change};
use crate::backoff::with_backoff;
use crate::events::Notices;
use crate::health::{Health, explain, explain_watch};
use crate::ingress::MANAGER;
use crate::metrics::{Action, Metrics};
use crate::pools::Inventory;

/// The part in `/readyz`.
pub const PODS: &str = "pods";
/// The page of a list: whole pods are in memory while one is parsed.
const PAGE: u32 = 100;
/// The longest time of a request.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Sets the tolerations of pods.
pub struct EvictionController {
    client: Client,
    inventory: Inventory,
    metrics: Metrics,
    pods: HashMap<PodKey, PodRecord>,
    /// Those of a list that is not complete yet.
    listed: HashMap<PodKey, PodRecord>,
    queue: Queue,
    /// Nodes whose annotation is no duration: an Event and the log say so once.
    reported: HashMap<Box<str>, String>,
    /// Those that an Event is still to name.
    unpublished: Vec<Box<str>>,
    notices: Notices,
}

/// What became of a patch.
enum Patched {
    Done,
    /// The next event of the pod shows what to do.
    Outdated,
    /// The API server refuses the change of this pod.
    Refused(String),
    /// The API server cannot be reached, or permits no change of pods.
    Unavailable(String),
}

impl Patched {
    fn of_error(error: &kube::Error) -> Self {
        match error {
            kube::Error::Api(status) => match status.code {
                404 | 409 => Self::Outdated,
                401 | 403 | 429 | 500.. => Self::Unavailable(explain(error)),
                _ => Self::Refused(explain(error)),
            },
            _ => Self::Unavailable(explain(error)),
        }
    }
}

impl EvictionController {
    /// A controller with so many changes of existing pods in a second. `client` should not bound requests itself.
    #[must_use]
    pub fn new(client: Client, inventory: Inventory, rate: NonZeroU32, identity: &str, metrics: Metrics) -> Self {
        Self {
            notices: Notices::new(client.clone(), identity),
            client,
            inventory,
            metrics,
            pods: HashMap::new(),
            listed: HashMap::new(),
            queue: Queue::new(rate),
            reported: HashMap::new(),
            unpublished: Vec::new(),
        }
    }

    /// Runs for ever.
    pub async fn run(mut self, health: &Health) {
        // Otherwise the pods of all nodes would seem to be on unknown ones.
        self.inventory.ready().await;
        let api: Api<WatchedPod> = Api::all_with(self.client.clone(), &resource());
        let mut events = pin!(with_backoff(watcher(api, watcher::Config::default().page_size(PAGE))));
        let mut nodes = pin!(self.inventory.changes());
        loop {
            tokio::select! {
                event = events.next() => match event {
                    Some(Ok(event)) => self.event(event, health),
                    Some(Err(error)) => health.fails(PODS, explain_watch("pods", &error)),
                    None => return,
                },
                Some(()) = nodes.next() => self.revise(),
                key = self.queue.pop() => self.set(key, health).await,
            }
            self.metrics.pods_waiting(self.queue.len());
            self.publish().await;
        }
    }

    /// Publishes an Event on each Node whose annotation is no duration.
    async fn publish(&mut self) {
        for name in std::mem::take(&mut self.unpublished) {
            if let Some((reason, node)) = self.reported.get(&name).zip(self.inventory.node_reference(&name)) {
                self.notices.warn(&node, "InvalidAutonomyDuration", reason).await;
            }
        }
    }

    fn event(&mut self, event: Event<WatchedPod>, health: &Health) {
        match event {
            Event::Init => self.listed.clear(),
            Event::InitApply(pod) => {
                let key = PodKey::of(&pod);
                if let Some(record) = PodRecord::of(pod) {
                    self.listed.insert(key, record);
                }
            }
            Event::InitDone => {
                self.pods = std::mem::take(&mut self.listed);
                self.pods.shrink_to_fit();
                health.works(PODS);
                self.revise();
            }
            Event::Delete(pod) => {
                self.pods.remove(&PodKey::of(&pod));
            }
            Event::Apply(pod) => {
                let key = PodKey::of(&pod);
                match PodRecord::of(pod) {
                    Some(record) => {
                        // A pod is new when it gets a node.
                        let is_new = self.pods.insert(key.clone(), record).is_none();
                        if self.wanted(&key).is_some() {
                            if is_new { self.queue.push_urgent(key) } else { self.queue.push(key) }
                        }
                    }
                    None => {
                        self.pods.remove(&key);
                    }
                }
            }
        }
    }

    /// Looks at all pods: a node or a pool has changed.
    fn revise(&mut self) {
        let keys: Vec<_> = self.pods.keys().cloned().collect();
        for key in keys {
            if self.wanted(&key).is_some() {
                self.queue.push(key);
            }
        }
    }

    /// What has to change of a pod.
    fn wanted(&mut self, key: &PodKey) -> Option<Change> {
        let pod = self.pods.get(key)?;
        // The pods of a Node that is gone are left alone: they go with it.
        let node = self.inventory.node(&pod.node)?;
        match stay(&node) {
            Ok(stay) => {
                self.reported.remove(&pod.node);
                change(&pod.tolerations, pod.original.as_deref(), stay)
            }
            Err(reason) => {
                let before = self.reported.insert(pod.node.clone(), reason.clone());
                if before.as_ref() != Some(&reason) {
                    tracing::warn!(node = &*pod.node, reason, "the tolerations of the node's pods are left alone");
                    self.unpublished.push(pod.node.clone());
                }
                None
            }
        }
    }

    /// Sets the tolerations of one pod, if that is still to be done.
    async fn set(&mut self, key: PodKey, health: &Health) {
        let Some((change, pod)) = self.wanted(&key).zip(self.pods.get(&key).cloned()) else { return };
        let api: PodApi = Api::namespaced_with(self.client.clone(), &key.namespace, &resource());
        let patch = Patch::Merge(pod.patch(&change));
        let parameters = PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
        let request = api.patch_metadata(&key.name, &parameters, &patch);
        let patched = match tokio::time::timeout(TIMEOUT, request).await {
            Ok(Ok(_)) => Patched::Done,
            Ok(Err(error)) => Patched::of_error(&error),
            Err(_) => Patched::Unavailable("the API server does not respond".to_owned()),
        };
        let part = format!("{PODS}: tolerations");
        match patched {
            Patched::Done => {
                let action = if change.original.is_some() { Action::applied } else { Action::removed };
                self.metrics.pod(action);
                health.works(&part);
                self.queue.resume();
                tracing::debug!(namespace = key.namespace, pod = key.name, node = &*pod.node, "tolerations set");
            }
            Patched::Outdated => {}
            Patched::Refused(reason) => {
                self.metrics.pod(Action::failed);
                health.fails(&part, format!("pod {}/{}: {reason}", key.namespace, key.name));
                self.queue.push_failed(key);
            }
            Patched::Unavailable(reason) => {
                self.metrics.pod(Action::failed);
                health.fails(&part, reason);
                self.queue.pause(key);
            }
        }
    }
}
