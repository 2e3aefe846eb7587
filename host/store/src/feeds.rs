//! All feeds of the daemon: opened by lookup, shared by equal ones, ended with their last handle.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::change::Changes;
use super::error::FeedError;
use super::follow::Follower;
use super::hub::Snapshot;
use super::hub::{FeedId, Hub};
use weir_kube::{Address, Lookup};
use weir_upstream::Reach;
use weir_upstream::Tasks;

/// How long the feeds wait for what. The defaults are for production; tests shorten them.
#[derive(Debug, Clone, Copy)]
pub struct Timing {
    /// First wait after a failure; doubled each time.
    pub back_off: Duration,
    /// Longest wait after a failure.
    pub back_off_most: Duration,
    /// How often a kind that the server lacks is looked for.
    pub missing: Duration,
    /// For an answer's head, and between two chunks of a list.
    pub answer: Duration,
    /// After this a watch is begun anew: what ends a connection that died silently.
    pub watch: Duration,
}

/// What a feed is doing.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FeedState {
    /// Its objects were complete once; they may lag while there is a problem.
    pub synced: bool,
    /// The last failure, until something works again.
    pub problem: Option<FeedError>,
}

/// One feed as `/filters` shows it.
#[derive(Debug, Clone)]
pub struct FeedStatus {
    /// What it was opened with.
    pub lookup: Arc<Lookup>,
    /// What it is doing.
    pub state: FeedState,
    /// How many objects it holds.
    pub objects: usize,
}

/// The feeds; clones share them.
#[derive(Debug, Clone)]
pub struct Feeds(Arc<Inner>);

pub(super) struct Inner {
    server: Option<Server>,
    timing: Timing,
    tasks: Tasks,
    hub: Arc<Hub>,
    open: Mutex<Open>,
}

/// Where feeds come from.
#[derive(Clone)]
pub struct Server {
    /// With the daemon's own identity. Nothing that it asks passes the daemon's own filters, as it goes to the server
    /// directly.
    pub client: kube::Client,
    /// Told of every request to the same server.
    pub reach: Reach,
}

#[derive(Debug, Default)]
struct Open {
    feeds: HashMap<Arc<Lookup>, Weak<Lease>>,
    last_id: u64,
}

/// Keeps a feed alive. Clones share it.
#[must_use = "a feed ends with its last handle"]
#[derive(Debug, Clone)]
pub struct FeedHandle(Arc<Lease>);

/// One feed's life: dropped with the last handle.
#[derive(Debug)]
struct Lease {
    lookup: Arc<Lookup>,
    id: FeedId,
    state: watch::Receiver<FeedState>,
    stop: CancellationToken,
    feeds: Weak<Inner>,
}

impl Feeds {
    /// No feed yet. Without a server every feed says that there is none.
    #[must_use]
    pub fn new(server: Option<Server>, tasks: Tasks) -> Self {
        Self::with_timing(server, tasks, Timing::default())
    }

    /// As [`Feeds::new`], with other waits.
    #[must_use]
    pub fn with_timing(server: Option<Server>, tasks: Tasks, timing: Timing) -> Self {
        let hub = Arc::new(Hub::new());
        Self(Arc::new(Inner { server, timing, tasks, hub, open: Mutex::default() }))
    }

    /// The feed of a lookup, begun if there is none.
    pub fn open(&self, lookup: &Lookup) -> FeedHandle {
        let inner = &self.0;
        let mut open = inner.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(lease) = open.feeds.get(lookup).and_then(Weak::upgrade) {
            return FeedHandle(lease);
        }
        open.last_id += 1;
        let id = FeedId(open.last_id);
        let lookup = Arc::new(lookup.clone());
        let (sender, state) = watch::channel(FeedState::default());
        let stop = CancellationToken::new();
        inner.hub.add(&lookup, id);
        match &inner.server {
            Some(server) => {
                let follower =
                    Follower::new(server.clone(), lookup.clone(), id, inner.hub.clone(), sender, inner.timing);
                let stop = stop.clone();
                inner.tasks.spawn_until_stop(async move {
                    tokio::select! {
                        () = stop.cancelled() => {}
                        () = follower.run() => {}
                    }
                });
            }
            None => {
                let problem = FeedError::NoServer { resource: lookup.resource.clone() };
                sender.send_modify(|state| state.problem = Some(problem));
            }
        }
        let lease = Arc::new(Lease { lookup: lookup.clone(), id, state, stop, feeds: Arc::downgrade(inner) });
        open.feeds.insert(lookup, Arc::downgrade(&lease));
        FeedHandle(lease)
    }

