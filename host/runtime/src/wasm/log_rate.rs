//! How many lines a filter may write to the log.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// The most lines at once.
const BURST: u64 = 256;
/// The time in which a filter may write one more line.
const LINE: Duration = Duration::from_millis(100);

/// The rate of one filter, for all its instances.
#[derive(Debug)]
pub(super) struct LogRate(Mutex<Tokens>);

#[derive(Debug)]
struct Tokens {
    left: u64,
    since: Instant,
    dropped: u64,
}

impl Default for LogRate {
    fn default() -> Self {
        Self(Mutex::new(Tokens { left: BURST, since: Instant::now(), dropped: 0 }))
    }
}

impl LogRate {
    /// Takes a line. Logs how many were dropped before it.
    pub(super) fn allows(&self, filter: &str) -> bool {
        let mut tokens = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let more = u64::try_from(tokens.since.elapsed().as_nanos() / LINE.as_nanos()).unwrap_or(BURST);
        if more > 0 {
            tokens.left = tokens.left.saturating_add(more).min(BURST);
            tokens.since = Instant::now();
        }
        let Some(left) = tokens.left.checked_sub(1) else {
            tokens.dropped += 1;
            return false;
        };
        tokens.left = left;
        let dropped = std::mem::take(&mut tokens.dropped);
        drop(tokens);
        if dropped > 0 {
            tracing::warn!(filter, dropped, "the filter writes more than ten lines a second to the log");
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_burst_passes_and_then_ten_lines_a_second() {
        let rate = LogRate::default();
        let passed = |lines: u64| (0..lines).filter(|_| rate.allows("f")).count() as u64;
        assert_eq!(passed(2 * BURST), BURST);
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(passed(100), 10);
        tokio::time::advance(Duration::from_secs(3600)).await;
        assert_eq!(passed(2 * BURST), BURST);
    }
}
