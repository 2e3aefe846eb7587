//! How long to wait after a failure: doubling, bounded, and spread so that a thousand nodes do not come back at once. Where
//! it is known that the server is reached again meanwhile, the wait ends and the next ones are short again.

use std::time::Duration;

use tokio::time::Instant;

use crate::reach::Returns;

/// For so long a server that has just come back refuses what it does not have ready yet (custom resources): waits stay short.
const BEGINNING: Duration = Duration::from_secs(15);

/// The waits of one who tries again and again. Reset it when something worked.
#[derive(Debug)]
pub struct BackOff {
    first: Duration,
    most: Duration,
    next: Duration,
    /// Until then the server counts as one that has just come back.
    begins: Option<Instant>,
}

impl BackOff {
    /// Begins with `first`; never waits longer than `most`.
    #[must_use]
    pub fn new(first: Duration, most: Duration) -> Self {
        Self { first, most, next: first, begins: None }
    }

    /// Begins again with the shortest wait: something worked.
    pub fn reset(&mut self) {
        self.next = self.first;
    }

    /// Waits. Cancel-safe.
    pub async fn wait(&mut self) {
        tokio::time::sleep(self.take()).await;
    }

    /// Waits, but not on when the server returns. Cancel-safe.
    pub async fn wait_or_return(&mut self, returns: &mut Returns) {
        let time = self.take();
        self.wait_for(time, returns).await;
    }

    /// Likewise for a time of the caller's. Never less than the shortest wait: a server that comes and goes is not asked in
    /// a loop. Cancel-safe.
    pub async fn wait_for(&mut self, time: Duration, returns: &mut Returns) {
        let least = time.min(spread(self.first));
        tokio::time::sleep(least).await;
        tokio::select! {
            () = tokio::time::sleep(time - least) => {}
            () = returns.next() => {
                self.next = self.first;
                self.begins = Some(Instant::now() + BEGINNING);
            }
        }
    }

    /// The next wait; the one after it is twice as long.
    pub fn take(&mut self) -> Duration {
        let time = spread(self.next);
        let begins = self.begins.is_some_and(|until| Instant::now() < until);
        let most = if begins { self.first.saturating_mul(2).min(self.most) } else { self.most };
        self.next = self.next.saturating_mul(2).min(most);
        time
    }
}

/// Between half and the whole of a time.
pub fn spread(time: Duration) -> Duration {
    time / 2 + (time / 2).mul_f64(fastrand::f64())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Reach;

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

    #[tokio::test(start_paused = true)]
    async fn a_wait_ends_when_the_server_is_reached_again_and_the_next_ones_are_short() {
        let reach = Reach::default();
        let mut returns = reach.returns();
        let mut back_off = BackOff::new(Duration::from_secs(1), Duration::from_secs(64));
        while back_off.take() < Duration::from_secs(32) {}
        let began = tokio::time::Instant::now();
        let returned = async {
            tokio::time::sleep(Duration::from_secs(3)).await;
            reach.lost();
            reach.answered();
        };
        tokio::join!(back_off.wait_or_return(&mut returns), returned);
        assert_eq!(began.elapsed(), Duration::from_secs(3));
        assert!(back_off.take() <= Duration::from_secs(1));
        for _ in 0..10 {
            assert!(back_off.take() <= Duration::from_secs(2), "it may not have everything ready");
        }
        tokio::time::advance(BEGINNING).await;
        back_off.take();
        assert!(back_off.take() > Duration::from_secs(2) / 2 && back_off.take() > Duration::from_secs(2));
        // What returns again and again is not asked in a loop.
        let began = tokio::time::Instant::now();
        for _ in 0..10 {
            reach.lost();
            reach.answered();
            back_off.wait_or_return(&mut returns).await;
        }
        assert!(began.elapsed() >= Duration::from_secs(5), "{:?}", began.elapsed());
    }
}
