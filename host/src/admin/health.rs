//! Whether this node is well: the one place that decides it, for the status page, `weir status` and its exit code, `/status`,
//! `/readyz?verbose`, the metrics `weir_node_health` and `weir_notices`, and the condition of the Node.

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use serde_json::{Value, json};
use weir_process::one_line;
use weir_runtime::{Filter, SetAsideObject};
use weir_spec::{LookupSpec, Mode};
use weir_store::{ReflectorStatus, Reflectors};
use weir_view::CacheStatus;

use super::Caches;
use super::notices::{Notice, Notices};
use super::status::{FilterStatus, Missing, ReloadError};
use crate::node_facts::{NodeState, SWITCH};

/// The longest reason of a notice.
const REASON: usize = 400;

/// What the health is read from.
#[derive(Clone)]
#[expect(missing_debug_implementations, reason = "reports only")]
pub struct HealthSources {
    /// The filters and the last reloads.
    pub status: Arc<FilterStatus>,
    /// The lookups of filters.
    pub reflectors: Reflectors,
    /// What an operator should know.
    pub notices: Arc<Notices>,
    /// The watch caches and the API servers.
    pub caches: Caches,
}

/// How well this node is, and what is wrong with it.
#[derive(Debug)]
pub(crate) struct HealthReport {
    pub(crate) state: NodeHealth,
    /// Why there is no filter set yet.
    pub(crate) not_ready: Option<NotReady>,
    /// What is to be known, the faults first.
    pub(crate) notices: Vec<Notice>,
}

/// In one word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NodeHealth {
    /// Nothing is wrong.
    Ready,
    /// It serves, and something is wrong.
    Degraded,
    /// It serves, and no API server answers.
    Offline,
    /// There is no filter set yet.
    NotReady,
}

/// Why there is no filter set yet.
#[derive(Debug)]
pub(crate) struct NotReady {
    /// What is missing: filters that are loading, or the configuration.
    pub(crate) missing: Missing,
    /// The errors of lookups: a filter is loaded once its lookups have synced.
    pub(crate) errors: Vec<String>,
}

impl NodeHealth {
    pub(crate) const ALL: [Self; 4] = [Self::Ready, Self::Degraded, Self::Offline, Self::NotReady];

    /// The word.
    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Degraded => "degraded",
            Self::Offline => "offline",
            Self::NotReady => "not-ready",
        }
    }
}

impl HealthReport {
    /// The health at this moment.
    pub(crate) fn of(sources: &HealthSources) -> Self {
        let HealthSources { status, reflectors, notices, caches } = sources;
        let is_offline = caches.upstream.as_ref().is_some_and(|upstream| upstream.offline_since().is_some());
        let reflectors = reflectors.status();
        let caches = caches.status();
        let degraded: Vec<_> = caches.iter().flat_map(degraded).collect();
        let mut found = faults(status, notices, &degraded);
        if !is_offline {
            found.extend(failed_lookups(lookup_failures(&reflectors, notices)));
            found.extend(failed_caches(cache_failures(&caches)));
        }
        found.extend(notices.present());
        let not_ready = status.missing().map(|missing| {
            let errors = reflectors.iter().filter_map(|reflector| Some(reflector.state.error.as_ref()?.to_string()));
            NotReady { missing, errors: errors.collect() }
        });
        Self::new(is_offline, not_ready, found)
    }

    fn new(is_offline: bool, not_ready: Option<NotReady>, mut notices: Vec<Notice>) -> Self {
        // A sort keeps the order of equals.
        notices.sort_by_key(Notice::is_remark);
        let state = match (&not_ready, is_offline, notices.iter().all(Notice::is_remark)) {
            (Some(_), ..) => NodeHealth::NotReady,
            (None, true, _) => NodeHealth::Offline,
            (None, false, false) => NodeHealth::Degraded,
            (None, false, true) => NodeHealth::Ready,
        };
        Self { state, not_ready, notices }
    }

