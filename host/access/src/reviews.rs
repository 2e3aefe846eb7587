//! Caches the results of access reviews for minutes. A client repeats its requests, and each review is a round trip.
//!
//! Answers that outlive these minutes are in `grants.rs`. A revoked permission takes effect after at most [`ALLOWED`], and
//! earlier for most requests, because the API server authorizes the impersonated request, too. Concurrent requests with the
//! same key share one review. Memory: at most [`CAPACITY`] results, [`SHARE`] of them of one owner.

use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use moka::future::Cache;
use tokio::time::{Instant, timeout};

use crate::error::AccessError;
use weir_process::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use weir_process::sync::{Mutex, MutexGuard, PoisonError};
use weir_upstream::clock;

/// How long an allowed request of a client certificate's user stays allowed. The API server authorizes it again.
const ALLOWED: Duration = Duration::from_secs(10);
/// How long an allowed read from a view stays allowed.
const ALLOWED_READ: Duration = Duration::from_secs(300);
/// How long a denied request stays denied.
const DENIED: Duration = Duration::from_secs(5);
/// The timeout of a review.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The most results.
const CAPACITY: u64 = 4096;
/// The most results of one owner. Further ones are not kept, so that no client evicts the results of others.
const SHARE: usize = 1024;

/// The results of the last minutes.
#[derive(Debug)]
pub(crate) struct ReviewCache {
    results: Cache<String, CachedReview>,
    shares: Arc<Shares>,
    allowed: Duration,
    /// Since when older results of a credential do not count.
    ended: Cache<Arc<str>, Instant>,
    /// How often all was forgotten. Earlier questions do not count, whenever they are answered.
    forgotten: AtomicU64,
}

/// The subject of a review.
#[derive(Debug, Clone)]
pub(crate) struct ReviewKey {
    /// Whose request it is, for its share of the results.
    pub(crate) owner: Arc<str>,
    /// The credential that it was asked with or for.
    pub(crate) credential: Arc<str>,
    /// Equal names have equal results.
    pub(crate) name: String,
    /// When the credential expires, if that is known.
    pub(crate) expires: Option<SystemTime>,
}

/// A result, or the error of a review. An error expires at once: only the requests that wait for it get it.
#[derive(Debug, Clone)]
struct CachedReview {
    share: Arc<Share>,
    allowed: Result<bool, String>,
    sent: Instant,
    expires: Instant,
    /// How often all had been forgotten when it was sent.
    forgotten: u64,
}

impl ReviewCache {
    /// For the users of client certificates.
    pub(crate) fn for_certificates() -> Self {
        Self::new(ALLOWED)
    }

    /// For reads from views.
    pub(crate) fn for_reads() -> Self {
        Self::new(ALLOWED_READ)
    }

    fn new(allowed: Duration) -> Self {
        // Each result has its own expiry. The time to live only bounds the memory of results that nobody requests again.
        let results = Cache::<String, CachedReview>::builder().max_capacity(CAPACITY).time_to_live(allowed);
        Self {
            results: results.eviction_listener(|_, review, _| review.share.end()).build(),
            shares: Arc::default(),
            allowed,
            ended: Cache::builder().max_capacity(CAPACITY).time_to_live(2 * allowed).build(),
            forgotten: AtomicU64::new(0),
        }
    }

    /// Ends all results of a credential.
    pub(crate) async fn end(&self, credential: &Arc<str>) {
        self.ended.insert(credential.clone(), Instant::now()).await;
    }

    /// Ends all results.
    pub(crate) fn forget(&self) {
        self.forgotten.fetch_add(1, Ordering::AcqRel);
        self.results.invalidate_all();
    }

    /// Returns the cached result of a key, or sends the review. Cancel-safe: if the request that sends the review is
    /// cancelled, another one that waits for it sends its own.
    ///
    /// # Errors
    /// [`AccessError::Review`]: the review failed or timed out.
    pub(crate) async fn get_or_send(
        &self,
        key: &ReviewKey,
        send: impl Future<Output = Result<bool, AccessError>>,
    ) -> Result<bool, AccessError> {
        let ended = self.ended.get(&key.credential).await;
        let forgotten = self.forgotten.load(Ordering::Acquire);
        let is_expired = |review: &CachedReview| {
            review.expires <= Instant::now()
                || review.forgotten != forgotten
                || ended.is_some_and(|ended| review.sent < ended)
        };
        let left = key.expires.map(|expires| expires.duration_since(clock::now()).unwrap_or_default());
        // The futures of requests upstream are large, and moka keeps several copies of them on the stack.
        let sent = self.send(key, Box::pin(send), left.map_or(self.allowed, |left| left.min(self.allowed)));
        let review = match self.shares.is_exhausted(&key.owner) && !self.results.contains_key(&key.name) {
            true => sent.await,
            false => self.results.entry_by_ref(&key.name).or_insert_with_if(sent, is_expired).await.into_value(),
        };
        if review.forgotten < forgotten {
            // A request that comes while another cluster's answer is on its way does not get it.
            return Err(AccessError::Review("another cluster answers now".to_owned()));
        }
        review.allowed.map_err(AccessError::Review)
    }

