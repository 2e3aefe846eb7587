//! Caches the results of SubjectAccessReviews. A client repeats its requests, and each review is a round trip.
//!
//! A revoked permission takes effect after at most [`ALLOWED`], and earlier for most requests, because the API server
//! authorizes the impersonated request, too. Concurrent requests with the same key share one review. Memory: at most
//! [`CAPACITY`] results.

use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use moka::future::Cache;
use tokio::time::{Instant, timeout};
use weir_store::disk::{CachedValue, DiskCache};

use crate::proxy::respond::StatusError;

/// How long an allowed request of a client certificate's user stays allowed. The API server authorizes it again.
const ALLOWED: Duration = Duration::from_secs(10);
/// How long an allowed read from a view stays allowed.
const ALLOWED_READ: Duration = Duration::from_secs(300);
/// How long a request that was allowed stays allowed while reviews fail.
const OFFLINE_GRACE: Duration = Duration::from_secs(24 * 3600);
/// How long a denied request stays denied.
const DENIED: Duration = Duration::from_secs(5);
/// The timeout of a review.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The most results.
const CAPACITY: u64 = 4096;

/// The results of the last seconds.
#[derive(Debug)]
pub(in crate::proxy) struct ReviewCache {
    results: Cache<String, CachedReview>,
    allowed: Duration,
    /// The keys of requests that were allowed, for the time in which reviews fail.
    granted: Cache<String, ()>,
    /// Where these keys outlive the process.
    disk: Option<Arc<DiskCache>>,
}

/// A result, or the error of a review. An error expires at once: only the requests that wait for it get it.
#[derive(Debug, Clone)]
struct CachedReview {
    allowed: Result<bool, String>,
    expires: Instant,
}

impl ReviewCache {
    /// For the users of client certificates.
    pub(in crate::proxy) fn for_certificates() -> Self {
        Self::new(ALLOWED, None)
    }

    /// For reads from views. A cache on disk lets clients read after a restart without the API server.
    pub(in crate::proxy) fn for_reads(disk: Option<Arc<DiskCache>>) -> Self {
        Self::new(ALLOWED_READ, disk)
    }

    fn new(allowed: Duration, disk: Option<Arc<DiskCache>>) -> Self {
        // Each result has its own expiry. The time to live only bounds the memory of results that nobody requests again.
        Self {
            results: Cache::builder().max_capacity(CAPACITY).time_to_live(allowed).build(),
            allowed,
            granted: Cache::builder().max_capacity(CAPACITY).time_to_live(OFFLINE_GRACE).build(),
            disk,
        }
    }

    /// Whether a key was allowed within the offline grace period.
    pub(in crate::proxy) async fn is_granted(&self, key: &str) -> bool {
        if self.granted.contains_key(key) {
            return true;
        }
        match &self.disk {
            Some(disk) => disk.get(&on_disk(key)).await.is_some(),
            None => false,
        }
    }

    /// Notes the result of a review for the time in which reviews fail.
    async fn remember(&self, key: &str, allowed: bool) {
        match allowed {
            true => self.granted.insert(key.to_owned(), ()).await,
            false => self.granted.invalidate(key).await,
        }
        match (&self.disk, allowed) {
            // The key is a hash of the credential and the question, and tells neither.
            (Some(disk), true) => {
                let expires = SystemTime::now() + OFFLINE_GRACE;
                disk.put(&on_disk(key), CachedValue { bytes: Vec::new(), expires }, false).await;
            }
            (Some(disk), false) => disk.remove(&on_disk(key)).await,
            (None, _) => {}
        }
    }

    /// Returns the cached result of a key, or sends the review. If the review fails, an earlier permission holds for the
    /// offline grace period. Cancel-safe: if the request that sends the review is
    /// cancelled, another one that waits for it sends its own.
    ///
    /// # Errors
    /// [`StatusError::Review`]: the review failed or timed out.
    pub(in crate::proxy) async fn get_or_send(
        &self,
        key: String,
        send: impl Future<Output = Result<bool, StatusError>>,
    ) -> Result<bool, StatusError> {
        let is_expired = |review: &CachedReview| review.expires <= Instant::now();
        let sent = CachedReview::of(send, self.allowed);
        let review = self.results.entry(key.clone()).or_insert_with_if(sent, is_expired).await;
        let is_new = review.is_fresh();
        match review.into_value().allowed {
            Ok(allowed) => {
                if is_new {
                    self.remember(&key, allowed).await;
                }
                Ok(allowed)
            }
            Err(_) if self.is_granted(&key).await => Ok(true),
            Err(reason) => Err(StatusError::Review(reason)),
        }
    }
}

/// The name of a granted key on disk.
fn on_disk(key: &str) -> String {
    format!("review/{key}")
}

impl CachedReview {
    async fn of(send: impl Future<Output = Result<bool, StatusError>>, allowed_for: Duration) -> Self {
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
        Self { allowed, expires: Instant::now() + lifetime }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// Requests a review with this result, and counts how many are sent.
    async fn review(
        cache: &ReviewCache,
        key: &str,
        sent: &AtomicUsize,
        result: Result<bool, &str>,
    ) -> Result<bool, String> {
        let send = async {
            sent.fetch_add(1, Ordering::Relaxed);
            tokio::time::sleep(Duration::from_secs(1)).await;
            result.map_err(|reason| StatusError::Review(reason.to_owned()))
        };
        cache.get_or_send(key.to_owned(), send).await.map_err(|error| error.to_string())
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
        let slow = cache.get_or_send("b".to_owned(), std::future::pending()).await;
        assert!(slow.unwrap_err().to_string().contains("no response within 10s"));
    }

    #[tokio::test(start_paused = true)]
    async fn the_number_of_results_is_bounded() {
        let cache = ReviewCache::for_certificates();
        for key in 0..CAPACITY + 100 {
            assert_eq!(cache.get_or_send(key.to_string(), async { Ok(true) }).await.ok(), Some(true));
        }
        cache.results.run_pending_tasks().await;
        assert!(cache.results.entry_count() <= CAPACITY, "{}", cache.results.entry_count());
    }
}
