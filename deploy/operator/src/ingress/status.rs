//! The status of a YurtIngress, computed from the states of its pools. Times change only with what they are about.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

use super::pool_state::PoolState;
use crate::api::{UnreadyKind, UnreadyPool, UpgradingPool, YurtIngress, YurtIngressCondition, YurtIngressStatus};

/// The longest message of a condition that the API server accepts.
const MAX_MESSAGE: usize = 32_768;
/// The longest message of a pool.
const MAX_POOL_MESSAGE: usize = 1024;

/// What the operator found out about a YurtIngress.
#[derive(Debug, Default)]
pub(super) struct Findings {
    /// Why another YurtIngress acts, if one does.
    pub(super) not_accepted: Option<String>,
    /// The states of the pools.
    pub(super) pools: BTreeMap<String, PoolState>,
    /// What is wrong with objects that pools share, or with the spec as a whole.
    pub(super) problem: Option<(&'static str, String)>,
    /// The pool whose upgrade failed.
    pub(super) paused_by: Option<String>,
    /// The pools that are ready and that no Node is in.
    pub(super) without_nodes: Vec<String>,
    /// The version of the template.
    pub(super) version: Option<String>,
    /// The versions of pools that have another one.
    pub(super) versions: BTreeMap<String, String>,
}

/// The status after these findings.
pub(super) fn status(ingress: &YurtIngress, findings: &Findings, now: Timestamp) -> YurtIngressStatus {
    let before = ingress.status.clone().unwrap_or_default();
    let (mut conditions, mut upgrading_pools) = (YurtIngressCondition::default(), Vec::new());
    for (name, state) in &findings.pools {
        match state {
            PoolState::Ready => conditions.ready_pools.push(name.clone()),
            PoolState::Upgrading(reason, message) => {
                conditions.ready_pools.push(name.clone());
                upgrading_pools.push(UpgradingPool {
                    name: name.clone(),
                    version: findings.versions.get(name).cloned(),
                    reason: (*reason).to_owned(),
                    message: cut(message, MAX_POOL_MESSAGE),
                });
            }
            PoolState::Unready(kind, reason, message) => {
                let same = before
                    .conditions
                    .unready_pools
                    .iter()
                    .find(|pool| pool.name == *name && pool.kind == *kind && pool.reason == *reason);
                conditions.unready_pools.push(UnreadyPool {
                    name: name.clone(),
                    kind: *kind,
                    last_transition_time: same.map_or(whole_second(now), |pool| pool.last_transition_time.clone()),
                    reason: (*reason).to_owned(),
                    message: cut(message, MAX_POOL_MESSAGE),
                });
            }
        }
    }
    let count = |length: usize| i32::try_from(length).unwrap_or(i32::MAX);
    let (ready, unready) = (conditions.ready_pools.len(), conditions.unready_pools.len());
    let generation = ingress.metadata.generation;
    let verdicts = verdicts(findings, ready, &conditions.unready_pools, &upgrading_pools);
    let standard_conditions = verdicts
        .into_iter()
        .map(|(kind, status, reason, message)| {
            let status = if status { "True" } else { "False" };
            let same = before.standard_conditions.iter().find(|old| old.type_ == kind && old.status == status);
            Condition {
                type_: kind.to_owned(),
                status: status.to_owned(),
                reason: reason.to_owned(),
                message: cut(&message, MAX_MESSAGE),
                last_transition_time: same.map_or(whole_second(now), |old| old.last_transition_time.clone()),
                observed_generation: generation,
            }
        })
        .collect();
    YurtIngressStatus {
        replicas: Some(ingress.spec.replicas),
        conditions,
        upgrading_pools,
        pools_without_nodes: findings.without_nodes.clone(),
        version: findings.version.clone(),
        ready_num: count(ready),
        unready_num: count(unready),
        observed_generation: generation,
        standard_conditions,
    }
}

/// Type, status, reason and message of the standard conditions.
fn verdicts(
    findings: &Findings,
    ready: usize,
    unready: &[UnreadyPool],
    upgrading: &[UpgradingPool],
) -> [(&'static str, bool, &'static str, String); 3] {
    if let Some(reason) = &findings.not_accepted {
        let text = || reason.clone();
        return [
            ("Accepted", false, "NotSingleton", text()),
            ("Ready", false, "NotSingleton", text()),
            ("Progressing", false, "NotSingleton", text()),
        ];
    }
    let all = ready + unready.len();
    let named = |kind: UnreadyKind| {
        let names: Vec<_> = unready.iter().filter(|pool| pool.kind == kind).map(|pool| pool.name.as_str()).collect();
        (!names.is_empty()).then(|| names.join(", "))
    };
    let (failed, pending) = (named(UnreadyKind::Failure), named(UnreadyKind::Pending));
    let is_ready = match (&findings.problem, &failed, &pending) {
        (Some((reason, message)), ..) => (false, *reason, message.clone()),
        (None, Some(failed), _) => {
            (false, "PoolsFailed", format!("the ingress controllers of these pools failed: {failed}"))
        }
        (None, None, Some(pending)) => {
            (false, "PoolsPending", format!("the ingress controllers of these pools are not ready yet: {pending}"))
        }
        (None, None, None) => {
            let mut message = format!("the ingress controllers of all {all} pools are ready");
            if !findings.without_nodes.is_empty() {
                message = format!("{message}, but no Node is in {}", findings.without_nodes.join(", "));
            }
            (true, "PoolsReady", message)
        }
    };
    let progressing = match (&findings.paused_by, &pending) {
        (Some(pool), _) => {
            (false, "RolloutPaused", format!("the upgrade of pool {pool} failed: the other pools keep their revision"))
        }
        (None, Some(pending)) => {
            (true, "PoolsPending", format!("{ready} of {all} pools are ready, pending: {pending}"))
        }
        (None, None) if !upgrading.is_empty() => {
            let names: Vec<_> = upgrading.iter().map(|pool| pool.name.as_str()).collect();
            (true, "PoolsUpgrading", format!("{ready} of {all} pools are ready, upgrading: {}", names.join(", ")))
        }
        (None, None) => (false, "Complete", format!("{ready} of {all} pools are ready")),
    };
    [
        ("Accepted", true, "Acting", "the operator acts on this YurtIngress".to_owned()),
        ("Ready", is_ready.0, is_ready.1, is_ready.2),
        ("Progressing", progressing.0, progressing.1, progressing.2),
    ]
}

/// Times in objects have seconds.
fn whole_second(now: Timestamp) -> Time {
    Time(Timestamp::from_second(now.as_second()).unwrap_or(now))
}

fn cut(text: &str, limit: usize) -> String {
    text.chars().take(limit).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::YurtIngressSpec;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn findings(pools: &[(&str, PoolState)]) -> Findings {
        let pools = pools.iter().map(|(name, state)| ((*name).to_owned(), state.clone())).collect();
        Findings { pools, ..Findings::default() }
    }

    fn ingress(status: Option<YurtIngressStatus>) -> YurtIngress {
        let spec: YurtIngressSpec = serde_json::from_str("{}").unwrap();
        let mut ingress = YurtIngress::new("one", spec);
        ingress.status = status;
        ingress
    }

    fn condition<'a>(status: &'a YurtIngressStatus, kind: &str) -> &'a Condition {
        status.standard_conditions.iter().find(|condition| condition.type_ == kind).unwrap()
    }

    #[test]
    fn times_change_with_type_or_reason_only() {
        let pending = |message: &str| findings(&[("a", PoolState::pending("Deploying", message))]);
        let first = status(&ingress(None), &pending("0 of 1"), at(10));
        let second = status(&ingress(Some(first.clone())), &pending("1 of 2"), at(20));
        assert_eq!(second.conditions.unready_pools[0].last_transition_time, Time(at(10)));
        assert_eq!(second.conditions.unready_pools[0].message, "1 of 2");
        let failed = findings(&[("a", PoolState::failure("NotOurs", "x"))]);
        let third = status(&ingress(Some(second)), &failed, at(30));
        assert_eq!(third.conditions.unready_pools[0].last_transition_time, Time(at(30)));
        assert_eq!(condition(&third, "Ready").last_transition_time, Time(at(10)));
        let ready = findings(&[("a", PoolState::Ready)]);
        let fourth = status(&ingress(Some(third)), &ready, at(40));
        assert_eq!((fourth.ready_num, fourth.unready_num), (1, 0));
        assert_eq!(condition(&fourth, "Ready").last_transition_time, Time(at(40)));
        assert_eq!(status(&ingress(Some(fourth.clone())), &ready, at(50)), fourth, "nothing to write");
    }

    #[test]
    fn a_ready_pool_that_lost_its_nodes_is_named() {
        let mut found = findings(&[("a", PoolState::Ready), ("b", PoolState::Ready)]);
        found.without_nodes = vec!["b".to_owned()];
        let shown = status(&ingress(None), &found, at(1));
        let ready = condition(&shown, "Ready");
        assert_eq!((ready.status.as_str(), ready.reason.as_str()), ("True", "PoolsReady"), "its pods serve");
        assert!(ready.message.ends_with(", but no Node is in b"), "{}", ready.message);
        assert_eq!(shown.pools_without_nodes, ["b"]);
    }

    #[test]
    fn conditions_name_the_pools_and_the_reason() {
        let mut paused = findings(&[
            ("a", PoolState::failure("DeploymentFailed", "x")),
            ("b", PoolState::pending("RolloutPaused", "y")),
        ]);
        paused.paused_by = Some("a".to_owned());
        let shown = status(&ingress(None), &paused, at(1));
        assert_eq!(condition(&shown, "Progressing").reason, "RolloutPaused");
        assert!(condition(&shown, "Ready").message.ends_with("failed: a"));
        let refused = Findings { not_accepted: Some("one acts".to_owned()), ..Findings::default() };
        assert_eq!(condition(&status(&ingress(None), &refused, at(1)), "Accepted").status, "False");
    }
}
