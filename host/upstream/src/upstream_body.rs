//! Response bodies of the API server.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;

use crate::h2_pool::StreamPermit;
use crate::unanswered_probes::UnansweredProbes;

/// The body of a response of the API server, with the permit for its stream.
///
/// Dropping it resets the stream and releases the permit.
#[derive(Debug)]
pub struct UpstreamBody {
    inner: Incoming,
    unanswered_probes: UnansweredProbes,
    _permit: StreamPermit,
}

impl UpstreamBody {
    /// Wraps a body.
    pub(super) fn new(inner: Incoming, permit: StreamPermit, unanswered_probes: UnansweredProbes) -> Self {
        Self { inner, unanswered_probes, _permit: permit }
    }
}

impl Body for UpstreamBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let frame = ready!(Pin::new(&mut self.inner).poll_frame(cx));
        if matches!(frame, Some(Ok(_))) {
            self.unanswered_probes.reset();
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