    /// What changes from now on.
    #[must_use]
    pub fn changes(&self) -> Changes {
        Changes(self.0.hub.subscribe())
    }

    /// One consistent state of all feeds: a pointer.
    #[must_use]
    pub fn snapshot(&self) -> Arc<Snapshot> {
        self.0.hub.snapshot()
    }

    /// The version of the state that [`Feeds::snapshot`] gives now.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.0.hub.version()
    }

    /// Every open feed, by resource.
    #[must_use]
    pub fn status(&self) -> Vec<FeedStatus> {
        let open = self.0.open.lock().unwrap_or_else(PoisonError::into_inner);
        let leases: Vec<_> = open.feeds.values().filter_map(Weak::upgrade).collect();
        // A lease that ends here takes the lock to leave.
        drop(open);
        let status = |lease: &Arc<Lease>| FeedStatus {
            lookup: lease.lookup.clone(),
            state: lease.state.borrow().clone(),
            objects: self.0.hub.objects(&lease.lookup, lease.id).map_or(0, |objects| objects.count()),
        };
        let mut all: Vec<_> = leases.iter().map(status).collect();
        all.sort_by(|a, b| a.lookup.resource.cmp(&b.lookup.resource).then_with(|| a.lookup.name.cmp(&b.lookup.name)));
        all
    }

    /// The node's addresses are these now.
    pub fn set_addresses(&self, addresses: Arc<[Address]>) {
        self.0.hub.set_addresses(addresses);
    }
}

impl FeedHandle {
    /// The lookup it was opened with.
    #[must_use]
    pub fn lookup(&self) -> &Arc<Lookup> {
        &self.0.lookup
    }

    /// What the feed is doing at this moment.
    #[must_use]
    pub fn state(&self) -> FeedState {
        self.0.state.borrow().clone()
    }

    /// Waits until the objects are complete. A server that can not be reached is waited for, without end: the caller bounds
    /// the time and asks [`FeedHandle::state`] for the reason. Cancel-safe.
    ///
    /// # Errors
    /// A [`FeedError`] that needs people. The feed goes on trying; a later call may succeed.
    pub async fn synced(&self) -> Result<(), FeedError> {
        let mut state = self.0.state.clone();
        let decided = |state: &FeedState| state.synced || state.problem.as_ref().is_some_and(FeedError::needs_people);
        let state = state.wait_for(decided).await.map(|state| state.clone());
        match state {
            Ok(FeedState { synced: false, problem: Some(problem) }) => Err(problem),
            Ok(_) => Ok(()),
            // The feed's task is gone: the daemon is stopping, and so is whoever waits here.
            Err(_) => std::future::pending().await,
        }
    }

    /// Resolves when the state is no longer `seen`; gives the new one. Cancel-safe.
    pub async fn state_after(&self, seen: &FeedState) -> FeedState {
        let mut state = self.0.state.clone();
        let new = state.wait_for(|state| state != seen).await.map(|state| state.clone());
        match new {
            Ok(state) => state,
            Err(_) => std::future::pending().await,
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.stop.cancel();
        let Some(inner) = self.feeds.upgrade() else {
            return;
        };
        let mut open = inner.open.lock().unwrap_or_else(PoisonError::into_inner);
        // Another may have been opened for the same lookup since the last handle went.
        if open.feeds.get(&self.lookup).is_some_and(|lease| lease.strong_count() == 0) {
            open.feeds.remove(&self.lookup);
        }
        inner.hub.remove(&self.lookup, self.id);
    }
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            back_off: Duration::from_millis(500),
            back_off_most: Duration::from_secs(30),
            missing: Duration::from_secs(30),
            answer: Duration::from_secs(30),
            watch: Duration::from_secs(300),
        }
    }
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Feeds").field("hub", &self.hub).finish_non_exhaustive()
    }
}
