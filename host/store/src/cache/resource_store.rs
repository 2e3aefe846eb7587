//! The store of one collection: an immutable snapshot of its objects, and the history of its events.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;
use http::HeaderValue;
use rpds::RedBlackTreeMapSync;
use tokio::sync::watch;

use super::compare::discontinuity;
use super::consistent::NewestVersion;
use super::event::StoreEvent;
use super::history::{History, HistoryGap};
use super::list_room::ListRoom;
use super::object::{Object, ObjectFormat};
use super::snapshot::{Delta, Snapshot};
use super::store_status::StoreStatus;
use super::trust::{Continuity, Doubt, Question, Trust};
use crate::error::ReflectorError;
use crate::reflector_state::ReflectorState;
use crate::store_key::StoreKey;
use crate::uplink::Received;

/// The most events that the history keeps.
const MAX_EVENTS: usize = 4096;
/// The most bytes of objects that the history keeps alive.
const MAX_BYTES: usize = 16 << 20;

/// About the memory of an object beside its bytes: its key, and its place among the others.
pub(super) const BESIDE: usize = 256;

/// The objects and recent events of one collection. One reflector writes; any number of readers follow.
pub struct ResourceStore {
    snapshot: ArcSwap<Snapshot>,
    history: Mutex<History<Arc<StoreEvent>>>,
    /// The end of the history.
    end: watch::Sender<u64>,
    state: watch::Sender<ReflectorState>,
    origin: AtomicU8,
    /// Whether objects may still come from disk.
    restoring: watch::Sender<bool>,
    /// The node of the peer that fills the store; `None`: the API server does.
    peer: Mutex<Option<Arc<str>>>,
    /// The bytes of the objects. Written under the lock of the history.
    bytes: AtomicUsize,
    received: Arc<Received>,
    /// The highest version that a reader waits for.
    pub(super) wanted: watch::Sender<u64>,
    pub(super) newest: NewestVersion,
    pub(super) warnings: ArcSwap<Vec<HeaderValue>>,
    trust: Trust,
    pub(super) room: ListRoom,
}

/// The objects are those of the API server, as far as the reflector has followed it.
const FOLLOWED: u8 = 0;
/// The objects turned out not to be the API server's: they were restored from disk and are another cluster's, or differ.
const FOREIGN: u8 = 1;
/// The objects were those of the API server when the client whose credential reads them was connected last.
const PAUSED: u8 = 2;

impl ResourceStore {
    /// Creates an empty store that is not synced.
    pub(crate) fn new(format: ObjectFormat) -> Self {
        let snapshot = Snapshot { version: 0, format, objects: RedBlackTreeMapSync::new_sync(), changed: 0 };
        Self {
            snapshot: ArcSwap::from_pointee(snapshot),
            history: Mutex::new(History::new(MAX_EVENTS, MAX_BYTES)),
            end: watch::Sender::new(0),
            state: watch::Sender::new(ReflectorState::default()),
            origin: AtomicU8::new(FOLLOWED),
            restoring: watch::Sender::new(false),
            peer: Mutex::default(),
            bytes: AtomicUsize::new(0),
            received: Arc::default(),
            wanted: watch::Sender::new(0),
            newest: NewestVersion::default(),
            warnings: ArcSwap::default(),
            trust: Trust::default(),
            room: ListRoom::default(),
        }
    }

    /// The current objects.
    #[must_use]
    pub fn snapshot(&self) -> Arc<Snapshot> {
        self.snapshot.load_full()
    }

    /// The current objects, and the position in the history from which on events change them.
    #[must_use]
    pub fn snapshot_and_position(&self) -> (Arc<Snapshot>, u64) {
        let history = self.history();
        (self.snapshot(), history.end())
    }

    /// The events from a position on, at most `limit`.
    ///
    /// # Errors
    /// [`HistoryGap`] if some of them were evicted; the reader compares snapshots instead.
    pub fn events_from(&self, position: u64, limit: usize) -> Result<Vec<Arc<StoreEvent>>, HistoryGap> {
        self.history().from(position, limit)
    }

    /// Sets the most bytes of objects that the history keeps alive.
    pub fn limit_history(&self, bytes: usize) {
        let mut history = self.history();
        history.set_max_bytes(bytes.min(MAX_BYTES));
        drop(history.evict());
    }

    /// The end of the history; changes with every event.
    #[must_use]
    pub fn subscribe(&self) -> watch::Receiver<u64> {
        self.end.subscribe()
    }

