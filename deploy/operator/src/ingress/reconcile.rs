//! One reconciliation of a YurtIngress: compares desired with existing objects, applies the difference, writes the status.
//!
//! Each step can be interrupted at any point, by a restart too: the next look continues from what the cluster holds.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{Patch, PatchParams};
use kube::runtime::controller::Action;
use kube::runtime::reflector::Store;
use kube::{Api, Client, Resource as _, ResourceExt as _};
use serde_json::json;

use super::apply::{Applier, ApplyError, within};
use super::notices::{POOL_WITHOUT_NODES, WITHOUT_NODES, publish};
use super::objects::Objects;
use super::pool_state::PoolState;
use super::revision::TemplateRevision;
use super::status::{Findings, status};
use super::templates::Templates;
use super::{FINALIZER, MANAGER};
use crate::api::{IngressPool, UnreadyPool, YurtIngress};
use crate::clock;
use crate::events::Notices;
use crate::health::Health;
use crate::metrics::Metrics;
use crate::pools::Inventory;
use crate::template::Surroundings;

/// The longest time of a request.
const TIMEOUT: Duration = Duration::from_secs(30);
/// When a failure that needs somebody is looked at again without a change.
pub(super) const RETRY: Duration = Duration::from_secs(30);
/// The finalizer of OpenYurt's own operator, on a resource of the same group, version and name (`YurtIngressFinalizer` in
/// yurt-app-manager).
const OPENYURT: &str = "ingress.operator.openyurt.io";

/// What a look needs.
pub(super) struct Context {
    pub(super) client: Client,
    pub(super) surroundings: Surroundings,
    pub(super) inventory: Inventory,
    pub(super) objects: Objects,
    pub(super) templates: Templates,
    pub(super) applier: Applier,
    pub(super) notices: Notices,
    pub(super) metrics: Metrics,
    pub(super) health: Arc<Health>,
    /// All YurtIngresses.
    pub(super) ingresses: Store<YurtIngress>,
}

/// A look that has to be repeated.
#[derive(Debug, thiserror::Error)]
#[error("YurtIngress {name}: {source}")]
pub(super) struct ReconcileError {
    name: String,
    #[source]
    source: ApplyError,
}

impl ReconcileError {
    /// Whether a retry may succeed soon.
    pub(super) fn is_retryable(&self) -> bool {
        matches!(self.source, ApplyError::Unavailable(_))
    }
}

/// What pools share in a look.
pub(super) struct Look<'a> {
    pub(super) ingress: &'a YurtIngress,
    pub(super) uid: &'a str,
    pub(super) owner: OwnerReference,
}

/// Looks at a YurtIngress.
pub(super) async fn reconcile(ingress: Arc<YurtIngress>, context: Arc<Context>) -> Result<Action, ReconcileError> {
    let result = context.look(&ingress).await;
    context.metrics.reconciled(result.is_ok());
    if let Err(error @ (ApplyError::Forbidden(_) | ApplyError::Rejected(_))) = &result {
        // Its status could not be written either.
        context.notices.warn(&ingress.object_ref(&()), error.reason(), &error.to_string()).await;
    }
    result.map_err(|source| ReconcileError { name: ingress.name_any(), source })
}

/// Whether OpenYurt's operator has the object, and this one has never written it.
fn is_foreign(ingress: &YurtIngress) -> bool {
    let has = |name: &str| ingress.finalizers().iter().any(|finalizer| finalizer == name);
    has(OPENYURT) && !has(FINALIZER)
}

impl Context {
    async fn look(&self, ingress: &YurtIngress) -> Result<Action, ApplyError> {
        let (Some(uid), Some(owner)) = (ingress.uid(), ingress.controller_owner_ref(&())) else {
            return Ok(Action::await_change());
        };
        if is_foreign(ingress) {
            // Its fields are others. The first write, also of the status, would drop those that this definition does not have.
            let note = format!(
                "another operator holds it by the finalizer {OPENYURT}: nothing is done. See \"From OpenYurt's YurtIngress\" in \
                 deploy/operator/README.md"
            );
            tracing::warn!(name = ingress.name_any(), "{note}");
            self.notices.warn(&ingress.object_ref(&()), "NotOurs", &note).await;
            return Ok(Action::await_change());
        }
        if ingress.metadata.deletion_timestamp.is_some() {
            return self.finalize(ingress, &uid).await;
        }
        if let Some(acting) = self.acting_before(ingress) {
            let reason =
                format!("the YurtIngress {acting} is older, and only one acts: the operator does nothing for this one");
            let findings = Findings { not_accepted: Some(reason), ..Findings::default() };
            self.report(ingress, &findings).await?;
            return Ok(Action::await_change());
        }
        if !ingress.finalizers().iter().any(|finalizer| finalizer == FINALIZER) {
            self.set_finalizers(ingress, &[FINALIZER]).await?;
        }
        let template = self.templates.get(&ingress.spec.controller);
        let revision = template.map(|template| TemplateRevision::new(template, &self.surroundings));
        let version = revision.as_ref().ok().map(|revision| revision.template.version.clone());
        let mut findings = Findings { version, ..Findings::default() };
        let look = Look { ingress, uid: &uid, owner };
        self.pools(&look, revision.as_ref().map_err(Clone::clone), &mut findings).await;
        self.report(ingress, &findings).await?;
        let waits = |reason: &str| matches!(reason, "Unavailable" | "NotOurs" | "Forbidden" | "Rejected");
        let retry =
            findings.pools.values().any(|state| matches!(state, PoolState::Unready(_, reason, _) if waits(reason)));
        let unavailable = |state: &&PoolState| matches!(state, PoolState::Unready(_, "Unavailable", _));
        if let Some(PoolState::Unready(_, _, message)) = findings.pools.values().find(unavailable) {
            // It is looked at again soon.
            return Err(ApplyError::Unavailable(message.clone()));
        }
        Ok(if retry || findings.problem.is_some() { Action::requeue(RETRY) } else { Action::await_change() })
    }

