//! The task of a view: it filters what changes upstream, and filters everything again when the chain changes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use weir_kube::VerbClass;
use weir_runtime::{Chain, ChainVersion, Failure, Outcome, Serving, ServingReceiver};
use weir_store::StoreKey;
use weir_store::cache::{Object, Snapshot, StoreEvent, deletion_versions};

use super::event::{Cause, ViewEvent};
use super::object::{ViewObject, ViewOutcome};
use super::state::{View, ViewSnapshot};

/// The number of objects that are filtered together.
const BATCH: usize = 256;
/// The wait before failed objects are filtered again. Each further failure doubles it.
const FIRST_RETRY: Duration = Duration::from_secs(1);
/// The longest wait before failed objects are filtered again.
const MAX_RETRY: Duration = Duration::from_secs(30);

/// Keeps one view up to date while [`Refresh::run`] runs.
pub(super) struct Refresh {
    view: Arc<View>,
    /// The client component whose chain filters the view; `None` filters nothing.
    component: Option<String>,
    serving: ServingReceiver,
    chain: Option<Chain>,
    /// The position in the store's history.
    position: u64,
    /// Objects without a verdict, and objects whose last good outcome stands in: as they are at the view's version.
    failed: BTreeMap<StoreKey, Arc<Object>>,
    retry: Duration,
    /// When the failed objects are filtered again. Other events do not put it off.
    retry_at: Instant,
}

/// What a refresh waits for.
enum Wake {
    Store,
    Chain,
    FilterSet,
    Retry,
    Stopped,
}

impl Refresh {
    pub(super) fn new(view: Arc<View>, component: Option<String>, serving: ServingReceiver) -> Self {
        Self {
            view,
            component,
            serving,
            chain: None,
            position: 0,
            failed: BTreeMap::new(),
            retry: FIRST_RETRY,
            retry_at: Instant::now(),
        }
    }

