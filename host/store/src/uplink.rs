//! What reflectors take from the link to the API server.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

/// Counts what the API server sends for one store.
#[derive(Debug)]
pub struct Received {
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
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// The time since the last byte.
    #[must_use]
    pub fn lag(&self) -> Option<Duration> {
        let last = self.last.load(Ordering::Relaxed).checked_sub(1)?;
        Some(self.created.elapsed().saturating_sub(Duration::from_millis(last)))
    }
}
