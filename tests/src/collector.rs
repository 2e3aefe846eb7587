//! A collector of traces: it decodes OTLP over HTTP by the published messages, and keeps the spans.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use prost::Message as _;
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::client::PATIENCE;

/// A collector on a loopback port.
#[derive(Debug)]
pub struct Collector {
    url: String,
    received: Arc<watch::Sender<Vec<CollectedSpan>>>,
    refuses: Arc<AtomicBool>,
}

/// A span, with its identifiers as hexadecimal digits and its attributes as text.
#[derive(Clone, Debug)]
pub struct CollectedSpan {
    /// The trace.
    pub trace: String,
    /// The span.
    pub id: String,
    /// The span that it is a part of; empty if there is none.
    pub parent: String,
    /// Its name.
    pub name: String,
    /// 2 is a server's, 3 a client's.
    pub kind: i32,
    /// Whether it ended with an error.
    pub failed: bool,
    /// Its attributes.
    pub attributes: HashMap<String, String>,
    /// The attributes of the process.
    pub resource: HashMap<String, String>,
}

impl Collector {
    /// Starts to listen.
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (received, refuses) = (Arc::new(watch::Sender::new(Vec::new())), Arc::new(AtomicBool::new(false)));
        let (sink, refused) = (received.clone(), refuses.clone());
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let (sink, refused) = (sink.clone(), refused.clone());
                let service = service_fn(move |request| {
                    let (sink, refused) = (sink.clone(), refused.clone());
                    async move { Ok::<_, Infallible>(answer(request, &sink, &refused).await) }
                });
                tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
            }
        });
        Self { url, received, refuses }
    }

    /// The endpoint.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Answers 503 from now on, or no longer.
    pub fn refuse(&self, refuses: bool) {
        self.refuses.store(refuses, Ordering::Relaxed);
    }

    /// Waits until the spans that have arrived fulfil a condition.
    pub async fn spans(&self, condition: impl FnMut(&Vec<CollectedSpan>) -> bool) -> Vec<CollectedSpan> {
        let mut received = self.received.subscribe();
        let spans = tokio::time::timeout(PATIENCE, received.wait_for(condition)).await;
        spans.unwrap_or_else(|_| panic!("what has come: {:#?}", self.received.borrow())).unwrap().clone()
    }
}

async fn answer(
    request: Request<Incoming>,
    received: &watch::Sender<Vec<CollectedSpan>>,
    refuses: &AtomicBool,
) -> Response<Full<Bytes>> {
    let (parts, body) = request.into_parts();
    assert_eq!((parts.method, parts.uri.path()), (Method::POST, "/v1/traces"));
    assert_eq!(parts.headers["content-type"], "application/x-protobuf");
    let body = body.collect().await.unwrap().to_bytes();
    let mut response = Response::default();
    if refuses.load(Ordering::Relaxed) {
        *response.status_mut() = StatusCode::BAD_REQUEST;
        return response;
    }
    let message = ExportTraceServiceRequest::decode(body).unwrap();
    received.send_modify(|spans| spans.extend(collected(message)));
    response
}

fn collected(message: ExportTraceServiceRequest) -> Vec<CollectedSpan> {
    let mut spans = Vec::new();
    for of_resource in message.resource_spans {
        let resource = attributes(of_resource.resource.unwrap_or_default().attributes);
        for span in of_resource.scope_spans.into_iter().flat_map(|scope| scope.spans) {
            spans.push(CollectedSpan {
                trace: hexadecimal(&span.trace_id),
                id: hexadecimal(&span.span_id),
                parent: hexadecimal(&span.parent_span_id),
                name: span.name,
                kind: span.kind,
                failed: span.status.is_some_and(|status| status.code == 2),
                attributes: attributes(span.attributes),
                resource: resource.clone(),
            });
        }
    }
    spans
}

fn attributes(pairs: Vec<KeyValue>) -> HashMap<String, String> {
    let text = |value: Option<Value>| match value {
        Some(Value::StringValue(text)) => text,
        Some(Value::IntValue(number)) => number.to_string(),
        Some(Value::BoolValue(boolean)) => boolean.to_string(),
        other => panic!("{other:?}"),
    };
    pairs.into_iter().map(|pair| (pair.key, text(pair.value.and_then(|value| value.value)))).collect()
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
