//! Events on a YurtIngress: one for each transition that somebody should see.

use kube::runtime::events::{Event, EventType, Recorder};
use kube::{Client, Resource as _};

use super::MANAGER;
use crate::api::{UnreadyKind, YurtIngress, YurtIngressStatus};
use crate::health::explain;

/// Publishes Events.
pub(super) struct Notices(Recorder);

impl Notices {
    pub(super) fn new(client: Client, identity: &str) -> Self {
        let reporter =
            kube::runtime::events::Reporter { controller: MANAGER.to_owned(), instance: Some(identity.to_owned()) };
        Self(Recorder::new(client, reporter))
    }

    /// Publishes what changed from one status to the next. Nothing depends on an Event: an error is logged only.
    pub(super) async fn publish(&self, ingress: &YurtIngress, after: &YurtIngressStatus) {
        let reference = ingress.object_ref(&());
        for (type_, reason, note) in changes(ingress.status.as_ref(), after) {
            let action = "Reconcile".to_owned();
            let event = Event { type_, reason, note: Some(note.chars().take(1000).collect()), action, secondary: None };
            if let Err(error) = self.0.publish(&event, &reference).await {
                tracing::warn!(reason = explain(&error), "an Event is not published");
            }
        }
    }
}

/// Type, reason and note of the Events for a transition.
fn changes(before: Option<&YurtIngressStatus>, after: &YurtIngressStatus) -> Vec<(EventType, String, String)> {
    let mut events = Vec::new();
    for condition in &after.standard_conditions {
        let is_new = !before.is_some_and(|status| {
            let mut old = status.standard_conditions.iter();
            old.any(|old| {
                (&old.type_, &old.status, &old.reason) == (&condition.type_, &condition.status, &condition.reason)
            })
        });
        let type_ = match (condition.type_.as_str(), condition.status.as_str(), condition.reason.as_str()) {
            ("Accepted", "False", _) | ("Progressing", "False", "RolloutPaused") => EventType::Warning,
            // What is wrong with single pools has Events of its own.
            ("Ready", "False", reason) if !matches!(reason, "PoolsFailed" | "PoolsPending" | "NotSingleton") => {
                EventType::Warning
            }
            ("Ready", "True", _) => EventType::Normal,
            _ => continue,
        };
        if is_new {
            events.push((type_, condition.reason.clone(), condition.message.clone()));
        }
    }
    for pool in &after.conditions.unready_pools {
        let was = before.and_then(|status| status.conditions.unready_pools.iter().find(|old| old.name == pool.name));
        let is_new = was.is_none_or(|was| (was.kind, &was.reason) != (pool.kind, &pool.reason));
        let type_ = match pool.kind {
            UnreadyKind::Failure => EventType::Warning,
            // Every pool begins so.
            UnreadyKind::Pending if matches!(pool.reason.as_str(), "Deploying" | "Applied") => continue,
            UnreadyKind::Pending => EventType::Normal,
        };
        if is_new {
            events.push((type_, pool.reason.clone(), format!("pool {}: {}", pool.name, pool.message)));
        }
    }
    events
}