    /// The filters that clients see the outcome of and that do not work, each with the notice about it.
    pub(super) fn of_filters(&self) -> impl Iterator<Item = (&str, &'static str)> {
        let of_filters =
            self.notices.iter().filter(|notice| matches!(notice.name, "filter-suspended" | "filter-failing"));
        of_filters.flat_map(|notice| notice.subjects.iter().map(|filter| (filter.as_str(), notice.name)))
    }

    /// Its members of `/status`.
    pub(crate) fn to_json(&self) -> Value {
        json!({
            "health": self.state.label(),
            "ready": self.not_ready.is_none(),
            "notReady": self.not_ready.as_ref().map(ToString::to_string),
        })
    }

    /// The answer of `/readyz?verbose` if there is a filter set.
    pub(crate) fn to_lines(&self) -> String {
        let lines = self.notices.iter().map(|notice| format!("[!] {}: {}\n", notice.name, notice.text));
        let first = format!("health: {}\n", self.state.label());
        std::iter::once(first).chain(lines).chain(["ok\n".to_owned()]).collect()
    }
}

impl fmt::Display for NotReady {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.missing)?;
        self.errors.iter().try_for_each(|error| write!(f, "; {error}"))
    }
}

/// The objects of a watch cache that have no verdict.
fn degraded(cache: &CacheStatus) -> Option<(String, usize)> {
    let objects = cache.views.iter().map(|view| view.degraded_objects()).sum();
    (objects > 0).then(|| (cache.collection.resource.to_string(), objects))
}

/// The faults of filters, the worst first.
fn faults(status: &FilterStatus, notices: &Notices, degraded: &[(String, usize)]) -> Vec<Notice> {
    let active = status.active();
    let mut faults = Vec::new();
    faults.extend(off(notices));
    faults.extend(refused(status).filter(|_| active.is_some()));
    let enforced: Vec<_> = active.iter().flatten().filter(|filter| filter.entry().mode == Mode::Enforce).collect();
    faults.extend(enforced.iter().filter_map(|filter| suspension(filter)));
    faults.extend(enforced.iter().filter_map(|filter| failures(filter)));
    faults.extend(without_verdict(degraded));
    faults
}

fn off(notices: &Notices) -> Option<Notice> {
    let (node, state) = notices.node.as_ref()?;
    let text = || {
        format!(
            "all filters are off, by the annotation of the Node: clients see what the API server has; kubectl annotate node {node} {SWITCH}- turns them on"
        )
    };
    state.borrow().is_off().then(|| Notice::new("filters-off", text()))
}

fn refused(status: &FilterStatus) -> Option<Notice> {
    let last = status.last_result().filter(|last| !last.errors().is_empty())?;
    let reasons: Vec<_> = last.errors().iter().map(ReloadError::to_string).collect();
    let reasons = one_line(&reasons.join("; "), REASON);
    let text = format!(
        "the newest configuration is refused, the last good filter set stays in force, correct what is named: {reasons}"
    );
    Some(Notice::new("refused", text).about(last.subjects()))
}

fn suspension(filter: &Filter) -> Option<Notice> {
    let policy = filter.entry().failure_policy.as_str();
    filter.is_suspended().then(|| suspended(filter.name(), policy, filter.last_error().as_deref()))
}

/// A filter that fails again and again on some objects, or on a share of all.
fn failures(filter: &Filter) -> Option<Notice> {
    let (name, policy) = (filter.name(), filter.entry().failure_policy.as_str());
    let objects = filter.set_aside();
    match objects.first() {
        Some(first) => Some(failing(name, policy, objects.len(), first)),
        None => filter.is_failing().then(|| failing_above(name, policy, filter.last_error().as_deref())),
    }
}

fn suspended(name: &str, policy: &str, error: Option<&str>) -> Notice {
    let text = format!(
        "the circuit breaker of the filter {name} is open, its failurePolicy {policy} applies, correct the filter or take its last change back{}",
        reason(error)
    );
    Notice::new("filter-suspended", text).about([name.to_owned()])
}

