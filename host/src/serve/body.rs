//! Response bodies, and the reasons why Weir aborts one.
//!
//! Weir aborts a response that it cannot finish. It never closes it early, because informers would delete the objects that
//! a shorter list lacks. A body owns the upstream resources of its request ([`weir_upstream::UpstreamBody`]). Dropping the
//! body, at its end or when the client is gone, releases them and counts the request.

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
use weir_upstream::ResponseBodyError;

use super::metrics::ProxyMetrics;

/// The body of a response to a client.
pub(crate) type ResponseBody = UnsyncBoxBody<Bytes, AbortError>;

/// The reason to abort a body after the response head was sent.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AbortError {
    /// The API server's response was interrupted.
    #[error(transparent)]
    Upstream(#[from] ResponseBodyError),
    /// A filter with policy Fail failed on an object.
    #[error("{0}")]
    Filter(Failure),
    /// The API server's response does not have the form that its headers declare.
    #[error("the API server's response is invalid: {0}")]
    InvalidResponse(String),
    /// The client has not read what it has got.
    #[error("the client does not read the response")]
    NotRead,
    /// Filters now match the resource of a forwarded watch. Its client goes on with another one.
    #[error("filters now match the resource of this watch")]
    NowFiltered,
    /// The daemon is stopping.
    #[error("the daemon is stopping")]
    Stopping,
}

/// Returns an empty body.
#[must_use]
pub(crate) fn empty() -> ResponseBody {
    Empty::new().map_err(|never| match never {}).boxed_unsync()
}

/// Returns a body with these bytes.
#[must_use]
pub(crate) fn full(bytes: Bytes) -> ResponseBody {
    Full::new(bytes).map_err(|never| match never {}).boxed_unsync()
}

impl From<hyper::Error> for AbortError {
    fn from(error: hyper::Error) -> Self {
        Self::Upstream(ResponseBodyError::Broken(error.into()))
    }
}

/// A body with a guard.
struct GuardedBody<T> {
    inner: ResponseBody,
    _guard: T,
}

/// Attaches a guard to a response. It is dropped with the body.
#[must_use]
pub(crate) fn guarded<T: Send + Unpin + 'static>(response: Response<ResponseBody>, guard: T) -> Response<ResponseBody> {
    response.map(|inner| GuardedBody { inner, _guard: guard }.boxed_unsync())
}

impl<T: Unpin> Body for GuardedBody<T> {
    type Data = Bytes;
    type Error = AbortError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, AbortError>>> {
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
pub(crate) struct Meter {
    metrics: Arc<ProxyMetrics>,
    handler: &'static str,
    code: u16,
    bytes: u64,
    started: Instant,
}

impl Meter {
    /// Creates the meter of a request that started at `started`. `handler` is a label from a closed set.
    #[must_use]
    pub(crate) fn new(metrics: Arc<ProxyMetrics>, handler: &'static str, started: Instant) -> Self {
        Self { metrics, handler, code: 0, bytes: 0, started }
    }

    /// Attaches the meter to the body of a response.
    #[must_use]
    pub(crate) fn attach(mut self, response: Response<ResponseBody>) -> Response<ResponseBody> {
        self.code = response.status().as_u16();
        response.map(|inner| MeteredBody { inner, meter: self }.boxed_unsync())
    }

    /// Counts a request whose bytes did not pass through a body, such as an upgraded stream.
    pub(crate) fn finish(mut self, code: StatusCode, bytes: u64) {
        self.code = code.as_u16();
        self.bytes = bytes;
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        // The code is 0 if the client left before the response.
        self.metrics.request(self.handler, self.code, self.bytes, self.started.elapsed());
    }
}

impl Body for MeteredBody {
    type Data = Bytes;
    type Error = AbortError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, AbortError>>> {
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
