//! One filter in force: its match rules, and a validated module with its settings, its trace cache, its dependencies and its
//! breaker. A change of the match rules alone keeps the latter.

mod batch;
mod explain;
mod threads;

use std::collections::HashMap;
use std::fmt::Debug;
use std::hash::Hash;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::sync::watch;
use tracing::Instrument as _;
use tracing::field::Empty;
use weir_document::{Document, Path};

use self::threads::Threads;
use super::breaker::Breaker;
use super::chain::DocumentFilter;
use super::dependency_set::{ChangeSet, DependencySet};
use super::explanation::FilterExplanation;
use super::failure_share::FailureShare;
use super::guards::guards;
use super::observation::Observation;
use super::outcome::Slot;
use super::rule_use::RuleUse;
use super::set_aside::{SetAside, SetAsideObject};
use super::tally::{OutcomeCounts, Tally};
use super::trace_cache::TraceCache;
use super::version::ChainVersion;
use crate::RuntimeMetrics;
use crate::{Description, Pool, Snapshot};
use weir_kube::{FILTER_EDITS, GroupResource, VerbClass};
use weir_spec::{FailurePolicy, FilterEntry, MatchRule, Mode, Share, Writes};

/// The target of spans that are sent as traces.
const SPANS: &str = "weir_trace";
/// One object of this many is filtered again by a fresh instance, to compare the outcomes.
const SPOT_CHECK: u64 = 1024;
/// The minimum time between two spot checks. A fresh instance costs as much as filtering a hundred objects, too much
/// for each list of many small objects.
const SPOT_CHECK_PAUSE: Duration = Duration::from_millis(100);

/// One filter in force.
#[derive(Debug)]
pub struct Filter {
    entry: FilterEntry,
    matches: Vec<MatchRule>,
    rule_use: RuleUse,
    state: Arc<FilterState>,
}

/// The part of a filter that does not depend on its match rules. Filters that share it have the same outcomes.
#[derive(Debug)]
struct FilterState {
    identity: u64,
    name: Arc<str>,
    failure_policy: FailurePolicy,
    mode: Mode,
    digest: weir_spec::Digest,
    description: Description,
    pool: Pool,
    threads: Threads,
    guards: Arc<[Path]>,
    breaker: Breaker,
    set_aside: SetAside,
    failure_share: FailureShare,
    trace_cache: TraceCache,
    dependencies: DependencySet,
    metrics: Arc<RuntimeMetrics>,
    tally: Tally,
    observation: Arc<Observation>,
    filtered: AtomicU64,
    last_check: Mutex<Option<Instant>>,
    last_error: Mutex<Option<String>>,
    source: String,
    _lookups: Lookups,
}

/// Keeps the lookups of a filter up to date until it is dropped.
pub type Lookups = Box<dyn Debug + Send + Sync>;

/// The parts of a filter. The loader has validated them.
#[derive(Debug)]
pub(crate) struct FilterParts {
    /// The configuration.
    pub(crate) entry: FilterEntry,
    /// The digest of the module.
    pub(crate) digest: weir_spec::Digest,
    /// The source of the module: `binaryData`, or a path.
    pub(crate) source: String,
    /// The module's description of itself.
    pub(crate) description: Description,
    /// The match rules of the configuration, else of the module's plan.
    pub(crate) matches: Vec<MatchRule>,
    /// The pool of configured instances.
    pub(crate) pool: Pool,
    /// The dependency set whose epoch the instances have.
    pub(crate) dependencies: DependencySet,
    /// The subscription of the lookups.
    pub(crate) lookups: Lookups,
}

