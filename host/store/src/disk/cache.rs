//! The cache on disk as the daemon uses it: from async code, by many tasks at a time.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::{FutureExt as _, select_all};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::Instant;

use super::cluster::ClusterCheck;
use super::commit::PersistRequest;
use super::conditions::DiskCondition;
use super::config::{Confidentiality, DiskConfig, LONG, READ_DEADLINE, READ_ONLINE, StoreName};
use super::error::DiskUnusable;
use super::metrics::DiskMetrics;
use super::reading::{Reading, lock};
use super::ready_time::ReadyTime;
use super::state::DiskState;
use super::store_status::DiskStoreStatus;
use super::values::{CachedValue, MAX_VALUE, PendingValue};
use crate::cache::{ResourceStore, Snapshot};
use crate::cluster_watch::ClusterWatch;
use weir_upstream::Connectivity;

/// How often the size of changes is compared with the limit while a commit is due.
const POLL: Duration = Duration::from_millis(50);

/// Stores and values on disk. All failures are reported here: the daemon runs on without what failed.
pub struct DiskCache {
    state: Mutex<DiskState>,
    /// What does not wait for the state, which is in use while a commit waits for the disk.
    pub(super) reading: Arc<Reading>,
    requests: Mutex<PersistRequests>,
    /// Signalled when there is something new to write, other than an event of a store.
    pub(super) wake: Notify,
    pub(super) cluster: watch::Sender<ClusterCheck>,
    pub(super) cluster_watch: Arc<ClusterWatch>,
    commit_interval: Duration,
    commit_bytes: u64,
    opened: Instant,
    identity_wait: Duration,
    ready: Arc<ReadyTime>,
    connectivity: Option<Connectivity>,
    /// Whether a read was given up, and none has ended since.
    hangs: AtomicBool,
    /// One at a time reads, and one writes: a disk that hangs costs a thread each.
    reader: Arc<Semaphore>,
    writer: Arc<Semaphore>,
}

#[derive(Default)]
struct PersistRequests {
    next: u64,
    stores: BTreeMap<u64, PersistRequest>,
}

/// Keeps a store on disk as long as the handle lives. After that the store stays there until it is evicted.
pub(crate) struct PersistHandle {
    cache: Arc<DiskCache>,
    id: u64,
}

impl DiskCache {
    /// Creates the cache. The file is opened by the first use, and again after failures. [`DiskCache::run`] has to run: nothing
    /// else writes what changes.
    #[must_use]
    pub fn new(config: DiskConfig, metrics: Arc<DiskMetrics>) -> Arc<Self> {
        let (commit_interval, commit_bytes, identity_wait) =
            (config.commit_interval, config.commit_bytes, config.identity_wait);
        let (connectivity, ready) = (config.connectivity.clone(), config.ready.clone());
        let state = DiskState::new(config, metrics);
        Arc::new(Self {
            commit_interval,
            commit_bytes,
            identity_wait,
            ready,
            reading: state.reading.clone(),
            state: Mutex::new(state),
            requests: Mutex::default(),
            wake: Notify::new(),
            cluster: watch::Sender::new(ClusterCheck::Unknown),
            cluster_watch: Arc::default(),
            opened: Instant::now(),
            connectivity,
            hangs: AtomicBool::new(false),
            reader: Arc::new(Semaphore::new(1)),
            writer: Arc::new(Semaphore::new(1)),
        })
    }

    /// Restores a store, after a short wait for the identity of the cluster. `None` if it is not on disk, or not usable.
    pub(crate) async fn restore(
        self: &Arc<Self>,
        name: &StoreName,
        confidentiality: Confidentiality,
    ) -> Option<Snapshot> {
        let mut cluster = self.cluster.subscribe();
        // An error means that time is up: the link drops packets, perhaps.
        let known = cluster.wait_for(|check| *check != ClusterCheck::Unknown);
        let _ = tokio::time::timeout_at(self.opened + self.identity_wait, known).await;
        let name = name.clone();
        let beside = name.clone();
        self.read_with(
            move |reading| reading.load(&beside, confidentiality),
            move |state| Some(state.load(&name, confidentiality)),
        )
        .await
        .flatten()
    }

