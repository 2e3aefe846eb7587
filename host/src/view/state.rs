//! The state of a view: a snapshot of its objects, and the history of its events.

use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;
use bytes::Bytes;
use http::HeaderValue;
use rpds::RedBlackTreeMapSync;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use weir_runtime::ChainVersion;
use weir_store::cache::{Collection, History, HistoryGap, ObjectFormat};
use weir_store::{StoreHandle, StoreKey, StoreReader};

use super::event::{Cause, FrameBytes, ViewEvent};
use super::metrics::WatchCounters;
use super::object::ViewObject;
use super::watch_memory::WatchMemory;
use super::watchers::Watchers;

/// The most events that a view's history keeps.
const MAX_EVENTS: usize = 8192;
/// A store seen through one chain.
pub(crate) struct View {
    pub(super) collection: Collection,
    pub(super) store: StoreHandle,
    snapshot: ArcSwap<ViewSnapshot>,
    log: Mutex<ViewLog>,
    /// The end of the history; `None` until all objects were filtered once.
    end: watch::Sender<Option<u64>>,
    /// The highest version of the resource that any client has got.
    handed_out: AtomicU64,
    watchers: Watchers,
    /// The bytes of the encoded events that are in memory.
    frames: FrameBytes,
    memory: WatchMemory,
    degraded: AtomicUsize,
    counters: WatchCounters,
    closed: CancellationToken,
}

/// All objects of a view at one version.
#[derive(Debug, Clone)]
pub(crate) struct ViewSnapshot {
    /// The resourceVersion that clients get.
    pub(crate) version: u64,
    /// How the objects are encoded.
    pub(crate) format: ObjectFormat,
    /// The objects by key, hidden ones included.
    pub(crate) objects: RedBlackTreeMapSync<StoreKey, Arc<ViewObject>>,
    /// The chain's version that made the outcomes; `None` without a chain.
    pub(crate) chain: Option<ChainVersion>,
}

/// The events of a view.
pub(super) struct ViewLog {
    pub(super) history: History<Arc<ViewEvent>>,
    /// Up to this version, outcomes may have changed without a trace: the highest stamp of the evicted events that have one,
    /// or a version that a client got from upstream while outcomes changed.
    pub(super) unknown_until: u64,
    /// The same for changes since the first fill: an event without a version of its own may be missing up to this version.
    pub(super) lost_until: u64,
    /// The version of the first fill. A client of an earlier process may hold a state up to it that other filters made.
    pub(super) first_version: u64,
    /// The highest version that a client of an earlier process may hold although it is above the one on disk.
    pub(super) earlier_until: u64,
    /// The bytes of the history that count as used.
    counted: usize,
}

impl View {
    /// Creates a view that waits for its first objects. `handed_out` is the highest version of the resource that any
    /// client has got: what they were shown before the view existed is not known.
    pub(super) fn new(store: StoreHandle, handed_out: u64, counters: WatchCounters, memory: WatchMemory) -> Self {
        let snapshot = ViewSnapshot {
            version: 0,
            format: store.snapshot().format.clone(),
            objects: RedBlackTreeMapSync::new_sync(),
            chain: None,
        };
        Self {
            collection: store.collection().clone(),
            store,
            snapshot: ArcSwap::from_pointee(snapshot),
            log: Mutex::new(ViewLog {
                history: History::new(MAX_EVENTS, usize::MAX),
                unknown_until: handed_out,
                lost_until: 0,
                first_version: 0,
                earlier_until: 0,
                counted: 0,
            }),
            end: watch::Sender::new(None),
            handed_out: AtomicU64::new(handed_out),
            watchers: Watchers::default(),
            frames: FrameBytes::new(memory.clone()),
            memory,
            degraded: AtomicUsize::new(0),
            counters,
            closed: CancellationToken::new(),
        }
    }

    /// The current objects.
    pub(crate) fn snapshot(&self) -> Arc<ViewSnapshot> {
        self.snapshot.load_full()
    }

