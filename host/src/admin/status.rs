//! The state that `/readyz` and `/filters` report: one record for each configured filter, and the result of the last reload.
//! The reloader writes it, the admin port reads it.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Value, json};
use tokio::sync::watch;

use super::reload_history::ReloadHistory;
use weir_runtime::Filter;
use weir_spec::{FilterEntry, FilterName, Mode};
use weir_upstream::clock;

/// So many objects that are set aside are named.
const SET_ASIDE: usize = 20;

/// The state of all filters.
#[derive(Debug, Default)]
pub struct FilterStatus {
    records: Mutex<FilterRecords>,
    /// The number of results so far.
    results: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct FilterRecords {
    live: Option<Vec<(Arc<Filter>, jiff::Timestamp)>>,
    loading: BTreeMap<String, jiff::Timestamp>,
    /// How far their modules are.
    progress: BTreeMap<String, String>,
    errors: BTreeMap<String, (String, jiff::Timestamp)>,
    /// The filters that are not active on this node, and why.
    left_out: Vec<(String, &'static str)>,
    last: Option<ReloadResult>,
    history: ReloadHistory,
}

/// The result of a reload.
#[derive(Debug, Clone)]
pub struct ReloadResult {
    pub(super) at: jiff::Timestamp,
    pub(super) source: String,
    pub(super) errors: Vec<ReloadError>,
    pub(super) warnings: Vec<String>,
}

/// A reason to refuse a configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReloadError {
    /// The filter, unless the configuration as a whole is invalid.
    pub filter: Option<FilterName>,
    /// A message for the operator.
    pub reason: String,
}

/// Why no filter set is active.
#[derive(Debug)]
pub(crate) enum Missing {
    /// The configuration has not been read yet.
    Configuration,
    /// These filters are loading.
    Filters(Vec<String>),
    /// No configuration was valid; this is the last refusal.
    Valid(ReloadResult),
}

impl Missing {
    /// In a few words, which stay the same while it is so.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Configuration => "the configuration has not been read yet",
            Self::Filters(_) => "filters are loading",
            Self::Valid(_) => "the configuration is refused",
        }
    }

    /// What it is about, without reasons: those may differ at each attempt.
    pub(crate) fn subjects(&self) -> Vec<String> {
        match self {
            Self::Configuration => Vec::new(),
            Self::Filters(names) => names.clone(),
            Self::Valid(result) => result.subjects(),
        }
    }
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Configuration => f.write_str(self.name()),
            Self::Filters(names) => write!(f, "{}: {}", self.name(), names.join(", ")),
            Self::Valid(result) => {
                let reasons: Vec<_> = result.errors.iter().map(ReloadError::to_string).collect();
                write!(f, "{} was refused: {}", result.source, reasons.join("; "))
            }
        }
    }
}

impl ReloadResult {
    /// The source, and the filters that were refused: what a refusal is about, without its reasons.
    pub(super) fn subjects(&self) -> Vec<String> {
        let filters = self.errors.iter().filter_map(|error| Some(format!("filter {}", error.filter.as_ref()?)));
        std::iter::once(self.source.clone()).chain(filters).collect()
    }

    /// The name of the source.
    #[must_use]
    pub fn source(&self) -> &str {
        &self.source
    }

    /// The reasons for which it was refused; none if it is active.
    #[must_use]
    pub fn errors(&self) -> &[ReloadError] {
        &self.errors
    }

    /// What it has that nothing takes, or that may not be meant.
    #[must_use]
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// The configuration is active.
    #[must_use]
    pub fn applied(source: &str, warnings: &[String]) -> Self {
        Self { at: clock::timestamp(), source: source.to_owned(), errors: Vec::new(), warnings: warnings.to_vec() }
    }

    /// The configuration was refused. The warnings are about the one that is active instead.
    #[must_use]
    pub fn refused(source: &str, errors: Vec<ReloadError>, warnings: &[String]) -> Self {
        Self { at: clock::timestamp(), source: source.to_owned(), errors, warnings: warnings.to_vec() }
    }
}

impl FilterStatus {
    /// Records that a filter is being loaded.
    pub fn loading(&self, entry: &FilterEntry) {
        let mut state = self.lock();
        state.loading.entry(entry.name.to_string()).or_insert_with(clock::timestamp);
    }

    /// Records how far the module of a filter that is being loaded is.
    pub fn progress(&self, entry: &FilterEntry, text: String) {
        self.lock().progress.insert(entry.name.to_string(), text);
    }

