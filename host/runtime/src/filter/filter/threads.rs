//! Filters over many looked-up objects run on threads that another one can stand in for.
//!
//! A connection has a thread of its own with many other connections, and a module cannot be interrupted within a lookup. While a
//! long lookup runs on the daemon's other threads, another one of these runs their tasks (`long_work`). So a batch of a filter
//! that looks up many objects moves there. That costs a few microseconds, which such a filter spends anyway.

use std::sync::Arc;

use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::task::JoinSet;
use tracing::Instrument as _;

use super::FilterState;
use super::batch::Batch;
use crate::FailureClass;
use crate::filter::outcome::{Failure, Filtered, Slot};
use crate::metrics::BatchCounts;

/// The threads that filters have been loaded on; none if there was a single one.
#[derive(Debug, Clone)]
pub(super) struct Threads(Option<Handle>);

impl Threads {
    /// The threads of the current runtime.
    pub(super) fn current() -> Self {
        let current = Handle::try_current().ok();
        Self(current.filter(|current| current.runtime_flavor() == RuntimeFlavor::MultiThread))
    }

    /// Returns them if long work would block other tasks of the current thread.
    fn elsewhere(&self) -> Option<&Handle> {
        let here = Handle::try_current().ok()?;
        self.0.as_ref().filter(|_| here.runtime_flavor() == RuntimeFlavor::CurrentThread)
    }
}

/// Runs a batch of a filter, on other threads if it may look up many objects. Cancel-safe: the documents are lost then.
pub(super) async fn run(filter: &Arc<FilterState>, batch: &mut [Slot], guarded: bool) -> BatchCounts {
    match filter.threads.elsewhere().filter(|_| filter.pool.looks_up_many()) {
        None => Batch::begin(filter, guarded).run(batch).await,
        Some(threads) => run_on(threads, filter, batch, guarded).await,
    }
}

async fn run_on(threads: &Handle, filter: &Arc<FilterState>, batch: &mut [Slot], guarded: bool) -> BatchCounts {
    // Never hidden or kept: this is the outcome if the task does not end.
    let lost = || {
        let message = Arc::from("the daemon ended the task of the filter");
        let failure = Failure { filter: filter.name.clone(), class: FailureClass::Host, message };
        Slot { filtered: Filtered::Failed(failure), is_degraded: true, is_repeated: false }
    };
    let mut slots: Vec<_> = batch.iter_mut().filter(|slot| slot.is_kept()).collect();
    let mut moved: Vec<_> = slots.iter_mut().map(|slot| std::mem::replace(&mut **slot, lost())).collect();
    let filter = filter.clone();
    let run = async move {
        let counts = Batch::begin(&filter, guarded).run(&mut moved).await;
        (moved, counts)
    };
    // Its drop ends the task.
    let mut task = JoinSet::new();
    task.spawn_on(run.in_current_span(), threads);
    let Some(Ok((moved, counts))) = task.join_next().await else { return BatchCounts::default() };
    for (slot, moved) in slots.into_iter().zip(moved) {
        *slot = moved;
    }
    counts
}

#[cfg(test)]
mod tests {
    use tokio::runtime::Builder;

    use super::*;

    #[test]
    fn only_a_thread_of_many_connections_gives_work_away() {
        let many = Builder::new_multi_thread().worker_threads(1).build().unwrap();
        let single = Builder::new_current_thread().build().unwrap();
        let (loaded, alone) =
            (many.block_on(async { Threads::current() }), single.block_on(async { Threads::current() }));
        assert!(single.block_on(async { loaded.elsewhere().is_some() }));
        assert!(single.block_on(async { alone.elsewhere().is_none() }));
        assert!(many.block_on(async { loaded.elsewhere().is_none() }), "its tasks go on");
        assert!(loaded.elsewhere().is_none(), "there are no other tasks");
    }
}
