//! When a request last matched each rule of a filter. A rule that nothing matches, such as one with a misspelt component, leaves
//! requests unfiltered without an error.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;
use weir_kube::{GroupResource, VerbClass};

use weir_spec::MatchRule;

/// A rule without a request for so long is reported. Informers start their watches again within minutes.
const QUIET: Duration = Duration::from_secs(3600);

/// The last use of each rule, in the order of the rules.
#[derive(Debug)]
pub(super) struct RuleUse {
    began: Instant,
    /// In seconds since the beginning.
    last: Box<[AtomicU64]>,
}

impl RuleUse {
    /// Begins with rules that count as used now.
    pub(super) fn of(rules: &[MatchRule]) -> Self {
        Self { began: Instant::now(), last: rules.iter().map(|_| AtomicU64::new(0)).collect() }
    }

    /// Notes a request.
    pub(super) fn note(&self, rules: &[MatchRule], component: &str, resource: &GroupResource, class: VerbClass) {
        let now = self.began.elapsed().as_secs();
        for (rule, last) in rules.iter().zip(&self.last) {
            if rule.matches(component, resource, class) {
                last.fetch_max(now, Ordering::Relaxed);
            }
        }
    }

    /// Returns the rules that no request has matched for an hour.
    pub(super) fn unused<'a>(&self, rules: &'a [MatchRule]) -> Vec<&'a MatchRule> {
        let now = self.began.elapsed().as_secs();
        let is_unused = |last: &AtomicU64| now.saturating_sub(last.load(Ordering::Relaxed)) >= QUIET.as_secs();
        rules.iter().zip(&self.last).filter(|(_, last)| is_unused(last)).map(|(rule, _)| rule).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_rule_without_a_request_for_an_hour_is_unused() {
        let rules: Vec<MatchRule> = ["kube-proxy/services", "kube-prxy/services"].map(|r| r.parse().unwrap()).into();
        let services = GroupResource::new("services", "");
        let uses = RuleUse::of(&rules);
        let unused = || uses.unused(&rules).iter().map(ToString::to_string).collect::<Vec<_>>();
        tokio::time::advance(QUIET - Duration::from_secs(1)).await;
        assert!(unused().is_empty(), "a new filter is not reported");
        uses.note(&rules, "Kube-Proxy", &services, VerbClass::Read);
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(unused(), ["kube-prxy/services"]);
        tokio::time::advance(QUIET).await;
        assert_eq!(unused().len(), 2);
        uses.note(&rules, "kube-proxy", &services, VerbClass::Read);
        assert_eq!(unused(), ["kube-prxy/services"]);
    }
}