    /// Keeps a store on disk from now on.
    #[must_use = "dropping the handle ends it"]
    pub(crate) fn persist(
        self: &Arc<Self>,
        name: StoreName,
        store: Arc<ResourceStore>,
        confidentiality: Confidentiality,
    ) -> PersistHandle {
        let mut requests = self.requests();
        let id = requests.next;
        requests.next += 1;
        requests.stores.insert(id, PersistRequest { name, store, confidentiality });
        drop(requests);
        self.wake.notify_one();
        PersistHandle { cache: self.clone(), id }
    }

    /// What of a store in use is on disk; `None` if it was not committed yet.
    #[must_use]
    pub(crate) fn store_status(&self, name: &StoreName) -> Option<DiskStoreStatus> {
        self.reading.on_disk.get(name)
    }

    /// The path of the file, for messages.
    #[must_use]
    pub fn file(&self) -> String {
        self.reading.file_name()
    }

    /// What is wrong with the file now: names and lines for an operator.
    #[must_use]
    pub fn conditions(&self) -> Vec<DiskCondition> {
        self.reading.conditions()
    }

    /// Counts a time, to the second, in which the daemon was ready and an API server answered. What is set aside on disk goes after a
    /// day of it.
    pub fn count_ready(&self, time: Duration) {
        self.ready.add(time);
    }

    /// The identity of the cluster, as far as it is known: what the API server says, or the file.
    pub async fn cluster(self: &Arc<Self>) -> Option<String> {
        let of_state = |state: &mut DiskState| Some(state.confirmed.clone().or_else(|| state.cluster.clone()));
        self.read_with(|reading| reading.cluster(), of_state).await.flatten()
    }

    /// Commits the changes of all stores in batches. Runs until it is dropped; [`DiskCache::flush`] commits the rest.
    pub async fn run(self: Arc<Self>) {
        let mut receivers = BTreeMap::new();
        let mut due = None;
        // Opens and verifies the file before the first store asks for it.
        self.commit(false).await;
        loop {
            self.changed(&mut receivers, due).await;
            self.batch().await;
            for receiver in receivers.values_mut() {
                receiver.mark_unchanged();
            }
            due = self.commit(false).await;
        }
    }

    /// Commits everything that has changed so far, at once.
    pub async fn flush(self: &Arc<Self>) {
        self.commit(true).await;
    }

    /// Commits everything that has changed so far, and closes the file. Nothing is read or written after that. Stores have to be
    /// open until then: the last changes of a store are lost with its last handle.
    pub async fn close(self: &Arc<Self>) {
        self.blocking(move |state, requests| {
            state.commit(requests, true);
            state.close();
        })
        .await;
    }

    /// Stores a value until it expires. Confidential ones are encrypted; without a key they are not stored. The prefix of
    /// the name is the class of the value, and decides which values are evicted first: `client/OWNER/`, `document/`, `node/`,
    /// and anything else is the daemon's own. A value is dropped where too many bytes wait for a disk that cannot be written.
    pub async fn put(self: &Arc<Self>, name: &str, value: CachedValue, confidential: bool) {
        if self.put_later(name, value, confidential) {
            self.relieve().await;
        }
    }

    /// Stores a value as [`Self::put`] does, without waiting: values of one name are written in the order of the calls. Returns
    /// whether so much waits that the caller may as well wait for a commit.
    pub fn put_later(&self, name: &str, value: CachedValue, confidential: bool) -> bool {
        value.bytes.len() <= MAX_VALUE && self.set(name, Some(PendingValue { value, confidential }))
    }

    /// Removes a value. The removal of what is not there costs nothing.
    pub async fn remove(self: &Arc<Self>, name: &str) {
        if self.remove_later(name) {
            self.relieve().await;
        }
    }

    /// Removes a value as [`Self::remove`] does, and returns what [`Self::put_later`] returns.
    pub fn remove_later(&self, name: &str) -> bool {
        self.set(name, None)
    }

    /// A value that has not expired.
    pub async fn get(self: &Arc<Self>, name: &str) -> Option<CachedValue> {
        self.read(name).await.ok().flatten()
    }

    /// Reads a value, and distinguishes a missing one from an unusable file.
    ///
    /// # Errors
    /// The file cannot be used at present. The reason was reported.
    pub async fn read(self: &Arc<Self>, name: &str) -> Result<Option<CachedValue>, DiskUnusable> {
        let name = name.to_owned();
        Ok(self.value(name).await?.filter(|value| !value.is_expired()))
    }