impl Filter {
    /// Creates a filter from its validated parts.
    #[must_use]
    pub(crate) fn new(parts: FilterParts, metrics: Arc<RuntimeMetrics>) -> Self {
        let FilterParts { entry, digest, source, description, matches, pool, dependencies, lookups } = parts;
        let state = FilterState {
            identity: ChainVersion::tick(),
            name: entry.name.shared(),
            failure_policy: entry.failure_policy,
            mode: entry.mode,
            guards: guards(&entry.edits),
            digest,
            description,
            pool,
            threads: Threads::current(),
            breaker: Breaker::default(),
            set_aside: SetAside::default(),
            failure_share: FailureShare::default(),
            trace_cache: TraceCache::default(),
            dependencies,
            metrics,
            tally: Tally::default(),
            observation: Arc::default(),
            filtered: AtomicU64::new(0),
            last_check: Mutex::new(None),
            last_error: Mutex::new(None),
            source,
            _lookups: lookups,
        };
        Self { entry, rule_use: RuleUse::of(&matches), matches, state: Arc::new(state) }
    }

    /// Returns the filter of an entry that differs from this one's at most in its match rules. Its identity is the same, so
    /// that requests which both match do not notice the change. `None`: the entry needs another filter.
    #[must_use]
    pub fn with_rules_of(&self, entry: &FilterEntry) -> Option<Self> {
        let matches = match &entry.matches {
            Some(rules) => rules.clone(),
            // The module's own rules are known only to a filter that has them.
            None => self.entry.matches.is_none().then(|| self.matches.clone())?,
        };
        let same = FilterEntry { matches: entry.matches.clone(), ..self.entry.clone() } == *entry;
        same.then(|| Self { entry: entry.clone(), rule_use: RuleUse::of(&matches), matches, state: self.state.clone() })
    }

    /// Returns the name in the configuration.
    #[must_use]
    pub fn name(&self) -> &Arc<str> {
        &self.state.name
    }

    /// Returns the configuration.
    #[must_use]
    pub fn entry(&self) -> &FilterEntry {
        &self.entry
    }

    /// Returns the digest of the module.
    #[must_use]
    pub fn digest(&self) -> &weir_spec::Digest {
        &self.state.digest
    }

    /// Returns the module's description.
    #[must_use]
    pub fn description(&self) -> &Description {
        &self.state.description
    }

    /// Returns the source of the module: `binaryData`, or a path.
    #[must_use]
    pub fn source(&self) -> &str {
        &self.state.source
    }

