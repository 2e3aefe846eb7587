//! One filter in force: a validated module with its settings, its trace cache, its dependencies and its breaker.

mod batch;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::sync::watch;
use weir_document::Path;

use self::batch::Batch;
use super::breaker::Breaker;
use super::chain::DocumentFilter;
use super::dependency_set::{ChangeSet, DependencySet};
use super::guards::guards;
use super::outcome::Filtered;
use super::trace_cache::TraceCache;
use super::version::tick;
use crate::RuntimeMetrics;
use crate::{Description, LookupSubscription, Pool, Snapshot};
use crate::{FilterEntry, MatchRule, Writes};
use weir_kube::GroupResource;
use weir_kube::VerbClass;

/// One object in this many is filtered again by a fresh instance, and the outcomes are compared.
const SPOT_CHECK: u64 = 1024;
/// Time between two spot checks, at least: making an instance costs as much as filtering a hundred objects, which a list
/// of many small ones would pay again and again.
const SPOT_CHECK_PAUSE: Duration = Duration::from_millis(100);

/// One filter in force.
#[derive(Debug)]
pub struct Filter {
    identity: u64,
    name: Arc<str>,
    entry: FilterEntry,
    digest: crate::Digest,
    description: Description,
    matches: Vec<MatchRule>,
    pool: Pool,
    guards: Arc<[Path]>,
    breaker: Breaker,
    trace_cache: TraceCache,
    dependencies: DependencySet,
    metrics: Arc<RuntimeMetrics>,
    filtered: AtomicU64,
    last_check: Mutex<Option<Instant>>,
    last_error: Mutex<Option<String>>,
    source: String,
    _lookups: Lookups,
}

/// Keeps a filter's lookups up to date; dropped with the filter.
pub type Lookups = Box<dyn LookupSubscription>;

/// The parts of a filter, validated by its loading.
#[derive(Debug)]
pub struct FilterParts {
    /// As configured.
    pub entry: FilterEntry,
    /// Of the module's bytes.
    pub digest: crate::Digest,
    /// Where the module's bytes came from: `binaryData`, or a path.
    pub source: String,
    /// The module's description of itself.
    pub description: Description,
    /// From the configuration, else from the module's plan.
    pub matches: Vec<MatchRule>,
    /// Configured instances.
    pub pool: Pool,
    /// The dependency set whose epoch those instances have.
    pub dependencies: DependencySet,
    /// Keeps the lookups up to date.
    pub lookups: Lookups,
}

impl Filter {
    /// A filter of its validated parts.
    #[must_use]
    pub fn new(parts: FilterParts, metrics: Arc<RuntimeMetrics>) -> Self {
        let FilterParts { entry, digest, source, description, matches, pool, dependencies, lookups } = parts;
        Self {
            identity: tick(),
            name: entry.name.shared(),
            guards: guards(&entry.edits),
            entry,
            digest,
            description,
            matches,
            pool,
            breaker: Breaker::default(),
            trace_cache: TraceCache::default(),
            dependencies,
            metrics,
            filtered: AtomicU64::new(0),
            last_check: Mutex::new(None),
            last_error: Mutex::new(None),
            source,
            _lookups: lookups,
        }
    }

    /// As configured.
    #[must_use]
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// The configuration that it was made from.
    #[must_use]
    pub fn entry(&self) -> &FilterEntry {
        &self.entry
    }

    /// The digest of its module's bytes.
    #[must_use]
    pub fn digest(&self) -> &crate::Digest {
        &self.digest
    }

    /// Its module's description of itself.
    #[must_use]
    pub fn description(&self) -> &Description {
        &self.description
    }

    /// Where its module came from: `binaryData`, or a path.
    #[must_use]
    pub fn source(&self) -> &str {
        &self.source
    }

    /// The last failure on an object, if there was one.
    #[must_use]
    pub fn last_error(&self) -> Option<String> {
        self.last_error.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Its match rules.
    #[must_use]
    pub fn rules(&self) -> &[MatchRule] {
        &self.matches
    }

    /// Whether calls are suspended because the module failed again and again.
    #[must_use]
    pub fn is_suspended(&self) -> bool {
        self.breaker.is_open()
    }

    /// Instances that wait for work.
    #[must_use]
    pub fn warm_instances(&self) -> usize {
        self.pool.idle()
    }

    /// What its calls read beside their objects.
    #[must_use]
    pub fn dependencies(&self) -> &DependencySet {
        &self.dependencies
    }

    /// Reads again those of its dependencies that a change concerns. Returns true when a value differs: outcomes so far are
    /// out of date, and watches must re-list.
    pub async fn validate_dependencies(&self, snapshot: &dyn Snapshot, changes: &ChangeSet) -> bool {
        self.dependencies.validate(snapshot, changes).await
    }

    /// From here on the module is called for each object.
    pub fn disable_replay(&self) {
        self.trace_cache.disable();
    }

    /// Two calls that read the same contradicted each other. The filter goes on, with a call for each object; what was
    /// replayed so far is out of date.
    fn found_impure(&self, how: &str) {
        self.metrics.impure(&self.name);
        if self.trace_cache.disable() {
            tracing::warn!(
                filter = %self.name,
                digest = %self.digest,
                "{how}: the filter module keeps state between objects; its calls are not replayed any more"
            );
            self.dependencies.invalidate();
        }
    }

    /// Whether this object is the one in [`SPOT_CHECK`] that is filtered twice.
    fn is_check_due(&self) -> bool {
        if self.filtered.fetch_add(1, Ordering::Relaxed) % SPOT_CHECK != SPOT_CHECK / 2 {
            return false;
        }
        let mut last = self.last_check.lock().unwrap_or_else(PoisonError::into_inner);
        let due = last.is_none_or(|last| last.elapsed() >= SPOT_CHECK_PAUSE);
        if due {
            *last = Some(Instant::now());
        }
        due
    }
}

impl DocumentFilter for Filter {
    fn name(&self) -> &Arc<str> {
        &self.name
    }

    fn identity(&self) -> u64 {
        self.identity
    }

    fn matches(&self, component: &str, resource: &GroupResource, class: VerbClass) -> bool {
        self.matches.iter().any(|rule| rule.matches(component, resource, class))
    }

    fn writes(&self) -> Writes {
        self.entry.writes
    }

    fn generation(&self) -> u64 {
        self.dependencies.generation()
    }

    fn subscribe(&self) -> watch::Receiver<u64> {
        self.dependencies.subscribe()
    }

    fn filter<'a>(&'a self, batch: &'a mut [Filtered], guarded: bool) -> BoxFuture<'a, ()> {
        Batch::begin(self, guarded).run(batch).boxed()
    }
}
