//! Writes Events about the Node, with the daemon's own credential.
//!
//! `kube::runtime::events::Recorder` is not used: it takes the time from the machine's clock, which may be wrong, and counts
//! events with different notes as one.

use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::api::{Api, ObjectMeta, Patch, PatchParams, PostParams};
use serde_json::json;
use tokio::time::{Instant, timeout};
use weir_upstream::{clock, error_report};

use super::event_log::{EventLog, EventWrite, NodeEvent};

/// The name of this controller in Events.
const CONTROLLER: &str = "weir.dev/weir";
/// How long a write may take.
pub(super) const TIMEOUT: Duration = Duration::from_secs(10);
/// The longest name of a node in an Event, in bytes. An Event's instance has at most 128.
const MAX_NODE: usize = 128;

/// Writes Events about one Node.
pub(super) struct EventWriter {
    events: Api<Event>,
    node: String,
    log: EventLog,
    /// Whether the log says that it is forbidden.
    is_forbidden: bool,
}

impl EventWriter {
    pub(super) fn new(client: kube::Client, node: &str) -> Self {
        // Events of objects without a namespace are in this one.
        let events = Api::namespaced(client, "default");
        Self { events, node: node.to_owned(), log: EventLog::new(), is_forbidden: false }
    }

    /// Writes an event, or counts it. It is dropped if that fails.
    pub(super) async fn write(&mut self, event: &NodeEvent) {
        let node = self.node.get(..self.node.floor_char_boundary(MAX_NODE)).unwrap_or_default();
        let name = || format!("{node}.{:x}", clock::timestamp().as_nanosecond());
        if let Some(write) = self.log.add(event, name) {
            self.send(write).await;
        }
    }

    /// Writes the counts that are due.
    pub(super) async fn flush(&mut self) {
        while let Some(write) = self.log.next_count() {
            self.send(write).await;
        }
    }

    /// When [`EventWriter::flush`] has something to do.
    pub(super) fn due(&self) -> Option<Instant> {
        self.log.due()
    }

    async fn send(&mut self, write: EventWrite) {
        let (name, request) = match write {
            EventWrite::Create { name, event } => {
                let object = self.object(&name, event);
                let parameters = PostParams::default();
                (name, timeout(TIMEOUT, self.events.create(&parameters, &object)).await)
            }
            EventWrite::Count { name, count } => {
                let time = MicroTime(clock::timestamp());
                let patch = Patch::Merge(json!({"series": {"count": count, "lastObservedTime": time}}));
                let parameters = PatchParams::default();
                let request = timeout(TIMEOUT, self.events.patch(&name, &parameters, &patch)).await;
                (name, request)
            }
        };
        let reason = match request {
            Ok(Ok(_)) => {
                self.is_forbidden = false;
                return;
            }
            Ok(Err(kube::Error::Api(status))) if status.code == 403 => {
                if !std::mem::replace(&mut self.is_forbidden, true) {
                    tracing::warn!(reason = status.message, "may not write events about the node: they are dropped");
                }
                status.message
            }
            Ok(Err(error)) => error_report(&error),
            Err(_) => format!("no answer within {TIMEOUT:?}"),
        };
        tracing::debug!(name, reason, "event dropped");
        self.log.forget(&name);
    }

    fn object(&self, name: &str, event: NodeEvent) -> Event {
        Event {
            metadata: ObjectMeta {
                name: Some(name.to_owned()),
                namespace: Some("default".to_owned()),
                ..ObjectMeta::default()
            },
            event_time: Some(MicroTime(clock::timestamp())),
            type_: Some(event.kind.to_owned()),
            reason: Some(event.reason.to_owned()),
            action: Some(event.action.to_owned()),
            note: Some(event.note),
            regarding: Some(ObjectReference {
                api_version: Some("v1".to_owned()),
                kind: Some("Node".to_owned()),
                name: Some(self.node.clone()),
                // kubelet uses the name, too: `kubectl describe node` searches for both.
                uid: Some(self.node.clone()),
                ..ObjectReference::default()
            }),
            reporting_controller: Some(CONTROLLER.to_owned()),
            reporting_instance: Some(self.node.chars().take(MAX_NODE).collect()),
            ..Event::default()
        }
    }
}
