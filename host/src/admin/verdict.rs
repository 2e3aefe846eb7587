//! Whether this node is well: the one place that decides it, for the status page, `weir status` and its exit code, `/status`,
//! `/readyz?verbose` and the metric `weir_notices`.

use serde::Serialize;
use weir_kube::LookupSpec;
use weir_process::one_line;
use weir_runtime::SetAsideObject;
use weir_spec::Mode;
use weir_store::ReflectorStatus;

use super::notices::{Notice, Notices};
use super::port::AdminParts;
use super::status::{FilterStatus, ReloadError};
use crate::node_facts::SWITCH;

/// The longest reason of a notice.
const REASON: usize = 400;

/// How this node is.
#[derive(Debug)]
pub(super) struct Verdict {
    pub(super) state: NodeHealth,
    /// Why there is no filter set yet.
    pub(super) not_ready: Option<String>,
    /// What is to be known, the faults first.
    pub(super) notices: Vec<Notice>,
}

/// In one word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum NodeHealth {
    /// Nothing is wrong.
    Ready,
    /// It serves, and something is wrong.
    Degraded,
    /// It serves, and no API server answers.
    Offline,
    /// There is no filter set yet.
    NotReady,
}

impl Verdict {
    /// The verdict of the moment.
    pub(super) fn of(parts: &AdminParts) -> Self {
        let AdminParts { status, reflectors, notices, caches, .. } = parts;
        let is_offline = caches.upstream.as_ref().is_some_and(|upstream| upstream.offline_since().is_some());
        let degraded: Vec<_> = caches.status().iter().flat_map(degraded).collect();
        let mut found = faults(status, notices, &degraded);
        if !is_offline {
            found.extend(lookups(&reflectors.status(), notices));
        }
        found.extend(notices.present());
        // A sort keeps the order of equals.
        found.sort_by_key(|notice| notice.is_remark());
        // A filter is loaded once its lookups have synced.
        let not_ready = status.ready().err().map(|missing| {
            let errors = reflectors.status().into_iter().filter_map(|reflector| reflector.state.error);
            errors.fold(missing, |reason, error| format!("{reason}; {error}"))
        });
        let state = match (&not_ready, is_offline, found.iter().all(Notice::is_remark)) {
            (Some(_), ..) => NodeHealth::NotReady,
            (None, true, _) => NodeHealth::Offline,
            (None, false, false) => NodeHealth::Degraded,
            (None, false, true) => NodeHealth::Ready,
        };
        Self { state, not_ready, notices: found }
    }
}

/// The objects of a watch cache that have no verdict.
fn degraded(cache: &weir_view::CacheStatus) -> Option<(String, usize)> {
    let objects = cache.views.iter().map(|(_, view)| view.degraded_objects()).sum();
    (objects > 0).then(|| (cache.collection.resource.to_string(), objects))
}

fn faults(status: &FilterStatus, notices: &Notices, degraded: &[(String, usize)]) -> Vec<Notice> {
    let mut faults = Vec::new();
    let mut add = |name, text| faults.push(Notice { name, text });
    if let Some((node, state)) = &notices.node
        && state.borrow().is_off()
    {
        add(
            "filters-off",
            format!(
                "all filters are off, by the annotation of the Node: clients see what the API server has; kubectl annotate node {node} {SWITCH}- turns them on"
            ),
        );
    }
    let active = status.active();
    if let (Some(_), Some(last)) = (&active, status.last_result())
        && !last.errors().is_empty()
    {
        let reasons: Vec<_> = last.errors().iter().map(ReloadError::to_string).collect();
        let reasons = one_line(&reasons.join("; "), REASON);
        add(
            "refused",
            format!(
                "the newest configuration is refused, the last good filter set stays in force, correct what is named: {reasons}"
            ),
        );
    }
    for filter in active.iter().flatten().filter(|filter| filter.entry().mode == Mode::Enforce) {
        let (name, policy) = (filter.name(), filter.entry().failure_policy.as_str());
        if filter.is_suspended() {
            add("filter-suspended", suspended(name, policy, filter.last_error().as_deref()));
        }
        let objects = filter.set_aside();
        if let Some(first) = objects.first() {
            add("filter-failing", failing(name, policy, objects.len(), first));
        }
    }
    if !degraded.is_empty() {
        let objects: usize = degraded.iter().map(|(_, objects)| objects).sum();
        let mut resources: Vec<_> = degraded.iter().map(|(resource, _)| resource.as_str()).collect();
        resources.sort_unstable();
        resources.dedup();
        add(
            "degraded",
            format!(
                "{objects} objects in watch caches have no verdict of their filters ({}), until they are filtered again: failure policies decide, or the last good outcome stands in",
                resources.join(", ")
            ),
        );
    }
    faults
}

