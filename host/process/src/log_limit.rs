//! Limits log lines that clients without a credential can cause.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// The most lines in each [`PERIOD`].
const LINES: u32 = 10;
const PERIOD: Duration = Duration::from_secs(10);

/// Counts the lines of one kind.
#[derive(Debug, Default)]
pub struct LogLimit(Mutex<Option<Lines>>);

#[derive(Debug)]
struct Lines {
    since: Instant,
    logged: u32,
    omitted: u64,
}

impl LogLimit {
    /// Whether a line may be logged now: with the number of those that were omitted before it.
    pub fn permit(&self) -> Option<u64> {
        let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let lines = lines.get_or_insert_with(|| Lines { since: Instant::now(), logged: 0, omitted: 0 });
        if lines.since.elapsed() >= PERIOD {
            (lines.since, lines.logged) = (Instant::now(), 0);
        }
        if lines.logged == LINES {
            lines.omitted += 1;
            return None;
        }
        lines.logged += 1;
        Some(std::mem::take(&mut lines.omitted))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn lines_beyond_the_limit_are_counted_in_the_next_one() {
        let limit = LogLimit::default();
        for _ in 0..LINES {
            assert_eq!(limit.permit(), Some(0));
        }
        assert_eq!((limit.permit(), limit.permit()), (None, None));
        tokio::time::advance(PERIOD).await;
        assert_eq!((limit.permit(), limit.permit()), (Some(2), Some(0)));
    }
}
