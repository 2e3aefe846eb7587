//! The state of a view, behind a lock, with a snapshot of its objects for readers of lists.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use crate::machine::{Changed, Stamps, ViewCore};
use arc_swap::ArcSwap;
use bytes::Bytes;
use http::HeaderValue;
use rpds::RedBlackTreeMapSync;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use weir_runtime::{Chain, ChainPeriod, ChainVersion};
use weir_store::cache::{Collection, ObjectFormat};
use weir_store::{StoreHandle, StoreKey, StoreReader};

use super::memo::{EventMemo, FrameBytes};
use super::object::ViewObject;
use super::readers::{Component, Readers};
use super::request_selector::RequestSelector;
use super::watch_counters::WatchCounters;
use super::watch_memory::WatchMemory;
use super::watchers::{OpenWatch, Watchers};

/// The most events that a view's history keeps.
const MAX_EVENTS: usize = 8192;
/// A store seen through one chain.
pub struct View {
    pub(super) collection: Collection,
    pub(super) store: StoreHandle,
    snapshot: ArcSwap<ViewSnapshot>,
    state: Mutex<ViewState>,
    /// The end of the history; `None` until all objects were filtered once.
    end: watch::Sender<Option<u64>>,
    watchers: Arc<Watchers>,
    /// The bytes of the encoded events that are in memory.
    frames: FrameBytes,
    memory: WatchMemory,
    degraded: AtomicUsize,
    counters: WatchCounters,
    closed: CancellationToken,
    /// Whether the API server has ended a catch-up in time without a BOOKMARK: it sends none for the resource.
    lacks_bookmarks: AtomicBool,
}

/// All objects of a view at one version.
#[derive(Debug, Clone)]
pub struct ViewSnapshot {
    /// The resourceVersion that clients get.
    pub version: u64,
    /// How the objects are encoded.
    pub format: ObjectFormat,
    /// The objects by key, hidden ones included.
    pub objects: RedBlackTreeMapSync<StoreKey, Arc<ViewObject>>,
    /// The chain's version that made the outcomes; `None` without a chain.
    pub chain: Option<ChainVersion>,
}

impl ViewSnapshot {
    /// Whether the outcomes are what this chain version makes, or a later one. Without a chain there are none.
    pub(super) fn is_in_step(&self, in_force: Option<ChainVersion>) -> bool {
        match (in_force, self.chain) {
            (Some(in_force), Some(taken)) => taken >= in_force,
            (in_force, taken) => in_force == taken,
        }
    }
}

/// The filters that a view is to show.
#[derive(Debug, Clone, Default)]
pub(super) struct Shows {
    pub(super) period: ChainPeriod,
    /// `None` filters nothing.
    pub(super) chain: Option<Chain>,
}

/// What changes of a view.
pub(super) struct ViewState {
    pub(super) core: ViewCore<ViewObject>,
    pub(super) readers: Readers<View>,
    /// The components that it was for before its filters changed, until no outcome is left that the former ones have made. `None`: it
    /// is for all components with its filters.
    heirs: Option<Vec<Component>>,
    /// What the view's task takes next, if it has not yet.
    shows: Shows,
    /// The position in the store's history up to which the view has its events.
    position: u64,
    stamps: Stamps,
    /// The highest version that a stream from the API server gave to clients with the outcomes of another chain.
    ended_at: u64,
    /// How often it has restarted, since it had its first objects, with those of another history: versions of before may come again.
    pub(super) restarts: u64,
    /// The bytes of the history that count as used.
    counted: usize,
}

impl ViewState {
    /// The version up to which clients may hold something else than the view has shown.
    pub(super) fn last(&self) -> u64 {
        self.stamps.of(self.core.taken()).max(self.ended_at)
    }
}

