//! The task of a view: it filters what changes upstream, and filters everything again when the chain changes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use crate::machine::{Changed, Object as _};
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use rpds::RedBlackTreeMapSync;
use tokio::time::Instant;
use tracing::field;
use weir_runtime::{Chain, ChainPeriod, ChainVersion, Outcome, ServingReceiver};
use weir_store::StoreKey;
use weir_store::cache::{Object, ObjectFormat, Snapshot, StoreEvent};

use super::chain_stamps::ChainStamps;
use super::object::{ViewObject, ViewOutcome};
use super::state::{Shows, View, ViewSnapshot};

/// The number of objects that are filtered together.
const BATCH: usize = 256;
/// The wait before objects without a verdict are filtered again. Each further time doubles it.
const FIRST_RETRY: Duration = Duration::from_secs(1);
/// The longest wait before objects without a verdict are filtered again.
const MAX_RETRY: Duration = Duration::from_secs(30);

/// The views beside the one of a task.
pub(super) trait Others: Send + Sync {
    /// Has all views show what the filters in force make for their components; `None`: the daemon stops.
    fn follow(&self) -> Option<()>;

    /// Notes up to which version a view has shown what failure policies decided: another one with the same filters has none of it,
    /// and may serve the same clients next.
    fn note_degraded(&self, of: &Arc<View>, version: u64);
}

/// Keeps one view up to date while [`Refresh::run`] runs.
pub(super) struct Refresh {
    view: Arc<View>,
    others: Box<dyn Others>,
    serving: ServingReceiver,
    /// Those that all views and streams share.
    stamps: Arc<ChainStamps>,
    chain: Option<Chain>,
    /// Of that chain.
    period: ChainPeriod,
    /// Objects without a verdict: failure policies decide on them, or their last good outcome stands in.
    degraded: BTreeSet<StoreKey>,
    retry: Duration,
    /// When objects without a verdict are filtered again. Other events do not put it off.
    retry_at: Instant,
    /// Reads the stamp of the newest change, if that is due.
    stamp: Option<BoxFuture<'static, ()>>,
}

/// The outcome of an object, and whether a failure policy took the place of a verdict.
type FilteredOutcome = (Outcome, bool);

/// What a refresh waits for.
enum Wake {
    Store,
    Chain,
    FilterSet,
    Retry,
    Stamped,
    Stopped,
}

impl Refresh {
    pub(super) fn new(
        view: Arc<View>,
        others: Box<dyn Others>,
        serving: ServingReceiver,
        stamps: Arc<ChainStamps>,
    ) -> Self {
        Self {
            view,
            others,
            serving,
            stamps,
            chain: None,
            period: ChainPeriod::default(),
            degraded: BTreeSet::new(),
            retry: FIRST_RETRY,
            retry_at: Instant::now(),
            stamp: None,
        }
    }

    /// Runs until it is dropped, or the daemon stops.
    pub(super) async fn run(mut self) {
        let mut state = self.view.store.state();
        if state.wait_for(|state| state.synced).await.is_err() {
            return;
        }
        let mut changes = self.view.store.subscribe();
        // A fork may lack what the store has had since the view of before has followed it.
        changes.mark_changed();
        // A fork has its objects, and takes its filters as any view does.
        let started = match self.view.has_objects() {
            true => self.change_chain().await,
            false => self.rebuild_with_chain().await,
        };
        if started.is_none() {
            return;
        }
        loop {
            match self.wake(&mut changes).await {
                Wake::Store => {
                    if self.follow().await.is_none() {
                        return;
                    }
                }
                Wake::Chain => {
                    self.refilter(Vec::new()).await;
                    // Values that change during each filtering leave other tasks their turn.
                    tokio::task::yield_now().await;
                }
                Wake::FilterSet => {
                    if self.change_chain().await.is_none() {
                        return;
                    }
                }
                Wake::Retry => self.retry().await,
                Wake::Stamped => self.stamp = None,
                Wake::Stopped => return,
            }
        }
    }