    /// The current objects, and the position from which on events change them.
    pub(crate) fn snapshot_and_position(&self) -> (Arc<ViewSnapshot>, u64) {
        let log = self.log();
        (self.snapshot(), log.history.end())
    }

    /// The events from a position on, at most `limit`.
    ///
    /// # Errors
    /// [`HistoryGap`] if some of them were evicted: the client is too slow.
    pub(crate) fn events_from(&self, position: u64, limit: usize) -> Result<Vec<Arc<ViewEvent>>, HistoryGap> {
        self.log().history.from(position, limit)
    }

    /// Whether the view has reached this version. If not, the store asks for it: a client waits.
    pub(crate) fn has_reached(&self, version: u64) -> bool {
        let reached = self.snapshot().version >= version;
        if !reached {
            self.store.want(version);
        }
        reached
    }

    /// What the API server warns of with each answer for the resource.
    pub(crate) fn warnings(&self) -> Arc<Vec<HeaderValue>> {
        self.store.warnings()
    }

    /// The newest version of the API server, read after this call; `None` if it does not say.
    pub(crate) async fn newest_version(&self) -> Option<u64> {
        self.store.newest_version().await
    }

    /// Whether the view can be brought to a version at once.
    pub(crate) fn can_reach(&self) -> bool {
        self.store.can_reach()
    }

    /// Changes with every event; `None` until all objects were filtered once.
    pub(crate) fn subscribe(&self) -> watch::Receiver<Option<u64>> {
        self.end.subscribe()
    }

    /// The state of the store's reflector.
    pub(crate) fn reflector_state(&self) -> watch::Receiver<weir_store::ReflectorState> {
        self.store.state()
    }

    /// Whether the objects come from the API server itself, and not from a peer or only from disk.
    pub(crate) fn follows_api_server(&self) -> bool {
        !self.store.is_stale() && self.store.peer().is_none()
    }

    /// Whether it is only not known yet that the API server's history goes on from the objects.
    pub(crate) fn awaits_history(&self) -> bool {
        self.store.awaits_history()
    }

    /// Whether the view has its objects, and follows the API server itself. A new one does not count as behind.
    pub(crate) fn is_current(&self) -> bool {
        self.store.state().borrow().synced && self.follows_api_server()
    }

