//! Which pools may have a new revision of the template now: one after another, and none after a failure.
//!
//! A pool without a revision gets it at once: there is nothing to interrupt. Pools that are ready upgrade first, so that a pool
//! which did not work before does not hold up the others.

use std::collections::BTreeMap;

use super::pool_state::Deployed;

/// What a pool may do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Turn {
    /// Apply: it has this revision, or none.
    Apply,
    /// Wait, because another pool upgrades.
    Wait(String),
    /// Wait, because the upgrade of another pool failed.
    Paused(String),
}

/// The turns of all pools for a revision.
pub(super) fn turns<'a>(pools: &BTreeMap<&'a str, Deployed>, revision: &str) -> BTreeMap<&'a str, Turn> {
    let has = |deployed: &Deployed| deployed.may_apply(revision);
    let failed = pools.iter().find(|(_, deployed)| {
        has(deployed) && deployed.state.as_ref().is_some_and(super::pool_state::PoolState::is_failure)
    });
    let upgrading =
        pools.iter().find(|(_, deployed)| has(deployed) && deployed.state.is_some() && !deployed.is_ready());
    let mut waiting: Vec<_> = pools.iter().filter(|(_, deployed)| !has(deployed)).collect();
    waiting.sort_by_key(|(name, deployed)| (!deployed.is_ready(), **name));
    let next = waiting.first().map(|(name, _)| **name).filter(|_| failed.is_none() && upgrading.is_none());
    let turn = |name: &'a str, deployed: &Deployed| match (has(deployed), failed, upgrading, next) {
        (true, ..) => Turn::Apply,
        (false, Some((failed, _)), ..) => Turn::Paused((*failed).to_owned()),
        (false, None, Some((upgrading, _)), _) => Turn::Wait((*upgrading).to_owned()),
        (false, None, None, Some(next)) if next == name => Turn::Apply,
        (false, None, None, next) => Turn::Wait(next.unwrap_or_default().to_owned()),
    };
    pools.iter().map(|(name, deployed)| (*name, turn(name, deployed))).collect()
}

#[cfg(test)]
mod tests {
    use super::super::pool_state::PoolState;
    use super::*;

    fn turns_of(pools: &[(&'static str, &str, &str)]) -> Vec<String> {
        let deployed = |revision: &str, state: &str| Deployed {
            revisions: (!revision.is_empty()).then(|| revision.to_owned()).into_iter().collect(),
            state: match state {
                "ready" => Some(PoolState::Ready),
                "pending" => Some(PoolState::pending("Deploying", "")),
                "failed" => Some(PoolState::failure("DeploymentFailed", "")),
                _ => None,
            },
        };
        let pools = pools.iter().map(|(name, revision, state)| (*name, deployed(revision, state))).collect();
        let show = |(name, turn): (&str, Turn)| match turn {
            Turn::Apply => format!("{name} applies"),
            Turn::Wait(other) => format!("{name} waits for {other}"),
            Turn::Paused(other) => format!("{name} paused by {other}"),
        };
        turns(&pools, "2").into_iter().map(show).collect()
    }

    #[test]
    fn pools_upgrade_one_after_another() {
        assert_eq!(
            turns_of(&[("a", "1", "ready"), ("b", "1", "ready"), ("new", "", "")]),
            ["a applies", "b waits for a", "new applies"]
        );
        assert_eq!(turns_of(&[("a", "2", "pending"), ("b", "1", "ready")]), ["a applies", "b waits for a"]);
        assert_eq!(turns_of(&[("a", "2", "ready"), ("b", "1", "ready")]), ["a applies", "b applies"]);
    }

    #[test]
    fn a_failure_pauses_the_roll_out() {
        assert_eq!(turns_of(&[("a", "2", "failed"), ("b", "1", "ready")]), ["a applies", "b paused by a"]);
    }

    #[test]
    fn pools_that_do_not_work_upgrade_last_and_hold_up_nobody() {
        assert_eq!(
            turns_of(&[("a", "1", "failed"), ("b", "1", "ready"), ("c", "1", "pending")]),
            ["a waits for b", "b applies", "c waits for b"]
        );
        assert_eq!(turns_of(&[("a", "1", "failed"), ("b", "2", "ready")]), ["a applies", "b applies"]);
    }
}