impl View {
    /// Creates a view that waits for its first objects, and that this component is to read.
    pub(super) fn new(
        store: StoreHandle,
        component: &Component,
        shows: Shows,
        counters: WatchCounters,
        memory: WatchMemory,
    ) -> Self {
        let snapshot = ViewSnapshot {
            version: 0,
            format: store.snapshot().format.clone(),
            objects: RedBlackTreeMapSync::new_sync(),
            chain: None,
        };
        let state = ViewState {
            core: ViewCore::new(MAX_EVENTS),
            readers: Readers::named(component),
            heirs: None,
            shows,
            position: 0,
            stamps: Stamps::default(),
            ended_at: 0,
            restarts: 0,
            counted: 0,
        };
        Self {
            collection: store.collection().clone(),
            store,
            snapshot: ArcSwap::from_pointee(snapshot),
            state: Mutex::new(state),
            end: watch::Sender::new(None),
            watchers: Arc::default(),
            frames: FrameBytes::new(memory.clone()),
            memory,
            degraded: AtomicUsize::new(0),
            counters,
            closed: CancellationToken::new(),
            lacks_bookmarks: AtomicBool::new(false),
        }
    }

    /// Forks the view for some of its components: they go on with the copy, which shows what these filters make of the objects once
    /// it has taken the change.
    pub(super) fn fork(&self, components: &[Component], shows: Shows) -> Arc<Self> {
        let mut state = self.state();
        let forked = ViewState {
            core: state.core.clone(),
            readers: state.readers.of(components),
            heirs: Some(components.to_vec()),
            shows,
            position: state.position,
            stamps: state.stamps,
            ended_at: state.ended_at,
            restarts: state.restarts,
            counted: 0,
        };
        let fork = Arc::new(Self {
            collection: self.collection.clone(),
            store: self.store.clone(),
            snapshot: ArcSwap::new(self.snapshot()),
            state: Mutex::new(forked),
            end: watch::Sender::new(*self.end.borrow()),
            watchers: Arc::new(self.watchers.fork()),
            frames: FrameBytes::new(self.memory.clone()),
            memory: self.memory.clone(),
            degraded: AtomicUsize::new(0),
            counters: self.counters.clone(),
            closed: CancellationToken::new(),
            lacks_bookmarks: AtomicBool::new(self.lacks_bookmarks()),
        });
        fork.count(&mut fork.state());
        state.readers.move_to(components, &fork);
        drop(state);
        // Those who wait for events of this one look again.
        self.end.send_modify(|_| {});
        fork
    }

    /// The components that read it, or the one that has read it last.
    pub(super) fn components(&self) -> Vec<Component> {
        self.state().readers.staying().cloned().collect()
    }

    /// Their names, for logs and `/caches`.
    pub fn component_names(&self) -> Vec<String> {
        let name = |component: Component| component.map_or_else(|| "peers".to_owned(), |name| name.as_ref().to_owned());
        self.components().into_iter().map(name).collect()
    }

    /// Has the view's task take other filters.
    pub(super) fn show(&self, shows: Shows) {
        let mut state = self.state();
        if state.shows.period != shows.period {
            state.heirs = Some(state.readers.staying().cloned().collect());
        }
        state.shows = shows;
    }

    /// Whether a component may read it: what is left of the outcomes of former filters, and stands in for a failure, is for those
    /// whose filters they were.
    pub(super) fn admits(&self, component: &Component) -> bool {
        self.state().heirs.as_ref().is_none_or(|heirs| heirs.contains(component))
    }

    /// Whether all components with its filters may read it.
    pub(super) fn admits_all(&self) -> bool {
        self.state().heirs.is_none()
    }

    /// Notes that all outcomes are of the filters of a period.
    pub(super) fn admit_all(&self, period: &ChainPeriod) {
        let mut state = self.state();
        if state.shows.period == *period {
            state.heirs = None;
        }
    }

    /// The filters that the view is to show.
    pub(super) fn shows(&self) -> Shows {
        self.state().shows.clone()
    }

    /// The position in the store's history up to which the view has its events.
    pub(super) fn position(&self) -> u64 {
        self.state().position
    }

    /// When its store was opened: what that lists first is as new.
    pub fn store_opened(&self) -> Instant {
        self.store.opened()
    }

