//! When a store is compared: each interval, and as often as comparisons stay below a share of what the store itself has received.
//! The list of one object in between is not counted: it weighs about a kilobyte.
//!
//! After a comparison of which nothing is certain, the next one comes soon, [`MAX_UNCLEAR`] times. A store that differed, or was
//! unclear so often, is compared as soon as a peer fills it again.

use std::time::Duration;

use tokio::time::Instant;
use weir_upstream::jitter;

use super::{GLANCE, MAX_UNCLEAR, Verdict};

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
    /// The comparisons in a row of which nothing was certain.
    unclear: u32,
    /// Whether nothing of a peer has equalled the API server since a peer was doubted.
    is_suspect: bool,
}

impl Budget {
    pub(super) fn new(interval: Duration, share: f64) -> Self {
        let due = Instant::now() + jitter(interval / FIRST);
        Self { interval, share, spent: 0, last: 0, due, unclear: 0, is_suspect: false }
    }

    /// Whether the store may be compared now. It has received so many bytes since it was opened.
    pub(super) fn is_due(&self, received: u64, is_by_peer: bool) -> bool {
        let affordable = self.last > 0 && (self.spent + self.last) as f64 <= self.share * received as f64;
        let is_suspect = is_by_peer && self.is_suspect && self.unclear < MAX_UNCLEAR;
        affordable || is_suspect || self.due <= Instant::now()
    }

    /// Notes a comparison.
    pub(super) fn spend(&mut self, bytes: u64, verdict: &Verdict) {
        self.spent += bytes;
        self.last = bytes.max(1);
        self.unclear = match verdict {
            Verdict::Same | Verdict::Different(..) => 0,
            Verdict::Unclear(_) | Verdict::Unanswered => self.unclear.saturating_add(1),
        };
        let is_soon = (1..MAX_UNCLEAR).contains(&self.unclear);
        self.due = Instant::now() + if is_soon { GLANCE.min(self.interval) } else { self.interval };
    }

    /// Records a result about the source of the store. Returns whether to leave a peer because its results stay uncertain.
    pub(super) fn is_peer_left(&mut self, verdict: &Verdict, is_compared: bool, is_by_peer: bool) -> bool {
        match verdict {
            Verdict::Different(..) => self.is_suspect = true,
            Verdict::Same if is_compared && is_by_peer => self.is_suspect = false,
            Verdict::Unclear(_) if is_compared && is_by_peer => {
                if self.is_suspect || self.unclear >= MAX_UNCLEAR {
                    (self.is_suspect, self.unclear) = (true, 0);
                    return true;
                }
            }
            Verdict::Same | Verdict::Unclear(_) | Verdict::Unanswered => {}
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: Duration = Duration::from_secs(86_400);
    const UNCLEAR: Verdict = Verdict::Unclear("");

    #[tokio::test(start_paused = true)]
    async fn a_comparison_is_due_each_interval_and_when_the_share_pays_for_it() {
        let mut budget = Budget::new(DAY, 0.01);
        assert!(!budget.is_due(u64::MAX, true), "what one costs is not known yet");
        tokio::time::sleep(DAY / FIRST).await;
        assert!(budget.is_due(0, true));
        budget.spend(1000, &Verdict::Same);
        assert!(!budget.is_due(199_999, true), "1 % pays for less than two");
        assert!(budget.is_due(200_000, true));
        tokio::time::sleep(DAY).await;
        assert!(budget.is_due(0, true));
    }

    #[tokio::test(start_paused = true)]
    async fn after_an_unclear_comparison_the_next_one_comes_soon_but_not_for_ever() {
        let mut budget = Budget::new(DAY, 0.01);
        for _ in 1..MAX_UNCLEAR {
            budget.spend(1000, &UNCLEAR);
            assert!(!budget.is_due(0, false));
            tokio::time::sleep(GLANCE).await;
            assert!(budget.is_due(0, false));
        }
        budget.spend(1000, &UNCLEAR);
        tokio::time::sleep(DAY / 2).await;
        assert!(!budget.is_due(0, false), "no store costs the link a list each few minutes");
    }

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_is_unclear_thrice_is_left_and_compared_as_soon_as_it_is_back() {
        let mut budget = Budget::new(DAY, 0.01);
        let compared = |budget: &mut Budget, verdict: &Verdict, is_by_peer| {
            budget.spend(1000, verdict);
            budget.is_peer_left(verdict, true, is_by_peer)
        };
        assert!(!compared(&mut budget, &UNCLEAR, true));
        assert!(!compared(&mut budget, &UNCLEAR, true));
        assert!(compared(&mut budget, &UNCLEAR, true));
        assert!(!compared(&mut budget, &Verdict::Same, false), "the API server's own objects");
        assert!(!budget.is_due(0, false) && budget.is_due(0, true), "the peer is back");
        assert!(compared(&mut budget, &UNCLEAR, true), "once is enough now");
        assert!(!compared(&mut budget, &Verdict::Same, true));
        assert!(!budget.is_due(0, true));
        assert!(!compared(&mut budget, &UNCLEAR, false) && !compared(&mut budget, &Verdict::Unanswered, true));
    }
}
