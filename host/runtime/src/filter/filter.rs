//! One filter in force: a proven module with its settings, and what happens when it fails.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use tokio::sync::watch;
use weir_document::{Document, Path};

use super::breaker::{Breaker, Turn};
use super::chain::{DocumentFilter, Judged};
use super::foresight::{Foreseen, Foresight};
use super::outcome::{Failure, FailureClass};
use super::reads::Reads;
use crate::metrics::{BatchCounts, RuntimeMetrics};
use crate::{Answer, Checkout, Description, Fault, Lesson, Pool, Read, Recorder, Snapshot};
use crate::{FailurePolicy, FilterEntry, MatchRule, Writes};
use weir_kube::GroupResource;
use weir_kube::VerbClass;

/// One object in this many is run again on a fresh instance, and the outcomes compared.
const SPOT_CHECK: u64 = 1024;
/// Time between two such checks, at least: making an instance costs as much as judging a hundred objects, which a list
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
    foresight: Foresight,
    reads: Arc<Reads>,
    metrics: Arc<RuntimeMetrics>,
    judged: AtomicU64,
    checked: Mutex<Option<Instant>>,
    last_error: Mutex<Option<String>>,
    source: String,
    _lookups: Lookups,
}

/// What keeps a filter's lookups fed; dropped with the filter.
pub type Lookups = Box<dyn std::any::Any + Send + Sync>;

/// The parts of a filter that its loading has proven.
#[derive(Debug)]
pub struct Proven {
    /// As configured.
    pub entry: FilterEntry,
    /// Of the module's bytes.
    pub digest: crate::Digest,
    /// Where the module's bytes came from: `binaryData`, or a path.
    pub source: String,
    /// What the module says of itself.
    pub description: Description,
    /// From the configuration, else from the module's plan.
    pub matches: Vec<MatchRule>,
    /// Instances that took in the settings.
    pub pool: Pool,
    /// The reads of those instances.
    pub reads: RecordedReads,
    /// What keeps the lookups fed.
    pub lookups: Lookups,
}

/// Where a filter's reads are recorded; made before its instances, which write into it.
#[derive(Debug, Clone, Default)]
pub struct RecordedReads(Arc<Reads>);

impl RecordedReads {
    /// For the instances to write into.
    #[must_use]
    pub fn recorder(&self) -> Arc<dyn Recorder> {
        self.0.clone()
    }
}

/// Fields of a Pod that decide what runs with which rights on the node: a filter edits them only if its configuration
/// says so under `edits:`.
const POD_GUARDS: &[&str] = &[
    "spec.volumes",
    "spec.hostNetwork",
    "spec.hostPID",
    "spec.hostIPC",
    "spec.hostUsers",
    "spec.hostname",
    "spec.hostAliases",
    "spec.securityContext",
    "spec.serviceAccountName",
    "spec.containers[*].image",
    "spec.containers[*].securityContext",
    "spec.containers[*].volumeMounts",
    "spec.containers[*].volumeDevices",
    "spec.containers[*].ports[*].hostPort",
    "spec.containers[*].ports[*].hostIP",
    "spec.initContainers[*].image",
    "spec.initContainers[*].securityContext",
    "spec.initContainers[*].volumeMounts",
    "spec.initContainers[*].volumeDevices",
    "spec.initContainers[*].ports[*].hostPort",
    "spec.initContainers[*].ports[*].hostIP",
    "spec.ephemeralContainers[*].image",
    "spec.ephemeralContainers[*].securityContext",
    "spec.ephemeralContainers[*].volumeMounts",
    "spec.ephemeralContainers[*].volumeDevices",
];

