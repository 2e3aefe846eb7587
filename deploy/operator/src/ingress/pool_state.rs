//! The state of a pool's ingress controller.

use kube::ResourceExt as _;
use kube::api::DynamicObject;
use serde_json::Value;

use super::REVISION;
use super::apply::ApplyError;
use crate::api::UnreadyKind;

/// The state of a pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum PoolState {
    /// All replicas of the present revision serve.
    Ready,
    /// As many replicas serve, and not all of them are of the present revision: why, in one word and for people.
    Upgrading(&'static str, String),
    /// Not ready, with a reason in one word and one for people.
    Unready(UnreadyKind, &'static str, String),
}

impl PoolState {
    pub(super) fn pending(reason: &'static str, message: impl Into<String>) -> Self {
        Self::Unready(UnreadyKind::Pending, reason, message.into())
    }

    pub(super) fn failure(reason: &'static str, message: impl Into<String>) -> Self {
        Self::Unready(UnreadyKind::Failure, reason, message.into())
    }

    /// The state after an error. A retryable error is no failure.
    pub(super) fn of_error(error: &ApplyError) -> Self {
        match error {
            ApplyError::Unavailable(text) | ApplyError::Terminating(text) => Self::pending(error.reason(), text),
            _ => Self::failure(error.reason(), error.to_string()),
        }
    }

    /// How bad it is.
    fn rank(&self) -> u8 {
        match self {
            Self::Ready => 0,
            Self::Upgrading(..) => 1,
            Self::Unready(UnreadyKind::Pending, ..) => 2,
            Self::Unready(UnreadyKind::Failure, ..) => 3,
        }
    }

    /// The state of a pool whose replicas serve meanwhile: its wait delays another revision, not its work.
    pub(super) fn while_serving(self) -> Self {
        match self {
            Self::Unready(UnreadyKind::Pending, reason, message) => Self::Upgrading(reason, message),
            state => state,
        }
    }

    pub(super) fn is_failure(&self) -> bool {
        matches!(self, Self::Unready(UnreadyKind::Failure, ..))
    }
}

/// The Deployments of a pool.
#[derive(Debug, Clone, Default)]
pub(super) struct Deployed {
    /// The revisions of its Deployments: none before the first, two while one template replaces another.
    pub(super) revisions: Vec<String>,
    /// The state of the Deployments; `None` without one.
    pub(super) state: Option<PoolState>,
}

impl Deployed {
    /// From the Deployments of a pool.
    pub(super) fn of<'a>(deployments: impl Iterator<Item = &'a DynamicObject>) -> Self {
        let mut deployed = Self::default();
        for deployment in deployments.filter(|object| object.metadata.deletion_timestamp.is_none()) {
            deployed.revisions.extend(deployment.annotations().get(REVISION).cloned());
            let state = state_of(deployment);
            // The worst counts.
            if deployed.state.as_ref().is_none_or(|before| before.rank() <= state.rank()) {
                deployed.state = Some(state);
            }
        }
        deployed
    }

    /// Whether the pool has this revision.
    pub(super) fn has(&self, revision: &str) -> bool {
        self.revisions.iter().any(|own| own == revision)
    }

    /// Whether the pool has this revision, or none yet.
    pub(super) fn may_apply(&self, revision: &str) -> bool {
        self.revisions.is_empty() || self.has(revision)
    }

    pub(super) fn is_ready(&self) -> bool {
        self.state == Some(PoolState::Ready)
    }

    /// Whether as many replicas serve as should, of any revision.
    pub(super) fn serves(&self) -> bool {
        matches!(self.state, Some(PoolState::Ready | PoolState::Upgrading(..)))
    }
}

fn state_of(deployment: &DynamicObject) -> PoolState {
    let name = deployment.name_any();
    let number = |pointer: &str| deployment.data.pointer(pointer).and_then(Value::as_i64);
    let wanted = number("/spec/replicas").unwrap_or(1);
    let [updated, available, all] = ["updatedReplicas", "availableReplicas", "replicas"]
        .map(|field| number(&format!("/status/{field}")).unwrap_or_default());
    let deploying = |message: String| {
        let state = PoolState::pending("Deploying", message);
        if available >= wanted { state.while_serving() } else { state }
    };
    if number("/status/observedGeneration") < deployment.metadata.generation {
        return deploying(format!("Deployment {name} is not observed by its controller yet"));
    }
    if updated >= wanted && available >= wanted && all <= wanted {
        return PoolState::Ready;
    }
    let conditions = deployment.data.pointer("/status/conditions").and_then(Value::as_array);
    let text = |condition: &Value, key: &str| condition.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let failed = conditions.into_iter().flatten().find(|condition| {
        let (kind, status) = (text(condition, "type"), text(condition, "status"));
        (kind == "Progressing" && status == "False") || (kind == "ReplicaFailure" && status == "True")
    });
    match failed {
        Some(condition) => {
            let message = format!("Deployment {name}: {}: {}", text(condition, "reason"), text(condition, "message"));
            PoolState::failure("DeploymentFailed", message)
        }
        None => deploying(format!(
            "Deployment {name}: {available} of {wanted} replicas are available, {updated} are of this revision"
        )),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn state(status: Value) -> PoolState {
        let object = json!({"metadata": {"name": "d", "generation": 2}, "spec": {"replicas": 2}, "status": status});
        state_of(&serde_json::from_value(object).unwrap())
    }

    #[test]
    fn a_deployment_is_ready_when_all_replicas_of_its_revision_are_available() {
        let all = json!({"observedGeneration": 2, "replicas": 2, "updatedReplicas": 2, "availableReplicas": 2});
        assert_eq!(state(all.clone()), PoolState::Ready);
        for (field, value) in
            [("observedGeneration", 1), ("updatedReplicas", 1), ("availableReplicas", 1), ("replicas", 3)]
        {
            let mut status = all.clone();
            status[field] = value.into();
            let state = state(status);
            match field {
                "availableReplicas" => {
                    assert!(matches!(state, PoolState::Unready(UnreadyKind::Pending, "Deploying", _)), "{state:?}");
                }
                _ => {
                    assert!(matches!(state, PoolState::Upgrading("Deploying", _)), "{field}: as many serve: {state:?}")
                }
            }
        }
        let failed = json!({"observedGeneration": 2, "conditions": [
            {"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded", "message": "too slow"}]});
        let PoolState::Unready(UnreadyKind::Failure, "DeploymentFailed", message) = state(failed) else { panic!() };
        assert_eq!(message, "Deployment d: ProgressDeadlineExceeded: too slow");
    }
}
