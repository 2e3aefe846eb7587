//! The bodies of answers to clients, and why one is aborted.
//!
//! Weir aborts an answer that it cannot finish, and never closes it: a well-formed shorter list would make informers
//! delete the missing objects. A request's upstream resources live in its body ([`weir_upstream::UpstreamBody`]). They are
//! freed when the body is dropped, at its end or because the client is gone. Then the request is counted, too.

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

/// The boxed body of an answer to a client.
pub(super) type ResponseBody = UnsyncBoxBody<Bytes, BodyError>;

/// Why a body is aborted after its headers were sent.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(super) enum BodyError {
    /// The API server's answer broke off.
    #[error(transparent)]
    Upstream(#[from] AnswerError),
    /// A filter with policy Fail failed on an object.
    #[error("{0}")]
    Filter(Failure),
    /// The API server's answer does not have the form that its headers announce.
    #[error("the API server's answer is invalid: {0}")]
    InvalidAnswer(String),
    /// Filters now match the resource of a forwarded watch; the client must watch again.
    #[error("filters now match the resource of this watch")]
    NowFiltered,
    /// The daemon is stopping.
    #[error("the daemon is stopping")]
    Stopping,
}

/// Returns a body without bytes.
#[must_use]
pub(super) fn empty() -> ResponseBody {
    Empty::new().map_err(|never| match never {}).boxed_unsync()
}

/// Returns a body of these bytes.
#[must_use]
pub(super) fn full(bytes: Bytes) -> ResponseBody {
    Full::new(bytes).map_err(|never| match never {}).boxed_unsync()
}

impl From<hyper::Error> for BodyError {
    fn from(error: hyper::Error) -> Self {
        Self::Upstream(error.into())
    }
}

/// A body that owns a guard.
struct GuardedBody<T> {
    inner: ResponseBody,
    _guard: T,
}

/// Keeps a guard until an answer's body is dropped.
#[must_use]
pub(super) fn guarded<T: Send + Unpin + 'static>(answer: Response<ResponseBody>, guard: T) -> Response<ResponseBody> {
    answer.map(|inner| GuardedBody { inner, _guard: guard }.boxed_unsync())
}

impl<T: Unpin> Body for GuardedBody<T> {
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

/// A body that counts its request when it ends.
struct MeteredBody {
    inner: ResponseBody,
    meter: Meter,
}

/// Counts one request, with its status code, size and duration, when it is dropped.
#[derive(Debug)]
pub(super) struct Meter {
    metrics: Arc<ProxyMetrics>,
    class: &'static str,
    code: u16,
    bytes: u64,
    begun: Instant,
}

impl Meter {
    /// Starts with a request that began at `begun`.
    #[must_use]
    pub(super) fn new(metrics: Arc<ProxyMetrics>, class: &'static str, begun: Instant) -> Self {
        Self { metrics, class, code: 0, bytes: 0, begun }
    }

    /// Attaches the meter to the body of an answer.
    #[must_use]
    pub(super) fn attach(mut self, answer: Response<ResponseBody>) -> Response<ResponseBody> {
        self.code = answer.status().as_u16();
        answer.map(|inner| MeteredBody { inner, meter: self }.boxed_unsync())
    }

    /// Counts a request whose bytes did not pass through a body, such as an upgraded stream.
    pub(super) fn finish(mut self, code: StatusCode, bytes: u64) {
        self.code = code.as_u16();
        self.bytes = bytes;
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        // Code 0: the client left before there was an answer.
        self.metrics.request(self.class, self.code, self.bytes, self.begun.elapsed());
    }
}

impl Body for MeteredBody {
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
