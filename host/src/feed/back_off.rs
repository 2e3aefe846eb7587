//! How long to wait after a failure: doubling, bounded, and spread so that a thousand nodes do not come back at once.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::Duration;

/// The waits of one feed. Reset it when something worked.
#[derive(Debug)]
pub(super) struct BackOff {
    first: Duration,
    most: Duration,
    next: Duration,
}

impl BackOff {
    pub(super) fn new(first: Duration, most: Duration) -> Self {
        Self { first, most, next: first }
    }

    pub(super) fn reset(&mut self) {
        self.next = self.first;
    }

    /// Waits. Cancel-safe.
    pub(super) async fn wait(&mut self) {
        tokio::time::sleep(self.take()).await;
    }

    /// The next wait; the one after it is twice as long.
    fn take(&mut self) -> Duration {
        let time = spread(self.next);
        self.next = self.next.saturating_mul(2).min(self.most);
        time
    }
}

/// Between half and the whole of a time.
pub(crate) fn spread(time: Duration) -> Duration {
    // Keyed at random by std: no need of a generator for this.
    let random = RandomState::new().build_hasher().finish() % 1024;
    time / 2 + time.saturating_mul(u32::try_from(random).unwrap_or(0)) / 2048
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_is_spread_over_the_second_half() {
        for _ in 0..100 {
            let time = spread(Duration::from_secs(10));
            assert!((Duration::from_secs(5)..=Duration::from_secs(10)).contains(&time), "{time:?}");
        }
    }

    #[test]
    fn waits_double_up_to_the_most_and_start_again_after_a_reset() {
        let mut back_off = BackOff::new(Duration::from_secs(1), Duration::from_secs(4));
        for (i, most) in [1, 2, 4, 4, 4, 1].map(Duration::from_secs).into_iter().enumerate() {
            if i == 5 {
                back_off.reset();
            }
            let wait = back_off.take();
            assert!((most / 2..=most).contains(&wait), "{wait:?} of {most:?}");
        }
    }
}
