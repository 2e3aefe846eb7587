//! Caches the results of SubjectAccessReviews. A client repeats its requests, and each review is a round trip.
//!
//! A revoked permission takes effect after at most [`ALLOWED`], and earlier for most requests, because the API server
//! authorizes the impersonated request, too. Concurrent requests with the same key share one review. Memory: at most
//! [`CAPACITY`] results, [`SHARE`] of them of one owner.

use std::collections::HashMap;
use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use moka::future::Cache;
use tokio::time::{Instant, timeout};
use weir_store::disk::{CachedValue, DiskCache};

use crate::proxy::respond::StatusError;
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

/// The results of the last seconds, and the permissions for the time in which no API server can be reached.
#[derive(Debug)]
pub(in crate::proxy) struct ReviewCache {
    results: Cache<String, CachedReview>,
    shares: Arc<Shares>,
    allowed: Duration,
    /// When each permission ends that was granted.
    granted: Cache<String, SystemTime>,
    /// Where they outlive the process.
    disk: Option<Arc<DiskCache>>,
    /// The longest time that they hold.
    offline_grace: Duration,
}

/// What a review is about.
#[derive(Debug, Clone)]
pub(in crate::proxy) struct ReviewKey {
    /// Whose request it is, for its share of the results.
    pub(in crate::proxy) owner: Arc<str>,
    /// Equal names have equal results.
    pub(in crate::proxy) name: String,
    /// Another name under which an allowed request is granted while no API server can be reached.
    pub(in crate::proxy) alias: Option<String>,
    /// When the credential expires, if that is known.
    pub(in crate::proxy) expires: Option<SystemTime>,
}

/// A result, or the error of a review. An error expires at once: only the requests that wait for it get it.
#[derive(Debug, Clone)]
struct CachedReview {
    share: Arc<Share>,
    allowed: Result<bool, String>,
    expires: Instant,
}

impl ReviewCache {
    /// For the users of client certificates. A cache on disk keeps permissions for a restart without the API server.
    pub(in crate::proxy) fn for_certificates(disk: Option<Arc<DiskCache>>, offline_grace: Duration) -> Self {
        Self::new(ALLOWED, disk, offline_grace)
    }

    /// For reads from views.
    pub(in crate::proxy) fn for_reads(disk: Option<Arc<DiskCache>>, offline_grace: Duration) -> Self {
        Self::new(ALLOWED_READ, disk, offline_grace)
    }

    fn new(allowed: Duration, disk: Option<Arc<DiskCache>>, offline_grace: Duration) -> Self {
        // Each result has its own expiry. The time to live only bounds the memory of results that nobody requests again.
        let results = Cache::<String, CachedReview>::builder().max_capacity(CAPACITY).time_to_live(allowed);
        Self {
            results: results.eviction_listener(|_, review, _| review.share.end()).build(),
            shares: Arc::default(),
            allowed,
            granted: Cache::builder()
                .max_capacity(CAPACITY)
                .time_to_live(offline_grace.max(Duration::from_secs(1)))
                .build(),
            disk,
            offline_grace,
        }
    }

    /// Whether a name was granted within the offline grace period. This holds only while no API server can be reached.
    pub(in crate::proxy) async fn is_granted(&self, name: &str) -> bool {
        let granted = match (self.granted.get(name).await, &self.disk) {
            (Some(expires), _) => Some(expires),
            (None, Some(disk)) => disk.get(&on_disk(name)).await.map(|value| value.expires),
            (None, None) => None,
        };
        // One that ends much later was granted by a clock that was years ahead.
        let now = clock::now();
        granted.is_some_and(|expires| expires > now && expires <= now + 2 * self.offline_grace)
    }

    /// Grants a name until the offline grace period or the credential ends.
    pub(in crate::proxy) async fn grant(&self, name: &str, credential_expires: Option<SystemTime>) {
        let grace = clock::now() + self.offline_grace;
        let expires = credential_expires.map_or(grace, |expires| expires.min(grace));
        self.granted.insert(name.to_owned(), expires).await;
        if let Some(disk) = &self.disk {
            disk.put(&on_disk(name), CachedValue { bytes: Vec::new(), expires }, false).await;
        }
    }

    /// Ends a permission.
    pub(in crate::proxy) async fn revoke(&self, name: &str) {
        self.granted.invalidate(name).await;
        if let Some(disk) = &self.disk {
            disk.remove(&on_disk(name)).await;
        }
    }

    /// Notes the result of a review for the time in which no API server can be reached.
    async fn remember(&self, key: &ReviewKey, allowed: bool) {
        if !allowed {
            return self.revoke(&key.name).await;
        }
        self.grant(&key.name, key.expires).await;
        if let Some(alias) = &key.alias {
            // A credential that is renewed ends before the permission of its user.
            self.grant(alias, None).await;
        }
    }

    /// Returns the cached result of a key, or sends the review. Cancel-safe: if the request that sends the review is
    /// cancelled, another one that waits for it sends its own.
    ///
    /// # Errors
    /// [`StatusError::Review`]: the review failed or timed out.
    pub(in crate::proxy) async fn get_or_send(
        &self,
        key: &ReviewKey,
        send: impl Future<Output = Result<bool, StatusError>>,
    ) -> Result<bool, StatusError> {
        let is_expired = |review: &CachedReview| review.expires <= Instant::now();
        let left = key.expires.map(|expires| expires.duration_since(clock::now()).unwrap_or_default());
        let sent = self.send(key, send, left.map_or(self.allowed, |left| left.min(self.allowed)));
        let (review, is_new) = if self.shares.is_exhausted(&key.owner) && !self.results.contains_key(&key.name) {
            (sent.await, true)
        } else {
            let review = self.results.entry_by_ref(&key.name).or_insert_with_if(sent, is_expired).await;
            let is_new = review.is_fresh();
            (review.into_value(), is_new)
        };
        let allowed = review.allowed.map_err(StatusError::Review)?;
        if is_new {
            self.remember(key, allowed).await;
        }
        Ok(allowed)
    }