fn suspended(name: &str, policy: &str, error: Option<&str>) -> String {
    let error = error.map_or_else(String::new, |error| format!(": {}", one_line(error, REASON)));
    format!(
        "the circuit breaker of the filter {name} is open, its failurePolicy {policy} applies, correct the filter or take its last change back{error}"
    )
}

fn failing(name: &str, policy: &str, objects: usize, first: &SetAsideObject) -> String {
    let (object, error) = (one_line(&first.object, REASON), one_line(&first.error, REASON));
    format!(
        "the filter {name} fails again and again on {objects} objects, first {object}, its failurePolicy {policy} applies to them, weir explain -v shows what it read: {error}"
    )
}

/// Lookups that fail although an API server answers. Of the daemon's own Node another notice says so.
fn lookups(reflectors: &[ReflectorStatus], notices: &Notices) -> Option<Notice> {
    let own = notices.node.as_ref().map(|(name, _)| name.as_str());
    let is_own = |lookup: &LookupSpec| {
        lookup.metadata_only && &*lookup.resource.resource == "nodes" && lookup.name.as_deref() == own
    };
    let of_filters = reflectors.iter().filter(|reflector| own.is_none() || !is_own(&reflector.lookup));
    let failing: Vec<_> = of_filters.filter_map(|reflector| reflector.state.error.as_ref()).collect();
    let text = failed_lookups(failing.len(), &failing.first()?.to_string());
    Some(Notice { name: "failing-lookups", text })
}

fn failed_lookups(count: usize, first: &str) -> String {
    let first = one_line(first, REASON);
    format!(
        "{count} lookups of filters fail although an API server answers, filters see former values, grant what is missing: {first}"
    )
}

#[cfg(test)]
mod tests {
    use tokio::sync::watch;
    use weir_spec::FilterName;

    use super::super::notices::tests::assert_documented;
    use super::super::status::ReloadResult;
    use super::*;
    use crate::node_facts::{NodeFacts, NodeState};

    fn named<'a>(found: &'a [Notice], name: &str) -> &'a str {
        let notice =
            found.iter().find(|notice| notice.name == name).unwrap_or_else(|| panic!("no {name} in {found:?}"));
        assert_documented(notice.name, &notice.text);
        assert!(!notice.is_remark());
        &notice.text
    }

    #[test]
    fn the_kill_switch_and_a_refused_configuration_are_faults() {
        let status = FilterStatus::default();
        let state = |is_off| NodeState::Known(NodeFacts { is_off, ..NodeFacts::default() });
        let (sender, receiver) = watch::channel(state(true));
        let notices = Notices { node: Some(("edge-a".to_owned(), receiver)), ..Notices::default() };
        assert!(
            named(&faults(&status, &notices, &[]), "filters-off").contains("annotate node edge-a weir.dev/filters- ")
        );
        sender.send_replace(state(false));
        assert!(faults(&status, &notices, &[]).is_empty());

        let name: FilterName = "pools".parse().unwrap();
        let refused = ReloadResult::refused(
            "ConfigMap a/b",
            vec![ReloadError { filter: Some(name), reason: "no such module".to_owned() }],
            &[],
        );
        status.refused(refused.clone());
        assert!(faults(&status, &notices, &[]).is_empty(), "the daemon is not ready, which says the same");
        status.live(&[], ReloadResult::applied("ConfigMap a/b", &[]));
        assert!(faults(&status, &notices, &[]).is_empty());
        status.refused(refused);
        assert!(named(&faults(&status, &notices, &[]), "refused").ends_with("filter pools: no such module"));
    }

    #[test]
    fn objects_without_a_verdict_are_a_fault() {
        let degraded = [("services".to_owned(), 2), ("endpoints".to_owned(), 1), ("services".to_owned(), 3)];
        let found = faults(&FilterStatus::default(), &Notices::default(), &degraded);
        let text = named(&found, "degraded");
        assert!(text.starts_with("6 objects in watch caches") && text.contains("(endpoints, services)"), "{text}");
    }

    #[test]
    fn what_filters_fail_on_is_in_the_troubleshooting() {
        let first = SetAsideObject { object: "Service a/b".to_owned(), failures: 3, error: "trap: \u{1b}x".to_owned() };
        for (name, text) in [
            ("filter-suspended", suspended("pools", "Ignore", Some("used up its time"))),
            ("filter-suspended", suspended("pools", "Ignore", None)),
            ("filter-failing", failing("pools", "Ignore", 7, &first)),
            ("failing-lookups", failed_lookups(2, "listing nodepools failed: 403")),
        ] {
            assert_documented(name, &text);
            assert!(!text.contains('\u{1b}'), "{text}");
        }
    }
}
