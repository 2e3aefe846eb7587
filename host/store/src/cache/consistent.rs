//! Consistent reads: a store is asked for nothing older than what the API server had when the question came.
//!
//! A list of one object returns the newest version (KEP-3157). Between two events of its collection only a BOOKMARK shows
//! that a watch has reached that version, and bookmarks come once a minute. So if the watch has not reached it, Weir lists names
//! and versions, which is consistent by itself: a store that has exactly these objects is at the version of that list. Missing
//! events are on their way, and each change repeats the comparison.
//!
//! Memory: key, uid and version of each object while it is compared. Bytes on the link: one object for each question, questions
//! that come while one is under way share the next one; and a list of metadata where the store is behind.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, Shared};
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use super::check::ApiServer;
use super::compare::Fingerprint;
use super::resource_store::ResourceStore;
use super::snapshot::Snapshot;
use super::trust::Continuity;

/// How long a reader waits for a version before the reflector asks for a BOOKMARK.
const LATE: Duration = Duration::from_millis(500);
/// How long the event that a version belongs to may take, before names and versions are listed.
const MOMENT: Duration = Duration::from_millis(20);
/// How long what a store lacks of a list may take.
const ARRIVES: Duration = Duration::from_secs(3);
/// The time from an attempt that has failed to the next one.
const PAUSE: Duration = Duration::from_secs(10);
/// The most objects of which names and versions are listed.
const MAX_LISTED: usize = 1 << 14;

/// The shortest time from a question to a read for stamps: streams of the API server that a change ends have ended by then. It
/// begins after twice as long, and questions in the first half share it.
const STAMP: Duration = Duration::from_millis(500);
/// The shortest time between two reads for stamps. A later stamp repeats more, and loses nothing.
const STAMPS: Duration = Duration::from_secs(10);

/// A read for stamps: when it begins, and the version that it finds.
type StampRead = (Instant, Shared<BoxFuture<'static, Option<u64>>>);

/// The questions for the newest version, and the last answer.
#[derive(Debug, Default)]
pub(super) struct NewestVersion {
    /// The number of questions.
    asked: watch::Sender<u64>,
    answer: watch::Sender<ReportedVersion>,
    /// Whether the store could not be brought to a version a moment ago.
    is_out_of_reach: AtomicBool,
    /// The last read for stamps, under way or planned.
    stamps: std::sync::Mutex<Option<StampRead>>,
}

/// What the API server has reported: a version that answers all questions up to a number.
#[derive(Debug, Clone, Copy, Default)]
struct ReportedVersion {
    questions: u64,
    /// `None`: the API server did not say, or the store is of another history.
    version: Option<u64>,
    /// The newest version that it has ever said.
    newest: u64,
}

/// Answers the questions of one store while [`ConsistentReads::run`] runs.
pub(crate) struct ConsistentReads {
    pub(super) server: ApiServer,
    pub(super) store: Arc<ResourceStore>,
}

impl ResourceStore {
    /// The newest version of the API server, read after this call. `None`: it did not say. Cancel safe.
    pub async fn newest_version(&self) -> Option<u64> {
        let mut number = 0;
        self.newest.asked.send_modify(|asked| {
            *asked += 1;
            number = *asked;
        });
        // The store owns the sender.
        let mut answers = self.newest.answer.subscribe();
        let answer = answers.wait_for(|answer| answer.questions >= number).await.ok()?;
        answer.version
    }

    /// The stamp of what has changed before this call, as in `one-watch.md`: the version of a read that begins half a second later or
    /// more. All readers of the store share it, and the next one begins ten seconds after it. `None`: the API server
    /// did not say, or the store is gone.
    pub fn stamp(self: &Arc<Self>) -> Shared<BoxFuture<'static, Option<u64>>> {
        let asked = Instant::now();
        let mut stamps = self.newest.stamps.lock().unwrap_or_else(PoisonError::into_inner);
        let begins = match &*stamps {
            Some((begins, read)) if *begins >= asked + STAMP => return read.clone(),
            Some((begins, _)) => (*begins + STAMPS).max(asked + 2 * STAMP),
            None => asked + 2 * STAMP,
        };
        let store = Arc::downgrade(self);
        let read = async move {
            tokio::time::sleep_until(begins).await;
            store.upgrade()?.newest_version().await
        };
        let read = read.boxed().shared();
        *stamps = Some((begins, read.clone()));
        read
    }

    /// Whether the store can be brought to a version that it has not reached: it is small enough to be compared, and that has not
    /// failed a moment ago.
    #[must_use]
    pub fn can_reach(&self) -> bool {
        !self.newest.is_out_of_reach.load(Ordering::Relaxed) && self.is_small()
    }

    fn is_small(&self) -> bool {
        self.snapshot().objects.size() <= MAX_LISTED
    }

    /// Records that a reader waits for this version. Without an event of the collection an API server reports a version only once
    /// a minute.
    pub fn want(&self, version: u64) {
        self.wanted.send_if_modified(|wanted| {
            let is_higher = version > *wanted;
            *wanted = version.max(*wanted);
            is_higher
        });
    }

    /// Forgets which versions readers wait for, and that the API server had later ones than this: they are of another history.
    pub(super) fn forget_versions_above(&self, version: u64) {
        self.wanted.send_replace(0);
        self.newest.answer.send_modify(|answer| answer.newest = answer.newest.min(version));
    }

    /// Resolves with a version above `asked` that a reader has waited for. Cancel safe.
    pub(super) async fn late(&self, asked: u64) -> u64 {
        let mut wanted = self.wanted.subscribe();
        let is_ahead = |wanted: &u64| *wanted > asked.max(self.snapshot().version);
        loop {
            // The store owns the sender.
            let _ = wanted.wait_for(is_ahead).await;
            tokio::time::sleep(LATE).await;
            let version = *wanted.borrow_and_update();
            if is_ahead(&version) {
                return version;
            }
        }
    }

    /// Waits until the store is at a version. Cancel safe.
    pub(crate) async fn reaches(&self, version: u64) {
        let mut changes = self.subscribe();
        while self.snapshot().version < version {
            // The store owns the sender.
            let _ = changes.changed().await;
        }
    }

    /// Takes the version of a list, if the store has exactly its objects. Returns whether the store is at that version.
    fn reach(&self, listed: &[Fingerprint], version: u64) -> bool {
        let stored = self.snapshot();
        // Nobody waits for the lock while a store is compared that is not there yet.
        stored.version >= version || (is_at(&stored, listed) && self.apply_end(|stored| is_at(stored, listed), version))
    }
}