    async fn send(
        &self,
        key: &ReviewKey,
        send: impl Future<Output = Result<bool, StatusError>>,
        allowed_for: Duration,
    ) -> CachedReview {
        let allowed = match timeout(TIMEOUT, send).await {
            Ok(Ok(allowed)) => Ok(allowed),
            Ok(Err(StatusError::Review(reason))) => Err(reason),
            Ok(Err(other)) => Err(other.to_string()),
            Err(_) => Err(format!("no response within {TIMEOUT:?}")),
        };
        let lifetime = match allowed {
            Ok(true) => allowed_for,
            Ok(false) => DENIED,
            Err(_) => Duration::ZERO,
        };
        CachedReview { share: Arc::new(self.shares.add(&key.owner)), allowed, expires: Instant::now() + lifetime }
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

/// The name of a permission on disk.
fn on_disk(name: &str) -> String {
    format!("review/{name}")
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

    const GRACE: Duration = Duration::from_secs(3600);

    fn key(name: &str, expires: Option<SystemTime>) -> ReviewKey {
        ReviewKey { owner: "u".into(), name: name.to_owned(), alias: None, expires }
    }

    /// Requests a review with this result, and counts how many are sent.
    async fn review(
        cache: &ReviewCache,
        key: &str,
        sent: &AtomicUsize,
        result: Result<bool, &str>,
    ) -> Result<bool, String> {
        let key = self::key(key, None);
        let send = async {
            sent.fetch_add(1, Ordering::Relaxed);
            tokio::time::sleep(Duration::from_secs(1)).await;
            result.map_err(|reason| StatusError::Review(reason.to_owned()))
        };
        cache.get_or_send(&key, send).await.map_err(|error| error.to_string())
    }

    #[tokio::test(start_paused = true)]
    async fn a_result_is_cached_for_its_key_until_it_expires() {
        let (cache, sent) = (ReviewCache::for_certificates(None, GRACE), AtomicUsize::new(0));
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
        let (cache, sent) = (ReviewCache::for_certificates(None, GRACE), AtomicUsize::new(0));
        let both =
            || async { tokio::join!(review(&cache, "a", &sent, Err("no")), review(&cache, "a", &sent, Err("no"))) };
        let (first, second) = both().await;
        assert!(first.is_err() && first == second, "{first:?} {second:?}");
        assert_eq!(sent.load(Ordering::Relaxed), 1);
        assert_eq!(review(&cache, "a", &sent, Ok(true)).await, Ok(true));
        assert_eq!(sent.load(Ordering::Relaxed), 2);
        let slow = cache.get_or_send(&key("b", None), std::future::pending()).await;
        assert!(slow.unwrap_err().to_string().contains("no response within 10s"));
    }

    #[tokio::test(start_paused = true)]
    async fn the_number_of_results_is_bounded() {
        let cache = ReviewCache::for_certificates(None, GRACE);
        let owned =
            |owner: usize, name: usize| ReviewKey { owner: owner.to_string().into(), ..key(&name.to_string(), None) };
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

    /// Errors expire at once: whoever comes next replaces them.
    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn results_that_are_replaced_at_once_do_not_use_up_the_share_of_their_owner() {
        let cache = Arc::new(ReviewCache::for_reads(None, GRACE));
        let mut clients = tokio::task::JoinSet::new();
        for _ in 0..4 {
            let cache = cache.clone();
            clients.spawn(async move {
                for _ in 0..20_000 {
                    let failed = async { Err(StatusError::Review("no".to_owned())) };
                    assert!(cache.get_or_send(&key("a", None), failed).await.is_err());
                }
            });
        }
        assert_eq!(clients.join_all().await.len(), 4);
        cache.results.invalidate("a").await;
        cache.results.run_pending_tasks().await;
        assert!(cache.shares.locked().is_empty(), "{:?}", cache.shares);
    }

    #[tokio::test(start_paused = true)]
    async fn a_permission_outlasts_neither_the_grace_period_nor_its_credential() {
        let now = clock::now();
        let (past, soon) = (now - Duration::from_secs(1), now + Duration::from_secs(60));
        for (grace, expires, granted) in [
            (GRACE, None, true),
            (GRACE, Some(soon), true),
            (GRACE, Some(past), false),
            (Duration::ZERO, None, false),
            (Duration::ZERO, Some(soon), false),
        ] {
            let cache = ReviewCache::for_reads(None, grace);
            assert_eq!(cache.get_or_send(&key("a", expires), async { Ok(true) }).await.ok(), Some(true));
            assert_eq!(cache.is_granted("a").await, granted, "{grace:?} {expires:?}");
            assert!(!cache.is_granted("b").await);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_denial_revokes_what_was_granted_to_that_credential_alone() {
        let cache = ReviewCache::for_reads(None, GRACE);
        let key = ReviewKey { alias: Some("user".to_owned()), ..key("a", None) };
        for allowed in [true, false] {
            tokio::time::advance(ALLOWED_READ).await;
            assert_eq!(cache.get_or_send(&key, async { Ok(allowed) }).await.ok(), Some(allowed));
            assert_eq!((cache.is_granted("a").await, cache.is_granted("user").await), (allowed, true));
        }
    }
}