    /// Whether the API server sends no BOOKMARKs for the resource, as far as it has shown that.
    pub fn lacks_bookmarks(&self) -> bool {
        self.lacks_bookmarks.load(Ordering::Relaxed)
    }

    /// Notes whether the API server has sent a BOOKMARK in a watch that it ended in time.
    pub fn note_bookmarks(&self, sent: bool) {
        self.lacks_bookmarks.store(!sent, Ordering::Relaxed);
    }

    /// The current objects.
    pub fn snapshot(&self) -> Arc<ViewSnapshot> {
        self.snapshot.load_full()
    }

    /// What the API server warns of with each answer for the resource.
    pub fn warnings(&self) -> Arc<Vec<HeaderValue>> {
        self.store.warnings()
    }

    /// The newest version of the API server, read after this call; `None` if it does not say.
    pub async fn newest_version(&self) -> Option<u64> {
        self.store.newest_version().await
    }

    /// Whether the view can be brought to a version at once.
    pub fn can_reach(&self) -> bool {
        self.store.can_reach()
    }

    /// Whether all objects were filtered once.
    pub(super) fn has_objects(&self) -> bool {
        self.end.borrow().is_some()
    }

    /// Changes with every event; `None` until all objects were filtered once.
    pub(super) fn subscribe(&self) -> watch::Receiver<Option<u64>> {
        self.end.subscribe()
    }

    /// The state of the store's reflector.
    pub fn reflector_state(&self) -> watch::Receiver<weir_store::ReflectorState> {
        self.store.state()
    }

    /// Whether the objects come from the API server itself, and not from a peer or only from disk.
    pub fn follows_api_server(&self) -> bool {
        !self.store.is_stale() && self.store.peer().is_none()
    }

    /// Whether it is only not known yet that the API server's history goes on from the objects.
    pub fn awaits_history(&self) -> bool {
        self.store.awaits_history()
    }

    /// Has the API server list its objects again.
    pub fn list_again(&self) {
        self.store.list_again();
    }

    /// Whether the view has its objects, and follows the API server itself. A new one does not count as behind.
    pub(crate) fn is_current(&self) -> bool {
        self.store.state().borrow().synced && self.follows_api_server()
    }

    /// Whether the API server refuses the reader of the view's objects.
    pub fn is_refused(&self) -> bool {
        self.store.is_refused()
    }

    /// Whether an object that the view does not have does not exist.
    pub(crate) fn covers(&self, namespace: Option<&str>, name: &str) -> bool {
        let Collection { path, field_selector, label_selector, .. } = &self.collection;
        let in_namespace = match path.split_once("/namespaces/").and_then(|(_, rest)| rest.split_once('/')) {
            Some((covered, _)) => namespace == Some(covered),
            None => true,
        };
        let selected = field_selector.is_empty() || *field_selector == format!("metadata.name={name}");
        in_namespace && selected && label_selector.is_empty()
    }

    /// Whether an object that the view does not have does not exist now. A store that is read with a delegated credential is
    /// not always followed: it shows objects that existed, and not that others do not exist.
    pub fn knows_absence(&self, namespace: Option<&str>, name: &str) -> bool {
        !matches!(self.store.reader(), StoreReader::Client(_) | StoreReader::Private(_)) && self.covers(namespace, name)
    }

    /// Whether its objects are read for one client and one request.
    pub(super) fn is_private(&self) -> bool {
        self.store.reader().is_private()
    }

    /// Waits until objects from disk are there, or it is known that there are none. Cancel safe.
    pub async fn restored(&self) {
        self.store.restored().await;
    }

    /// Notes that a stream from the API server gave a client of this view this version, as this chain version shows it; `None`:
    /// failure policies decided on some of it.
    pub(super) fn end_stream(&self, version: u64, shown_by: Option<ChainVersion>) {
        self.note_end(&mut self.state(), version, shown_by);
    }