    /// Runs until it is dropped, or the daemon stops.
    pub(super) async fn run(mut self) {
        let mut state = self.view.store.state();
        if state.wait_for(|state| state.synced).await.is_err() || self.live_chain().await.is_none() {
            return;
        }
        let mut changes = self.view.store.subscribe();
        self.rebuild().await;
        loop {
            match self.wake(&mut changes).await {
                Wake::Store => self.follow().await,
                Wake::Chain => self.refilter(Vec::new()).await,
                Wake::FilterSet => self.change_chain().await,
                Wake::Retry => self.refilter(self.failed.keys().cloned().collect()).await,
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
            match self.failed.is_empty() {
                true => std::future::pending().await,
                false => tokio::time::sleep_until(self.retry_at).await,
            }
        };
        tokio::select! {
            biased;
            changed = self.serving.changed() => if changed.is_ok() { Wake::FilterSet } else { Wake::Stopped },
            () = chain_changed => Wake::Chain,
            changed = changes.changed() => if changed.is_ok() { Wake::Store } else { Wake::Stopped },
            () = retry => Wake::Retry,
        }
    }

    /// Waits for a filter set, and takes the chain of it. `None`: the daemon stops.
    async fn live_chain(&mut self) -> Option<()> {
        loop {
            if let Serving::Live(set) = &*self.serving.borrow_and_update() {
                let resource = &self.view.collection.resource;
                self.chain =
                    self.component.as_ref().and_then(|component| set.chain(component, resource, VerbClass::Read));
                return Some(());
            }
            self.serving.changed().await.ok()?;
        }
    }

    async fn change_chain(&mut self) {
        let before = self.chain.take();
        if self.live_chain().await.is_none() {
            return;
        }
        let same = match (&before, &self.chain) {
            (None, None) => true,
            (Some(before), Some(now)) => before.same_filters(now) && Some(now.version()) == self.view.snapshot().chain,
            _ => false,
        };
        if !same {
            self.refilter(Vec::new()).await;
        }
    }

    /// Filters all objects of the store, and publishes them without events: nobody has got any of them yet.
    async fn rebuild(&mut self) {
        let (source, position) = self.view.store.snapshot_and_position();
        self.position = position;
        let chain_version = self.chain_version();
        let mut next = ViewSnapshot {
            version: source.version,
            format: source.format.clone(),
            objects: rpds::RedBlackTreeMapSync::new_sync(),
            chain: chain_version,
        };
        self.failed.clear();
        let all: Vec<_> = source.objects.values().cloned().collect();
        for batch in all.chunks(BATCH) {
            for (object, outcome) in self.filter(&source, batch).await {
                let shown = self.outcome(&object, outcome, None);
                next.objects.insert_mut(object.key.clone(), shown);
            }
        }
        self.view.set_degraded(self.failed.len());
        self.view.reset(next);
    }

    /// Applies the store's events since the last position.
    async fn follow(&mut self) {
        loop {
            let Ok(events) = self.view.store.events_from(self.position, BATCH) else {
                return self.compare().await;
            };
            if events.is_empty() {
                return;
            }
            self.position += events.len() as u64;
            self.apply(&events).await;
        }
    }

    async fn apply(&mut self, events: &[Arc<StoreEvent>]) {
        let mut next = ViewSnapshot::clone(&self.view.snapshot());
        let source = self.view.store.snapshot();
        let changed: Vec<_> = events.iter().filter_map(|event| event.new.clone()).collect();
        let mut outcomes = self.filter(&source, &changed).await.into_iter();
        let mut published = Vec::with_capacity(events.len());
        for event in events {
            let previous = next.version;
            next.version = previous.max(event.version);
            let Some(key) = event.key() else {
                published.push(ViewEvent::new(previous, next.version, Cause::Upstream, None, None, self.view.frames()));
                continue;
            };
            let old = next.objects.get(key).cloned();
            let new = match event.new.as_ref().and_then(|_| outcomes.next()) {
                Some((object, outcome)) => Some(self.outcome(&object, outcome, old.as_ref())),
                None => {
                    self.failed.remove(key);
                    None
                }
            };
            match &new {
                Some(new) => next.objects.insert_mut(key.clone(), new.clone()),
                None => drop(next.objects.remove_mut(key)),
            }
            // Where the last good outcome stands in, only the version moves: clients have got the outcome.
            let stands_in = old.as_ref().zip(new.as_ref()).is_some_and(|(old, new)| Arc::ptr_eq(old, new));
            let (old, new) = if stands_in { (None, None) } else { (old, new) };
            published.push(ViewEvent::new(previous, next.version, Cause::Upstream, old, new, self.view.frames()));
        }
        self.view.set_degraded(self.failed.len());
        self.view.publish(next, published);
    }

    /// Follows a store whose history no longer has the position: applies the difference of the snapshots.
    async fn compare(&mut self) {
        let (source, position) = self.view.store.snapshot_and_position();
        let view = self.view.snapshot();
        // What is at an unchanged or a lower version, and yet another object, was wrong before: the store was read anew.
        let is_other = |old: &ViewObject, new: &Object| {
            old.source.version > new.version || (old.source.version == new.version && old.source.bytes != new.bytes)
        };
        let mut present = source.objects.values();
        if source.version < view.version
            || present.any(|new| view.objects.get(&new.key).is_some_and(|old| is_other(old, new)))
        {
            // The cluster was restored from a backup, or a peer has forged objects. What clients hold is not known.
            return self.rebuild().await;
        }
        let deleted: Vec<_> = view.objects.iter().filter(|(key, _)| !source.objects.contains_key(*key)).collect();
        let taken = source.objects.values().map(|object| object.version);
        let versions = deletion_versions(view.version, source.version, taken, deleted.len());
        let mut events: Vec<_> = deleted
            .into_iter()
            .zip(versions)
            .map(|((_, old), version)| StoreEvent { version, old: Some(old.source.clone()), new: None })
            .collect();
        for (key, object) in &source.objects {
            let old = view.objects.get(key).map(|old| old.source.clone());
            if !old.as_ref().is_some_and(|old| Arc::ptr_eq(old, object) || old.version == object.version) {
                events.push(StoreEvent { version: object.version, old, new: Some(object.clone()) });
            }
        }
        events.push(StoreEvent { version: source.version, old: None, new: None });
        events.sort_by_key(|event| event.version);
        self.position = position;
        let events: Vec<_> = events.into_iter().map(Arc::new).collect();
        for batch in events.chunks(BATCH) {
            self.apply(batch).await;
        }
    }

    /// Filters objects again, all of them if no keys are given, and publishes those whose outcome differs.
    async fn refilter(&mut self, keys: Vec<StoreKey>) {
        let retry = !keys.is_empty();
        let chain_version = self.chain_version();
        let mut next = ViewSnapshot::clone(&self.view.snapshot());
        let source = self.view.store.snapshot();
        let objects: Vec<_> = match retry {
            true => keys.iter().filter_map(|key| next.objects.get(key).cloned()).collect(),
            false => next.objects.values().cloned().collect(),
        };
        let started = Instant::now();
        let mut published = Vec::new();
        for batch in objects.chunks(BATCH) {
            // A degraded object is filtered as it is at the view's version, not as it was when its last good outcome was made, and
            // not as the store has it now: a client that continues from a version which the view has not reached misses
            // the events before it.
            let present = |old: &Arc<ViewObject>| self.failed.get(&old.source.key).unwrap_or(&old.source).clone();
            let sources: Vec<_> = batch.iter().map(present).collect();
            for (old, (object, outcome)) in batch.iter().zip(self.filter(&source, &sources).await) {
                let new = self.outcome(&object, outcome, Some(old));
                if new.shows_the_same(old) {
                    if !Arc::ptr_eq(&new.source, &old.source) {
                        next.objects.insert_mut(object.key.clone(), new);
                    }
                    continue;
                }
                next.objects.insert_mut(object.key.clone(), new.clone());
                published.push(self.refiltered(next.version, Some(old.clone()), Some(new)));
            }
        }
        let changed = published.len();
        if !retry {
            if published.is_empty() {
                // What changed upstream up to a version that clients have got is yet to come, and filtered otherwise than for them.
                published.push(self.refiltered(next.version, None, None));
            }
            next.chain = chain_version;
            tracing::debug!(
                collection = %self.view.collection, component = self.component.as_deref().unwrap_or("peers"), objects = objects.len(),
                changed, duration = ?started.elapsed(), "view filtered again"
            );
        } else if !self.failed.is_empty() {
            self.retry = (self.retry * 2).min(MAX_RETRY);
            self.retry_at = Instant::now() + self.retry;
        }
        self.view.set_degraded(self.failed.len());
        self.view.publish(next, published);
    }

    /// A change of the outcome of an object at a version of the view; without objects, a change of the chain alone.
    fn refiltered(&self, version: u64, old: Option<Arc<ViewObject>>, new: Option<Arc<ViewObject>>) -> ViewEvent {
        let cause = Cause::Refiltered { stamp: version };
        ViewEvent::new(version, version, cause, old, new, self.view.frames())
    }

    /// Runs the chain over objects; one outcome for each, in order.
    async fn filter(&self, source: &Snapshot, objects: &[Arc<Object>]) -> Vec<(Arc<Object>, Outcome)> {
        let outcomes = match &self.chain {
            Some(chain) => {
                let document = |object: &Arc<Object>| source.format.document(object.bytes.clone());
                chain.run(objects.iter().map(document).collect()).await
            }
            None => vec![Outcome::Unchanged; objects.len()],
        };
        objects.iter().cloned().zip(outcomes).collect()
    }

    /// The object with its outcome. The last good outcome stands in for a failure.
    fn outcome(&mut self, object: &Arc<Object>, outcome: Outcome, old: Option<&Arc<ViewObject>>) -> Arc<ViewObject> {
        if let Outcome::Failed(failure) = &outcome {
            self.degrade(object.clone(), failure, old.is_some());
            if let Some(old) = old.filter(|old| old.failure().is_none()) {
                return old.clone();
            }
        } else if self.failed.remove(&object.key).is_some() && self.failed.is_empty() {
            self.retry = FIRST_RETRY;
        }
        Arc::new(ViewObject { source: object.clone(), outcome: ViewOutcome::from(outcome) })
    }

    fn degrade(&mut self, object: Arc<Object>, failure: &Failure, stands_in: bool) {
        if self.failed.is_empty() {
            self.retry_at = Instant::now() + self.retry;
        }
        if !self.failed.contains_key(&object.key) {
            tracing::warn!(
                collection = %self.view.collection, namespace = object.key.namespace(), name = object.key.name(),
                %failure, stands_in, "no verdict on an object of the view; it is filtered again later"
            );
        }
        self.failed.insert(object.key.clone(), object);
    }

    fn chain_version(&self) -> Option<ChainVersion> {
        self.chain.as_ref().map(Chain::version)
    }
}
