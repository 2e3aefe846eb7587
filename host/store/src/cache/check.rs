//! The self-check of a store compares it with the API server from time to time, whatever its source. A store that differs is
//! listed again, and a peer that sent objects which the API server does not have is not used again.
//!
//! kube-apiserver's DetectCacheInconsistency is the model: a list of the metadata at the version of the store or later, compared
//! with the state that the store had at the version which the answer names; and a few objects whole. In between, a list of one
//! object returns the newest version, which a store without a source does not reach. Uncertain results do not count: the store
//! jumped over the version, did not reach it in time, or the API server did not answer. It is compared again soon; a peer of which
//! nothing is certain [`MAX_UNCLEAR`] times in a row is not read from for a while. A difference counts if it is there twice.
//!
//! A version is a place in one history, and a cluster that is restored from a backup begins another one. So a store that goes on
//! where it was, from disk or after an outage, is compared at once, outside of the budget.
//!
//! Memory: key, uid and version of each object, of one store at a time. Bytes on the link: see [`budget`].

mod budget;
mod goes_on;
mod metrics;
mod served;

use std::sync::Arc;
use std::time::Duration;

use rpds::RedBlackTreeMapSync;
use tokio::sync::{Semaphore, broadcast};
use tokio::time::{Instant, timeout};
use weir_upstream::{Connectivity, DelegatedCredential, jitter};

use self::budget::Budget;
pub use self::metrics::CheckMetrics;
pub(super) use self::served::ApiServer;
use super::compare::{Difference, Fingerprint, difference, state_at};
use super::object::Object;
use super::resource_store::ResourceStore;
use super::snapshot::Snapshot;
use super::trust::{Continuity, Doubt};
use crate::StoreKey;
use crate::resource_client::RequestError;

/// How often the API server is asked for its newest version, and one object.
const GLANCE: Duration = Duration::from_secs(300);
/// How long a store may take to reach a version without an event. An API server sends a BOOKMARK once a minute.
const NEXT_BOOKMARK: Duration = Duration::from_secs(75);
/// How long it may take once the reflector knows that a reader waits for the version.
const ASKED_FOR: Duration = Duration::from_secs(30);
/// How often in a row nothing may be certain of what a peer sends. Then the API server is asked instead of it for a while.
const MAX_UNCLEAR: u32 = 3;
/// The longest time after which a store that goes on is compared: many go on at a time.
const SOON: Duration = Duration::from_secs(4);
/// How many objects of a store are compared whole.
const SAMPLE: usize = 5;

/// How stores are compared with the API server. Clones share the findings, the counters and the turn.
#[derive(Debug, Clone)]
pub struct CheckConfig {
    /// The longest time between two comparisons of a store. `None`: a store is compared only when it goes on.
    pub(crate) interval: Option<Duration>,
    /// The part of what a store has received that comparisons may take beyond that.
    pub(crate) share: f64,
    /// Receives each difference.
    pub findings: broadcast::Sender<CacheDifference>,
    /// Counts comparisons and their bytes.
    pub(crate) metrics: Arc<CheckMetrics>,
    /// One store is compared at a time.
    turn: Arc<Semaphore>,
}

/// A store that differed from the API server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CacheDifference {
    /// The name of the store.
    pub store: String,
    /// The peer that filled it; `None`: the API server did.
    pub peer: Option<Arc<str>>,
    /// The first difference.
    pub difference: Difference,
    /// Whether the store went on where it was, from disk or after an outage: the cluster's history is another one then.
    pub goes_on: bool,
}

/// Compares one store with the API server while [`StoreCheck::run`] runs.
pub(crate) struct StoreCheck {
    pub(super) server: ApiServer,
    pub(super) store: Arc<ResourceStore>,
    pub(super) connectivity: Connectivity,
    pub(super) delegated: Option<DelegatedCredential>,
    /// For one client alone.
    pub(super) is_private: bool,
    /// Of the store.
    pub(super) name: String,
    pub(super) config: CheckConfig,
}