    pub(super) fn note_end(&self, state: &mut ViewState, version: u64, shown_by: Option<ChainVersion>) {
        let shows = match self.has_objects() {
            true => self.snapshot().chain,
            // What it begins with.
            false => state.shows.chain.as_ref().map(Chain::version),
        };
        if shown_by != Some(shows.unwrap_or(ChainVersion::UNFILTERED)) {
            state.ended_at = state.ended_at.max(version);
        }
    }

    /// The number of the newest change, if its stamp is not known yet.
    pub fn unanswered_change(&self) -> Option<u64> {
        let state = self.state();
        let change = state.core.taken();
        (state.stamps.of(change) == u64::MAX).then_some(change)
    }

    /// The version up to which a client that continues gets the present state; `None` until the API server has said.
    pub(super) fn stamp(&self) -> Option<u64> {
        Some(self.state().last()).filter(|last| *last != u64::MAX)
    }

    /// Notes the version of a consistent read that began after the view had taken a change.
    pub(super) fn answer_change(&self, change: u64, version: u64) {
        self.state().stamps.answer(change, version);
    }

    /// Takes what a watch is about to send and shares with no other one. It counts as used memory of watches until the connection
    /// has sent it.
    pub fn counted(&self, bytes: Bytes) -> Bytes {
        self.frames.count(bytes)
    }

    /// The number of open watches.
    pub fn open_watches(&self) -> usize {
        self.watchers.len()
    }

    /// The bytes of the selectors whose verdicts events remember.
    pub(super) fn selector_bytes(&self) -> usize {
        self.watchers.selector_bytes()
    }

    /// Counts and observes a watch until the result is dropped. `close` closes the connection of its client.
    pub(super) fn open_watch(&self, selector: &RequestSelector, close: CancellationToken) -> OpenWatch {
        self.watchers.open(selector, close)
    }

    /// Whether an open watch is one of this view.
    pub(super) fn counts(&self, watch: &OpenWatch) -> bool {
        watch.is_of(&self.watchers)
    }

    /// Closes the connections of clients that do not read. To be called now and then.
    pub(super) fn close_stuck_watches(&self) {
        let closed = self.watchers.close_stuck(self.history_start());
        if closed > 0 {
            self.counters().slow.inc_by(closed as u64);
            tracing::info!(collection = %self.collection, watches = closed, "connections closed: their clients do not read their watches");
        }
    }

    /// Cancelled once the view is closed: nothing follows for its watches.
    pub fn closed(&self) -> &CancellationToken {
        &self.closed
    }

    /// The counters of the view's resource.
    pub(super) fn counters(&self) -> &WatchCounters {
        &self.counters
    }

    /// The number of objects on which a filter failed.
    pub fn degraded_objects(&self) -> usize {
        self.degraded.load(Ordering::Relaxed)
    }

    pub(super) fn set_degraded(&self, objects: usize) {
        self.degraded.store(objects, Ordering::Relaxed);
    }

    /// The number of events in the history, and the bytes that they keep alive.
    pub(super) fn history_size(&self) -> (usize, usize) {
        let state = self.state();
        (state.core.history().len(), state.core.history().bytes() + self.frames.get())
    }

    /// The position of the oldest event.
    pub(super) fn history_start(&self) -> u64 {
        self.state().core.history().start()
    }

    /// Evicts the oldest events until the history and the encoded events take no more bytes than this.
    pub(super) fn trim_history(&self, bytes: usize) {
        let mut state = self.state();
        state.core.limit(bytes.saturating_sub(self.frames.get()));
        self.count(&mut state);
    }

    /// Counts what the history uses of the memory of watches.
    fn count(&self, state: &mut ViewState) {
        let used = state.core.history().bytes();
        self.memory.add(used);
        self.memory.sub(std::mem::replace(&mut state.counted, used));
    }

    /// What is kept beside an event.
    pub(super) fn memo(&self) -> EventMemo {
        EventMemo::new(&self.frames)
    }

    /// Takes events of the store, up to a position of its history.
    pub(super) fn apply(&self, changes: Vec<Changed<ViewObject>>, position: u64) {
        self.publish(Some(position), |state, next| {
            state.core.apply(changes);
            next
        });
    }

