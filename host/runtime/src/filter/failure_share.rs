//! Whether a filter fails on a share of the objects that it decided about, replays included, within the last minutes.
//!
//! An object that fails three times in a row is set aside and named. This finds what that does not: failures on different
//! objects, each once, and failures of the module that come and go. It keeps two numbers for each of the last
//! [`MINUTES`] minutes. Objects that it did not decide about, because the breaker is open or they are set aside, do not
//! count: both are reported on their own, and would keep a filter failing that works again.

use std::sync::{Mutex, PoisonError};

use tokio::time::Instant;

/// The time that counts, in minutes.
const MINUTES: u64 = 5;
/// A filter fails above this share of its objects, in percent. The notice `filter-failing` and the alert on it begin there.
const PERCENT: u64 = 1;
/// The fewest failures: fewer are single objects, which are set aside if they go on.
const FEWEST: u64 = 3;

/// What one filter has decided about lately.
#[derive(Debug)]
pub(super) struct FailureShare {
    began: Instant,
    /// Each at the place of its number, modulo their count.
    minutes: Mutex<[Minute; MINUTES as usize]>,
}

#[derive(Debug, Default, Clone, Copy)]
struct Minute {
    /// Counted from the beginning.
    number: u64,
    objects: u64,
    failed: u64,
}

impl Default for FailureShare {
    fn default() -> Self {
        Self { began: Instant::now(), minutes: Mutex::default() }
    }
}

impl FailureShare {
    /// Counts the objects of a batch, and those of them that it failed on.
    pub(super) fn add(&self, objects: u64, failed: u64) {
        if objects == 0 {
            return;
        }
        let number = self.minute();
        let mut minutes = self.minutes.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(minute) = minutes.get_mut((number % MINUTES) as usize) else { return };
        if minute.number != number {
            *minute = Minute { number, ..Minute::default() };
        }
        minute.objects = minute.objects.saturating_add(objects);
        minute.failed = minute.failed.saturating_add(failed);
    }

    /// Whether it fails above the share.
    pub(super) fn is_exceeded(&self) -> bool {
        let now = self.minute();
        let minutes = *self.minutes.lock().unwrap_or_else(PoisonError::into_inner);
        let recent = minutes.iter().filter(|minute| minute.number + MINUTES > now);
        let (objects, failed) = recent.fold((0_u64, 0_u64), |(objects, failed), minute| {
            (objects.saturating_add(minute.objects), failed.saturating_add(minute.failed))
        });
        failed >= FEWEST && failed.saturating_mul(100) > objects.saturating_mul(PERCENT)
    }

    fn minute(&self) -> u64 {
        self.began.elapsed().as_secs() / 60
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    #[tokio::test(start_paused = true)]
    async fn a_filter_fails_above_one_percent_of_its_objects() {
        let share = FailureShare::default();
        assert!(!share.is_exceeded());
        share.add(1000, 10);
        assert!(!share.is_exceeded(), "exactly the share");
        share.add(1, 1);
        assert!(share.is_exceeded());
        share.add(1000, 0);
        assert!(!share.is_exceeded());
    }

    #[tokio::test(start_paused = true)]
    async fn single_failures_of_few_objects_are_none() {
        let share = FailureShare::default();
        for failures in 1..FEWEST {
            share.add(1, 1);
            assert!(!share.is_exceeded(), "{failures}");
        }
        share.add(1, 1);
        assert!(share.is_exceeded());
    }

    #[tokio::test(start_paused = true)]
    async fn only_the_last_minutes_count() {
        let share = FailureShare::default();
        share.add(10, 10);
        for _ in 1..MINUTES {
            tokio::time::advance(MINUTE).await;
            assert!(share.is_exceeded());
        }
        tokio::time::advance(MINUTE).await;
        assert!(!share.is_exceeded());
        share.add(10, 1);
        assert!(!share.is_exceeded(), "the place of an old minute is used again");
        tokio::time::advance(MINUTE * 1000).await;
        share.add(10, 10);
        assert!(share.is_exceeded());
    }
}