/// Whether a store has the objects of a list, at the same versions. Sorted by key.
fn is_at(stored: &Snapshot, listed: &[Fingerprint]) -> bool {
    let is_same =
        |print: &Fingerprint| stored.objects.get(&print.key).is_some_and(|object| object.version == print.version);
    stored.objects.size() == listed.len() && listed.iter().all(is_same)
}

impl ConsistentReads {
    /// Runs until it is dropped. Cancel-safe.
    pub(crate) async fn run(self) {
        self.store.restored().await;
        tokio::join!(self.answer(), self.catch_up());
    }

    async fn answer(&self) {
        let NewestVersion { asked, answer, .. } = &self.store.newest;
        let (mut questions, mut answered) = (asked.subscribe(), 0);
        loop {
            // The store owns the sender.
            let Ok(asked) = questions.wait_for(|asked| *asked > answered).await.map(|asked| *asked) else { return };
            // Events that arrive while the answer is on its way are newer than the answer.
            let before = self.store.snapshot().version;
            let version = match self.server.first().await {
                // Such a list is never stale: who was further is of another history, or its peer is.
                Ok(served) if served.version < before => {
                    if self.store.peer().is_none() {
                        self.store.trust().question(Continuity::Lost);
                    }
                    None
                }
                Ok(served) => Some(served.version),
                Err(error) => {
                    tracing::debug!(collection = %self.server.collection, ?error, "the API server does not report its newest version");
                    None
                }
            };
            answered = asked;
            answer.send_modify(|answer| {
                let newest = answer.newest.max(version.unwrap_or_default());
                *answer = ReportedVersion { questions: asked, version, newest };
            });
        }
    }

    /// Brings the store to each version that somebody waits for, if the API server has it: nobody is brought to one that was made up.
    async fn catch_up(&self) {
        let (mut wanted, mut answers) = (self.store.wanted.subscribe(), self.store.newest.answer.subscribe());
        loop {
            let version = (*wanted.borrow_and_update()).min(answers.borrow_and_update().newest);
            if version <= self.store.snapshot().version {
                tokio::select! {
                    // The store owns the senders.
                    _ = wanted.changed() => {}
                    _ = answers.changed() => {}
                }
                continue;
            }
            if timeout(MOMENT, self.store.reaches(version)).await.is_ok() {
                continue;
            }
            self.compare().await;
            if self.store.snapshot().version < version {
                // Waiting readers get the version by a BOOKMARK. Later readers go to the API server itself.
                self.store.newest.is_out_of_reach.store(true, Ordering::Relaxed);
                let _ = timeout(PAUSE, self.store.reaches(version)).await;
                self.store.newest.is_out_of_reach.store(false, Ordering::Relaxed);
            }
        }
    }

    /// Compares the store with a list of names and versions, until it is at the version of the list or has had time to get there.
    async fn compare(&self) {
        if !self.store.is_small() {
            return;
        }
        let listed = match self.server.newest().await {
            Ok(listed) if !listed.has_more => listed,
            Ok(_) => return,
            Err(error) => {
                tracing::debug!(collection = %self.server.collection, ?error, "the store cannot be compared with the API server");
                return;
            }
        };
        let mut changes = self.store.subscribe();
        let reached = async {
            while !(self.store.is_following() && self.store.reach(&listed.prints, listed.version)) {
                // The store owns the sender.
                let _ = changes.changed().await;
            }
        };
        let _ = timeout(ARRIVES, reached).await;
    }
}
