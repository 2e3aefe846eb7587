//! Events on a YurtIngress: one for each transition that somebody should see.

use kube::Resource as _;
use kube::runtime::events::EventType;

use crate::api::{UnreadyKind, YurtIngress, YurtIngressStatus};
use crate::events::{Notice, Notices};

/// The reason of a pool that no Node is in, while its ingress controller is ready.
pub(super) const POOL_WITHOUT_NODES: &str = "PoolWithoutNodes";
/// The same for people.
pub(super) const WITHOUT_NODES: &str =
    "no Node is in the pool: its pods run where they are, and wait for a Node once they end";

/// Publishes what changed from one status to the next.
pub(super) async fn publish(notices: &Notices, ingress: &YurtIngress, after: &YurtIngressStatus) {
    for notice in changes(ingress.status.as_ref(), after) {
        notices.publish(&ingress.object_ref(&()), notice).await;
    }
}

/// The Events for a transition.
fn changes(before: Option<&YurtIngressStatus>, after: &YurtIngressStatus) -> Vec<Notice> {
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
            let (reason, note) = (condition.reason.clone(), condition.message.clone());
            events.push(Notice { type_, reason, note, pool: None });
        }
    }
    for pool in &after.upgrading_pools {
        let was = before.and_then(|status| status.upgrading_pools.iter().find(|old| old.name == pool.name));
        if pool.reason != "Deploying" && was.is_none_or(|was| was.reason != pool.reason) {
            let (type_, note) = (EventType::Normal, format!("pool {}: {}", pool.name, pool.message));
            events.push(Notice { type_, reason: pool.reason.clone(), note, pool: Some(pool.name.clone()) });
        }
    }
    for pool in &after.pools_without_nodes {
        // Only of a pool that had Nodes: one that is ready at once has lost none.
        let lost = before.is_some_and(|status| {
            status.conditions.ready_pools.contains(pool) && !status.pools_without_nodes.contains(pool)
        });
        if lost {
            let (type_, note) = (EventType::Warning, format!("pool {pool}: {WITHOUT_NODES}"));
            events.push(Notice { type_, reason: POOL_WITHOUT_NODES.to_owned(), note, pool: Some(pool.clone()) });
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
            let note = format!("pool {}: {}", pool.name, pool.message);
            events.push(Notice { type_, reason: pool.reason.clone(), note, pool: Some(pool.name.clone()) });
        }
    }
    events
}