/// What a comparison has found.
#[derive(Debug, PartialEq)]
enum Verdict {
    Same,
    Different(Difference, Doubt),
    /// Nothing is certain of the store, for this reason.
    Unclear(&'static str),
    /// The API server does not answer.
    Unanswered,
}

impl Default for CheckConfig {
    fn default() -> Self {
        Self::new(None, 0.0, Arc::default())
    }
}

impl CheckConfig {
    /// Creates the settings of all stores.
    #[must_use]
    pub fn new(interval: Option<Duration>, share: f64, metrics: Arc<CheckMetrics>) -> Self {
        let findings = broadcast::Sender::new(16);
        Self { interval, share, findings, metrics, turn: Arc::new(Semaphore::new(1)) }
    }
}

impl StoreCheck {
    /// Runs until it is dropped. Cancel-safe.
    pub(crate) async fn run(self) {
        let tick = GLANCE.min(self.config.interval.unwrap_or(GLANCE));
        let mut budget = self.config.interval.map(|interval| Budget::new(interval, self.config.share));
        let mut reconnects = self.connectivity.reconnects();
        self.store.restored().await;
        let (mut next, mut pause) = (Instant::now() + jitter(tick), SOON.min(tick));
        loop {
            tokio::select! {
                () = reconnects.next() => {
                    pause = SOON.min(tick);
                    // A peer's reader noticed nothing of an outage. Whose connection was lost, and there again at once, did not
                    // notice that others failed meanwhile: the server was away. A paused reader had none. Whose connection has held goes on.
                    let was_lost = self.store.trust().continuity() == Continuity::Lost;
                    if was_lost || self.store.peer().is_some() || !self.store.is_following() {
                        self.store.trust().question(Continuity::Unknown);
                    }
                }
                ended = self.store.trust().until_ended() => {
                    self.config.metrics.count(&self.server.collection.resource, "other_history", 0);
                    self.report(ended, true);
                }
                asked = self.until_questioned(pause) => {
                    pause = if self.confirm(asked).await { SOON.min(tick) } else { (2 * pause).min(GLANCE) };
                }
                () = tokio::time::sleep_until(next) => {
                    if let Some(budget) = &mut budget {
                        self.turn(budget).await;
                    }
                    next = Instant::now() + tick;
                }
            }
        }
    }

    async fn turn(&self, budget: &mut Budget) {
        if !self.is_comparable() || self.store.is_stale() {
            return;
        }
        let (before, is_by_peer) = (self.server.received.bytes(), self.store.peer().is_some());
        let is_compared = budget.is_due(self.store.received().bytes(), is_by_peer);
        let verdict = if is_compared {
            let Ok(_turn) = self.config.turn.acquire().await else { return };
            self.confirmed(self.compare().await).await
        } else if self.server.collection.is_whole() {
            self.confirmed(self.glance().await).await
        } else {
            return;
        };
        let bytes = self.server.received.bytes().saturating_sub(before);
        let verdict = verdict.unwrap_or_else(|error| self.unanswered(&error));
        if is_compared {
            budget.spend(bytes, &verdict);
        }
        if budget.is_peer_left(&verdict, is_compared, is_by_peer) {
            tracing::warn!(
                store = self.name,
                "nothing is certain of what a peer sends, the watch cache is read from the API server for a while"
            );
            self.store.trust().doubt(Doubt::Stale);
        }
        self.conclude(verdict, bytes, false);
    }

    /// Whether the store has objects that it is sure of, and the API server can be asked with the same credential.
    fn is_comparable(&self) -> bool {
        let state = self.store.state().borrow().clone();
        let is_certain = state.synced && state.error.is_none() && self.store.is_following();
        let can_ask =
            !self.connectivity.is_failing() && self.delegated.as_ref().is_none_or(DelegatedCredential::is_delegated);
        is_certain && can_ask && self.store.trust().doubted().is_none()
    }

    /// Compares a second time what has differed. Where a list led over a deletion, its version is not known, and the states at
    /// the versions between the two may differ for that reason.
    async fn confirmed(&self, first: Result<Verdict, RequestError>) -> Result<Verdict, RequestError> {
        match first {
            Ok(Verdict::Different(..)) => self.compare().await,
            first => first,
        }
    }

    fn unanswered(&self, error: &RequestError) -> Verdict {
        // That of a delegated credential says nothing of another one that its client has.
        if self.delegated.is_none() && matches!(error, RequestError::Other(error) if error.is_refusal()) {
            self.store.set_refused(true);
        }
        tracing::debug!(store = self.name, ?error, "the store cannot be compared with the API server");
        Verdict::Unanswered
    }

    /// Reports what was found. `goes_on`: of a store that went on where it was.
    fn conclude(&self, verdict: Verdict, bytes: u64, goes_on: bool) {
        let result = match &verdict {
            Verdict::Same => "same",
            Verdict::Different(..) if goes_on => "other_history",
            Verdict::Different(..) => "different",
            Verdict::Unanswered => "unclear",
            Verdict::Unclear(reason) => {
                tracing::debug!(store = self.name, reason, "nothing is certain of a comparison with the API server");
                "unclear"
            }
        };
        self.config.metrics.count(&self.server.collection.resource, result, bytes);
        let Verdict::Different(difference, doubt) = verdict else { return };
        // That another history begins is no fault of a peer.
        let doubt = if goes_on { Doubt::Stale } else { doubt };
        self.store.trust().doubt(doubt);
        self.report(difference, goes_on);
    }