fn failing(name: &str, policy: &str, objects: usize, first: &SetAsideObject) -> Notice {
    let (object, error) = (one_line(&first.object, REASON), reason(Some(&first.error)));
    let text = format!(
        "the filter {name} fails again and again on {objects} objects, first {object}, its failurePolicy {policy} applies to them, weir explain -v shows what it read{error}"
    );
    Notice::new("filter-failing", text).about([name.to_owned()])
}

fn failing_above(name: &str, policy: &str, error: Option<&str>) -> Notice {
    let text = format!(
        "the filter {name} failed on more than 1% of its objects within five minutes, its failurePolicy {policy} applies to them, weir explain -v shows what it read{}",
        reason(error)
    );
    Notice::new("filter-failing", text).about([name.to_owned()])
}

fn reason(error: Option<&str>) -> String {
    error.map_or_else(String::new, |error| format!(": {}", one_line(error, REASON)))
}

fn without_verdict(degraded: &[(String, usize)]) -> Option<Notice> {
    let objects: usize = degraded.iter().map(|(_, objects)| objects).sum();
    let mut resources: Vec<_> = degraded.iter().map(|(resource, _)| resource.clone()).collect();
    resources.sort_unstable();
    resources.dedup();
    let text = || {
        format!(
            "{objects} objects in watch caches have no verdict of their filters ({}), until they are filtered again: failure policies decide, or the last good outcome stands in; correct the filter that fails, or take its last change back",
            resources.join(", ")
        )
    };
    (objects > 0).then(|| Notice::new("degraded", text()).about(resources.clone()))
}

/// Watch caches that fail, by resource.
fn cache_failures(caches: &[CacheStatus]) -> Vec<(String, String)> {
    let failure = |cache: &CacheStatus| Some((cache.collection.resource.to_string(), cache.fault()?.to_string()));
    caches.iter().filter_map(failure).collect()
}

/// Lookups that fail, by resource. While the daemon's own Node has never been read, another notice says so.
fn lookup_failures(reflectors: &[ReflectorStatus], notices: &Notices) -> Vec<(String, String)> {
    let unread = notices.node.as_ref().filter(|(_, state)| matches!(*state.borrow(), NodeState::Unreadable(_)));
    let own = unread.map(|(name, _)| name.as_str());
    let is_own = |lookup: &LookupSpec| {
        lookup.metadata_only && &*lookup.resource.resource == "nodes" && lookup.name.as_deref() == own
    };
    let of_filters = reflectors.iter().filter(|reflector| own.is_none() || !is_own(&reflector.lookup));
    let failure = |reflector: &ReflectorStatus| {
        Some((reflector.lookup.resource.to_string(), reflector.state.error.as_ref()?.to_string()))
    };
    of_filters.filter_map(failure).collect()
}

fn failed_lookups(failing: Vec<(String, String)>) -> Option<Notice> {
    failed("failing-lookups", "lookups of filters", "filters see former values", failing)
}

fn failed_caches(failing: Vec<(String, String)>) -> Option<Notice> {
    failed("failing-cache", "watch caches", "clients see former objects", failing)
}

/// What fails of the cluster's objects, by resource with the error, and what it means for those who read them.
fn failed(name: &'static str, what: &str, seen: &str, failing: Vec<(String, String)>) -> Option<Notice> {
    let first = one_line(&failing.first()?.1, REASON);
    let resources: BTreeSet<_> = failing.into_iter().map(|(resource, _)| resource).collect();
    let named: Vec<_> = resources.iter().map(String::as_str).collect();
    let text = format!(
        "{what} ({}) fail although an API server answers, {seen}, grant or correct what is named: {first}",
        one_line(&named.join(", "), REASON)
    );
    Some(Notice::new(name, text).about(resources))
}