    /// A value that may have expired, for those who know better than the clock whether it holds.
    pub async fn get_even_expired(self: &Arc<Self>, name: &str) -> Option<CachedValue> {
        self.value(name.to_owned()).await.ok().flatten()
    }

    async fn value(self: &Arc<Self>, name: String) -> Result<Option<CachedValue>, DiskUnusable> {
        let beside = name.clone();
        self.read_with(move |reading| reading.value(&beside), move |state| state.value(&name)).await.ok_or(DiskUnusable)
    }

    fn set(&self, name: &str, value: Option<PendingValue>) -> bool {
        let mut waiting = lock(&self.reading.waiting);
        if value.is_none() && !waiting.may_exist(name) {
            return false;
        }
        let fits = waiting.insert(name.to_owned(), value);
        let is_half_full = waiting.is_half_full();
        drop(waiting);
        self.wake.notify_one();
        // What did not fit means that commits fail.
        fits && is_half_full
    }

    /// Waits for a change of any store, for anything else to write, or until a commit is due without changes.
    async fn changed(&self, receivers: &mut BTreeMap<u64, watch::Receiver<u64>>, due: Option<Instant>) {
        {
            let requests = self.requests();
            receivers.retain(|id, _| requests.stores.contains_key(id));
            for (id, request) in &requests.stores {
                receivers.entry(*id).or_insert_with(|| {
                    let mut receiver = request.store.subscribe();
                    receiver.mark_changed();
                    receiver
                });
            }
        }
        let stores = receivers.values_mut().map(|receiver| receiver.changed().map(drop).boxed());
        let stores = stores.chain(std::iter::once(std::future::pending().boxed()));
        let is_due = async {
            match due {
                Some(due) => tokio::time::sleep_until(due).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = select_all(stores) => {}
            () = self.wake.notified() => {}
            () = is_due => {}
        }
    }

    /// Lets changes gather: for the interval, or until they are so many that they are better written at once.
    async fn batch(&self) {
        let end = Instant::now() + self.commit_interval;
        let before = self.written_bytes();
        while Instant::now() < end && self.written_bytes().saturating_sub(before) < self.commit_bytes {
            tokio::time::sleep_until(end.min(Instant::now() + POLL)).await;
        }
    }

    fn written_bytes(&self) -> u64 {
        self.requests().stores.values().map(|request| request.store.written_bytes()).sum()
    }

    /// Lets a commit go first, as too much waits for one. A disk that hangs stops nobody.
    /// Waits for a commit, but not long: so much waits that what comes next may not fit.
    pub async fn relieve(self: &Arc<Self>) {
        let _ = tokio::time::timeout(READ_ONLINE, self.commit(false)).await;
    }

    async fn commit(self: &Arc<Self>, force: bool) -> Option<Instant> {
        let commit = move |state: &mut DiskState, requests: &[PersistRequest]| state.commit(requests, force);
        self.blocking(commit).await.flatten()
    }

    /// Uses the file in turn, on a thread that may block. `None` if that panics, which is a defect.
    pub(super) async fn blocking<T: Send + 'static>(
        self: &Arc<Self>,
        operation: impl FnOnce(&mut DiskState, &[PersistRequest]) -> T + Send + 'static,
    ) -> Option<T> {
        let turn = self.writer.clone().acquire_owned().await.ok()?;
        let write = self.on_thread(turn, move |cache| {
            let requests: Vec<_> = cache.requests().stores.values().cloned().collect();
            let mut state = lock(&cache.state);
            let result = cache.with_state(&mut state, |state| operation(state, &requests));
            cache.reading.conditions.update(&state);
            result
        });
        tokio::pin!(write);
        match tokio::time::timeout(LONG, &mut write).await {
            Ok(done) => done,
            Err(_) => {
                let begun = Instant::now();
                tracing::warn!(file = self.file(), time = ?LONG, "the disk does not answer: what changes is kept in memory");
                let done = write.await;
                tracing::info!(file = self.file(), time = ?(LONG + begun.elapsed()), "the disk answers again");
                done
            }
        }
    }