    /// Whether the first list has completed, and the last error.
    #[must_use]
    pub fn state(&self) -> watch::Receiver<ReflectorState> {
        self.state.subscribe()
    }

    /// The bytes of all events that were ever written. Readers compare it to learn how much they have not read.
    #[must_use]
    pub(crate) fn written_bytes(&self) -> u64 {
        self.history().appended()
    }

    /// Whether the objects are known to be those of the API server's cluster, at their version.
    pub(super) fn is_followed(&self) -> bool {
        self.origin.load(Ordering::Acquire) != FOREIGN
    }

    /// What the API server sent for this store.
    #[must_use]
    pub(crate) fn received(&self) -> Arc<Received> {
        self.received.clone()
    }

    /// The size of the store, and how far it may be behind the API server.
    #[must_use]
    pub fn status(&self) -> StoreStatus {
        let history = self.history();
        let (events, event_bytes) = (history.len(), history.bytes());
        let snapshot = self.snapshot();
        let bytes = self.bytes.load(Ordering::Relaxed);
        drop(history);
        let state = self.state.borrow().clone();
        StoreStatus {
            objects: snapshot.objects.size(),
            bytes,
            arriving: self.room.arriving(),
            version: snapshot.version,
            synced: state.synced,
            stale: self.is_stale(),
            peer: self.peer(),
            error: state.error,
            lag: self.received.lag(),
            received: self.received.bytes(),
            events,
            event_bytes,
        }
    }

    /// Whether the API server has not confirmed the objects: they were restored from disk, or kept through an outage, and nobody
    /// knows yet whether its history goes on from them; or the reflector is paused.
    #[must_use]
    pub fn is_stale(&self) -> bool {
        !self.is_following() || self.may_be_foreign() || self.trust.continuity() == Continuity::Unknown
    }

    /// Whether a watch goes on from the objects.
    pub(super) fn is_following(&self) -> bool {
        self.origin.load(Ordering::Acquire) == FOLLOWED
    }

    /// Records whether the API server refuses the reader of the store. Wakes followers of the store's events, which keep it on
    /// disk.
    pub(crate) fn set_refused(&self, refused: bool) {
        if self.trust.set_refused(refused) {
            self.end.send_modify(|_| {});
        }
    }

