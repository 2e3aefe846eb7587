//! The part of a look that brings the objects of the pools nearer to what they should be.
//!
//! First come the pools that have the template's revision, or none: what fails there pauses the upgrade of the others. Then the
//! next one upgrades. All others are held: their objects stay as their own revision has them.

use std::collections::BTreeMap;

use kube::ResourceExt as _;
use kube::api::DynamicObject;

use super::apply::ApplyError;
use super::desired::{Desired, Stamp};
use super::objects::{is_owned, pool_of};
use super::pool_state::{Deployed, PoolState};
use super::reconcile::{Context, Look};
use super::revision::{TemplateRevision, name_of};
use super::rollout::{Turn, turns};
use super::status::Findings;
use crate::api::{IngressPool, invalid_pool_name};
use crate::template::{CONFIG_MAP, PoolValues};

/// The pools of a look, and what became of them so far.
struct Work<'a> {
    context: &'a Context,
    look: &'a Look<'a>,
    findings: &'a mut Findings,
    /// The API server cannot be reached: nothing more is asked of it in this look.
    unavailable: Option<String>,
}

impl Context {
    /// Does what is to be done for all pools. `revision`: that of the template, or why the template cannot be used.
    pub(super) async fn pools(
        &self,
        look: &Look<'_>,
        revision: Result<&TemplateRevision, (&'static str, String)>,
        findings: &mut Findings,
    ) {
        let owned = self.objects.owned_by(look.uid);
        let (pools, repeated) = look.ingress.spec.pools_by_name();
        let mut deployed: BTreeMap<&str, Deployed> = BTreeMap::new();
        let mut valid: BTreeMap<&str, &IngressPool> = BTreeMap::new();
        for (name, pool) in &pools {
            let has_objects = owned.iter().any(|(_, object)| pool_of(object) == Some(name));
            if let Some(state) = self.invalid(look, pool, repeated.contains(name), has_objects) {
                findings.pools.insert((*name).to_owned(), state);
                continue;
            }
            let own = owned.iter().filter(|(kind, object)| kind.kind == "Deployment" && pool_of(object) == Some(name));
            deployed.insert(name, Deployed::of(own.map(|(_, object)| &**object)));
            valid.insert(name, pool);
        }
        let wanted: Vec<_> = pools.keys().copied().collect();
        let mut work = Work { context: self, look, findings, unavailable: None };
        match revision {
            Ok(revision) => {
                work.shared(revision, &wanted, &owned_revisions(&owned)).await;
                work.upgrade(revision, &valid, deployed).await;
            }
            Err((reason, message)) => {
                for (name, pool) in valid {
                    work.hold(pool, deployed.get(name), PoolState::failure(reason, message.clone())).await;
                }
                work.findings.problem = Some((reason, message));
            }
        }
        work.remove_pools(&wanted).await;
        for (name, state) in findings.pools.iter_mut().filter(|(name, _)| !self.inventory.has_nodes(name)) {
            match state {
                PoolState::Unready(_, "Deploying" | "DeploymentFailed", message) => {
                    message.push_str("; no Node is in the pool, so its pods wait for one");
                }
                PoolState::Unready(..) => {}
                PoolState::Ready | PoolState::Upgrading(..) => findings.without_nodes.push(name.clone()),
            }
        }
    }

    /// Why nothing is applied for a pool; `None` if it is.
    fn invalid(&self, look: &Look<'_>, pool: &IngressPool, repeated: bool, has_objects: bool) -> Option<PoolState> {
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
            let objects = if has_objects { "; its objects stay as they are, and nothing repairs them" } else { "" };
            Some(PoolState::pending("PoolNotFound", format!("there is no pool {}{objects}", pool.name)))
        } else {
            None
        }
    }
}

