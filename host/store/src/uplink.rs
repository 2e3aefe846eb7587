//! What reflectors take from the link to the API server.

use std::num::NonZeroU64;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Counts what the API server sends for one store.
#[derive(Debug)]
pub(crate) struct Received {
    created: Instant,
    bytes: AtomicU64,
    /// Milliseconds from the creation to the last byte, plus one; 0 if there was none.
    last: AtomicU64,
}

impl Default for Received {
    fn default() -> Self {
        Self { created: Instant::now(), bytes: AtomicU64::new(0), last: AtomicU64::new(0) }
    }
}

impl Received {
    /// Notes that bytes arrived.
    pub(crate) fn note(&self, bytes: usize) {
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        let elapsed = u64::try_from(self.created.elapsed().as_millis()).unwrap_or(u64::MAX - 1);
        self.last.store(elapsed + 1, Ordering::Relaxed);
    }

    /// All bytes so far.
    #[must_use]
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// The time since the last byte.
    #[must_use]
    pub(crate) fn lag(&self) -> Option<Duration> {
        let last = self.last.load(Ordering::Relaxed).checked_sub(1)?;
        Some(self.created.elapsed().saturating_sub(Duration::from_millis(last)))
    }
}

/// The page of a list takes about so many seconds of the rate.
const PAGE_SECONDS: u64 = 2;
/// The items of a first page, whose size is not known.
const FIRST_PAGE: usize = 50;
/// The fewest items of a page.
const MIN_PAGE: usize = 5;

/// A token bucket that bounds what some transfers together take from the link, for example all lists. Its burst is one second of the rate. Clones share
/// it.
#[derive(Debug, Clone)]
pub struct UplinkLimit(Arc<Bucket>);

#[derive(Debug)]
struct Bucket {
    /// Bytes per second.
    rate: NonZeroU64,
    /// The time at which all bytes taken so far are paid for.
    paid: Mutex<Instant>,
}

impl UplinkLimit {
    /// Creates a limit of so many bytes per second.
    #[must_use]
    pub fn new(rate: NonZeroU64) -> Self {
        Self(Arc::new(Bucket { rate, paid: Mutex::new(Instant::now()) }))
    }

    /// Waits until the rate permits bytes that have arrived. Cancel-safe: the bytes are taken at once.
    pub async fn take(&self, bytes: u64) {
        let cost = Duration::from_secs_f64(bytes as f64 / self.0.rate.get() as f64);
        let until = {
            let mut paid = self.0.paid.lock().unwrap_or_else(PoisonError::into_inner);
            let now = Instant::now();
            // Capacity that is unused for more than a second is lost.
            let earliest = now.checked_sub(Duration::from_secs(1)).unwrap_or(now);
            *paid = (*paid).max(earliest) + cost;
            *paid
        };
        tokio::time::sleep_until(until).await;
    }

    /// How many items the next page should have. `received` bytes have arrived for a store, `listed` items among them.
    pub(crate) fn page_size(&self, received: u64, listed: usize) -> usize {
        if listed == 0 {
            return FIRST_PAGE;
        }
        let each = (received / listed as u64).max(1);
        usize::try_from(self.0.rate.get() * PAGE_SECONDS / each).unwrap_or(usize::MAX).max(MIN_PAGE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn all_lists_together_take_no_more_than_the_rate() {
        let limit = UplinkLimit::new(NonZeroU64::new(1000).unwrap());
        let began = Instant::now();
        let lists = (0..4).map(|_| async {
            for _ in 0..10 {
                limit.take(250).await;
            }
        });
        futures_util::future::join_all(lists).await;
        assert_eq!(began.elapsed().as_secs(), 10, "10,000 bytes at 1,000 a second");
        tokio::time::sleep(Duration::from_secs(60)).await;
        let later = Instant::now();
        limit.take(3000).await;
        assert_eq!(later.elapsed().as_secs(), 2, "a pause does not save up more than a second");
    }

    #[test]
    fn a_page_takes_some_seconds_of_the_rate() {
        let limit = UplinkLimit::new(NonZeroU64::new(10_000).unwrap());
        assert_eq!(limit.page_size(0, 0), FIRST_PAGE);
        assert_eq!(limit.page_size(50_000, 50), 20);
        assert_eq!(limit.page_size(5_000_000, 50), MIN_PAGE);
    }
}
