//! Lanes: several pooled clients side by side.
//!
//! A pooled client keeps one HTTP/2 connection per server and waits, unseen, when the server's limit of streams is
//! reached (kube-apiserver: 100). So streams are counted here and a new lane is opened before that. Over HTTP/1.1 a
//! lane is only a share of the pool.
//!
//! Each thread that serves connections has lanes of its own (`workers.rs`), so that nothing crosses between them.

use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;

use super::connect::{Client, ClientParts};
use crate::workers;

/// Streams on one lane at a time; below the 100 that API servers allow.
pub(super) const STREAMS: usize = 80;
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
}

/// The right to one stream on a lane; given back when dropped.
#[derive(Debug)]
pub(super) struct Slot(Arc<Lane>);

/// The body of an upstream answer, with the stream it occupies: dropping it frees both.
#[derive(Debug)]
pub(in crate::proxy) struct UpstreamBody {
    inner: Incoming,
    _slot: Option<Slot>,
}

impl Lanes {
    pub(super) fn new(parts: ClientParts) -> Self {
        Self { parts, open: Default::default() }
    }

    /// A slot on the first lane that has one, so that few connections stay warm; none when all are taken.
    pub(super) fn slot(&self) -> Option<Slot> {
        let mut open = self.open.get(workers::here())?.lock().unwrap_or_else(PoisonError::into_inner);
        // INVARIANT: counts are raised under the lock only, so no lane goes over its limit.
        let free = open.iter().find(|lane| lane.streams.load(Ordering::Acquire) < STREAMS).cloned();
        let lane = match free {
            Some(lane) => lane,
            None if open.len() < LANES => {
                let lane = Arc::new(Lane { client: self.parts.build(), streams: AtomicUsize::new(0) });
                open.push(lane.clone());
                lane
            }
            None => return None,
        };
        lane.streams.fetch_add(1, Ordering::AcqRel);
        Some(Slot(lane))
    }

    /// Begins anew: who asks next dials. Streams that are open go on over the connections they have.
    pub(super) fn retire(&self) {
        for open in &self.open {
            open.lock().unwrap_or_else(PoisonError::into_inner).clear();
        }
    }
}

impl Slot {
    pub(super) fn client(&self) -> &Client {
        &self.0.client
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.0.streams.fetch_sub(1, Ordering::AcqRel);
    }
}

impl UpstreamBody {
    pub(super) fn new(inner: Incoming, slot: Option<Slot>) -> Self {
        Self { inner, _slot: slot }
    }
}

impl Body for UpstreamBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        Pin::new(&mut self.inner).poll_frame(cx)
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
    use std::time::Duration;

    use super::super::connect::{Protocols, client};
    use super::*;

    #[test]
    fn a_lane_is_opened_before_the_streams_of_the_last_run_out_and_all_are_bounded() {
        let config = kube::Config::new("http://127.0.0.1:1".parse().unwrap());
        let lanes = Lanes::new(client(&config, Duration::from_secs(1), Protocols::Any).unwrap());
        let open = |lanes: &Lanes| lanes.open[0].lock().unwrap().len();
        let mut slots: Vec<_> = (0..STREAMS).map(|_| lanes.slot().unwrap()).collect();
        assert_eq!(open(&lanes), 1);
        slots.push(lanes.slot().unwrap());
        assert_eq!(open(&lanes), 2);
        slots.clear();
        let _slot = lanes.slot().unwrap();
        assert_eq!(open(&lanes), 2, "a free stream is taken before a new lane");
        let all: Vec<_> = std::iter::from_fn(|| lanes.slot()).collect();
        assert_eq!(all.len() + 1, STREAMS * LANES);
    }
}
