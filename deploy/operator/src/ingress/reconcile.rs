//! One look at a YurtIngress: compares what should be with what is, applies the difference, writes the status.
//!
//! Each step can be interrupted at any point, by a restart too: the next look continues from what the cluster holds.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{Patch, PatchParams};
use kube::runtime::controller::Action;
use kube::runtime::reflector::Store;
use kube::{Api, Client, Resource as _, ResourceExt as _};
use serde_json::json;

use super::apply::{Applier, ApplyError, within};
use super::desired::{Desired, Stamp};
use super::notices::Notices;
use super::objects::{Objects, pool_of};
use super::pool_state::{Deployed, PoolState};
use super::rollout::{Turn, turns};
use super::status::{Findings, status};
use super::templates::Templates;
use super::{FINALIZER, MANAGER};
use crate::api::{IngressPool, YurtIngress, invalid_pool_name};
use crate::clock;
use crate::metrics::Metrics;
use crate::pools::Inventory;
use crate::template::{PoolValues, Surroundings, Template};

/// The longest time of a request.
const TIMEOUT: Duration = Duration::from_secs(30);
/// When a failure that needs somebody is looked at again without a change.
const RETRY: Duration = Duration::from_secs(60);

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

/// What pools share in a look.
struct Look<'a> {
    ingress: &'a YurtIngress,
    uid: &'a str,
    owner: OwnerReference,
    template: Template,
    revision: String,
}

/// Looks at a YurtIngress.
pub(super) async fn reconcile(ingress: Arc<YurtIngress>, context: Arc<Context>) -> Result<Action, ReconcileError> {
    let result = context.look(&ingress).await;
    context.metrics.reconciled(result.is_ok());
    result.map_err(|source| ReconcileError { name: ingress.name_any(), source })
}

impl Context {
    async fn look(&self, ingress: &YurtIngress) -> Result<Action, ApplyError> {
        let (Some(uid), Some(owner)) = (ingress.uid(), ingress.controller_owner_ref(&())) else {
            return Ok(Action::await_change());
        };
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
        let mut findings = Findings::default();
        match self.templates.get(&ingress.spec.controller) {
            Ok(template) => {
                let revision = template.revision(&self.surroundings);
                findings.version = Some(template.version.clone());
                let look = Look { ingress, uid: &uid, owner, template, revision };
                self.pools(&look, &mut findings).await;
            }
            Err((reason, message)) => {
                let state = |pool: &IngressPool| (pool.name.clone(), PoolState::failure(reason, message.clone()));
                findings.pools = ingress.spec.pools.iter().map(state).collect();
                findings.problem = Some((reason, message));
            }
        }
        self.report(ingress, &findings).await?;
        let waits = |reason: &str| matches!(reason, "Unavailable" | "NotOurs" | "Forbidden" | "Rejected");
        let retry =
            findings.pools.values().any(|state| matches!(state, PoolState::Unready(_, reason, _) if waits(reason)));
        let unavailable =
            |state: &PoolState| matches!(state, PoolState::Unready(_, "Unavailable", message) if !message.is_empty());
        if let Some(PoolState::Unready(_, _, message)) = findings.pools.values().find(|state| unavailable(state)) {
            // With the controller's growing pauses.
            return Err(ApplyError::Unavailable(message.clone()));
        }
        Ok(if retry || findings.problem.is_some() { Action::requeue(RETRY) } else { Action::await_change() })
    }

    /// The name of another YurtIngress that acts: the oldest, also while its objects are deleted.
    fn acting_before(&self, ingress: &YurtIngress) -> Option<String> {
        let age = |ingress: &YurtIngress| (ingress.creation_timestamp().map(|time| time.0), ingress.name_any());
        let own = age(ingress);
        let others = self.ingresses.state();
        let acting = others.iter().filter(|other| other.uid() != ingress.uid()).map(|other| age(other));
        acting.filter(|other| *other < own).min().map(|(_, name)| name)
    }

    /// Brings all pools nearer to what they should be.
    async fn pools(&self, look: &Look<'_>, findings: &mut Findings) {
        let owned = self.objects.owned_by(look.uid);
        let (pools, repeated) = look.ingress.spec.pools_by_name();
        let deployed = |name: &str| {
            let own = owned.iter().filter(|(kind, object)| kind.kind == "Deployment" && pool_of(object) == Some(name));
            Deployed::of(own.map(|(_, object)| &**object))
        };
        let deployments: BTreeMap<&str, Deployed> = pools.keys().map(|name| (*name, deployed(name))).collect();
        let mut valid = BTreeMap::new();
        for (name, pool) in &pools {
            match self.invalid(look, pool, repeated.contains(name)) {
                Some(state) => {
                    findings.pools.insert((*name).to_owned(), state);
                }
                None => {
                    valid.insert(*name, *pool);
                }
            }
        }
        let wanted: Vec<_> = pools.keys().copied().collect();
        if let Err((reason, message)) = self.shared(look, &wanted).await {
            findings.problem = Some((reason, message));
        }
        let running = deployments.iter().filter(|(name, _)| valid.contains_key(*name));
        let turns = turns(&running.map(|(name, deployed)| (*name, deployed.clone())).collect(), &look.revision);
        for (name, pool) in valid {
            let before = deployments.get(name).cloned().unwrap_or_default();
            let state = match turns.get(name) {
                Some(Turn::Wait(other)) => PoolState::pending("RolloutWaiting", format!("upgrades after pool {other}")),
                Some(Turn::Paused(other)) => {
                    findings.paused_by = Some(other.clone());
                    PoolState::pending(
                        "RolloutPaused",
                        format!("keeps its revision: the upgrade of pool {other} failed"),
                    )
                }
                Some(Turn::Apply) | None => self.pool(look, pool, before).await,
            };
            findings.pools.insert(name.to_owned(), state);
        }
        if let Err(error) = self.remove_pools(look, &wanted).await {
            findings.problem.get_or_insert((error.reason(), error.to_string()));
        }
    }

