//! A chain that is a function: lets the proxy's tests say what becomes of each object, and when the chain has changed.

use std::fmt;
use std::sync::Arc;

use tokio::sync::watch;
use weir_document::Document;

use super::chain::Stamp;
use super::outcome::Outcome;

type Judge = dyn Fn(&Document) -> Outcome + Send + Sync;

/// What stands in for filters in a test.
#[derive(Clone)]
pub(crate) struct Script {
    judge: Arc<Judge>,
    stamp: watch::Sender<u64>,
}

impl Script {
    /// Judges objects by a function.
    pub(crate) fn new(judge: impl Fn(&Document) -> Outcome + Send + Sync + 'static) -> Self {
        use std::sync::atomic::{AtomicU64, Ordering};
        static STAMPS: AtomicU64 = AtomicU64::new(1);
        let stamp = STAMPS.fetch_add(1 << 32, Ordering::Relaxed);
        Self { judge: Arc::new(judge), stamp: watch::Sender::new(stamp) }
    }

    /// As if something that it looked up had changed.
    pub(crate) fn change(&self) {
        self.stamp.send_modify(|stamp| *stamp += 1);
    }

    pub(super) fn run(&self, documents: &[Document]) -> Vec<Outcome> {
        documents.iter().map(|document| (self.judge)(document)).collect()
    }

    pub(super) fn stamp(&self) -> Stamp {
        Stamp::test(*self.stamp.borrow())
    }

    pub(super) fn same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.judge, &other.judge)
    }

    pub(super) async fn changed_since(&self, since: Stamp) {
        let _ = self.stamp.subscribe().wait_for(|stamp| Stamp::test(*stamp) != since).await;
    }
}

impl fmt::Debug for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Script").finish_non_exhaustive()
    }
}
