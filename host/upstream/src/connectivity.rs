//! Whether the API server is reachable, as observed by all requests of the daemon and of its clients.
//!
//! A reflector whose server was unreachable retries as soon as any request succeeds again. Otherwise it would wait for
//! its back-off, which has grown during the outage.
//!
//! Connectivity causes no requests of its own. Recording a success costs two atomic loads.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::watch;

/// Records failed and successful requests. Clones share the state.
#[derive(Debug, Clone)]
pub struct Connectivity(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    failed: AtomicBool,
    has_succeeded: AtomicBool,
    reconnects: watch::Sender<u64>,
    repeats: watch::Sender<u64>,
}

/// A subscription to reconnects: changes from unreachable to reachable.
#[derive(Debug, Clone)]
pub struct Reconnects(watch::Receiver<u64>);

impl Default for Connectivity {
    fn default() -> Self {
        Self(Arc::new(Inner {
            failed: AtomicBool::new(false),
            has_succeeded: AtomicBool::new(false),
            reconnects: watch::Sender::new(0),
            repeats: watch::Sender::new(0),
        }))
    }
}

impl Connectivity {
    /// Records that a request got no response.
    pub fn record_failure(&self) {
        self.0.failed.store(true, Ordering::Release);
    }

    /// Records that a request succeeded. After a failure, this notifies all subscriptions.
    pub fn record_success(&self) {
        if !self.0.has_succeeded.load(Ordering::Relaxed) {
            self.0.has_succeeded.store(true, Ordering::Relaxed);
        }
        if self.0.failed.load(Ordering::Acquire) && self.0.failed.swap(false, Ordering::AcqRel) {
            self.reconnect();
        }
    }

    /// Records a response to a request that was sent so often again on other connections. Nobody has seen an outage then, and yet
    /// another cluster may answer now.
    pub(super) fn answered_after(&self, repeated: u32) {
        if repeated > 0 {
            self.0.repeats.send_modify(|repeats| *repeats += 1);
        }
    }

    /// Subscribes to these from now on, as to reconnects.
    pub fn repeats(&self) -> Reconnects {
        Reconnects(self.0.repeats.subscribe())
    }

    /// Notifies all subscriptions: requests that failed may succeed now, for another reason than the link.
    pub(super) fn reconnect(&self) {
        self.0.reconnects.send_modify(|reconnects| *reconnects += 1);
    }

    /// Whether the last request got no response.
    #[must_use]
    pub fn is_failing(&self) -> bool {
        self.0.failed.load(Ordering::Acquire)
    }

    /// Whether a request has succeeded, and the last one got a response.
    #[must_use]
    pub fn is_working(&self) -> bool {
        self.has_worked() && !self.is_failing()
    }

    /// Whether a request of this process has ever succeeded.
    #[must_use]
    pub fn has_worked(&self) -> bool {
        self.0.has_succeeded.load(Ordering::Relaxed)
    }

    /// Subscribes to reconnects from now on.
    pub fn reconnects(&self) -> Reconnects {
        Reconnects(self.0.reconnects.subscribe())
    }
}

impl Reconnects {
    /// Resolves at the first success after a failure. Several reconnects since the last call count as one.
    ///
    /// Cancel safe: a dropped future misses no reconnect.
    pub async fn next(&mut self) {
        if self.0.changed().await.is_err() {
            std::future::pending().await
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[test]
    fn a_reconnect_is_reported_once_and_only_after_a_failure() {
        let connectivity = Connectivity::default();
        let mut reconnects = connectivity.reconnects();
        connectivity.record_success();
        assert!(reconnects.next().now_or_never().is_none(), "nothing failed before");
        connectivity.record_failure();
        assert!(reconnects.next().now_or_never().is_none(), "it is still unreachable");
        connectivity.record_success();
        assert!(reconnects.next().now_or_never().is_some(), "reported although nothing waited at that moment");
        connectivity.record_success();
        assert!(reconnects.next().now_or_never().is_none());
    }
}
