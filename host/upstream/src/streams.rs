//! The streams of one connection: how many are open, and how many the server allows.
//!
//! The pool counts streams, the tasks of the connection publish the limit, and both decide by them whether the connection
//! is free or idle. HTTP/1.1 counts as a limit of one stream.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::watch;

/// The limit for a server that sets none or does not send it in time.
pub(super) const DEFAULT_STREAM_LIMIT: usize = 80;
/// The most streams of a connection, whatever the server allows: the window of a connection covers all of them.
pub(super) const MAX_STREAM_LIMIT: usize = 100;
/// The time between checks whether a connection is idle. One without streams closes after one to two of them.
pub(super) const IDLE_INTERVAL: Duration = Duration::from_secs(60);

/// The streams of one connection.
#[derive(Debug, Default)]
pub(super) struct Streams {
    open: AtomicUsize,
    /// Whether a stream opened or ended since the last check of [`Streams::idle`].
    used: AtomicBool,
    /// The limit of the server. 0 means that it is not known yet.
    limit: watch::Sender<usize>,
}

impl Streams {
    /// Counts a stream that opens.
    pub(super) fn open(&self) {
        self.open.fetch_add(1, Ordering::AcqRel);
        self.used.store(true, Ordering::Release);
    }

    /// Uncounts a stream that ended.
    pub(super) fn close(&self) {
        self.used.store(true, Ordering::Release);
        self.open.fetch_sub(1, Ordering::AcqRel);
        // If connecting failed, the limit stays unknown. Wake the waiting requests, so that one of them connects.
        self.limit.send_if_modified(|limit| *limit == 0);
    }

    /// Returns the number of open streams.
    pub(super) fn count(&self) -> usize {
        self.open.load(Ordering::Acquire)
    }

    /// Returns a receiver of the limit.
    pub(super) fn limit(&self) -> watch::Receiver<usize> {
        self.limit.subscribe()
    }

    /// Returns whether the limit is known.
    pub(super) fn is_limit_known(&self) -> bool {
        *self.limit.borrow() != 0
    }

    /// Publishes the limit.
    pub(super) fn set_limit(&self, limit: usize) {
        // With a limit of 0, hyper queues the request until the server raises it.
        let limit = limit.clamp(1, MAX_STREAM_LIMIT);
        self.limit.send_if_modified(|current| std::mem::replace(current, limit) != limit);
    }

    /// Resolves once no stream has been open for [`IDLE_INTERVAL`]. Cancel safe.
    pub(super) async fn idle(&self) {
        loop {
            tokio::time::sleep(IDLE_INTERVAL).await;
            if !self.used.swap(false, Ordering::AcqRel) && self.count() == 0 {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;

    #[test]
    fn the_limit_of_a_server_is_bounded_on_both_sides() {
        let streams = Streams::default();
        assert!(!streams.is_limit_known());
        for (limit, published) in [(0, 1), (100, 100), (usize::MAX - 2, MAX_STREAM_LIMIT)] {
            streams.set_limit(limit);
            assert_eq!(*streams.limit().borrow(), published);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_is_idle_a_whole_interval_after_its_last_stream() {
        let streams = Streams::default();
        streams.open();
        let began = Instant::now();
        tokio::join!(streams.idle(), async {
            tokio::time::sleep(IDLE_INTERVAL * 7 / 2).await;
            streams.close();
        });
        assert_eq!(began.elapsed(), IDLE_INTERVAL * 5);
    }
}
