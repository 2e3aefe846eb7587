//! Lanes: several pooled clients side by side.
//!
//! A pooled client keeps one HTTP/2 connection per server and waits, unseen, when the server's limit of streams is
//! reached (kube-apiserver: 100). So streams are counted here and a new lane is opened before that. The limit is the one
//! that the lane's connection tells (`settings.rs`): until it has, there is one request on it, and those that come
//! meanwhile wait. Over HTTP/1.1 a lane is only a share of the pool.
//!
//! Each thread that serves connections has lanes of its own (`workers.rs`), so that nothing crosses between them.

use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};

use crate::connect::{Client, ClientParts};
use crate::settings::{Told, UNSAID};
use crate::silence::Silence;
use crate::workers;

/// How long a request waits at most to learn of the limits of lanes that are being dialled; then the usual one is taken
/// for granted.
const WAIT: Duration = Duration::from_secs(5);
/// Lanes of one kind, identity and thread.
pub(super) const LANES: usize = 64;

/// The lanes of one kind and identity.
#[derive(Debug)]
pub(super) struct Lanes {
    parts: ClientParts,
    /// By the number of the thread.
    open: [Mutex<Vec<Arc<Lane>>>; workers::MOST + 1],
}

#[derive(Debug)]
struct Lane {
    client: Client,
    streams: AtomicUsize,
    /// How many there may be.
    told: Told,
}

/// What there is for a request at this moment.
enum Free {
    Slot(Slot),
    /// Perhaps a slot of a lane whose limit is not known, when this changes.
    Later(watch::Receiver<usize>),
    /// Nothing.
    None,
}

/// The right to one stream on a lane; given back when dropped.
#[derive(Debug)]
pub(super) struct Slot(Arc<Lane>);

/// The body of an upstream answer, with the stream it occupies: dropping it frees both.
#[derive(Debug)]
pub struct UpstreamBody {
    inner: Incoming,
    silence: Silence,
    _slot: Option<Slot>,
}

impl Lanes {
    pub(super) fn new(parts: ClientParts) -> Self {
        Self { parts, open: Default::default() }
    }

    /// A slot on the first lane that has one, so that few connections stay warm; none when all are taken. Cancel-safe.
    pub(super) async fn slot(&self) -> Option<Slot> {
        let until = Instant::now() + WAIT;
        let mut patient = true;
        loop {
            match self.free(patient) {
                Free::Slot(slot) => return Some(slot),
                Free::None => return None,
                Free::Later(mut change) => patient = timeout_at(until, change.changed()).await.is_ok(),
            }
        }
    }

    fn free(&self, patient: bool) -> Free {
        let Some(open) = self.open.get(workers::here()) else { return Free::None };
        let mut open = open.lock().unwrap_or_else(PoisonError::into_inner);
        // INVARIANT: counts are raised under the lock only, so no lane goes over its limit.
        let mut later = None;
        for lane in open.iter() {
            // Listened to before it is looked at, so that no change falls between.
            let change = lane.told.subscribe();
            let limit = match *change.borrow() {
                0 if patient => 1,
                0 => UNSAID,
                told => told,
            };
            let known = *change.borrow() != 0;
            if lane.streams.load(Ordering::Acquire) < limit {
                return Free::Slot(Slot::on(lane.clone()));
            }
            if patient && !known {
                later = Some(change);
            }
        }
        if let Some(change) = later {
            return Free::Later(change);
        }
        if open.len() >= LANES {
            return Free::None;
        }
        let (client, told) = self.parts.build();
        let lane = Arc::new(Lane { client, streams: AtomicUsize::new(0), told });
        open.push(lane.clone());
        Free::Slot(Slot::on(lane))
    }

    /// Begins anew: who asks next dials. Streams that are open go on over the connections they have.
    pub(super) fn retire(&self) {
        for open in &self.open {
            open.lock().unwrap_or_else(PoisonError::into_inner).clear();
        }
    }
}

impl Slot {
    fn on(lane: Arc<Lane>) -> Self {
        lane.streams.fetch_add(1, Ordering::AcqRel);
        Self(lane)
    }

    pub(super) fn client(&self) -> &Client {
        &self.0.client
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.0.streams.fetch_sub(1, Ordering::AcqRel);
        // Whoever waits to hear of the limit from this one's connection has to dial for itself.
        self.0.told.send_if_modified(|told| *told == 0);
    }
}

impl UpstreamBody {
    pub(super) fn new(inner: Incoming, slot: Option<Slot>, silence: Silence) -> Self {
        Self { inner, silence, _slot: slot }
    }
}

impl Body for UpstreamBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let frame = ready!(Pin::new(&mut self.inner).poll_frame(cx));
        if matches!(frame, Some(Ok(_))) {
            self.silence.heard();
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;
    use crate::connect::{Protocols, client};

    fn lanes() -> Lanes {
        let config = kube::Config::new("http://127.0.0.1:1".parse().unwrap());
        Lanes::new(client(&config, Duration::from_secs(1), Protocols::Any).unwrap())
    }

    fn open(lanes: &Lanes) -> Vec<Arc<Lane>> {
        lanes.open[0].lock().unwrap().clone()
    }

    fn now(lanes: &Lanes) -> Option<Slot> {
        lanes.slot().now_or_never().expect("nothing to wait for")
    }

    #[tokio::test]
    async fn a_lane_is_opened_before_the_streams_of_the_last_run_out_and_all_are_bounded() {
        let lanes = lanes();
        let mut slots: Vec<_> = vec![now(&lanes).unwrap()];
        open(&lanes)[0].told.send_replace(3);
        slots.extend((0..2).map(|_| now(&lanes).unwrap()));
        assert_eq!(open(&lanes).len(), 1);
        slots.push(now(&lanes).unwrap());
        assert_eq!(open(&lanes).len(), 2);
        open(&lanes)[1].told.send_replace(3);
        slots.clear();
        let mut all = vec![now(&lanes).unwrap()];
        assert_eq!(open(&lanes).len(), 2, "a free stream is taken before a new lane");
        while let Some(slot) = now(&lanes) {
            open(&lanes).last().unwrap().told.send_replace(3);
            all.push(slot);
        }
        assert_eq!(all.len(), 3 * LANES);
    }

    #[tokio::test]
    async fn who_comes_while_the_limit_is_not_known_waits_for_it() {
        let lanes = lanes();
        let first = now(&lanes).unwrap();
        let second = async { lanes.slot().await.unwrap() };
        tokio::pin!(second);
        assert!(second.as_mut().now_or_never().is_none());
        open(&lanes)[0].told.send_replace(2);
        let second = second.await;
        assert!(Arc::ptr_eq(&first.0, &second.0));
        // The next lane's connection may have another limit.
        let third = now(&lanes).unwrap();
        assert!(!Arc::ptr_eq(&first.0, &third.0));
        assert!(lanes.slot().now_or_never().is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_goes_on_when_connecting_failed_or_takes_too_long() {
        let lanes = lanes();
        let first = now(&lanes).unwrap();
        let second = async { lanes.slot().await.unwrap() };
        tokio::pin!(second);
        assert!(second.as_mut().now_or_never().is_none());
        drop(first);
        let second = second.await;
        let began = Instant::now();
        let third = lanes.slot().await.unwrap();
        assert_eq!(began.elapsed(), WAIT);
        assert!(Arc::ptr_eq(&second.0, &third.0), "the usual limit is taken for granted");
    }
}
