//! What `/readyz` and `/filters` tell: one record per configured filter and the result of the last reload. Written by
//! the reloader, read by the admin port.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Value, json};

use weir_runtime::Filter;
use weir_runtime::{FilterEntry, FilterName};

/// The board; one per daemon, shared by reference.
#[derive(Debug, Default)]
pub struct StatusBoard(Mutex<Board>);

#[derive(Debug, Default)]
struct Board {
    live: Option<Vec<(Arc<Filter>, jiff::Timestamp)>>,
    loading: BTreeMap<String, jiff::Timestamp>,
    errors: BTreeMap<String, (String, jiff::Timestamp)>,
    last: Option<Reloaded>,
}

/// How a reload ended.
#[derive(Debug, Clone)]
pub struct Reloaded {
    at: jiff::Timestamp,
    source: String,
    troubles: Vec<Trouble>,
    warnings: Vec<String>,
}

/// Why a reload was refused.
#[derive(Debug, Clone)]
pub struct Trouble {
    /// The filter it concerns; none: the configuration as a whole.
    pub filter: Option<FilterName>,
    /// For people.
    pub reason: String,
}

impl Reloaded {
    /// The configuration is in force.
    #[must_use]
    pub fn applied(source: &str, warnings: &[String]) -> Self {
        Self {
            at: jiff::Timestamp::now(),
            source: source.to_owned(),
            troubles: Vec::new(),
            warnings: warnings.to_vec(),
        }
    }

    /// The configuration was refused.
    #[must_use]
    pub fn refused(source: &str, troubles: Vec<Trouble>) -> Self {
        Self { at: jiff::Timestamp::now(), source: source.to_owned(), troubles, warnings: Vec::new() }
    }
}

impl StatusBoard {
    /// A filter is being loaded.
    pub fn loading(&self, entry: &FilterEntry) {
        let mut board = self.lock();
        board.loading.entry(entry.name.to_string()).or_insert_with(jiff::Timestamp::now);
    }

    /// These filters are in force.
    pub fn live(&self, filters: &[Arc<Filter>], reloaded: Reloaded) {
        let mut board = self.lock();
        let before = board.live.take().unwrap_or_default();
        let since = |filter: &Arc<Filter>| {
            before.iter().find(|(old, _)| Arc::ptr_eq(old, filter)).map_or(reloaded.at, |(_, since)| *since)
        };
        board.live = Some(filters.iter().map(|filter| (filter.clone(), since(filter))).collect());
        board.loading.clear();
        board.errors.clear();
        board.last = Some(reloaded);
    }

    /// A configuration was refused; what was in force stays.
    pub fn refused(&self, reloaded: Reloaded) {
        let mut board = self.lock();
        board.loading.clear();
        board.errors = reloaded
            .troubles
            .iter()
            .filter_map(|trouble| Some((trouble.filter.as_ref()?.to_string(), (trouble.reason.clone(), reloaded.at))))
            .collect();
        board.last = Some(reloaded);
    }

    /// Whether a complete set is in force.
    ///
    /// # Errors
    /// With what is missing, for people.
    pub fn ready(&self) -> Result<(), String> {
        let board = self.lock();
        if board.live.is_some() {
            return Ok(());
        }
        Err(match &board.last {
            None if board.loading.is_empty() => "no configuration was read yet".to_owned(),
            None => {
                let names: Vec<_> = board.loading.keys().map(String::as_str).collect();
                format!("filters are loading: {}", names.join(", "))
            }
            Some(reloaded) => {
                let reasons: Vec<_> = reloaded.troubles.iter().map(Trouble::to_string).collect();
                format!("{} was refused: {}", reloaded.source, reasons.join("; "))
            }
        })
    }

    /// Instances of all filters in force that wait for work.
    #[must_use]
    pub fn warm_instances(&self) -> usize {
        self.lock().live.iter().flatten().map(|(filter, _)| filter.warm_instances()).sum()
    }

    /// The answer of `/filters`.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let board = self.lock();
        let live = board.live.iter().flatten().map(|(filter, since)| {
            let error = board.errors.get(filter.name().as_ref());
            let state = if filter.is_suspended() {
                "suspended"
            } else if error.is_some() {
                "live, change refused"
            } else {
                "live"
            };
            json!({
                "name": filter.name().as_ref(),
                "state": state,
                "since": since.to_string(),
                "module": filter.entry().module.as_str(),
                "digest": filter.digest().to_string(),
                "source": filter.source(),
                "description": {
                    "name": filter.description().name,
                    "version": filter.description().version,
                    "summary": filter.description().summary,
                },
                "match": filter.rules().iter().map(ToString::to_string).collect::<Vec<_>>(),
                "failurePolicy": filter.entry().failure_policy.as_str(),
                "limits": {
                    "memoryBytes": filter.entry().limits.memory.bytes(),
                    "timeMilliseconds": filter.entry().limits.time.duration().as_millis(),
                },
                "lastError": filter.last_error().or_else(|| error.map(|(reason, _)| reason.clone())),
            })
        });
        let is_live = |name: &str| board.live.iter().flatten().any(|(filter, _)| filter.name().as_ref() == name);
        let failed = board.errors.iter().filter(|(name, _)| !is_live(name)).map(
            |(name, (reason, at))| json!({"name": name, "state": "failed", "since": at.to_string(), "lastError": reason}),
        );
        let loading = board
            .loading
            .iter()
            .filter(|(name, _)| !is_live(name) && !board.errors.contains_key(*name))
            .map(|(name, at)| json!({"name": name, "state": "loading", "since": at.to_string()}));
        let filters: Vec<_> = live.chain(failed).chain(loading).collect();
        let last = board.last.as_ref().map(|reloaded| {
            json!({
                "result": if reloaded.troubles.is_empty() { "applied" } else { "refused" },
                "at": reloaded.at.to_string(),
                "source": reloaded.source,
                "errors": reloaded.troubles.iter().map(Trouble::to_string).collect::<Vec<_>>(),
                "warnings": reloaded.warnings,
            })
        });
        json!({ "ready": board.live.is_some(), "filters": filters, "lastReload": last })
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Board> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Display for Trouble {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.filter {
            Some(filter) => write!(f, "filter {filter}: {}", self.reason),
            None => f.write_str(&self.reason),
        }
    }
}
