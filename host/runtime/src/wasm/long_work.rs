//! Work for a module over many objects. It takes a few hundred nanoseconds an object, and a module cannot be interrupted within
//! a host call, so other tasks of the thread must go on meanwhile.

use tokio::runtime::{Handle, RuntimeFlavor};

/// The number of objects from which on work is long: about a millisecond.
pub(super) const MANY: usize = 4096;

/// Runs work over this many objects. While long work runs, another thread runs the other tasks of this thread.
pub(super) fn over<T>(objects: usize, work: impl FnOnce() -> T) -> T {
    let has_threads = || Handle::try_current().is_ok_and(|own| own.runtime_flavor() == RuntimeFlavor::MultiThread);
    if objects >= MANY && has_threads() { tokio::task::block_in_place(work) } else { work() }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use tokio::task::JoinSet;

    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn other_tasks_of_the_thread_go_on_during_long_work() {
        let (done, other) = mpsc::channel();
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut others = JoinSet::new();
            others.spawn(async move { done.send(()).is_ok() });
            over(MANY, || other.recv_timeout(Duration::from_secs(30)).is_ok())
                && others.join_next().await.unwrap().unwrap()
        });
        assert!(tasks.join_next().await.unwrap().unwrap(), "the other task runs meanwhile");
    }

    #[tokio::test]
    async fn a_runtime_of_one_thread_runs_it_too() {
        assert_eq!(over(MANY, || 1), 1);
    }
}