impl Filter {
    /// A filter from its proven parts.
    #[must_use]
    pub fn new(parts: Proven, metrics: Arc<RuntimeMetrics>) -> Self {
        static IDENTITIES: AtomicU64 = AtomicU64::new(1);
        let Proven { entry, digest, source, description, matches, pool, reads, lookups } = parts;
        Self {
            identity: IDENTITIES.fetch_add(1, Ordering::Relaxed),
            name: entry.name.shared(),
            guards: guards(&entry.edits),
            entry,
            digest,
            description,
            matches,
            pool,
            breaker: Breaker::default(),
            foresight: Foresight::default(),
            reads: reads.0,
            metrics,
            judged: AtomicU64::new(0),
            checked: Mutex::new(None),
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

    /// The configuration it was made from.
    #[must_use]
    pub fn entry(&self) -> &FilterEntry {
        &self.entry
    }

    /// The digest of its module's bytes.
    #[must_use]
    pub fn digest(&self) -> &crate::Digest {
        &self.digest
    }

    /// What its module says of itself.
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

    /// Reads again what the filter read of what has changed; true when a value differs, and its watches must re-list.
    pub fn validate_reads(&self, snapshot: &dyn Snapshot, concerns: impl Fn(&Read) -> bool) -> bool {
        self.reads.validate(snapshot, concerns)
    }

    /// Judges those of a batch that are kept so far, in order. Each stays there as the filter left it, or as it was before
    /// if the filter failed and its policy is `Ignore`.
    async fn judge_batch(&self, batch: &mut [Judged], guarded: bool) {
        let began = Instant::now();
        let mut counts = BatchCounts::default();
        let mut out = None;
        // While the breaker is open, the failure policy decides.
        let foreseeing = !self.breaker.is_open();
        // The guards are this filter's own: the next one of the chain sets its own.
        let guards = if guarded { self.guards.clone() } else { Arc::default() };
        let mut known = self.foresight.tree();
        let mut finder = self.foresight.finder(|| self.pool.finder());
        for slot in batch {
            // What is hidden, or has failed, stays so.
            if !matches!(slot, Judged::Kept(_)) {
                continue;
            }
            let Judged::Kept(document) = std::mem::replace(slot, Judged::Hidden) else { continue };
            let before = document.with_guards(guards.clone());
            let foreseen = if foreseeing { known.foresee(&before, &mut finder) } else { Foreseen::Nothing };
            let learn = match foreseen {
                Foreseen::Outcome(keep, object) => {
                    counts.foreseen += 1;
                    if self.is_check_due() {
                        self.check(&before, keep, &object).await;
                    }
                    *slot = judged(keep, object, &before, &mut counts);
                    continue;
                }
                Foreseen::Unknown => true,
                Foreseen::Nothing => false,
            };
            *slot = match self.call(&mut out, before.clone(), learn).await {
                Ok(Answer { keep, object, lesson }) => {
                    self.turned(self.breaker.answered());
                    if self.is_check_due() {
                        self.check(&before, keep, &object).await;
                    }
                    if lesson.is_wanted() {
                        self.learn(lesson, keep);
                        known = self.foresight.tree();
                    }
                    judged(keep, object, &before, &mut counts)
                }
                Err(fault) => {
                    counts.failed += 1;
                    self.turned(self.breaker.failed(fault.class));
                    self.failed(fault, before)
                }
            };
        }
        self.foresight.give_back(finder);
        if let Some(checkout) = out {
            self.pool.give_back(checkout);
        }
        self.metrics.batch(&self.name, counts, began.elapsed());
    }

    /// One call, on the instance that is out or a new one; `learn`: what it asks is wanted. Any fault retires the
    /// instance.
    async fn call(&self, out: &mut Option<Checkout>, document: Document, learn: bool) -> Result<Answer, Fault> {
        if self.breaker.is_open() {
            return Err(Fault::new(FailureClass::BreakerOpen, "not called: it failed too often, see /filters"));
        }
        let mut checkout = match out.take() {
            Some(checkout) => checkout,
            None => self.pool.check_out().await?,
        };
        let answer = checkout.instance().filter(document, learn).await?;
        *out = Some(checkout);
        Ok(answer)
    }

    fn learn(&self, lesson: Lesson, keep: bool) {
        if self.foresight.learn(lesson, keep, self.reads.generation()).is_err() {
            self.found_impure("the module acted or answered differently on the same replies");
        }
    }

    /// Runs an object again on a fresh instance: a filter whose answers depend on anything but what it reads through its
    /// imports would break every cache behind it.
    async fn check(&self, before: &Document, keep: bool, after: &Document) {
        let Some(mut fresh) = self.pool.try_fresh().await else { return };
        let Ok(again) = fresh.instance().filter(before.clone(), false).await else { return };
        if again.keep != keep || (keep && !same(&again.object, after)) {
            self.found_impure("the module answered differently on a fresh instance");
        }
    }

    /// From here on it is called for each object, whatever it did before.
    pub fn distrust(&self) {
        self.foresight.distrust();
    }

    /// A filter that is no pure function of what it reads: it goes on, called for each object.
    fn found_impure(&self, how: &str) {
        tracing::warn!(
            filter = %self.name,
            digest = %self.digest,
            "{how}: it keeps state between objects, which filters must not"
        );
        self.metrics.impure(&self.name);
        self.distrust();
    }

    /// Whether this object is the one in [`SPOT_CHECK`] that is judged twice.
    fn is_check_due(&self) -> bool {
        if self.judged.fetch_add(1, Ordering::Relaxed) % SPOT_CHECK != SPOT_CHECK / 2 {
            return false;
        }
        let mut checked = self.checked.lock().unwrap_or_else(PoisonError::into_inner);
        let due = checked.is_none_or(|last| last.elapsed() >= SPOT_CHECK_PAUSE);
        if due {
            *checked = Some(Instant::now());
        }
        due
    }

    /// Applies the failure policy.
    fn failed(&self, fault: Fault, before: Document) -> Judged {
        self.metrics.failure(&self.name, fault.class);
        if fault.class != FailureClass::BreakerOpen {
            let told = format!("{}: {fault}", fault.class.label());
            *self.last_error.lock().unwrap_or_else(PoisonError::into_inner) = Some(told);
            tracing::warn!(
                filter = %self.name,
                digest = %self.digest,
                class = fault.class.label(),
                policy = self.entry.failure_policy.as_str(),
                namespace = before.namespace().ok().flatten().as_deref().unwrap_or_default(),
                object = before.name().ok().as_deref().unwrap_or_default(),
                "filter failed on an object: {fault}"
            );
        }
        match self.entry.failure_policy {
            FailurePolicy::Ignore => Judged::Kept(before),
            FailurePolicy::Hide => Judged::Hidden,
            FailurePolicy::Fail => {
                Judged::Failed(Failure { filter: self.name.clone(), class: fault.class, message: fault.message.into() })
            }
        }
    }

    fn turned(&self, turn: Turn) {
        match turn {
            Turn::None => {}
            Turn::Opened(pause) => {
                tracing::error!(
                    filter = %self.name,
                    digest = %self.digest,
                    policy = self.entry.failure_policy.as_str(),
                    "the module failed too often in a row: not called for {pause:?}, its failure policy applies"
                );
                self.metrics.breaker(&self.name, true);
            }
            Turn::Closed => {
                tracing::info!(filter = %self.name, "the module works again");
                self.metrics.breaker(&self.name, false);
            }
        }
    }
}

impl DocumentFilter for Filter {
    fn name(&self) -> &Arc<str> {
        &self.name
    }

    fn writes(&self) -> Writes {
        self.entry.writes
    }

    fn matches(&self, component: &str, resource: &GroupResource, class: VerbClass) -> bool {
        self.matches.iter().any(|rule| rule.matches(component, resource, class))
    }

    fn identity(&self) -> u64 {
        self.identity
    }

    fn generation(&self) -> watch::Receiver<u64> {
        self.reads.subscribe()
    }

    fn judge<'a>(&'a self, batch: &'a mut [Judged], guarded: bool) -> BoxFuture<'a, ()> {
        self.judge_batch(batch, guarded).boxed()
    }
}

/// What became of a document, counted.
fn judged(keep: bool, object: Document, before: &Document, counts: &mut BatchCounts) -> Judged {
    if !keep {
        counts.hidden += 1;
        return Judged::Hidden;
    }
    *if same(&object, before) { &mut counts.kept } else { &mut counts.edited } += 1;
    Judged::Kept(object)
}

/// Whether two states of a document have the same bytes; most often they are the very same ones.
fn same(a: &Document, b: &Document) -> bool {
    let (a, b) = (a.bytes(), b.bytes());
    (a.as_ptr() == b.as_ptr() && a.len() == b.len()) || a == b
}

fn guards(edits: &[Path]) -> Arc<[Path]> {
    let open: Vec<&str> = edits.iter().map(Path::text).collect();
    POD_GUARDS.iter().filter(|guard| !open.contains(guard)).filter_map(|guard| Path::parse(guard).ok()).collect()
}