    /// Reads from the state, or beside it while it is in use, which may be for as long as the disk takes for a write, or not open
    /// yet. `None` if the disk does not answer in time.
    async fn read_with<T: Send + 'static>(
        self: &Arc<Self>,
        beside: impl Fn(&Reading) -> Option<T> + Clone + Send + 'static,
        operation: impl Fn(&mut DiskState) -> Option<T> + Clone + Send + 'static,
    ) -> Option<T> {
        // Content that the API server has, too, need not wait for a disk that hangs.
        let is_online = self.connectivity.as_ref().is_some_and(Connectivity::is_working);
        if is_online && self.hangs.load(Ordering::Relaxed) && self.reader.available_permits() == 0 {
            return None;
        }
        let deadline = if is_online { READ_ONLINE } else { READ_DEADLINE };
        let read = tokio::time::timeout(deadline, self.read_in_turn(beside, operation)).await;
        // The next one does not wait for it again, as long as it goes on.
        read.inspect_err(|_| self.hangs.store(true, Ordering::Relaxed)).ok().flatten()
    }

    async fn read_in_turn<T: Send + 'static>(
        self: &Arc<Self>,
        beside: impl Fn(&Reading) -> Option<T> + Clone + Send + 'static,
        operation: impl Fn(&mut DiskState) -> Option<T> + Clone + Send + 'static,
    ) -> Option<T> {
        let mut verified = self.reading.subscribe();
        loop {
            let (beside, operation) = (beside.clone(), operation.clone());
            let (beside_state, with_state) = (beside.clone(), operation.clone());
            let read = move |cache: &Self| match cache.state.try_lock().ok() {
                // One that is only read may lack what an earlier release has left.
                Some(mut state) if state.is_open() && !state.is_read_only() => {
                    Some(cache.with_state(&mut state, with_state))
                }
                _ => beside_state(&cache.reading).map(Some),
            };
            if let Some(read) = self.read_on_thread(read).await? {
                return read;
            }
            // A missing value may be found once the file is verified or opened for writing, which only a writer does.
            tokio::select! {
                biased;
                _ = verified.changed() => {}
                turn = self.writer.clone().acquire_owned() => {
                    let read = move |cache: &Self| {
                        let mut state = lock(&cache.state);
                        state.verify_first();
                        beside(&cache.reading).or_else(|| cache.with_state(&mut state, operation))
                    };
                    return self.on_thread(turn.ok()?, read).await.flatten();
                }
            }
        }
    }

    /// Reads in turn, on a thread that may block. `None` if that panics, which is a defect.
    pub(super) async fn read_on_thread<T: Send + 'static>(
        self: &Arc<Self>,
        read: impl FnOnce(&Self) -> T + Send + 'static,
    ) -> Option<T> {
        let turn = self.reader.clone().acquire_owned().await.ok()?;
        self.on_thread(turn, read).await
    }

    /// Keeps a turn until the operation has ended, also if nobody waits for that any more.
    async fn on_thread<T: Send + 'static>(
        self: &Arc<Self>,
        turn: OwnedSemaphorePermit,
        operation: impl FnOnce(&Self) -> T + Send + 'static,
    ) -> Option<T> {
        let cache = self.clone();
        let task = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            let result = operation(&cache);
            cache.hangs.store(false, Ordering::Relaxed);
            result
        });
        task.await.inspect_err(|error| tracing::error!(%error, "watch cache on disk failed")).ok()
    }

    /// Uses the state, and says what of it others see.
    fn with_state<T>(&self, state: &mut DiskState, operation: impl FnOnce(&mut DiskState) -> T) -> T {
        let result = operation(state);
        self.reading.on_disk.update(state);
        self.report_foreign(state);
        result
    }

    fn requests(&self) -> std::sync::MutexGuard<'_, PersistRequests> {
        lock(&self.requests)
    }
}

impl Drop for PersistHandle {
    fn drop(&mut self) {
        // Its last changes are not written: the next start continues from the version on disk.
        let request = self.cache.requests().stores.remove(&self.id);
        request.and_then(|request| lock(&self.cache.reading.restored).remove(&request.name));
    }
}

impl fmt::Debug for PersistHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PersistHandle").field("id", &self.id).finish_non_exhaustive()
    }
}

impl fmt::Debug for DiskCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DiskCache").field("stores", &self.requests().stores.len()).finish_non_exhaustive()
    }
}
