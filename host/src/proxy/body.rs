//! The bodies that the proxy sends, why one breaks off, and what is tied to a body's life.
//!
//! An answer that cannot be finished is aborted, never closed: a well-formed shorter list would make informers delete
//! what is missing. What a request occupies upstream lives in its body ([`weir_upstream::UpstreamBody`]) and is given
//! back when that is dropped, at its end or because the client has gone; so does its count.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use bytes::Bytes;
use http::{Response, StatusCode};
use http_body::{Body, Frame, SizeHint};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Empty, Full};

use weir_runtime::Failure;
use weir_upstream::AnswerError;

use super::metrics::ProxyMetrics;

/// A boxed body of an answer to a client.
pub(super) type ResponseBody = UnsyncBoxBody<Bytes, BodyError>;

/// Why a body breaks off after its headers were sent.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(super) enum BodyError {
    /// The API server's side broke off.
    #[error(transparent)]
    Upstream(#[from] AnswerError),
    /// A filter with policy Fail failed on an object.
    #[error("{0}")]
    Filter(Failure),
    /// What the API server sent is not what it said it was.
    #[error("the API server's answer is not usable: {0}")]
    Garbage(String),
    /// An unfiltered watch of something that a filter now matches; the client is to come back.
    #[error("filters now match what this watch shows")]
    Cut,
    /// The daemon stops.
    #[error("the daemon is stopping")]
    Stopping,
}

/// No body.
#[must_use]
pub(super) fn empty() -> ResponseBody {
    Empty::new().map_err(|never| match never {}).boxed_unsync()
}

/// A body that is there already.
#[must_use]
pub(super) fn full(bytes: Bytes) -> ResponseBody {
    Full::new(bytes).map_err(|never| match never {}).boxed_unsync()
}

impl From<hyper::Error> for BodyError {
    fn from(error: hyper::Error) -> Self {
        Self::Upstream(error.into())
    }
}

/// Holds on to something as long as a body lives.
struct Holding<T> {
    inner: ResponseBody,
    _held: T,
}

/// Ties something to the life of an answer's body.
#[must_use]
pub(super) fn holding<T: Send + Unpin + 'static>(answer: Response<ResponseBody>, held: T) -> Response<ResponseBody> {
    answer.map(|inner| Holding { inner, _held: held }.boxed_unsync())
}

impl<T: Unpin> Body for Holding<T> {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        Pin::new(&mut self.get_mut().inner).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

/// Counts a request when its body ends.
struct Metered {
    inner: ResponseBody,
    meter: Meter,
}

/// What is counted of one request; counted when it is dropped.
#[derive(Debug)]
pub(super) struct Meter {
    metrics: Arc<ProxyMetrics>,
    class: &'static str,
    code: u16,
    bytes: u64,
    begun: Instant,
}

impl Meter {
    /// For a request that began at `begun`.
    #[must_use]
    pub(super) fn new(metrics: Arc<ProxyMetrics>, class: &'static str, begun: Instant) -> Self {
        Self { metrics, class, code: 0, bytes: 0, begun }
    }

    /// Ties the count to the body of an answer.
    #[must_use]
    pub(super) fn attach(mut self, answer: Response<ResponseBody>) -> Response<ResponseBody> {
        self.code = answer.status().as_u16();
        answer.map(|inner| Metered { inner, meter: self }.boxed_unsync())
    }

    /// Counts a request whose bytes went another way than through a body.
    pub(super) fn finish(mut self, code: StatusCode, bytes: u64) {
        self.code = code.as_u16();
        self.bytes = bytes;
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        // Code 0 stands for a client that went away before there was an answer.
        self.metrics.request(self.class, self.code, self.bytes, self.begun.elapsed());
    }
}

impl Body for Metered {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = self.get_mut();
        let frame = ready!(Pin::new(&mut this.inner).poll_frame(cx));
        if let Some(Ok(frame)) = &frame
            && let Some(data) = frame.data_ref()
        {
            this.meter.bytes += data.len() as u64;
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