    async fn wake(&mut self, changes: &mut tokio::sync::watch::Receiver<u64>) -> Wake {
        let version = self.view.snapshot().chain;
        let chain = self.chain.clone();
        let chain_changed = async {
            match (chain, version) {
                (Some(chain), Some(version)) => chain.changed_since(version).await,
                _ => std::future::pending().await,
            }
        };
        let retry = async {
            match self.degraded.is_empty() {
                true => std::future::pending().await,
                false => tokio::time::sleep_until(self.retry_at).await,
            }
        };
        if self.stamp.is_none()
            && let Some(change) = self.view.unanswered_change()
        {
            self.stamp = Some(self.read_stamp(change).boxed());
        }
        let stamped = async {
            match &mut self.stamp {
                Some(stamp) => stamp.await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            changed = self.serving.changed() => if changed.is_ok() { Wake::FilterSet } else { Wake::Stopped },
            () = stamped => Wake::Stamped,
            // Before the chain, which `follow` sees to: values that change all the time hold back no events.
            changed = changes.changed() => if changed.is_ok() { Wake::Store } else { Wake::Stopped },
            () = chain_changed => Wake::Chain,
            () = retry => Wake::Retry,
        }
    }

    /// Begins to show what the filters in force make of the objects. `None`: the daemon stops.
    async fn rebuild_with_chain(&mut self) -> Option<()> {
        let listed = self.view.store.snapshot_and_position();
        self.next_chain()?;
        self.rebuild(listed).await;
        Some(())
    }

    /// Has all views follow the filter set in force, and returns the chain of before. `None`: the daemon stops.
    fn next_chain(&mut self) -> Option<Option<Chain>> {
        self.serving.mark_unchanged();
        self.others.follow()?;
        let Shows { period, chain } = self.view.shows();
        self.period = period;
        Some(std::mem::replace(&mut self.chain, chain))
    }

    /// Takes the chain of the filter set that is live now. `None`: the daemon stops.
    async fn change_chain(&mut self) -> Option<()> {
        let before = self.next_chain()?;
        let taken = self.view.snapshot().chain;
        let same = match (&before, &self.chain) {
            (None, None) => taken.is_none(),
            (Some(before), Some(now)) => before.same_filters(now) && Some(now.version()) == taken,
            _ => false,
        };
        match same {
            true => self.report_degraded(),
            false => self.refilter(Vec::new()).await,
        }
        Some(())
    }

    /// Filters all objects of the store, as they were before the chain was taken, and publishes them without events: nobody has got any
    /// of them yet.
    async fn rebuild(&mut self, (source, position): (Arc<Snapshot>, u64)) {
        let chain = self.chain_version();
        self.degraded.clear();
        let objects = self.filter_all(&source, None).await;
        let next = ViewSnapshot { version: source.version, format: source.format.clone(), objects, chain };
        let stamp = self.stamp_of_reset(chain, source.version);
        self.view.reset(next, position, stamp);
        self.report_degraded();
    }

    /// Returns up to which version clients may hold other content than a view that restarts; `None`: it must be read.
    fn stamp_of_reset(&self, chain: Option<ChainVersion>, version: u64) -> Option<u64> {
        let resource = &self.view.collection.resource;
        if !self.view.has_objects() {
            return match (self.view.shows().period.has_filtered(), self.degraded.is_empty()) {
                (false, _) => Some(0),
                (true, true) => self.stamps.of_view(chain?, resource),
                // Clients may hold a verdict on what this view has none of.
                (true, false) => None,
            };
        }
        // It has shown wrong objects, or those of another history.
        let shown = self.view.snapshot().version;
        if version < shown {
            self.stamps.forget();
        } else if let Some(chain) = chain {
            self.stamps.degrade(chain, resource, shown);
        }
        None
    }

    /// The outcomes of all objects of the store. What a view has of the same objects is not filtered again, and stands in for a
    /// failure.
    async fn filter_all(
        &mut self,
        source: &Snapshot,
        before: Option<&ViewSnapshot>,
    ) -> RedBlackTreeMapSync<StoreKey, Arc<ViewObject>> {
        let old = |object: &Object| before.and_then(|before| before.objects.get(&object.key));
        let is_known = |object: &Arc<Object>| old(object).is_some_and(|old| old.source.version == object.version);
        let (known, unknown): (Vec<_>, Vec<_>) = source.objects.values().cloned().partition(is_known);
        let known = known.iter().filter_map(|object| Some((object.key.clone(), old(object)?.clone())));
        let mut objects: RedBlackTreeMapSync<_, _> = known.collect();
        for batch in unknown.chunks(BATCH) {
            for (object, made) in filter(&self.chain, &source.format, batch, false).await {
                let shown = self.outcome(&object, made, old(&object));
                objects.insert_mut(object.key.clone(), shown);
            }
        }
        objects
    }

    /// Applies the store's events since the last position. `None`: the daemon stops.
    async fn follow(&mut self) -> Option<()> {
        loop {
            let position = self.view.position();
            let store = &self.view.store;
            let events = store.events_from(position, BATCH).map_err(|_| store.snapshot_and_position());
            // After the look at the store: what it has later may be of later filters.
            self.take_changes().await?;
            let events = match events {
                Ok(events) => events,
                Err(listed) => {
                    self.compare(listed).await;
                    return Some(());
                }
            };
            if events.is_empty() {
                return Some(());
            }
            self.apply(&events, position + events.len() as u64).await;
        }
    }

    /// Filters all objects again if the filter set or a looked-up value has changed since. It happens between reading events and
    /// applying them: what the API server makes after a change, the view shows only after what the change makes of all objects.
    async fn take_changes(&mut self) -> Option<()> {
        if self.serving.has_changed().unwrap_or(true) {
            self.change_chain().await?;
        } else if self.chain_version() != self.view.snapshot().chain {
            self.refilter(Vec::new()).await;
        }
        Some(())
    }

    async fn apply(&mut self, events: &[Arc<StoreEvent>], position: u64) {
        let changed: Vec<_> = events.iter().filter_map(|event| event.new.clone()).collect();
        // The store may have been listed in another encoding since, with another history: these are of the former one.
        let format = self.view.snapshot().format.clone();
        let mut outcomes = filter(&self.chain, &format, &changed, false).await.into_iter();
        self.take_before();
        let before = self.view.snapshot();
        let mut latest: BTreeMap<StoreKey, Option<Arc<ViewObject>>> = BTreeMap::new();
        let mut published = Vec::with_capacity(events.len());
        for event in events {
            let (version, is_list, memo) = (event.version, event.is_list, self.view.memo());
            let Some(key) = event.key() else {
                published.push(Changed { version, key: None, new: None, is_list, memo });
                continue;
            };
            let old = latest.get(key).cloned().unwrap_or_else(|| before.objects.get(key).cloned());
            let new = match event.new.as_ref().and_then(|_| outcomes.next()) {
                Some((object, made)) => Some(self.outcome(&object, made, old.as_ref())),
                None => {
                    self.degraded.remove(key);
                    None
                }
            };
            latest.insert(key.clone(), new.clone());
            published.push(Changed { version, key: Some(key.clone()), new, is_list, memo });
        }
        self.view.apply(published, position);
        self.report_degraded();
    }

    /// A change is taken before the first outcome that was made with it.
    fn take_before(&self) {
        let chain = self.chain_version();
        let taken = self.view.snapshot().chain;
        if chain != taken {
            // The objects are filtered again with it soon.
            self.view.take(taken, Vec::new());
        }
    }

    /// Follows a store whose history no longer has the position: it was listed, or the view was too slow.
    async fn compare(&mut self, (source, position): (Arc<Snapshot>, u64)) {
        let view = self.view.snapshot();
        // Another object at an unchanged or a lower version: the former one was wrong, and the store was listed again.
        let is_other = |old: &ViewObject, new: &Object| {
            old.source.version > new.version || (old.source.version == new.version && old.source.bytes != new.bytes)
        };
        let is_unknown =
            |new: &Arc<Object>| view.objects.get(&new.key).is_none_or(|old| old.source.version != new.version);
        let has_others = source.objects.size() != view.objects.size() || source.objects.values().any(is_unknown);
        let mut present = source.objects.values();
        if source.version < view.version
            || (source.version == view.version && has_others)
            || source.format != view.format
            || present.any(|new| view.objects.get(&new.key).is_some_and(|old| is_other(old, new)))
        {
            // The cluster was restored from a backup, or a peer has forged objects. The state of clients is unknown.
            return self.rebuild((source, position)).await;
        }
        self.degraded.retain(|key| source.objects.contains_key(key));
        let objects = self.filter_all(&source, Some(&view)).await;
        self.take_before();
        self.view.jump(source.version, objects, position);
        self.report_degraded();
    }

    /// Filters objects without a verdict again. A filter takes few of them at once that fail again and again: each has its turn.
    async fn retry(&mut self) {
        let mut keys: Vec<_> = self.degraded.iter().cloned().collect();
        fastrand::shuffle(&mut keys);
        self.refilter(keys).await;
    }

    /// Filters objects again, all of them if no keys are given, and publishes those whose outcome differs.
    async fn refilter(&mut self, keys: Vec<StoreKey>) {
        let retry = !keys.is_empty();
        let chain = self.chain_version();
        let view = self.view.snapshot();
        let objects: Vec<_> = match retry {
            true => keys.iter().filter_map(|key| view.objects.get(key).cloned()).collect(),
            false => view.objects.values().cloned().collect(),
        };
        let started = Instant::now();
        let mut outcomes = Vec::new();
        let mut changed = 0;
        for batch in objects.chunks(BATCH) {
            let sources: Vec<_> = batch.iter().map(|object| object.source.clone()).collect();
            for (old, (object, made)) in batch.iter().zip(filter(&self.chain, &view.format, &sources, retry).await) {
                let new = self.outcome(&object, made, Some(old));
                changed += usize::from(!new.shows_the_same(old));
                if !new.shows_the_same(old) || new.stands_in != old.stands_in {
                    outcomes.push((object.key.clone(), new));
                }
            }
        }
        if !retry {
            self.view.take(chain, outcomes);
            tracing::debug!(
                collection = %self.view.collection, components = ?self.view.component_names(), objects = objects.len(), changed,
                 duration = ?started.elapsed(), "view filtered again"
            );
        } else {
            if !outcomes.is_empty() {
                self.view.take(view.chain, outcomes);
            }
            if !self.degraded.is_empty() {
                self.retry = (self.retry * 2).min(MAX_RETRY);
                self.retry_at = Instant::now() + self.retry;
            }
        }
        self.report_degraded();
    }

    /// The object with its outcome. The last good outcome stands in for a failure.
    fn outcome(
        &mut self,
        object: &Arc<Object>,
        made: FilteredOutcome,
        old: Option<&Arc<ViewObject>>,
    ) -> Arc<ViewObject> {
        let (outcome, is_degraded) = made;
        if is_degraded {
            self.degrade(object, &outcome);
        } else {
            self.degraded.remove(&object.key);
        }
        if let Outcome::Failed(_) = &outcome
            && let Some(old) = old.filter(|old| old.failure().is_none())
        {
            // The outcome of this state itself is one that another value of a lookup has made.
            let is_same = Arc::ptr_eq(&old.source, object);
            return if is_same { old.clone() } else { Arc::new(old.standing_in(object.clone())) };
        }
        Arc::new(ViewObject { source: object.clone(), outcome: ViewOutcome::from(outcome), stands_in: false })
    }

    fn degrade(&mut self, object: &Object, outcome: &Outcome) {
        let soon = Instant::now() + FIRST_RETRY;
        let due = if self.degraded.is_empty() { soon } else { self.retry_at.min(soon) };
        if self.degraded.insert(object.key.clone()) {
            // It does not wait for those that fail for long, nor do those wait for it.
            (self.retry, self.retry_at) = (FIRST_RETRY, due);
            let failure = if let Outcome::Failed(failure) = outcome { Some(field::display(failure)) } else { None };
            tracing::debug!(
                collection = %self.view.collection, namespace = object.key.namespace(), name = object.key.name(),
                failure, "no verdict on an object of the view"
            );
        }
    }

    /// Says how many objects have no verdict, once when that begins and once when it ends: the filters log what they fail on. Up to
    /// the version that clients have got by now, they may hold what failure policies have decided.
    fn report_degraded(&mut self) {
        let shown = self.view.snapshot();
        if let Some(chain) = shown.chain.filter(|_| !self.degraded.is_empty()) {
            self.stamps.degrade(chain, &self.view.collection.resource, shown.version);
            self.others.note_degraded(&self.view, shown.version);
        }
        if self.degraded.is_empty() {
            self.view.admit_all(&self.period);
        }
        let (before, now) = (self.view.degraded_objects(), self.degraded.len());
        self.view.set_degraded(now);
        let (collection, components) = (&self.view.collection, || field::debug(self.view.component_names()));
        if now > 0 && before == 0 {
            tracing::warn!(
                %collection, components = components(), objects = now,
                "objects of a view have no verdict: failure policies decide, or the last good outcome stands in, until they are filtered again"
            );
        } else if now == 0 && before > 0 {
            tracing::info!(%collection, components = components(), "all objects of the view have verdicts again");
        }
    }

    /// Reads the stamp of a change of the view. The view is not held meanwhile: it could not be closed.
    fn read_stamp(&self, change: u64) -> impl Future<Output = ()> + Send + 'static {
        let (read, view) = (self.view.store.stamp(), Arc::downgrade(&self.view));
        let (stamps, taken) = (self.stamps.clone(), self.view.snapshot().chain);
        async move {
            if let (Some(version), Some(view)) = (read.await, view.upgrade()) {
                view.answer_change(change, version);
                if let Some(chain) = taken {
                    stamps.note(chain, &view.collection.resource, version);
                }
            }
        }
    }

    fn chain_version(&self) -> Option<ChainVersion> {
        self.chain.as_ref().map(Chain::version)
    }
}

/// Runs the chain over objects; one outcome for each, in order. `again`: they had no verdict before.
async fn filter(
    chain: &Option<Chain>,
    format: &ObjectFormat,
    objects: &[Arc<Object>],
    again: bool,
) -> Vec<(Arc<Object>, FilteredOutcome)> {
    let made: Vec<FilteredOutcome> = match chain {
        Some(chain) => {
            let document = |object: &Arc<Object>| format.document(object.bytes.clone());
            let documents = objects.iter().map(document).collect();
            let made = if again { chain.run_again(documents).await } else { chain.run(documents).await };
            made.with_degraded().collect()
        }
        None => vec![(Outcome::Unchanged, false); objects.len()],
    };
    objects.iter().cloned().zip(made).collect()
}
