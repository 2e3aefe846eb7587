//! Exponential back-off with a maximum and jitter, so that a thousand nodes do not retry at once.
//!
//! A wait can end early when the server becomes reachable again. The following waits are then short.

use std::time::Duration;

use tokio::time::Instant;

use crate::connectivity::Reconnects;

/// How long waits stay short after a reconnect. A starting API server rejects requests for custom resources at first.
const STARTUP: Duration = Duration::from_secs(15);

/// The waits of a retry loop. Call [`BackOff::reset`] after a success.
#[derive(Debug)]
pub struct BackOff {
    first: Duration,
    max: Duration,
    next: Duration,
    /// Waits stay short until then. `None` before the first reconnect.
    startup_ends: Option<Instant>,
}

impl BackOff {
    /// Starts with a wait of `first`, doubled after each failure up to `max`.
    #[must_use]
    pub fn new(first: Duration, max: Duration) -> Self {
        Self { first, max, next: first, startup_ends: None }
    }

    /// Returns to the shortest wait.
    pub fn reset(&mut self) {
        self.next = self.first;
    }

    /// Waits for the next delay. Cancel safe, but a cancelled wait doubles the next one too.
    pub async fn wait(&mut self) {
        tokio::time::sleep(self.next_delay()).await;
    }

    /// Waits for the next delay or until the server reconnects. Cancel safe, as [`BackOff::wait`].
    pub async fn wait_or_reconnect(&mut self, reconnects: &mut Reconnects) {
        let delay = self.next_delay();
        self.wait_for(delay, reconnects).await;
    }

    /// Waits for `delay` or until the server reconnects. Cancel safe.
    ///
    /// It always waits for the shortest delay, so that a server with unstable connectivity does not cause a busy loop.
    pub async fn wait_for(&mut self, delay: Duration, reconnects: &mut Reconnects) {
        let min = delay.min(jitter(self.first));
        tokio::time::sleep(min).await;
        tokio::select! {
            () = tokio::time::sleep(delay - min) => {}
            () = reconnects.next() => {
                self.next = self.first;
                self.startup_ends = Some(Instant::now() + STARTUP);
            }
        }
    }

    /// Returns the next delay, and doubles the one after it.
    pub fn next_delay(&mut self) -> Duration {
        let delay = jitter(self.next);
        let starting = self.startup_ends.is_some_and(|end| Instant::now() < end);
        let max = if starting { self.first.saturating_mul(2).min(self.max) } else { self.max };
        self.next = self.next.saturating_mul(2).min(max);
        delay
    }
}

/// Returns a random duration between half of `time` and `time`.
pub fn jitter(time: Duration) -> Duration {
    time / 2 + (time / 2).mul_f64(fastrand::f64())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Connectivity;

    #[test]
    fn jitter_spans_the_second_half_of_a_duration() {
        for _ in 0..100 {
            let time = jitter(Duration::from_secs(10));
            assert!((Duration::from_secs(5)..=Duration::from_secs(10)).contains(&time), "{time:?}");
        }
    }

    #[test]
    fn delays_double_up_to_the_maximum_and_restart_after_a_reset() {
        let mut back_off = BackOff::new(Duration::from_secs(1), Duration::from_secs(4));
        for (i, most) in [1, 2, 4, 4, 4, 1].map(Duration::from_secs).into_iter().enumerate() {
            if i == 5 {
                back_off.reset();
            }
            let wait = back_off.next_delay();
            assert!((most / 2..=most).contains(&wait), "{wait:?} of {most:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_wait_ends_when_the_server_reconnects_and_the_next_ones_are_short() {
        let connectivity = Connectivity::default();
        let mut reconnects = connectivity.reconnects();
        let mut back_off = BackOff::new(Duration::from_secs(1), Duration::from_secs(64));
        while back_off.next_delay() < Duration::from_secs(32) {}
        let began = tokio::time::Instant::now();
        let reconnected = async {
            tokio::time::sleep(Duration::from_secs(3)).await;
            connectivity.record_failure();
            connectivity.record_success();
        };
        tokio::join!(back_off.wait_or_reconnect(&mut reconnects), reconnected);
        assert_eq!(began.elapsed(), Duration::from_secs(3));
        assert!(back_off.next_delay() <= Duration::from_secs(1));
        for _ in 0..10 {
            assert!(back_off.next_delay() <= Duration::from_secs(2), "the server is still starting");
        }
        tokio::time::advance(STARTUP).await;
        back_off.next_delay();
        assert!(back_off.next_delay() > Duration::from_secs(2) / 2 && back_off.next_delay() > Duration::from_secs(2));
        // Unstable connectivity causes no busy loop.
        let began = tokio::time::Instant::now();
        for _ in 0..10 {
            connectivity.record_failure();
            connectivity.record_success();
            back_off.wait_or_reconnect(&mut reconnects).await;
        }
        assert!(began.elapsed() >= Duration::from_secs(5), "{:?}", began.elapsed());
    }
}