    async fn send(
        &self,
        key: &ReviewKey,
        send: impl Future<Output = Result<bool, AccessError>>,
        allowed_for: Duration,
    ) -> CachedReview {
        let (started, forgotten) = (Instant::now(), self.forgotten.load(Ordering::Acquire));
        let allowed = match timeout(TIMEOUT, send).await {
            Ok(Ok(allowed)) => Ok(allowed),
            Ok(Err(AccessError::Review(reason))) => Err(reason),
            Ok(Err(other)) => Err(other.to_string()),
            Err(_) => Err(format!("no response within {TIMEOUT:?}")),
        };
        let lifetime = match allowed {
            Ok(true) => allowed_for,
            Ok(false) => DENIED,
            Err(_) => Duration::ZERO,
        };
        let share = Arc::new(self.shares.add(&key.owner));
        CachedReview { share, allowed, sent: started, expires: Instant::now() + lifetime, forgotten }
    }
}

/// The number of results of each owner.
#[derive(Debug, Default)]
struct Shares(Mutex<HashMap<Arc<str>, usize>>);

/// One result of an owner. It counts from its review on, until it is evicted; or until it is dropped, if it was never cached.
#[derive(Debug)]
struct Share {
    owner: Arc<str>,
    all: Arc<Shares>,
    ended: AtomicBool,
}

impl Shares {
    fn is_exhausted(&self, owner: &str) -> bool {
        self.locked().get(owner).is_some_and(|results| *results >= SHARE)
    }

    fn add(self: &Arc<Self>, owner: &Arc<str>) -> Share {
        *self.locked().entry(owner.clone()).or_default() += 1;
        Share { owner: owner.clone(), all: self.clone(), ended: AtomicBool::new(false) }
    }