    /// Why nothing is applied for a pool; `None` if it is.
    fn invalid(&self, look: &Look<'_>, pool: &IngressPool, repeated: bool) -> Option<PoolState> {
        let replicas = look.ingress.spec.replicas_of(pool);
        if let Some(reason) = invalid_pool_name(&pool.name) {
            Some(PoolState::failure("InvalidName", reason))
        } else if repeated {
            Some(PoolState::failure(
                "DuplicatePool",
                "the pool occurs twice in spec.pools: the operator does not choose one",
            ))
        } else if replicas < 1 {
            let message =
                format!("{replicas} replicas: an ingress controller needs at least one; remove the pool to delete it");
            Some(PoolState::failure("InvalidReplicas", message))
        } else if !self.inventory.has_pool(&pool.name) {
            Some(PoolState::pending("PoolNotFound", format!("there is no pool {}", pool.name)))
        } else {
            None
        }
    }

    /// Applies the objects of a pool, and deletes those that its template does not have any more.
    async fn pool(&self, look: &Look<'_>, pool: &IngressPool, before: Deployed) -> PoolState {
        let ports = pool.node_ports.clone().unwrap_or_default();
        let replicas = look.ingress.spec.replicas_of(pool);
        let values = PoolValues { pool: &pool.name, replicas, http: ports.http, https: ports.https };
        let rendered = match look.template.pool_objects(&values, &self.surroundings) {
            Ok(rendered) => rendered,
            Err(error) => return PoolState::failure("TemplateInvalid", error.to_string()),
        };
        let stamp = look.stamp();
        let desired: Vec<_> =
            rendered.into_iter().map(|object| Desired::new(object, &stamp, Some(&pool.name))).collect();
        let mut first_error = None;
        for object in &desired {
            if let Err(error) = self.applier.apply(object, look.uid).await {
                let unavailable = matches!(error, ApplyError::Unavailable(_));
                first_error.get_or_insert(error);
                if unavailable {
                    break;
                }
            }
        }
        if first_error.is_none() {
            first_error = self.prune(look, Some(&pool.name), &desired).await.err();
        }
        if let Some(error) = first_error {
            return PoolState::of_error(&error);
        }
        match before {
            Deployed { revisions, state: Some(state) } if revisions.contains(&look.revision) => state,
            _ => PoolState::pending("Applied", "all objects are applied"),
        }
    }

    /// Applies what pools share, as long as there is a pool.
    async fn shared(&self, look: &Look<'_>, pools: &[&str]) -> Result<(), (&'static str, String)> {
        let mut desired = Vec::new();
        if !pools.is_empty() {
            let rendered = look.template.shared_objects(pools, &self.surroundings);
            let rendered = rendered.map_err(|error| ("TemplateInvalid", error.to_string()))?;
            let stamp = look.stamp();
            desired.extend(rendered.into_iter().map(|object| Desired::new(object, &stamp, None)));
        }
        let failed = |error: ApplyError| (error.reason(), error.to_string());
        for object in &desired {
            self.applier.apply(object, look.uid).await.map_err(failed)?;
        }
        self.prune(look, None, &desired).await.map_err(failed)
    }

    /// Deletes the objects of a pool, or shared ones, that are not desired.
    async fn prune(&self, look: &Look<'_>, pool: Option<&str>, desired: &[Desired]) -> Result<(), ApplyError> {
        for (kind, object) in self.objects.owned_by(look.uid) {
            let name = object.name_any();
            let is_desired = desired.iter().any(|desired| desired.kind == kind && desired.name == name);
            if pool_of(&object) == pool && !is_desired {
                self.applier.delete(kind, &object).await?;
            }
        }
        Ok(())
    }

    /// Deletes the objects of pools that are not wanted any more.
    async fn remove_pools(&self, look: &Look<'_>, wanted: &[&str]) -> Result<(), ApplyError> {
        for (kind, object) in self.objects.owned_by(look.uid) {
            if pool_of(&object).is_some_and(|pool| !wanted.contains(&pool)) {
                self.applier.delete(kind, &object).await?;
            }
        }
        Ok(())
    }

    /// Deletes everything of a YurtIngress, then lets it go.
    async fn finalize(&self, ingress: &YurtIngress, uid: &str) -> Result<Action, ApplyError> {
        if !ingress.finalizers().iter().any(|finalizer| finalizer == FINALIZER) {
            return Ok(Action::await_change());
        }
        let owned = self.objects.owned_by(uid);
        for (kind, object) in &owned {
            self.applier.delete(kind, object).await?;
        }
        if owned.is_empty() {
            self.set_finalizers(ingress, &[]).await?;
            self.metrics.pools(0, 0, 0);
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
        self.notices.publish(ingress, &after).await;
        Ok(())
    }
}

impl Look<'_> {
    fn stamp(&self) -> Stamp<'_> {
        Stamp { template: &self.template, revision: &self.revision, owner: &self.owner }
    }
}