    /// Whether the API server refuses the reader of the view's objects.
    pub(crate) fn is_refused(&self) -> bool {
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

    /// Whether an object that the view does not have does not exist now. What is read with a lent credential is not followed all
    /// the time: it tells what there was, and not what there is not.
    pub(crate) fn tells_absence(&self, namespace: Option<&str>, name: &str) -> bool {
        !matches!(self.store.reader(), StoreReader::Client(_)) && self.covers(namespace, name)
    }

    /// Waits until objects from disk are there, or it is known that there are none. Cancel safe.
    pub(crate) async fn restored(&self) {
        self.store.restored().await;
    }

    /// Notes that a client got this version of the resource.
    pub(crate) fn hand_out(&self, version: u64) {
        self.handed_out.fetch_max(version, Ordering::AcqRel);
    }

    /// Notes that a client of the view's component got this version of the resource from upstream, as this chain version
    /// shows it. If the view shows another one, the stamps of the changes between them may be below the version.
    pub(crate) fn hand_out_filtered(&self, version: u64, chain: ChainVersion) {
        self.hand_out(version);
        let mut log = self.log();
        if self.snapshot().chain.unwrap_or(ChainVersion::UNFILTERED) != chain {
            log.unknown_until = log.unknown_until.max(version);
            log.lost_until = log.lost_until.max(version);
        }
    }

    /// Takes what a watch is about to send and shares with no other one. It counts as used memory of watches until the connection
    /// has sent it.
    pub(crate) fn counted(&self, bytes: Bytes) -> Bytes {
        self.frames.count(bytes)
    }

    /// The number of open watches.
    pub(crate) fn open_watches(&self) -> usize {
        self.watchers.len()
    }

    pub(super) fn watchers(&self) -> &Watchers {
        &self.watchers
    }

    /// Cancelled once the view is closed: nothing follows for its watches.
    pub(crate) fn closed(&self) -> &CancellationToken {
        &self.closed
    }

    /// The counters of the view's resource.
    pub(crate) fn counters(&self) -> &WatchCounters {
        &self.counters
    }

    /// The number of objects on which a filter failed.
    pub(crate) fn degraded_objects(&self) -> usize {
        self.degraded.load(Ordering::Relaxed)
    }

    pub(super) fn set_degraded(&self, objects: usize) {
        self.degraded.store(objects, Ordering::Relaxed);
    }

    /// The number of events in the history, and the bytes that they keep alive.
    pub(super) fn history_size(&self) -> (usize, usize) {
        let log = self.log();
        (log.history.len(), log.history.bytes() + self.frames.get())
    }

    /// Evicts the oldest events until the history and the encoded events take no more bytes than this.
    pub(super) fn trim_history(&self, bytes: usize) {
        let mut log = self.log();
        log.history.set_max_bytes(bytes.saturating_sub(self.frames.get()));
        let evicted = log.history.evict();
        log.forget(evicted);
        self.count(&mut log);
    }

    /// Counts what the history uses of the memory of watches.
    fn count(&self, log: &mut ViewLog) {
        let used = log.history.bytes();
        self.memory.add(used);
        self.memory.sub(std::mem::replace(&mut log.counted, used));
    }

    /// Counts the bytes of encoded events.
    pub(super) fn frames(&self) -> &FrameBytes {
        &self.frames
    }

    /// The stamp of a change that has no version of its own.
    fn stamp(&self) -> u64 {
        self.handed_out.load(Ordering::Acquire).max(self.snapshot.load().version)
    }

    /// Publishes the next snapshot and the events that lead to it. Events without a version of their own get their stamps here:
    /// clients that get a version from upstream later are known to have got it from another chain.
    pub(super) fn publish(&self, next: ViewSnapshot, mut events: Vec<ViewEvent>) {
        let mut log = self.log();
        let now = self.stamp();
        for event in &mut events {
            if let Cause::Refiltered { stamp } = &mut event.cause {
                *stamp = now;
            }
        }
        let frames = self.frames.get();
        let limit = self.memory.limit(log.counted + frames).saturating_sub(frames);
        log.history.set_max_bytes(limit);
        for event in events {
            let bytes = event.len();
            log.append(Arc::new(event), bytes);
        }
        self.count(&mut log);
        let end = log.history.end();
        log.earlier_until = log.earlier_until.max(self.store.earlier_until().min(next.version));
        self.snapshot.store(Arc::new(next));
        drop(log);
        self.end.send_replace(Some(end));
    }

    /// Publishes a snapshot that no events lead to: open watches end, and older versions are unknown.
    pub(super) fn reset(&self, next: ViewSnapshot) {
        let mut log = self.log();
        log.history.clear();
        self.count(&mut log);
        log.unknown_until = log.unknown_until.max(self.stamp());
        match *self.end.borrow() {
            None => log.first_version = next.version,
            Some(_) => log.lost_until = log.unknown_until,
        }
        log.earlier_until = log.earlier_until.max(self.store.earlier_until().min(next.version));
        let end = log.history.end();
        self.snapshot.store(Arc::new(next));
        drop(log);
        self.end.send_replace(Some(end));
    }

    pub(super) fn log(&self) -> std::sync::MutexGuard<'_, ViewLog> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ViewLog {
    fn append(&mut self, event: Arc<ViewEvent>, bytes: usize) {
        let evicted = self.history.append(event, bytes);
        self.forget(evicted);
    }

    fn forget(&mut self, evicted: Vec<Arc<ViewEvent>>) {
        for evicted in evicted {
            if let Cause::Refiltered { stamp } = evicted.cause {
                self.unknown_until = self.unknown_until.max(stamp);
                self.lost_until = self.lost_until.max(stamp);
            }
        }
    }
}

impl Drop for View {
    fn drop(&mut self) {
        let counted = self.log().counted;
        self.memory.sub(counted);
    }
}

impl fmt::Debug for View {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("View").field("collection", &self.collection).finish_non_exhaustive()
    }
}