impl Work<'_> {
    /// Applies the revision to the pools whose turn it is.
    async fn upgrade(
        &mut self,
        revision: &TemplateRevision,
        pools: &BTreeMap<&str, &IngressPool>,
        mut deployed: BTreeMap<&str, Deployed>,
    ) {
        for (name, pool) in pools {
            let Some(before) = deployed.get_mut(name).filter(|before| before.may_apply(&revision.hash)) else {
                continue;
            };
            let state = self.apply(revision, pool).await.err();
            if let (Some(state), true) = (&state, before.has(&revision.hash)) {
                before.state = Some(state.clone());
            }
            self.found(name, state.unwrap_or_else(|| before.state_of(&revision.hash)));
        }
        let turns_now = turns(&deployed, &revision.hash);
        let next = pools
            .iter()
            .find(|(name, _)| turns_now.get(*name) == Some(&Turn::Apply) && !self.findings.pools.contains_key(**name));
        if let Some((name, pool)) = next {
            let serves = deployed.get(*name).is_some_and(Deployed::serves);
            let failed = self.apply(revision, pool).await.err();
            if let (Some(state), Some(before)) = (&failed, deployed.get_mut(name)) {
                // Its Deployment may be as before: the failure is that of this revision all the same.
                *before = Deployed { revisions: vec![revision.hash.clone()], state: Some(state.clone()) };
            }
            let applied = if serves { applied().while_serving() } else { applied() };
            self.found(name, failed.unwrap_or(applied));
        }
        let turns = turns(&deployed, &revision.hash);
        for (name, pool) in pools {
            let state = match turns.get(name).filter(|_| !self.findings.pools.contains_key(*name)) {
                Some(Turn::Wait(other)) => PoolState::pending("RolloutWaiting", format!("upgrades after pool {other}")),
                Some(Turn::Paused(other)) => {
                    self.findings.paused_by = Some(other.clone());
                    let message = format!("keeps its revision: the upgrade of pool {other} failed");
                    PoolState::pending("RolloutPaused", message)
                }
                Some(Turn::Apply) | None => continue,
            };
            self.hold(pool, deployed.get(name), state).await;
        }
    }

    /// Puts the objects of a pool back to its own revision, if that is kept. `state`: why it does not get another one.
    async fn hold(&mut self, pool: &IngressPool, deployed: Option<&Deployed>, state: PoolState) {
        let hashes = deployed.map(|deployed| deployed.revisions.as_slice()).unwrap_or_default();
        let kept = hashes.iter().find_map(|hash| self.kept(hash));
        let failed = match &kept {
            Some(kept) => self.apply(kept, pool).await.err(),
            None => None,
        };
        let serves = deployed.is_some_and(Deployed::serves);
        if let (true, Some(kept)) = (serves, kept) {
            self.findings.versions.insert(pool.name.clone(), kept.template.version);
        }
        self.found(&pool.name, failed.unwrap_or(if serves { state.while_serving() } else { state }));
    }

    /// A revision that was applied before.
    fn kept(&self, hash: &str) -> Option<TemplateRevision> {
        let namespace = &self.context.surroundings.namespace;
        let map = self.context.objects.get(&CONFIG_MAP, Some(namespace), &name_of(hash))?;
        TemplateRevision::of_config_map(&map, hash).filter(|_| is_owned(&map, self.look.uid))
    }

    fn found(&mut self, pool: &str, state: PoolState) {
        self.findings.pools.insert(pool.to_owned(), state);
    }

    /// Applies the objects of a pool, and deletes those that its template does not have any more.
    async fn apply(&mut self, revision: &TemplateRevision, pool: &IngressPool) -> Result<(), PoolState> {
        let ports = pool.node_ports.clone().unwrap_or_default();
        let replicas = self.look.ingress.spec.replicas_of(pool);
        let values = PoolValues { pool: &pool.name, replicas, http: ports.http, https: ports.https };
        let rendered = revision.template.pool_objects(&values, &revision.surroundings);
        let rendered = rendered.map_err(|error| PoolState::failure("TemplateInvalid", error.to_string()))?;
        let stamp = self.stamp(revision);
        let desired: Vec<_> =
            rendered.into_iter().map(|object| Desired::new(object, &stamp, Some(&pool.name))).collect();
        self.apply_all(&desired, Some(&pool.name), &[]).await.map_err(|error| PoolState::of_error(&error))
    }

    /// Applies what pools share, as long as there is a pool, and keeps the revision. `kept`: revisions that pools still have.
    async fn shared(&mut self, revision: &TemplateRevision, pools: &[&str], kept: &[String]) {
        let mut desired = Vec::new();
        if !pools.is_empty() {
            let stamp = self.stamp(revision);
            desired.push(Desired::new(revision.config_map(), &stamp, None));
            let names: Vec<_> = pools.iter().copied().filter(|name| invalid_pool_name(name).is_none()).collect();
            match revision.template.shared_objects(&names, &revision.surroundings) {
                Ok(rendered) => {
                    desired.extend(rendered.into_iter().map(|object| Desired::new(object, &stamp, None)));
                }
                Err(error) => {
                    self.findings.problem = Some(("TemplateInvalid", error.to_string()));
                    return;
                }
            }
        }
        let kept: &[String] = if pools.is_empty() { &[] } else { kept };
        if let Err(error) = self.apply_all(&desired, None, kept).await {
            self.findings.problem = Some((error.reason(), error.to_string()));
        }
    }

    /// Applies objects, and deletes others of this pool, or shared ones. An error does not stop the rest; the first is returned.
    async fn apply_all(&mut self, desired: &[Desired], pool: Option<&str>, kept: &[String]) -> Result<(), ApplyError> {
        let mut first = None;
        for object in desired {
            let applied = match &self.unavailable {
                Some(reason) => Err(ApplyError::Unavailable(reason.clone())),
                None => self.context.applier.apply(object, self.look.uid).await,
            };
            if let Err(error) = applied {
                let ends = self.ends(&error);
                first.get_or_insert(error);
                if ends {
                    break;
                }
            }
        }
        if let Some(error) = first {
            return Err(error);
        }
        for (kind, object) in self.context.objects.owned_by(self.look.uid) {
            let name = object.name_any();
            let is_desired = desired.iter().any(|desired| desired.kind == kind && desired.name == name);
            let is_kept = *kind == CONFIG_MAP && kept.contains(&name);
            if pool_of(&object) == pool && !is_desired && !is_kept {
                self.context.applier.delete(kind, &object).await.inspect_err(|error| {
                    self.ends(error);
                })?;
            }
        }
        Ok(())
    }

    /// Whether the API server is away: then the look asks nothing more of it.
    fn ends(&mut self, error: &ApplyError) -> bool {
        let is_away = matches!(error, ApplyError::Unavailable(_));
        if is_away {
            self.unavailable.get_or_insert_with(|| error.to_string());
        }
        is_away
    }

    /// Deletes the objects of pools that are not wanted any more.
    async fn remove_pools(&mut self, wanted: &[&str]) {
        for (kind, object) in self.context.objects.owned_by(self.look.uid) {
            if self.unavailable.is_some() || pool_of(&object).is_none_or(|pool| wanted.contains(&pool)) {
                continue;
            }
            if let Err(error) = self.context.applier.delete(kind, &object).await {
                self.ends(&error);
                self.findings.problem.get_or_insert((error.reason(), error.to_string()));
            }
        }
    }

    fn stamp<'b>(&'b self, revision: &'b TemplateRevision) -> Stamp<'b> {
        Stamp { template: &revision.template, revision: &revision.hash, owner: &self.look.owner }
    }
}

/// The state of a pool whose objects were applied this moment.
fn applied() -> PoolState {
    PoolState::pending("Applied", "all objects are applied")
}

impl Deployed {
    /// The state of a pool whose objects are as this revision has them.
    fn state_of(&self, revision: &str) -> PoolState {
        self.state.clone().filter(|_| self.has(revision)).unwrap_or_else(applied)
    }
}

/// The names of the ConfigMaps of all revisions that Deployments have.
fn owned_revisions(owned: &[(&'static crate::template::Kind, std::sync::Arc<DynamicObject>)]) -> Vec<String> {
    let deployments = owned.iter().filter(|(kind, _)| kind.kind == "Deployment");
    deployments.filter_map(|(_, object)| object.annotations().get(super::REVISION)).map(|hash| name_of(hash)).collect()
}
