//! Closes the gap between the cluster and what should be there, by server-side apply.
//!
//! An object that somebody else owns is never touched. An object that is as it should be costs no request.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams, Preconditions};
use kube::{Api, Client, ResourceExt as _};

use super::desired::Desired;
use super::objects::{Objects, is_owned, owner_of, whole};
use super::{APPLIED, MANAGER, drift};
use crate::health::explain;
use crate::metrics::{Action, Metrics};
use crate::template::Kind;

/// The longest time of a request.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Why an object is not as it should be.
#[derive(Debug, Clone, thiserror::Error)]
pub(super) enum ApplyError {
    /// Another owner's object has the name.
    #[error("{0}")]
    NotOurs(String),
    /// RBAC does not permit it.
    #[error("{0}")]
    Forbidden(String),
    /// The API server does not accept the object.
    #[error("{0}")]
    Rejected(String),
    /// The API server cannot be reached, or is busy: a retry may succeed.
    #[error("{0}")]
    Unavailable(String),
    /// The object is being deleted, and something keeps it. Its end is a change, after which it is created.
    #[error("{0}")]
    Terminating(String),
}

impl ApplyError {
    /// The reason in a status.
    pub(super) fn reason(&self) -> &'static str {
        match self {
            Self::NotOurs(_) => "NotOurs",
            Self::Forbidden(_) => "Forbidden",
            Self::Rejected(_) => "Rejected",
            Self::Unavailable(_) => "Unavailable",
            Self::Terminating(_) => "Terminating",
        }
    }

    fn of(what: &str, error: &kube::Error) -> Self {
        let text = format!("{what}: {}", explain(error));
        match error {
            kube::Error::Api(status) => match status.code {
                // 404: the namespace is missing.
                400 | 404 | 405 | 409 | 413 | 415 | 422 => Self::Rejected(text),
                401 | 403 => Self::Forbidden(text),
                _ => Self::Unavailable(text),
            },
            _ => Self::Unavailable(text),
        }
    }
}

/// Applies and deletes objects.
pub(super) struct Applier {
    client: Client,
    objects: Objects,
    metrics: Metrics,
    /// What was applied: the hash, and the version that the object then had. The API server may write a value in another form
    /// (`0.1` as `100m`); it is not applied again and again.
    applied: Mutex<HashMap<(Kind, String), (String, String)>>,
}

impl Applier {
    pub(super) fn new(client: Client, objects: Objects, metrics: Metrics) -> Self {
        Self { client, objects, metrics, applied: Mutex::default() }
    }

    /// Applies an object unless it is as it should be.
    pub(super) async fn apply(&self, desired: &Desired, owner: &str) -> Result<(), ApplyError> {
        let live = self.objects.get(desired.kind, desired.namespace(), &desired.name);
        if let Some(live) = &live {
            if !is_owned(live, owner) {
                self.metrics.object(Action::failed);
                return Err(ApplyError::NotOurs(format!(
                    "{} {} exists and is {}: the operator does not change it",
                    desired.kind.kind,
                    desired.name,
                    owner_of(live)
                )));
            }
            if live.metadata.deletion_timestamp.is_some() {
                let keepers = live.finalizers().join(", ");
                let (kind, name) = (desired.kind.kind, &desired.name);
                return Err(ApplyError::Terminating(format!("{kind} {name} is being deleted; finalizers: {keepers}")));
            }
            if self.is_up_to_date(live, desired) {
                return Ok(());
            }
            if must_be_replaced(live, desired) {
                // Its deletion is a change, after which the next look creates it.
                return self.delete(desired.kind, live).await.map(drop);
            }
        }
        let mut parameters = PatchParams::apply(MANAGER);
        // Without force, another field manager's values would win over the template's. What does not exist is applied without:
        // if somebody creates it this moment, its values are not overwritten.
        parameters.force = live.is_some();
        let what = format!("{} {}", desired.kind.kind, desired.name);
        let api = self.api(desired.kind, desired.namespace());
        let patch = Patch::Apply(&desired.object);
        let applied = within(TIMEOUT, &what, api.patch(&desired.name, &parameters, &patch)).await;
        match applied {
            Ok(object) if live.is_none() && has_other_managers(&object) => {
                self.metrics.object(Action::failed);
                self.take_back(desired).await?;
                Err(ApplyError::NotOurs(format!("{what} was created by somebody else this moment")))
            }
            Ok(object) => {
                self.metrics.object(Action::applied);
                tracing::info!(kind = desired.kind.kind, name = desired.name, "applied");
                let key = (*desired.kind, desired.name.clone());
                let version = object.metadata.resource_version.unwrap_or_default();
                self.lock().insert(key, (desired.hash.clone(), version));
                Ok(())
            }
            Err(error) => {
                self.metrics.object(Action::failed);
                Err(error)
            }
        }
    }