    /// The bytes of the objects, with what the store keeps beside each of them.
    pub(super) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed) + self.snapshot.load().objects.size() * BESIDE
    }

    /// Has the objects listed again.
    pub fn list_again(&self) {
        self.trust.doubt(Doubt::Stale);
    }

    /// What speaks against the objects.
    pub(crate) fn trust(&self) -> &Trust {
        &self.trust
    }

    /// The node of the peer that fills the store; `None` if the API server does.
    #[must_use]
    pub fn peer(&self) -> Option<Arc<str>> {
        self.peer.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Sets the source of the store.
    pub(crate) fn set_peer(&self, peer: Option<Arc<str>>) {
        *self.peer.lock().unwrap_or_else(PoisonError::into_inner) = peer;
    }

    /// Announces that objects may come from disk, until a reflector runs.
    pub(crate) fn begin_restore(&self) {
        self.restoring.send_replace(true);
    }

    pub(super) fn end_restore(&self) {
        self.restoring.send_replace(false);
    }

    /// Waits until the objects from disk are there, or it is known that there are none. Cancel safe.
    pub async fn restored(&self) {
        // The store owns the sender.
        let _ = self.restoring.subscribe().wait_for(|restoring| !restoring).await;
    }

    /// Starts with objects from disk. They count as synced, so that readers get them while the API server is unreachable.
    pub(crate) fn restore(&self, snapshot: Snapshot) {
        self.trust.question(Continuity::Unknown);
        let mut history = self.history();
        self.bytes.store(snapshot.objects.values().map(|object| object.bytes.len()).sum(), Ordering::Relaxed);
        self.snapshot.store(Arc::new(snapshot));
        history.clear();
        let end = history.end();
        drop(history);
        self.end.send_replace(end);
        self.state.send_modify(|state| state.synced = true);
    }

    /// Records that the API server's history continues from the objects. Wakes readers that wait for fresh objects.
    pub(super) fn confirm_history(&self, asked: Question) {
        self.trust.answer(asked);
        self.state.send_modify(|_| {});
    }

    /// Notes that the objects are not the API server's. The next list replaces them without comparing.
    pub(crate) fn set_foreign(&self) {
        self.origin.store(FOREIGN, Ordering::Release);
    }

    /// Records that the objects are not the API server's because another cluster answers, since this change. Only a list that
    /// is requested from now on is of that cluster: one that is under way may be of the former one.
    pub(crate) fn note_cluster_change(&self, change: u64) {
        if self.trust.note_cluster_change(change) {
            self.set_foreign();
            self.trust.doubt(Doubt::Stale);
        }
    }

    /// Whether the objects are, or may be, of another cluster than the one that answers.
    pub(crate) fn may_be_foreign(&self) -> bool {
        !self.is_followed() || self.trust.doubted().is_some()
    }

    /// Records that the objects were listed again, by a request sent after this change of the cluster. Wakes readers that wait
    /// for fresh objects.
    pub(crate) fn settle(&self, cluster_change: u64) {
        self.trust.settle(cluster_change);
        self.state.send_modify(|_| {});
    }

    /// Notes that the reflector has no credential now, so that the API server's later changes are missing. What the last one got
    /// says nothing of the next; what the list of a share exceeds does.
    pub(super) fn set_paused(&self) {
        let is_of_credential = |error: &mut ReflectorError| !matches!(error, ReflectorError::NoRoom { .. });
        self.state.send_if_modified(|state| state.error.take_if(is_of_credential).is_some());
        // Objects of another cluster stay what they are.
        let _ = self.origin.compare_exchange(FOLLOWED, PAUSED, Ordering::AcqRel, Ordering::Acquire);
    }

    /// Applies a complete list. One of a newer version, with other objects, begins a new history: creations and deletions since
    /// the store's version are unknown. Followers of the store compare their state with the present objects.
    ///
    /// A list that is older than the store means that the cluster was restored from a backup.
    pub(crate) fn replace(&self, format: ObjectFormat, listed: Vec<Object>, version: u64) {
        let present = self.snapshot();
        let is_foreign = self.origin.load(Ordering::Acquire) == FOREIGN;
        let asked = self.trust.asked();
        let ended = discontinuity(&present, &listed, version, asked.is_of_outage()).filter(|_| !is_foreign);
        self.trust.answer(asked);
        // An unchanged object would keep the bytes of the former encoding.
        let is_converted = present.format != format;
        if is_foreign || is_converted || ended.is_some() {
            self.reset(format, listed, version);
            self.set_synced();
            // It is reported once the objects are there.
            return ended.map_or((), |ended| self.trust.end_history(ended));
        }
        let mut listed: BTreeMap<StoreKey, Object> =
            listed.into_iter().map(|object| (object.key.clone(), object)).collect();
        let deleted = present.objects.keys().filter(|key| !listed.contains_key(*key));
        let mut deltas: Vec<Delta> = deleted.map(|key| Delta::Remove(key.clone(), version)).collect();
        let unchanged =
            |object: &Object| present.objects.get(&object.key).is_some_and(|present| present.version == object.version);
        listed.retain(|_, object| !unchanged(object));
        deltas.extend(listed.into_values().map(Delta::Listed));
        deltas.push(Delta::ListEnd(version));
        self.write_if(|_| true, deltas);
        self.set_synced();
    }

    /// Applies events in their order.
    pub(crate) fn apply(&self, deltas: Vec<Delta>) {
        self.write_if(|_| true, deltas);
    }

    /// Notes that the objects are the same at this version, if they are these. Returns whether they are.
    pub(super) fn apply_end(&self, is_same: impl FnOnce(&Snapshot) -> bool, version: u64) -> bool {
        self.write_if(is_same, vec![Delta::ListEnd(version)])
    }

    fn reset(&self, format: ObjectFormat, listed: Vec<Object>, version: u64) {
        let mut history = self.history();
        self.bytes.store(listed.iter().map(|object| object.bytes.len()).sum(), Ordering::Relaxed);
        let objects = listed.into_iter().map(|object| (object.key.clone(), Arc::new(object))).collect();
        // Before the objects are there: a reader that sees them may wait for a version of this history.
        self.forget_versions_above(version);
        self.snapshot.store(Arc::new(Snapshot { version, format, objects, changed: version }));
        history.clear();
        let end = history.end();
        drop(history);
        self.end.send_replace(end);
    }

    /// Applies deltas to a store of which this holds. Returns whether it does.
    fn write_if(&self, holds: impl FnOnce(&Snapshot) -> bool, deltas: Vec<Delta>) -> bool {
        let mut history = self.history();
        let mut next = Snapshot::clone(&self.snapshot.load());
        if !holds(&next) {
            return false;
        }
        let before = next.version;
        let is_newer_list = deltas.iter().any(|delta| matches!(delta, Delta::ListEnd(version) if *version > before));
        let mut changes = false;
        let mut total = self.bytes.load(Ordering::Relaxed);
        for delta in deltas {
            let Some(event) = next.apply(delta) else { continue };
            changes |= event.key().is_some();
            let size = |object: &Option<Arc<Object>>| object.as_ref().map_or(0, |object| object.bytes.len());
            total = (total + size(&event.new)).saturating_sub(size(&event.old));
            let bytes = event.len();
            history.append(Arc::new(event), bytes);
        }
        self.bytes.store(total, Ordering::Relaxed);
        if is_newer_list && changes {
            history.clear();
        }
        let end = history.end();
        self.snapshot.store(Arc::new(next));
        drop(history);
        self.end.send_if_modified(|last| std::mem::replace(last, end) != end);
        true
    }

    /// Notes that a watch goes on from the objects. Another cluster's API server may accept their version, too: that says nothing
    /// of whose they are.
    pub(crate) fn set_watched(&self) {
        self.note_synced(self.origin.compare_exchange(PAUSED, FOLLOWED, Ordering::AcqRel, Ordering::Acquire).is_ok());
    }

    /// Notes that a list has given the objects. Wakes readers that wait for fresh objects: the list may have answered what was in
    /// question while nothing else of the state was.
    pub(crate) fn set_synced(&self) {
        self.origin.store(FOLLOWED, Ordering::Release);
        self.note_synced(true);
    }

    fn note_synced(&self, is_fresh: bool) {
        let synced = ReflectorState { synced: true, error: None };
        self.state.send_if_modified(|state| {
            let changed = is_fresh || *state != synced;
            *state = synced;
            changed
        });
    }

    /// Records an error. Returns whether it differs from the last one.
    pub(super) fn set_error(&self, error: ReflectorError) -> bool {
        self.state.send_if_modified(|state| {
            let changed = state.error.as_ref() != Some(&error);
            state.error = Some(error);
            changed
        })
    }

    fn history(&self) -> std::sync::MutexGuard<'_, History<Arc<StoreEvent>>> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use weir_document::TypeMeta;
    use weir_kube::Encoding;

    use super::*;
    use crate::store_key::StoreKey;

    /// As after an upgrade, whose schema has the kind: an object at the same version has other bytes.
    #[test]
    fn a_list_in_another_encoding_replaces_all_objects_and_begins_a_new_history() {
        let format = |encoding| ObjectFormat {
            encoding,
            type_meta: Arc::new(TypeMeta { api_version: "v1".into(), kind: "Service".into() }),
        };
        let object = |bytes| Object { key: StoreKey::new("a", "b"), version: 1, bytes: Bytes::from_static(bytes) };
        let store = ResourceStore::new(format(Encoding::Json));
        store.replace(format(Encoding::Json), vec![object(b"json")], 1);
        let (_, position) = store.snapshot_and_position();
        store.replace(format(Encoding::Protobuf), vec![object(b"protobuf")], 1);
        let (snapshot, end) = store.snapshot_and_position();
        assert_eq!(snapshot.format.encoding, Encoding::Protobuf);
        assert_eq!(snapshot.objects.values().map(|object| &object.bytes[..]).collect::<Vec<_>>(), [b"protobuf"]);
        assert!(store.events_from(position, 1).is_err() && store.events_from(end, 1).is_ok());
    }

    #[test]
    fn a_list_that_answers_what_was_in_question_wakes_those_who_wait_for_fresh_objects() {
        let format = || ObjectFormat {
            encoding: Encoding::Json,
            type_meta: Arc::new(TypeMeta { api_version: "v1".into(), kind: "Service".into() }),
        };
        let store = ResourceStore::new(format());
        store.replace(format(), Vec::new(), 1);
        store.set_synced();
        let mut state = store.state();
        store.trust().question(Continuity::Unknown);
        assert!(store.is_stale());
        state.mark_unchanged();
        store.replace(format(), Vec::new(), 2);
        store.set_synced();
        assert!(!store.is_stale() && state.has_changed().unwrap());
    }
}