    /// Returns the last failure on an object.
    #[must_use]
    pub fn last_error(&self) -> Option<String> {
        self.state.last_error.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns what it has made of objects since it was loaded; in the mode `observe`, what it would have made of them.
    #[must_use]
    pub(crate) fn outcomes(&self) -> OutcomeCounts {
        self.state.tally.counts()
    }

    /// Begins its trial, if the configuration has bounds for that: it becomes active in the place of `before`. The reason arrives
    /// when it is to be taken back.
    pub fn begin_trial(&self, before: Option<&Self>) -> Option<watch::Receiver<Option<Arc<str>>>> {
        let bounds = self.entry.rollback?;
        let counts = before.map(Self::outcomes).unwrap_or_default();
        self.state.tally.begin_trial(bounds, Share::of(counts.hidden, counts.objects()));
        Some(self.state.tally.subscribe())
    }

    /// Returns the match rules.
    #[must_use]
    pub fn rules(&self) -> &[MatchRule] {
        &self.matches
    }

    /// Notes a request, which some of the match rules may match.
    pub fn note_request(&self, component: &str, resource: &GroupResource, class: VerbClass) {
        self.rule_use.note(&self.matches, component, resource, class);
    }

    /// Returns the match rules that no request has matched for an hour.
    #[must_use]
    pub fn unused_rules(&self) -> Vec<&MatchRule> {
        self.rule_use.unused(&self.matches)
    }

    /// Returns the warnings about the match rules of the module's plan, if they apply. The configuration reports those
    /// about its own rules before the filter is loaded.
    #[must_use]
    pub fn plan_warnings(&self) -> Vec<String> {
        match self.entry.matches {
            Some(_) => Vec::new(),
            None => self.entry.rule_warnings(&self.matches),
        }
    }

    /// Returns whether the circuit breaker is open: the module failed repeatedly and is not called.
    #[must_use]
    pub fn is_suspended(&self) -> bool {
        self.state.breaker.is_open()
    }

    /// Returns the objects that it failed on again and again, and that it is not called for.
    #[must_use]
    pub fn set_aside(&self) -> Vec<SetAsideObject> {
        self.state.set_aside.objects()
    }

    /// Returns whether it has failed on more than one percent of the objects that it decided about in the last five minutes, replays
    /// included, and on three at least.
    #[must_use]
    pub fn is_failing(&self) -> bool {
        self.state.failure_share.is_exceeded()
    }

    /// Returns the number of idle instances.
    #[must_use]
    pub fn warm_instances(&self) -> usize {
        self.state.pool.idle()
    }

    /// Returns the linear memory of its largest idle instance in bytes.
    #[must_use]
    pub fn largest_instance(&self) -> usize {
        self.state.pool.largest()
    }

    /// Returns what its calls have read besides their objects, with the values, for tests.
    #[must_use]
    pub fn dependencies(&self) -> HashMap<impl Debug + Eq + Hash + use<>, u64> {
        self.state.dependencies.all().into_iter().collect()
    }

    /// Validates the dependencies that a change affects. Returns true if a value differs. Earlier outcomes are then out
    /// of date, and watches must re-list.
    pub async fn validate_dependencies(&self, snapshot: &dyn Snapshot, changes: &ChangeSet) -> bool {
        self.state.dependencies.validate(snapshot, changes).await
    }

    /// Disables replay. The module is called for each object.
    pub fn disable_replay(&self) {
        self.state.trace_cache.disable();
    }
}

impl FilterState {
    /// Returns an object of a chain with the paths that this filter may not edit in it. Another filter of the chain has set
    /// its own.
    fn guard(&self, object: Document, guarded: bool) -> Document {
        let object = object.with_rules(&FILTER_EDITS);
        if guarded { object.with_guards(self.guards.clone()) } else { object }
    }

    /// Handles two calls that read the same values and returned different results. The filter continues with a call for
    /// each object. Replayed outcomes are out of date.
    fn found_impure(&self, how: &str) {
        self.metrics.impure(&self.name);
        if self.trace_cache.disable() {
            tracing::warn!(
                filter = %self.name,
                digest = %self.digest,
                "{how}: the filter module keeps state between objects; replay is disabled for it"
            );
            self.dependencies.invalidate();
        }
    }

    /// Returns whether this object is due for a spot check.
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
        &self.state.name
    }

    fn identity(&self) -> u64 {
        self.state.identity
    }

    fn matches(&self, component: &str, resource: &GroupResource, class: VerbClass) -> bool {
        self.matches.iter().any(|rule| rule.matches(component, resource, class))
    }

    fn writes(&self) -> Writes {
        match self.entry.mode {
            Mode::Enforce => self.entry.writes,
            Mode::Observe => Writes::Pass,
        }
    }

    fn generation(&self) -> u64 {
        self.state.dependencies.generation()
    }

    fn subscribe(&self) -> watch::Receiver<u64> {
        self.state.dependencies.subscribe()
    }

    fn filter<'a>(&'a self, batch: &'a mut [Slot], guarded: bool) -> BoxFuture<'a, ()> {
        let span = tracing::info_span!(
            target: SPANS,
            "filter",
            otel.name = %self.state.name,
            filter = %self.state.name,
            digest = %self.state.digest,
            objects = batch.len(),
            kept = Empty,
            edited = Empty,
            hidden = Empty,
            failed = Empty,
            replayed = Empty,
        );
        let run = threads::run(&self.state, batch, guarded);
        match span.is_disabled() {
            true => run.map(drop).boxed(),
            false => async move { run.instrument(span.clone()).await.record(&span) }.boxed(),
        }
    }

    fn explain(&self, document: Document, guarded: bool) -> BoxFuture<'_, FilterExplanation> {
        self.state.explain(document, guarded).boxed()
    }
}