    /// Takes the operator's fields out of an object that turned out to be somebody else's. Without force, an apply changes no
    /// value of another field manager, but it adds fields.
    async fn take_back(&self, desired: &Desired) -> Result<(), ApplyError> {
        let what = format!("{} {}", desired.kind.kind, desired.name);
        let nothing = serde_json::json!({
            "apiVersion": desired.kind.api_version(),
            "kind": desired.kind.kind,
            "metadata": {"name": desired.name},
        });
        let api = self.api(desired.kind, desired.namespace());
        let (parameters, patch) = (PatchParams::apply(MANAGER), Patch::Apply(&nothing));
        within(TIMEOUT, &what, api.patch(&desired.name, &parameters, &patch)).await.map(drop)
    }

    /// Deletes an object. Returns whether it is gone.
    pub(super) async fn delete(&self, kind: &'static Kind, object: &DynamicObject) -> Result<bool, ApplyError> {
        if object.metadata.deletion_timestamp.is_some() {
            return Ok(false);
        }
        let name = object.name_any();
        let what = format!("{} {name}", kind.kind);
        // Only this object, not one of the same name that somebody has created meanwhile.
        let preconditions = Preconditions { uid: object.uid(), resource_version: None };
        let parameters = DeleteParams::background().preconditions(preconditions);
        let api = self.api(kind, object.namespace().as_deref());
        let deleted = within(TIMEOUT, &what, async {
            match api.delete(&name, &parameters).await {
                Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(()),
                deleted => deleted.map(drop),
            }
        });
        deleted.await?;
        self.metrics.object(Action::removed);
        tracing::info!(kind = kind.kind, name, "deleted");
        self.lock().remove(&(*kind, name));
        Ok(true)
    }

    fn is_up_to_date(&self, live: &DynamicObject, desired: &Desired) -> bool {
        if live.annotations().get(APPLIED) != Some(&desired.hash) {
            return false;
        }
        let version = live.metadata.resource_version.as_deref().unwrap_or_default();
        let applied = self.lock().get(&(*desired.kind, desired.name.clone())).cloned();
        let unchanged = applied.is_some_and(|(hash, at)| hash == desired.hash && at == version);
        unchanged || drift::contains(&whole(live, desired.kind), &desired.object)
    }

    fn api(&self, kind: &Kind, namespace: Option<&str>) -> Api<DynamicObject> {
        match namespace {
            Some(namespace) => Api::namespaced_with(self.client.clone(), namespace, &kind.resource()),
            None => Api::all_with(self.client.clone(), &kind.resource()),
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<(Kind, String), (String, String)>> {
        self.applied.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether an object that was to be created existed already: with fields of others.
fn has_other_managers(object: &DynamicObject) -> bool {
    object.managed_fields().iter().any(|entry| entry.manager.as_deref() != Some(MANAGER))
}

/// Whether a field changes that the API server does not let anybody change. The objects of these kinds can be missing for a
/// moment; a Deployment cannot, and is reported instead.
fn must_be_replaced(live: &DynamicObject, desired: &Desired) -> bool {
    let fixed = match desired.kind.kind {
        "IngressClass" => "/spec/controller",
        "RoleBinding" | "ClusterRoleBinding" => "/roleRef",
        "Job" => "/spec/template",
        _ => return false,
    };
    let wanted = desired.object.pointer(fixed).unwrap_or(&serde_json::Value::Null);
    !drift::contains(live.data.pointer(fixed).unwrap_or(&serde_json::Value::Null), wanted)
}

/// Awaits a request for a bounded time.
pub(super) async fn within<T>(
    timeout: Duration,
    what: &str,
    request: impl Future<Output = Result<T, kube::Error>>,
) -> Result<T, ApplyError> {
    match tokio::time::timeout(timeout, request).await {
        Ok(result) => result.map_err(|error| ApplyError::of(what, &error)),
        Err(_) => Err(ApplyError::Unavailable(format!("{what}: the API server does not respond"))),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use serde_json::{Value, json};

    use super::*;
    use crate::fake_server::{self, Reply};
    use crate::template::CONFIG_MAP;

    /// A watch shows an object a moment after it was created.
    #[tokio::test]
    async fn an_object_that_somebody_creates_this_moment_is_given_back() {
        let patches = Arc::new(Mutex::new(Vec::new()));
        let sent = patches.clone();
        let client = fake_server::client(move |(_, path, body)| {
            sent.lock().unwrap().push((path.to_owned(), body.clone()));
            let mut object: Value = body;
            let managers = [json!({"manager": MANAGER}), json!({"manager": "kubectl"})];
            object["metadata"]["managedFields"] = managers.into();
            Reply::Json(200, object)
        });
        let (objects, _) = Objects::new(client.clone(), "n");
        let applier = Applier::new(client, objects, Metrics::default());
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "n"}, "data": {"a": "b"}});
        let desired = Desired { kind: &CONFIG_MAP, name: "a".to_owned(), hash: "1".to_owned(), object: object.clone() };
        let error = applier.apply(&desired, "uid").await.unwrap_err();
        assert_eq!(
            (error.reason(), error.to_string().as_str()),
            ("NotOurs", "ConfigMap a was created by somebody else this moment")
        );
        let patches = patches.lock().unwrap();
        let [(first, applied), (second, given_back)] = patches.as_slice() else { panic!("{patches:?}") };
        assert!(!first.contains("force") && !second.contains("force"), "{first}, {second}");
        assert_eq!(*applied, object);
        assert_eq!(*given_back, json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}));
    }
}
