//! Sends spans to an OpenTelemetry collector, as OTLP over HTTP.
//!
//! A thread of the SDK sends them in batches, and drops what does not fit its queue (2,048 spans): a collector that is away costs
//! the node nothing. The SDK reads the variables `OTEL_*` of its specification, such as `OTEL_TRACES_SAMPLER`.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use http::HeaderMap;
use opentelemetry::KeyValue;
use opentelemetry::propagation::TextMapPropagator as _;
use opentelemetry::trace::{TraceContextExt as _, TracerProvider as _};
use opentelemetry_http::{HeaderExtractor, HeaderInjector};
use opentelemetry_otlp::{WithExportConfig as _, WithHttpConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::{SdkTracerProvider, SpanData, SpanExporter};
use tracing::{Span, Subscriber};
use tracing_opentelemetry::OpenTelemetrySpanExt as _;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::registry::LookupSpan;

use super::SPANS;

/// How long the end of the daemon waits for the collector.
const LAST_BATCH: Duration = Duration::from_secs(1);

/// The spans of this process, on their way to a collector.
#[derive(Debug)]
pub(crate) struct Traces(Option<SdkTracerProvider>);

/// Spans cannot be sent.
#[derive(Debug, thiserror::Error)]
#[error("--otlp-endpoint cannot be used")]
pub struct TracesError(#[from] opentelemetry_otlp::ExporterBuildError);

impl Traces {
    /// Starts to send spans. Does nothing without an endpoint.
    ///
    /// # Errors
    /// The client of the endpoint cannot be set up. A collector that is away is no error.
    pub(crate) fn start(endpoint: Option<&http::Uri>, node: &str) -> Result<Self, TracesError> {
        let Some(endpoint) = endpoint else { return Ok(Self(None)) };
        // reqwest takes the provider of the process.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let url = format!("{}/v1/traces", endpoint.to_string().trim_end_matches('/'));
        let exporter = opentelemetry_otlp::SpanExporter::builder()
            .with_http()
            .with_protocol(opentelemetry_otlp::Protocol::HttpBinary)
            .with_endpoint(&url)
            .with_headers([("user-agent".to_owned(), concat!("weir/", env!("CARGO_PKG_VERSION")).to_owned())].into())
            .build()?;
        let exporter = ReportingExporter { exporter, url, failing: AtomicBool::new(false) };
        let resource = Resource::builder().with_service_name("weir").with_attributes([
            KeyValue::new("service.version", env!("CARGO_PKG_VERSION")),
            KeyValue::new("k8s.node.name", node.to_owned()),
        ]);
        let provider = SdkTracerProvider::builder().with_resource(resource.build()).with_batch_exporter(exporter);
        Ok(Self(Some(provider.build())))
    }

    /// The layer that takes the spans, and the warnings of the log that belong to one.
    pub(crate) fn layer<S: Subscriber + for<'a> LookupSpan<'a>>(&self) -> Option<impl Layer<S> + use<S>> {
        let tracer = self.0.as_ref()?.tracer("weir");
        let layer = tracing_opentelemetry::layer()
            .with_tracer(tracer)
            .with_location(false)
            .with_threads(false)
            .with_target(false)
            .with_tracked_inactivity(false)
            .with_context_activation(false);
        let targets = Targets::new().with_target(SPANS, LevelFilter::INFO).with_target("weir", LevelFilter::WARN);
        Some(layer.with_filter(targets))
    }

    /// Sends what is left.
    pub(crate) fn end(self) {
        // The exporter has logged why, if it fails.
        let _ = self.0.map(|provider| provider.shutdown_with_timeout(LAST_BATCH));
    }
}

/// Makes a span the continuation of the trace that headers name.
pub(crate) fn adopt_context(span: &Span, headers: &HeaderMap) {
    if !span.is_disabled() {
        // An error says that nobody takes spans.
        let _ = span.set_parent(TraceContextPropagator::new().extract(&HeaderExtractor(headers)));
    }
}

/// Renames a span that has begun. Recording `otel.name` renames none that has a child already.
pub(crate) fn rename(span: &Span, name: String) {
    span.context().span().update_name(name);
}

/// Makes headers name the current span as the one to continue. Changes nothing where there is none.
pub(crate) fn pass_context_on(headers: &mut HeaderMap) {
    let span = Span::current();
    if !span.is_disabled() {
        TraceContextPropagator::new().inject_context(&span.context(), &mut HeaderInjector(headers));
    }
}

/// An exporter that logs when the collector goes away, and when it is back.
#[derive(Debug)]
struct ReportingExporter {
    exporter: opentelemetry_otlp::SpanExporter,
    url: String,
    failing: AtomicBool,
}

impl SpanExporter for ReportingExporter {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let result = self.exporter.export(batch).await;
        let failed_before = self.failing.swap(result.is_err(), Ordering::Relaxed);
        match &result {
            Err(error) if !failed_before => {
                tracing::warn!(url = self.url, %error, "traces are lost: the collector does not take them");
            }
            Ok(()) if failed_before => tracing::info!(url = self.url, "the collector takes traces again"),
            _ => {}
        }
        result
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.exporter.shutdown_with_timeout(timeout)
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.exporter.force_flush()
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.exporter.set_resource(resource);
    }
}
