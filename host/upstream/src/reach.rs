//! Whether the API server can be reached, as any request of the daemon or of its clients finds out: a feed whose server was
//! gone comes back when anybody is answered again, instead of at the end of a wait that has grown with the outage.
//!
//! Nothing is asked for this: the clients come back by themselves, each at its own time, so that the lookups do so at
//! theirs. A request that is answered costs one load.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::watch;

/// What is known of the way to the API server; clones share it.
#[derive(Debug, Clone)]
pub struct Reach(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    lost: AtomicBool,
    returns: watch::Sender<u64>,
}

/// Tells of returns that came after the last one it told of.
#[derive(Debug, Clone)]
pub struct Returns(watch::Receiver<u64>);

impl Default for Reach {
    fn default() -> Self {
        Self(Arc::new(Inner { lost: AtomicBool::new(false), returns: watch::Sender::new(0) }))
    }
}

impl Reach {
    /// A request got no answer.
    pub fn lost(&self) {
        self.0.lost.store(true, Ordering::Release);
    }

    /// A request got what it asked for.
    pub fn answered(&self) {
        if self.0.lost.load(Ordering::Acquire) && self.0.lost.swap(false, Ordering::AcqRel) {
            self.0.returns.send_modify(|returns| *returns += 1);
        }
    }

    /// Tells of returns from now on.
    pub fn returns(&self) -> Returns {
        Returns(self.0.returns.subscribe())
    }
}

impl Returns {
    /// Resolves when the server answers again after somebody got no answer. Cancel-safe.
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
    fn a_return_is_told_once_and_only_after_a_loss() {
        let reach = Reach::default();
        let mut returns = reach.returns();
        reach.answered();
        assert!(returns.next().now_or_never().is_none(), "nothing was lost");
        reach.lost();
        assert!(returns.next().now_or_never().is_none(), "it is not back");
        reach.answered();
        assert!(returns.next().now_or_never().is_some(), "told although nobody waited at that moment");
        reach.answered();
        assert!(returns.next().now_or_never().is_none());
    }
}
