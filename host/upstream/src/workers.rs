//! The threads that serve connections. Each has a runtime of its own, and all that a connection needs stays on one: its
//! reads and writes, the calls of its filters, the upstream connections that it uses. Between threads every chunk and
//! every event would cost a wake-up or two, which is more than filtering it.
//!
//! A thread serves as many connections as come; a filter that takes long yields every millisecond, so that the others of
//! its thread go on.

use std::cell::Cell;
use std::future::Future;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::runtime::{Builder, Handle};
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

/// Threads at most, whatever the machine has: a node's clients are few.
pub(crate) const MOST: usize = 8;

thread_local! {
    static HERE: Cell<usize> = const { Cell::new(0) };
}

/// The threads; clones share them, and they end with the last clone.
#[derive(Debug, Clone)]
pub struct Workers {
    workers: Arc<[Worker]>,
    _end: Arc<DropGuard>,
}

#[derive(Debug)]
struct Worker {
    runtime: Handle,
    connections: Arc<AtomicUsize>,
}

/// Counts a connection while it lasts.
struct Counted(Arc<AtomicUsize>);

/// The number of this thread, from 1 to [`MOST`]; 0 if it is none of these.
#[must_use]
pub(crate) fn here() -> usize {
    HERE.get()
}

impl Workers {
    /// One thread for each processor, at most [`MOST`].
    ///
    /// # Errors
    /// The system refuses a thread or what its runtime needs.
    pub fn start() -> io::Result<Self> {
        let count = std::thread::available_parallelism().map_or(1, std::num::NonZero::get).min(MOST);
        let end = CancellationToken::new();
        let start = |number| {
            let runtime = Builder::new_current_thread().enable_all().build()?;
            let handle = runtime.handle().clone();
            let end = end.clone();
            std::thread::Builder::new().name(format!("weir-{number}")).spawn(move || {
                HERE.set(number);
                runtime.block_on(end.cancelled());
            })?;
            Ok(Worker { runtime: handle, connections: Arc::default() })
        };
        let workers = (1..=count).map(start).collect::<io::Result<_>>()?;
        Ok(Self { workers, _end: Arc::new(end.drop_guard()) })
    }

    /// Serves a connection on the thread that has the fewest.
    pub(crate) fn spawn(&self, tracker: &TaskTracker, connection: impl Future<Output = ()> + Send + 'static) {
        let least = self.workers.iter().min_by_key(|worker| worker.connections.load(Ordering::Relaxed));
        let Some(worker) = least else { return };
        worker.connections.fetch_add(1, Ordering::Relaxed);
        let counted = Counted(worker.connections.clone());
        let connection = async move {
            let _counted = counted;
            connection.await;
        };
        tracker.spawn_on(connection, &worker.runtime);
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot;

    use super::*;

    #[tokio::test]
    async fn connections_are_spread_over_the_threads_and_stay_there() {
        let workers = Workers::start().unwrap();
        let tracker = TaskTracker::new();
        let mut places = Vec::new();
        let mut held = Vec::new();
        for _ in 0..2 * workers.workers.len() {
            let ((tell, told), (end, ended)) = (oneshot::channel(), oneshot::channel::<()>());
            workers.spawn(&tracker, async move {
                tell.send(here()).unwrap();
                let _ = ended.await;
            });
            places.push(told.await.unwrap());
            held.push(end);
        }
        places.sort_unstable();
        let twice: Vec<_> = (1..=workers.workers.len()).flat_map(|number| [number, number]).collect();
        assert_eq!(places, twice);
        assert_eq!(here(), 0);
        drop(held);
        tracker.close();
        tracker.wait().await;
        assert!(workers.workers.iter().all(|worker| worker.connections.load(Ordering::Relaxed) == 0));
    }
}