    fn locked(&self) -> MutexGuard<'_, HashMap<Arc<str>, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Share {
    fn end(&self) {
        if self.ended.swap(true, Ordering::AcqRel) {
            return;
        }
        let mut owners = self.all.locked();
        if let Some(results) = owners.get_mut(&self.owner) {
            *results -= 1;
            if *results == 0 {
                owners.remove(&self.owner);
            }
        }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.end();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

    fn key(name: &str) -> ReviewKey {
        ReviewKey { owner: "u".into(), credential: "c".into(), name: name.to_owned(), expires: None }
    }

    /// Requests a review with this result, and counts how many are sent.
    async fn review(
        cache: &ReviewCache,
        key: &str,
        sent: &AtomicUsize,
        result: Result<bool, &str>,
    ) -> Result<bool, String> {
        let key = self::key(key);
        let send = async {
            sent.fetch_add(1, Ordering::Relaxed);
            tokio::time::sleep(Duration::from_secs(1)).await;
            result.map_err(|reason| AccessError::Review(reason.to_owned()))
        };
        cache.get_or_send(&key, send).await.map_err(|error| error.to_string())
    }

    #[tokio::test(start_paused = true)]
    async fn a_result_is_cached_for_its_key_until_it_expires() {
        let (cache, sent) = (ReviewCache::for_certificates(), AtomicUsize::new(0));
        for (key, result, lifetime) in [("a", true, ALLOWED), ("b", false, DENIED)] {
            sent.store(0, Ordering::Relaxed);
            for _ in 0..100 {
                assert_eq!(review(&cache, key, &sent, Ok(result)).await, Ok(result));
            }
            assert_eq!(sent.load(Ordering::Relaxed), 1);
            tokio::time::advance(lifetime - Duration::from_millis(10)).await;
            assert_eq!(review(&cache, key, &sent, Ok(!result)).await, Ok(result));
            tokio::time::advance(Duration::from_millis(10)).await;
            assert_eq!(review(&cache, key, &sent, Ok(!result)).await, Ok(!result), "it has changed");
            assert_eq!(sent.load(Ordering::Relaxed), 2);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn concurrent_requests_share_a_review_and_errors_are_not_cached() {
        let (cache, sent) = (ReviewCache::for_certificates(), AtomicUsize::new(0));
        let both =
            || async { tokio::join!(review(&cache, "a", &sent, Err("no")), review(&cache, "a", &sent, Err("no"))) };
        let (first, second) = both().await;
        assert!(first.is_err() && first == second, "{first:?} {second:?}");
        assert_eq!(sent.load(Ordering::Relaxed), 1);
        assert_eq!(review(&cache, "a", &sent, Ok(true)).await, Ok(true));
        assert_eq!(sent.load(Ordering::Relaxed), 2);
        let slow = cache.get_or_send(&key("b"), std::future::pending()).await;
        assert!(slow.unwrap_err().to_string().contains("no response within 10s"));
    }

    #[tokio::test(start_paused = true)]
    async fn the_number_of_results_is_bounded() {
        let cache = ReviewCache::for_certificates();
        let owned = |owner: usize, name: usize| ReviewKey { owner: owner.to_string().into(), ..key(&name.to_string()) };
        let sent = AtomicUsize::new(0);
        let ask = async |owner, name| {
            let send = async {
                sent.fetch_add(1, Ordering::Relaxed);
                Ok(true)
            };
            assert_eq!(cache.get_or_send(&owned(owner, name), send).await.ok(), Some(true));
        };
        ask(1, 0).await;
        for name in 1..10 * SHARE {
            ask(0, name).await;
        }
        cache.results.run_pending_tasks().await;
        assert_eq!(cache.results.entry_count(), SHARE as u64 + 1, "the share of the one, and the result of the other");
        sent.store(0, Ordering::Relaxed);
        ask(1, 0).await;
        ask(0, 1).await;
        assert_eq!(sent.load(Ordering::Relaxed), 0, "the first results are still there");
        for owner in 0..2 * usize::try_from(CAPACITY).unwrap() {
            ask(2 + owner, 100_000 + owner).await;
        }
        cache.results.run_pending_tasks().await;
        assert!(cache.results.entry_count() <= CAPACITY, "{}", cache.results.entry_count());
        tokio::time::sleep(2 * ALLOWED).await;
        // moka has a clock of its own.
        cache.results.invalidate_all();
        cache.results.run_pending_tasks().await;
        assert!(cache.shares.locked().is_empty());
    }

    /// Errors expire at once: the next request replaces them.
    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn results_that_are_replaced_at_once_do_not_use_up_the_share_of_their_owner() {
        let cache = Arc::new(ReviewCache::for_reads());
        let mut clients = tokio::task::JoinSet::new();
        for _ in 0..4 {
            let cache = cache.clone();
            clients.spawn(async move {
                for _ in 0..20_000 {
                    let failed = async { Err(AccessError::Review("no".to_owned())) };
                    assert!(cache.get_or_send(&key("a"), failed).await.is_err());
                }
            });
        }
        assert_eq!(clients.join_all().await.len(), 4);
        cache.results.invalidate("a").await;
        cache.results.run_pending_tasks().await;
        assert!(cache.shares.locked().is_empty(), "{:?}", cache.shares);
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_answered_before_a_credential_ended_is_asked_again() {
        let (cache, sent) = (ReviewCache::for_reads(), AtomicUsize::new(0));
        assert_eq!(review(&cache, "a", &sent, Ok(true)).await, Ok(true));
        cache.end(&"other".into()).await;
        assert_eq!(review(&cache, "a", &sent, Ok(false)).await, Ok(true));
        cache.end(&"c".into()).await;
        for _ in 0..2 {
            assert_eq!(review(&cache, "a", &sent, Ok(false)).await, Ok(false));
        }
        assert_eq!(sent.load(Ordering::Relaxed), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_asked_before_all_was_forgotten_does_not_count_when_it_is_answered() {
        let (cache, sent) = (ReviewCache::for_reads(), AtomicUsize::new(0));
        let forget = async {
            tokio::time::sleep(Duration::from_millis(500)).await;
            cache.forget();
        };
        let late = async {
            tokio::time::sleep(Duration::from_millis(700)).await;
            review(&cache, "a", &sent, Ok(true)).await
        };
        let (answer, (), late) = tokio::join!(review(&cache, "a", &sent, Ok(true)), forget, late);
        assert_eq!(answer, Ok(true), "who asked before gets what was said");
        assert!(late.unwrap_err().contains("another cluster"), "and who came later does not");
        assert_eq!(review(&cache, "a", &sent, Ok(false)).await, Ok(false));
        assert_eq!(sent.load(Ordering::Relaxed), 2);
    }
}