    /// Takes a change: a chain version, and the outcomes that it makes of these objects.
    pub(super) fn take(&self, chain: Option<ChainVersion>, outcomes: Vec<(StoreKey, Arc<ViewObject>)>) {
        self.publish(None, |state, next| {
            state.core.take(outcomes.into_iter().map(|(key, object)| (key, object, self.memo())));
            ViewSnapshot { chain, ..next }
        });
    }

    /// Takes the objects of a list, which the store has at a position of its history.
    pub(super) fn jump(&self, version: u64, objects: RedBlackTreeMapSync<StoreKey, Arc<ViewObject>>, position: u64) {
        self.publish(Some(position), |state, next| {
            state.core.jump(version, objects, || self.memo());
            next
        });
    }

    /// Restarts with these objects, which the store has at a position of its history: open watches end. `stamp`: up to which version clients may hold something else, if that is
    /// known.
    pub(super) fn reset(&self, next: ViewSnapshot, position: u64, stamp: Option<u64>) {
        // In another encoding alone, the history is the same.
        let before = self.snapshot();
        let is_other = self.has_objects() && (next.format == before.format || next.version < before.version);
        self.publish(Some(position), |state, _| {
            // Versions of before may come again, with another content.
            state.ended_at = state.ended_at.max(state.core.version());
            state.restarts += u64::from(is_other);
            state.core.reset(next.version, next.objects.clone());
            if let Some(stamp) = stamp {
                state.stamps.answer(state.core.taken(), stamp);
            }
            next
        });
    }

    /// Changes the state, and publishes the objects. `position`: that of the store's history, if it has moved.
    fn publish(&self, position: Option<u64>, change: impl FnOnce(&mut ViewState, ViewSnapshot) -> ViewSnapshot) {
        let mut state = self.state();
        state.position = position.unwrap_or(state.position);
        let next = change(&mut state, ViewSnapshot::clone(&self.snapshot()));
        let frames = self.frames.get();
        let limit = self.memory.limit(state.counted + frames).saturating_sub(frames);
        state.core.limit(limit);
        self.count(&mut state);
        let (version, objects) = (state.core.version(), state.core.objects().clone());
        self.snapshot.store(Arc::new(ViewSnapshot { version, objects, ..next }));
        let end = state.core.history().end();
        drop(state);
        self.end.send_replace(Some(end));
    }

    pub(super) fn state(&self) -> std::sync::MutexGuard<'_, ViewState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for View {
    fn drop(&mut self) {
        let counted = self.state().counted;
        self.memory.sub(counted);
    }
}

impl fmt::Debug for View {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("View").field("collection", &self.collection).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use weir_document::TypeMeta;
    use weir_kube::Encoding;

    use super::*;

    #[test]
    fn a_snapshot_is_in_step_with_the_chain_in_force_and_earlier_ones() {
        let type_meta = Arc::new(TypeMeta { api_version: "v1".to_owned(), kind: "Service".to_owned() });
        let format = ObjectFormat { encoding: Encoding::Json, type_meta };
        let of = |chain| ViewSnapshot {
            version: 1,
            format: format.clone(),
            objects: RedBlackTreeMapSync::new_sync(),
            chain,
        };
        let [first, second] = [1, 2].map(|clock| Some(ChainVersion::new(clock, 1)));
        // What the former chain has looked up has changed later than the other one came into force.
        let [former, other] = [(9, 1), (2, 2)].map(|(clock, chain)| Some(ChainVersion::new(clock, chain)));
        for (made_by, in_force, is_in_step) in [
            (None, None, true),
            (first, first, true),
            (second, first, true),
            (first, second, false),
            (None, first, false),
            (first, None, false),
            (former, other, false),
            (other, former, true),
        ] {
            assert_eq!(of(made_by).is_in_step(in_force), is_in_step, "{made_by:?} {in_force:?}");
        }
    }
}
