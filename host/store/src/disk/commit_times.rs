//! How long commits take, and with that whether the disk is slow.
//!
//! The limit is the interval of commits, at least [`LIMIT`]: a commit that takes longer loses more in a power cut than the
//! interval promises. One that does is no news, for example while a flash card collects its garbage. All of a minute are.

use std::sync::Mutex;
use std::time::Duration;

use tokio::time::Instant;
use weir_upstream::clock;

use super::conditions::{DiskCondition, slow_disk};
use super::reading::lock;

/// No disk is slow below it, however short the interval of commits is. SD cards take some tens of milliseconds.
const LIMIT: Duration = Duration::from_millis(500);
/// For so long all commits take longer than the limit before it is shown.
const LASTING: Duration = Duration::from_secs(60);

/// The times of commits, from the first byte to the disk's word that all of them are on it.
#[derive(Debug, Default)]
pub(super) struct CommitTimes(Mutex<Times>);

#[derive(Debug, Clone, Copy, Default)]
struct Times {
    /// When the present commit has begun.
    present: Option<Instant>,
    slow: Option<Slow>,
}

/// Commits in a row that took longer than the limit.
#[derive(Debug, Clone, Copy)]
struct Slow {
    since: Instant,
    /// The end of the last one, or now.
    until: Instant,
    /// How long that one took.
    last: Duration,
}

impl CommitTimes {
    /// A commit begins to wait for the disk.
    pub(super) fn begin(&self) {
        lock(&self.0).present = Some(Instant::now());
    }

    /// It has ended, whether well or not.
    pub(super) fn end(&self, interval: Duration) {
        let mut times = lock(&self.0);
        if times.present.is_some() {
            times.slow = times.slow_at(Instant::now(), interval);
            times.present = None;
        }
    }

    /// Says that the disk of the file is slow, if it is, also while a commit does not end.
    pub(super) fn condition(&self, file: &str, interval: Duration) -> Option<DiskCondition> {
        let times = *lock(&self.0);
        // Two slow commits that are far apart say nothing of the time between.
        let recent = |slow: &Slow| slow.until.elapsed() < LASTING;
        let slow = match times.present {
            Some(_) => times.slow_at(Instant::now(), interval).or(times.slow.filter(recent))?,
            None => times.slow.filter(recent)?,
        };
        if slow.until.duration_since(slow.since) < LASTING {
            return None;
        }
        let now = clock::timestamp();
        let since = now.checked_sub(slow.since.elapsed()).unwrap_or(now);
        Some(slow_disk(file, format_args!("{since:.0}"), limit(interval), slow.last))
    }
}

impl Times {
    /// The commits in a row that took longer than the limit, with the present one as if it ended now; `None` if that is quick.
    fn slow_at(&self, now: Instant, interval: Duration) -> Option<Slow> {
        let present = self.present?;
        let last = now.duration_since(present);
        let in_a_row = self.slow.filter(|slow| present.duration_since(slow.until) < LASTING);
        let since = in_a_row.map_or(present, |slow| slow.since);
        (last > limit(interval)).then_some(Slow { since, until: now, last })
    }
}

fn limit(interval: Duration) -> Duration {
    interval.max(LIMIT)
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL: Duration = Duration::from_millis(100);

    #[tokio::test(start_paused = true)]
    async fn a_disk_is_slow_when_all_commits_of_a_minute_are() {
        let times = CommitTimes::default();
        let commit = async |took: f64| {
            times.begin();
            tokio::time::advance(Duration::from_secs_f64(took)).await;
            times.end(INTERVAL);
            times.condition("/cache", INTERVAL).is_some()
        };
        assert!(!commit(0.4).await && !commit(30.0).await, "one slow commit is no news");
        tokio::time::advance(Duration::from_secs(90)).await;
        assert!(times.condition("/cache", INTERVAL).is_none(), "nothing was written since");
        assert!(!commit(0.4).await, "a quick one ends it");
        assert!(!commit(20.0).await && !commit(20.0).await && commit(21.0).await);
        let shown = times.condition("/cache", INTERVAL).unwrap();
        assert!(shown.name == "slow-disk" && shown.text.contains("500ms, the last one 21.0 s"), "{shown:?}");
        times.begin();
        assert!(times.condition("/cache", INTERVAL).is_some(), "the one that has just begun does not count");
        times.end(INTERVAL);
        assert!(times.condition("/cache", INTERVAL).is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn a_commit_that_does_not_end_counts_and_a_longer_interval_is_the_limit() {
        let times = CommitTimes::default();
        times.begin();
        tokio::time::advance(Duration::from_secs(59)).await;
        assert!(times.condition("/cache", INTERVAL).is_none());
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(times.condition("/cache", INTERVAL).is_some());
        assert!(times.condition("/cache", Duration::from_secs(60)).is_none(), "commits are a minute apart");
    }
}