    /// Records which filters of the configuration are not active on this node, and why.
    pub fn left_out(&self, filters: Vec<(String, &'static str)>) {
        self.lock().left_out = filters;
    }

    /// Records that these filters are active.
    pub fn live(&self, filters: &[Arc<Filter>], result: ReloadResult) {
        let mut state = self.lock();
        let before = state.live.take().unwrap_or_default();
        state.history.applied(&result, before.iter().map(|(filter, _)| filter), filters);
        let since = |filter: &Arc<Filter>| {
            before.iter().find(|(old, _)| Arc::ptr_eq(old, filter)).map_or(result.at, |(_, since)| *since)
        };
        state.live = Some(filters.iter().map(|filter| (filter.clone(), since(filter))).collect());
        state.loading.clear();
        state.progress.clear();
        state.errors.clear();
        state.last = Some(result);
        drop(state);
        self.results.send_modify(|results| *results += 1);
    }

    /// Records that the set of the last [`Self::live`] is held because no configuration is there.
    pub fn held(&self) {
        self.lock().history.held();
    }

    /// Records that a configuration was refused. The active filters stay.
    pub fn refused(&self, result: ReloadResult) {
        let mut state = self.lock();
        state.loading.clear();
        state.progress.clear();
        state.errors = result
            .errors
            .iter()
            .filter_map(|error| Some((error.filter.as_ref()?.to_string(), (error.reason.clone(), result.at))))
            .collect();
        state.history.refused(&result);
        state.last = Some(result);
        drop(state);
        self.results.send_modify(|results| *results += 1);
    }

    /// Subscribes to results of reloads. The value is their number.
    #[must_use]
    pub fn subscribe(&self) -> watch::Receiver<u64> {
        self.results.subscribe()
    }

    /// The active filters; `None` before the first set.
    #[must_use]
    pub fn active(&self) -> Option<Vec<Arc<Filter>>> {
        let state = self.lock();
        Some(state.live.as_ref()?.iter().map(|(filter, _)| filter.clone()).collect())
    }

    /// The result of the last reload.
    #[must_use]
    pub fn last_result(&self) -> Option<ReloadResult> {
        self.lock().last.clone()
    }

    /// The last reloads, the newest first.
    pub(super) fn reloads(&self) -> Vec<Value> {
        self.lock().history.to_json()
    }

    /// Checks that a complete filter set is active.
    ///
    /// # Errors
    /// A message with the reason.
    pub fn ready(&self) -> Result<(), String> {
        self.missing().map_or(Ok(()), |missing| Err(missing.to_string()))
    }

    /// Why no filter set is active; `None` if one is.
    pub(super) fn missing(&self) -> Option<Missing> {
        let state = self.lock();
        if state.live.is_some() {
            return None;
        }
        Some(match &state.last {
            None if state.loading.is_empty() => Missing::Configuration,
            None => Missing::Filters(state.loading.keys().cloned().collect()),
            Some(result) => Missing::Valid(result.clone()),
        })
    }

    /// The number of idle instances of all active filters.
    #[must_use]
    pub fn idle_instances(&self) -> usize {
        self.lock().live.iter().flatten().map(|(filter, _)| filter.warm_instances()).sum()
    }

    /// The response of `/filters`.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let state = self.lock();
        let live = state.live.iter().flatten().map(|(filter, since)| {
            let error = state.errors.get(filter.name().as_ref());
            let change = state.progress.get(filter.name().as_ref()).map(String::as_str);
            let state = match change.or(error.map(|_| "change refused")) {
                _ if filter.is_suspended() => "suspended".to_owned(),
                Some(change) => format!("live, {change}"),
                None if filter.entry().mode == Mode::Observe => "live, only observes".to_owned(),
                None => "live".to_owned(),
            };
            json!({
                "name": filter.name().as_ref(),
                "state": state,
                "since": since.to_string(),
                "module": filter.entry().module.to_string(),
                "digest": filter.digest().to_string(),
                "source": filter.source(),
                "description": {
                    "name": filter.description().name,
                    "version": filter.description().version,
                    "summary": filter.description().summary,
                },
                "match": filter.rules().iter().map(ToString::to_string).collect::<Vec<_>>(),
                "matchedNothingForAnHour": filter.unused_rules().iter().map(ToString::to_string).collect::<Vec<_>>(),
                "mode": filter.entry().mode.as_str(),
                "failurePolicy": filter.entry().failure_policy.as_str(),
                "limits": {
                    "memoryBytes": filter.entry().limits.memory.bytes(),
                    "timeMilliseconds": filter.entry().limits.time.duration().as_millis(),
                },
                "failing": filter.is_failing(),
                "setAside": set_aside(filter),
                "lastError": filter.last_error().or_else(|| error.map(|(reason, _)| reason.clone())),
            })
        });
        let is_live = |name: &str| state.live.iter().flatten().any(|(filter, _)| filter.name().as_ref() == name);
        let failed = state.errors.iter().filter(|(name, _)| !is_live(name)).map(
            |(name, (reason, at))| json!({"name": name, "state": "failed", "since": at.to_string(), "lastError": reason}),
        );
        let loading = state.loading.iter().filter(|(name, _)| !is_live(name) && !state.errors.contains_key(*name)).map(
            |(name, at)| {
                let step = state.progress.get(name).map_or("loading", String::as_str);
                json!({"name": name, "state": step, "since": at.to_string()})
            },
        );
        let left_out = state.left_out.iter().map(|(name, reason)| json!({"name": name, "state": reason}));
        let filters: Vec<_> = live.chain(failed).chain(loading).chain(left_out).collect();
        let last = state.last.as_ref().map(ReloadResult::to_json);
        json!({ "ready": state.live.is_some(), "filters": filters, "lastReload": last })
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, FilterRecords> {
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The objects that a filter is not called for: their number, and the first ones by name.
fn set_aside(filter: &Filter) -> Value {
    let objects = filter.set_aside();
    let named: Vec<_> = objects
        .iter()
        .take(SET_ASIDE)
        .map(|object| json!({"object": object.object, "failures": object.failures, "lastError": object.error}))
        .collect();
    json!({ "count": objects.len(), "objects": named })
}

impl std::fmt::Display for ReloadError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.filter {
            Some(filter) => write!(f, "filter {filter}: {}", self.reason),
            None => f.write_str(&self.reason),
        }
    }
}
