//! What comparisons of one store may take from the link: one each interval, and more while they stay below a share of what the
//! store itself has received. The list of one object in between is not counted: it weighs about a kilobyte.

use std::time::Duration;

use tokio::time::Instant;
use weir_upstream::jitter;

/// The first comparison after a start comes within this part of the interval.
const FIRST: u32 = 24;

/// The budget of one store.
#[derive(Debug)]
pub(super) struct Budget {
    interval: Duration,
    share: f64,
    /// The bytes of all comparisons so far.
    spent: u64,
    /// What the last one cost.
    last: u64,
    /// When one is due in any case.
    due: Instant,
}

impl Budget {
    pub(super) fn new(interval: Duration, share: f64) -> Self {
        Self { interval, share, spent: 0, last: 0, due: Instant::now() + jitter(interval / FIRST) }
    }

    /// Whether the store may be compared now. It has received so many bytes since it was opened.
    pub(super) fn is_due(&self, received: u64) -> bool {
        let affordable = self.last > 0 && (self.spent + self.last) as f64 <= self.share * received as f64;
        affordable || self.due <= Instant::now()
    }

    /// Notes a comparison.
    pub(super) fn spend(&mut self, bytes: u64) {
        self.spent += bytes;
        self.last = bytes.max(1);
        self.due = Instant::now() + self.interval;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: Duration = Duration::from_secs(86_400);

    #[tokio::test(start_paused = true)]
    async fn a_comparison_is_due_each_interval_and_when_the_share_pays_for_it() {
        let mut budget = Budget::new(DAY, 0.01);
        assert!(!budget.is_due(u64::MAX), "what one costs is not known yet");
        tokio::time::sleep(DAY / FIRST).await;
        assert!(budget.is_due(0));
        budget.spend(1000);
        assert!(!budget.is_due(199_999), "1 % pays for less than two");
        assert!(budget.is_due(200_000));
        tokio::time::sleep(DAY).await;
        assert!(budget.is_due(0));
    }
}
