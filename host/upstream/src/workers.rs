//! The threads that serve connections.
//!
//! Each thread has its own single-threaded runtime. A connection stays on one thread with its I/O, its filter calls and
//! its upstream connections. Otherwise each chunk and event would wake another thread, which costs more than filtering.
//!
//! A thread serves any number of connections. A slow filter yields every millisecond, so that the others progress.

use std::cell::Cell;
use std::future::Future;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::runtime::{Builder, Handle};
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

/// The maximum number of threads. A node has few clients.
pub(crate) const MAX_WORKERS: usize = 8;

thread_local! {
    /// The number of this thread.
    static CURRENT: Cell<usize> = const { Cell::new(0) };
}

/// The connection threads. Clones share them, and dropping the last clone ends them.
#[derive(Debug, Clone)]
pub struct Workers {
    workers: Arc<[Worker]>,
    _stop: Arc<DropGuard>,
}

#[derive(Debug)]
struct Worker {
    runtime: Handle,
    connections: Arc<AtomicUsize>,
}

/// Counts an open connection until it is dropped.
struct ConnectionCount(Arc<AtomicUsize>);

/// Returns the number of this thread, from 1 to [`MAX_WORKERS`], or 0 for any other thread.
#[must_use]
pub(crate) fn current_worker() -> usize {
    CURRENT.get()
}

impl Workers {
    /// Starts one thread per processor, at most [`MAX_WORKERS`].
    ///
    /// # Errors
    /// The system cannot create a thread or its runtime.
    pub fn start() -> io::Result<Self> {
        let count = std::thread::available_parallelism().map_or(1, std::num::NonZero::get).min(MAX_WORKERS);
        let stop = CancellationToken::new();
        let start = |number| {
            let runtime = Builder::new_current_thread().enable_all().build()?;
            let handle = runtime.handle().clone();
            let stop = stop.clone();
            std::thread::Builder::new().name(format!("weir-{number}")).spawn(move || {
                CURRENT.set(number);
                runtime.block_on(stop.cancelled());
            })?;
            Ok(Worker { runtime: handle, connections: Arc::default() })
        };
        let workers = (1..=count).map(start).collect::<io::Result<_>>()?;
        Ok(Self { workers, _stop: Arc::new(stop.drop_guard()) })
    }

    /// Spawns a connection on the thread with the fewest connections.
    pub(crate) fn spawn(&self, tracker: &TaskTracker, connection: impl Future<Output = ()> + Send + 'static) {
        let least = self.workers.iter().min_by_key(|worker| worker.connections.load(Ordering::Relaxed));
        let Some(worker) = least else { return };
        worker.connections.fetch_add(1, Ordering::Relaxed);
        let count = ConnectionCount(worker.connections.clone());
        let connection = async move {
            let _count = count;
            connection.await;
        };
        tracker.spawn_on(connection, &worker.runtime);
    }
}

impl Drop for ConnectionCount {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot;

    use super::*;

    #[tokio::test]
    async fn connections_are_distributed_over_the_threads_and_stay_there() {
        let workers = Workers::start().unwrap();
        let tracker = TaskTracker::new();
        let mut places = Vec::new();
        let mut held = Vec::new();
        for _ in 0..2 * workers.workers.len() {
            let ((send, started), (end, ended)) = (oneshot::channel(), oneshot::channel::<()>());
            workers.spawn(&tracker, async move {
                send.send(current_worker()).unwrap();
                let _ = ended.await;
            });
            places.push(started.await.unwrap());
            held.push(end);
        }
        places.sort_unstable();
        let twice: Vec<_> = (1..=workers.workers.len()).flat_map(|number| [number, number]).collect();
        assert_eq!(places, twice);
        assert_eq!(current_worker(), 0);
        drop(held);
        tracker.close();
        tracker.wait().await;
        assert!(workers.workers.iter().all(|worker| worker.connections.load(Ordering::Relaxed) == 0));
    }
}
