//! How many requests of one peer may be on their way to the API servers at a time. Further ones wait for a while.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use super::RequestError;
use weir_front::ConnectionPeer;

/// The most requests of a peer whose responses end soon. kube-apiserver serves 600 for all clients together.
const SHORT: usize = 400;
/// The most responses of unbounded size: logs, and what `proxy` returns.
const STREAMS: usize = 100;
/// The most watches of what no view serves.
const WATCHES: usize = 4000;
/// How long a further request waits.
const WAIT: Duration = Duration::from_secs(10);

/// The requests of each peer.
#[derive(Debug, Default)]
pub(super) struct InFlight(Mutex<HashMap<(ConnectionPeer, Kind), Arc<Semaphore>>>);

/// What a request asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Kind {
    /// A response that ends soon.
    Short,
    /// A response of unbounded size.
    Stream,
    /// A watch that no view serves.
    Watch,
}

/// A request, until its response is complete.
#[derive(Debug)]
pub(super) struct RequestInFlight {
    all: Arc<InFlight>,
    of: (ConnectionPeer, Kind),
    permit: Option<OwnedSemaphorePermit>,
}

impl Kind {
    fn most(self) -> usize {
        match self {
            Self::Short => SHORT,
            Self::Stream => STREAMS,
            Self::Watch => WATCHES,
        }
    }
}

impl InFlight {
    /// Counts a request, once there is room for it. Cancel-safe.
    ///
    /// # Errors
    /// [`RequestError::TooMany`]: the peer had its share for ten seconds.
    pub(super) async fn begin(
        self: &Arc<Self>,
        peer: ConnectionPeer,
        kind: Kind,
    ) -> Result<RequestInFlight, RequestError> {
        let of = (peer, kind);
        let share = self.shares().entry(of).or_insert_with(|| Arc::new(Semaphore::new(kind.most()))).clone();
        // It removes the entry of a peer without requests, also if this one is cancelled.
        let mut begun = RequestInFlight { all: self.clone(), of, permit: None };
        let permit = timeout(WAIT, share.acquire_owned()).await;
        begun.permit = Some(permit.ok().and_then(Result::ok).ok_or(RequestError::TooMany(kind.most()))?);
        Ok(begun)
    }

    fn shares(&self) -> MutexGuard<'_, HashMap<(ConnectionPeer, Kind), Arc<Semaphore>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for RequestInFlight {
    fn drop(&mut self) {
        drop(self.permit.take());
        let mut shares = self.all.shares();
        // Permits and waiting requests hold it, too.
        if shares.get(&self.of).is_some_and(|share| Arc::strong_count(share) == 1) {
            shares.remove(&self.of);
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn each_peer_has_its_share_of_each_kind_and_waits_beyond_it() {
        let (all, tenant, root) =
            (Arc::<InFlight>::default(), ConnectionPeer::Local(Some(1000)), ConnectionPeer::Local(Some(0)));
        let mut streams = Vec::new();
        for _ in 0..STREAMS {
            streams.push(all.begin(tenant, Kind::Stream).await.unwrap());
        }
        assert!(matches!(all.begin(tenant, Kind::Stream).await, Err(RequestError::TooMany(STREAMS))));
        assert!(all.begin(tenant, Kind::Short).now_or_never().unwrap().is_ok());
        assert!(all.begin(root, Kind::Stream).now_or_never().unwrap().is_ok());
        let mut watches = Vec::new();
        for _ in 0..WATCHES {
            watches.push(all.begin(tenant, Kind::Watch).await.unwrap());
        }
        assert!(matches!(all.begin(tenant, Kind::Watch).await, Err(RequestError::TooMany(WATCHES))));
        drop(watches);
        let waiting = all.begin(tenant, Kind::Stream);
        tokio::pin!(waiting);
        assert!(waiting.as_mut().now_or_never().is_none());
        streams.clear();
        drop(waiting.await.unwrap());
        assert!(all.shares().is_empty());
    }
}
