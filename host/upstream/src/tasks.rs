//! The owner of every background task: spawned here, told to stop here, joined at drain. Nothing else calls
//! `tokio::spawn`, so that nothing outlives the daemon's end unseen.

use std::future::Future;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::Workers;

/// A handle to the owner; clones share it.
#[derive(Debug, Clone, Default)]
pub struct Tasks {
    tracker: TaskTracker,
    stop: CancellationToken,
    /// Where connections are served; none: where they are spawned.
    workers: Option<Workers>,
}

impl Tasks {
    /// Runs a future until it ends by itself; it should end soon after [`Tasks::stopping`].
    pub fn spawn<F>(&self, future: F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.tracker.spawn(future);
    }

    /// The same owner, with threads for connections.
    #[must_use]
    pub fn with_workers(self, workers: Workers) -> Self {
        Self { workers: Some(workers), ..self }
    }

    /// Serves a connection, on a thread that it does not leave, until it ends by itself.
    pub fn spawn_connection<F>(&self, connection: F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        match &self.workers {
            Some(workers) => workers.spawn(&self.tracker, connection),
            None => self.spawn(connection),
        }
    }

    /// Runs a future until it ends or the daemon stops, whichever is first; for tasks that hold nothing worth finishing.
    pub fn spawn_until_stop<F>(&self, future: F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let stop = self.stop.clone();
        self.tracker.spawn(async move {
            tokio::select! {
                () = stop.cancelled() => {}
                () = future => {}
            }
        });
    }

    /// Whether the daemon has begun to stop: what ends now ends because of it, and is no news.
    #[must_use]
    pub fn is_stopping(&self) -> bool {
        self.stop.is_cancelled()
    }

    /// Resolves when the daemon begins to stop. Cancel-safe.
    pub async fn stopping(&self) {
        self.stop.cancelled().await;
    }

    /// Tells every task to stop and waits for them, at most `deadline`. True when all had ended by then.
    pub async fn drain(&self, deadline: Duration) -> bool {
        self.stop.cancel();
        self.tracker.close();
        tokio::time::timeout(deadline, self.tracker.wait()).await.is_ok()
    }
}
