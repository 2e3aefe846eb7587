//! The span of one request, in the trace of its client. It ends with the body of the response.
//!
//! Attributes are those of OpenTelemetry's HTTP conventions, and the words of the Kubernetes API for what is read.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response};
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt as _;
use tracing::field::Empty;
use tracing::{Instrument as _, Span};

use crate::serve::body::{AbortError, ResponseBody};
use crate::traces::{SPANS, adopt_context, rename};
use weir_kube::RequestInfo;

/// Runs the handler of a request in a span.
pub(super) async fn in_span<B, F>(request: Request<B>, handle: impl FnOnce(Request<B>) -> F) -> Response<ResponseBody>
where
    F: Future<Output = Response<ResponseBody>>,
{
    let span = tracing::info_span!(
        target: SPANS,
        "request",
        otel.kind = "server",
        otel.name = %request.method(),
        otel.status_code = Empty,
        http.request.method = %request.method(),
        url.path = request.uri().path(),
        http.response.status_code = Empty,
        weir.component = Empty,
        k8s.verb = Empty,
        k8s.resource = Empty,
        k8s.namespace.name = Empty,
    );
    if span.is_disabled() {
        return handle(request).await;
    }
    adopt_context(&span, request.headers());
    let response = handle(request).instrument(span.clone()).await;
    span.record("http.response.status_code", response.status().as_u16());
    if response.status().is_server_error() {
        span.record("otel.status_code", "ERROR");
    }
    response.map(|inner| SpannedBody { inner, span }.boxed_unsync())
}

/// Records in the current span what the request asks for.
pub(super) fn describe(parsed: &RequestInfo, component: &str) {
    let span = Span::current();
    if span.is_disabled() {
        return;
    }
    span.record("weir.component", component);
    let Some(resource) = parsed.resource() else { return };
    let (verb, name) = (resource.verb.name().unwrap_or("other"), resource.resource.to_string());
    rename(&span, format!("{verb} {name}"));
    span.record("k8s.verb", verb);
    span.record("k8s.resource", &name);
    if let Some(namespace) = &resource.namespace {
        span.record("k8s.namespace.name", namespace);
    }
}

/// A body whose work belongs to a span.
struct SpannedBody {
    inner: ResponseBody,
    span: Span,
}

impl Body for SpannedBody {
    type Data = Bytes;
    type Error = AbortError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, AbortError>>> {
        let this = self.get_mut();
        let _entered = this.span.enter();
        let frame = Pin::new(&mut this.inner).poll_frame(cx);
        if let Poll::Ready(Some(Err(_))) = &frame {
            this.span.record("otel.status_code", "ERROR");
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