    /// Reports a difference. Its store is listed again, unless such a list has shown it.
    fn report(&self, difference: Difference, goes_on: bool) {
        // An aggregated API has versions of its own, which say nothing of the cluster's.
        if self.is_private && !self.server.collection.path.starts_with("/api/") {
            tracing::debug!(store = self.name, %difference, goes_on, "a private store differs from what an API has, it is listed again");
            return;
        }
        let peer = self.store.peer();
        if goes_on {
            tracing::warn!(
                store = self.name, %difference,
                "the history of the cluster is not the one that the watch cache is of, it is listed again: was etcd restored from a backup?"
            );
        } else {
            let source = peer.as_deref().unwrap_or("the API server");
            tracing::warn!(
                store = self.name, source, %difference,
                "the watch cache differs from the API server, it is listed again"
            );
        }
        // Sending fails only if nobody reports.
        let _ = self.config.findings.send(CacheDifference { store: self.name.clone(), peer, difference, goes_on });
    }

    /// Compares names, uids and versions of all objects, and a few objects whole.
    async fn compare(&self) -> Result<Verdict, RequestError> {
        let (before, position) = self.store.snapshot_and_position();
        let served = match self.server.all(before.version).await {
            // The store may be ahead of all that the API server has.
            Err(RequestError::UnknownVersion) => return self.glance().await,
            served => served?,
        };
        if served.has_more {
            return Ok(Verdict::Unclear("the list has pages"));
        }
        let Some(stored) = self.state_at(&before, position, served.version, Duration::ZERO).await else {
            return Ok(Verdict::Unclear("the store was not at the version of the list"));
        };
        let prints = stored.values().map(|object| Fingerprint::of(&before.format, object));
        if let Some(found) = difference(prints, served.prints) {
            return Ok(different(found, &stored));
        }
        for object in sample(&stored) {
            if self.is_other(&before, object, served.version).await? {
                return Ok(different(Difference::Content(object.key.clone()), &stored));
            }
        }
        Ok(Verdict::Same)
    }

    /// Compares the version of the store with the API server's newest one, and one object.
    async fn glance(&self) -> Result<Verdict, RequestError> {
        let (before, position) = self.store.snapshot_and_position();
        let served = self.server.first().await?;
        let newest = served.version;
        if newest < before.version {
            return Ok(different(Difference::Ahead { version: before.version, newest }, &before.objects));
        }
        // A waiting reader costs two more watches. A peer may be silent for ever.
        let patience = if self.store.peer().is_some() {
            Duration::ZERO
        } else {
            NEXT_BOOKMARK.min(self.config.interval.unwrap_or(NEXT_BOOKMARK))
        };
        let Some(stored) = self.state_at(&before, position, newest, patience).await else {
            return Ok(Verdict::Unclear("the store was not at the newest version"));
        };
        let of = |object: &Arc<Object>| Fingerprint::of(&before.format, object);
        let found = match served.prints.into_iter().next() {
            Some(print) => difference(stored.get(&print.key).map(of), Some(print)),
            None if served.has_more => None,
            None => difference(stored.values().next().map(of), None),
        };
        Ok(found.map_or(Verdict::Same, |found| different(found, &stored)))
    }

    /// The state of the store at a version, once it has reached it. `None`: it does not, or it jumped over it.
    async fn state_at(
        &self,
        before: &Snapshot,
        position: u64,
        version: u64,
        patience: Duration,
    ) -> Option<RedBlackTreeMapSync<StoreKey, Arc<Object>>> {
        if timeout(patience, self.store.reaches(version)).await.is_err() {
            self.store.want(version);
            timeout(ASKED_FOR, self.store.reaches(version)).await.ok()?;
        }
        let (now, end) = self.store.snapshot_and_position();
        let count = usize::try_from(end.checked_sub(position)?).ok()?;
        let events = self.store.events_from(position, count).ok()?;
        let is_exact = now.format == before.format && self.store.is_following();
        state_at(before, &events, now.version, version).filter(|_| is_exact)
    }

    /// Whether the API server has other content of an object at the same version, and says so twice: what it converts may be
    /// another one each time.
    async fn is_other(&self, stored: &Snapshot, object: &Object, version: u64) -> Result<bool, RequestError> {
        let Some(served) = self.server.object(&object.key, version, stored.format.encoding).await? else {
            return Ok(false);
        };
        if stored.format.has_same_content(object, &served) != Some(false) {
            return Ok(false);
        }
        let again = self.server.object(&object.key, version, stored.format.encoding).await?;
        Ok(again.is_some_and(|again| stored.format.has_same_content(&served, &again) == Some(true)))
    }
}

fn different(found: Difference, stored: &RedBlackTreeMapSync<StoreKey, Arc<Object>>) -> Verdict {
    let doubt = found.doubt(stored);
    Verdict::Different(found, doubt)
}

/// A few objects, which nobody can foresee.
fn sample(objects: &RedBlackTreeMapSync<StoreKey, Arc<Object>>) -> impl Iterator<Item = &Arc<Object>> {
    let (all, wanted) = (objects.size(), SAMPLE.min(objects.size()));
    let step = all / wanted.max(1);
    let first = usize::try_from(served::random() % step.max(1) as u64).unwrap_or_default();
    objects.values().skip(first).step_by(step.max(1)).take(wanted)
}
