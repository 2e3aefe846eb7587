//! The end of the daemon: until when requests may go on, and until when a port goes on accepting.

use std::sync::OnceLock;
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;
use weir_upstream::Tasks;

/// The drain of all ports. It begins when the daemon stops.
#[derive(Debug)]
pub(crate) struct Drain {
    timeout: Duration,
    deadline: OnceLock<Instant>,
    /// The connections from before the stop. Those that come during the drain do not count, so that they cannot prolong it.
    before: TaskTracker,
}

impl Drain {
    /// Requests have so much time to finish.
    pub(crate) fn new(timeout: Duration) -> Self {
        Self { timeout, deadline: OnceLock::new(), before: TaskTracker::new() }
    }

    pub(crate) fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Returns when open requests are given up. The first call starts the timeout.
    pub(crate) fn deadline(&self) -> Instant {
        // A timeout of years would be beyond the clock.
        let after = |timeout| Instant::now().checked_add(timeout);
        *self.deadline.get_or_init(|| after(self.timeout).or_else(|| after(FAR)).unwrap_or_else(Instant::now))
    }

    /// What a connection from before the stop holds, with the streams that are upgraded from it.
    pub(crate) fn hold(&self) -> TaskTrackerToken {
        self.before.token()
    }

    /// Resolves when a port accepts no more. Cancel-safe.
    ///
    /// An inherited socket stays open, and nobody accepts from it before the next daemon does. So this one goes on until the
    /// connections from before the stop have ended: a client that comes meanwhile would wait as long as the longest request. A
    /// socket of the daemon's own ends at once: its clients are refused, and try again, where the next daemon may listen already.
    pub(crate) async fn port_ends(&self, tasks: &Tasks, is_inherited: bool) {
        tasks.stopping().await;
        if is_inherited {
            self.before.close();
            // The connection that is accepted last has time for a request, too.
            let last = self.deadline().checked_sub(LAST.min(self.timeout / 2)).unwrap_or_else(Instant::now);
            let _ = tokio::time::timeout_at(last, self.before.wait()).await;
        }
    }
}

/// How long before the deadline a port ends that goes on accepting.
const LAST: Duration = Duration::from_secs(3);
/// For a timeout that has no end.
const FAR: Duration = Duration::from_secs(365 * 24 * 3600);

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_port_goes_on_until_the_connections_from_before_have_ended_or_their_time_is_up() {
        let drain = Drain::new(Duration::from_secs(10));
        let begin = Instant::now();
        let (one, other) = (drain.hold(), drain.hold());
        let tasks = Tasks::default();
        tokio::join!(drain.port_ends(&tasks, true), drain.port_ends(&tasks, true), async {
            assert!(tasks.drain(Duration::ZERO).await);
            drain.port_ends(&tasks, false).await;
            assert_eq!(begin.elapsed(), Duration::ZERO, "a socket of its own ends at once");
            drop(one);
            tokio::time::sleep(Duration::from_secs(3)).await;
            drop(other);
        });
        assert_eq!(begin.elapsed(), Duration::from_secs(3));
        assert_eq!(drain.deadline(), begin + Duration::from_secs(10), "it is that of the first who asks");
        let _endless = drain.hold();
        drain.port_ends(&tasks, true).await;
        assert_eq!(begin.elapsed(), Duration::from_secs(7), "the last client has three seconds");
    }

    #[tokio::test]
    async fn a_timeout_of_ages_has_an_end() {
        assert!(Drain::new(Duration::MAX).deadline() > Instant::now());
    }
}