    /// The name of another YurtIngress that acts: the oldest, also while its objects are deleted.
    fn acting_before(&self, ingress: &YurtIngress) -> Option<String> {
        let age = |ingress: &YurtIngress| (ingress.creation_timestamp().map(|time| time.0), ingress.name_any());
        let own = age(ingress);
        let others = self.ingresses.state();
        let others = others.iter().filter(|other| other.uid() != ingress.uid() && !is_foreign(other));
        let acting = others.map(|other| age(other));
        acting.filter(|other| *other < own).min().map(|(_, name)| name)
    }

    /// Deletes everything of a YurtIngress, then lets it go. A failed deletion is reported, and does not keep the rest.
    async fn finalize(&self, ingress: &YurtIngress, uid: &str) -> Result<Action, ApplyError> {
        if !ingress.finalizers().iter().any(|finalizer| finalizer == FINALIZER) {
            return Ok(Action::await_change());
        }
        let owned = self.objects.owned_by(uid);
        let mut first = None;
        for (kind, object) in &owned {
            match self.applier.delete(kind, object).await {
                Ok(_) => {}
                Err(error @ ApplyError::Unavailable(_)) => return Err(error),
                Err(error) => {
                    first.get_or_insert(error);
                }
            }
        }
        if let Some(error) = first {
            let state = |pool: &IngressPool| (pool.name.clone(), PoolState::of_error(&error));
            let pools = ingress.spec.pools.iter().map(state).collect();
            let problem = Some((error.reason(), format!("it is not deleted yet: {error}")));
            self.report(ingress, &Findings { pools, problem, ..Findings::default() }).await?;
            return Ok(Action::requeue(RETRY));
        }
        if owned.is_empty() {
            self.set_finalizers(ingress, &[]).await?;
            self.metrics.pools(0, 0, 0);
            self.health.note(Vec::new());
        }
        // The deletion of the last object is a change.
        Ok(Action::await_change())
    }

    async fn set_finalizers(&self, ingress: &YurtIngress, finalizers: &[&str]) -> Result<(), ApplyError> {
        let api: Api<YurtIngress> = Api::all(self.client.clone());
        let name = ingress.name_any();
        let patch = Patch::Apply(json!({
            "apiVersion": YurtIngress::api_version(&()),
            "kind": YurtIngress::kind(&()),
            "metadata": {"name": name, "uid": ingress.uid(), "finalizers": finalizers},
        }));
        let parameters = PatchParams::apply(MANAGER).force();
        let patched = api.patch(&name, &parameters, &patch);
        within(TIMEOUT, &format!("YurtIngress {name}"), patched).await.map(drop)
    }

    /// Writes the status if it changed, then publishes what people should see.
    async fn report(&self, ingress: &YurtIngress, findings: &Findings) -> Result<(), ApplyError> {
        let after = status(ingress, findings, clock::now());
        if findings.not_accepted.is_none() {
            let failed = findings.pools.values().filter(|state| state.is_failure()).count();
            let ready = after.conditions.ready_pools.len();
            let unready = after.conditions.unready_pools.iter();
            let note = |pool: &UnreadyPool| format!("pool {}: {}: {}", pool.name, pool.reason, pool.message);
            let without_nodes = after.pools_without_nodes.iter();
            let without_nodes = without_nodes.map(|pool| format!("pool {pool}: {POOL_WITHOUT_NODES}: {WITHOUT_NODES}"));
            self.health.note(unready.map(note).chain(without_nodes).collect());
            self.metrics.pools(ready, findings.pools.len().saturating_sub(ready + failed), failed);
        }
        if ingress.status.as_ref() == Some(&after) {
            return Ok(());
        }
        let api: Api<YurtIngress> = Api::all(self.client.clone());
        let name = ingress.name_any();
        let patch = Patch::Apply(json!({
            "apiVersion": YurtIngress::api_version(&()),
            "kind": YurtIngress::kind(&()),
            "metadata": {"name": name, "uid": ingress.uid()},
            "status": after,
        }));
        let parameters = PatchParams::apply(MANAGER).force();
        let patched = api.patch_status(&name, &parameters, &patch);
        within(TIMEOUT, &format!("the status of YurtIngress {name}"), patched).await?;
        publish(&self.notices, ingress, &after).await;
        Ok(())
    }
}
