//! Owns all background tasks: it spawns them, signals them to stop, and joins them at drain.
//!
//! Nothing else calls `tokio::spawn`, so that no task outlives the drain unnoticed.

use std::future::Future;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::select;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::Workers;

/// A handle to the background tasks. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct Tasks {
    tracker: TaskTracker,
    stop: CancellationToken,
    /// The connection threads. `None` serves connections on the runtime that spawns them.
    workers: Option<Workers>,
}

impl Tasks {
    /// Spawns a future that ends by itself. It must end soon after [`Tasks::stopping`] resolves.
    pub fn spawn<F>(&self, future: F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.tracker.spawn(future);
    }

    /// Returns a handle that serves connections on these threads.
    #[must_use]
    pub fn with_workers(self, workers: Workers) -> Self {
        Self { workers: Some(workers), ..self }
    }

    /// Spawns a connection on one of the connection threads, where it stays until it ends by itself.
    pub fn spawn_connection<F>(&self, connection: F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        match &self.workers {
            Some(workers) => workers.spawn(&self.tracker, connection),
            None => self.spawn(connection),
        }
    }

    /// Spawns a future and cancels it when the daemon stops. The future must be cancel safe at every await.
    pub fn spawn_until_stop<F>(&self, future: F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let stopped = Box::pin(self.stop.clone().cancelled_owned());
        // An async block would have room for the future twice: as what it captures, and as what it awaits.
        self.tracker.spawn(select(stopped, Box::pin(future)).map(drop));
    }

    /// Returns whether the daemon is stopping. Tasks that end from now on are expected to.
    #[must_use]
    pub fn is_stopping(&self) -> bool {
        self.stop.is_cancelled()
    }

    /// Resolves when the daemon starts to stop. Cancel safe.
    pub async fn stopping(&self) {
        self.stop.cancelled().await;
    }

    /// Signals all tasks to stop and waits up to `deadline`. Returns whether all tasks ended in time.
    pub async fn drain(&self, deadline: Duration) -> bool {
        self.stop.cancel();
        self.tracker.close();
        tokio::time::timeout(deadline, self.tracker.wait()).await.is_ok()
    }
}
