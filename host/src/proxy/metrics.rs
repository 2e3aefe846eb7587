//! What is exported of requests. Labels come from closed sets, never from a client.

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// Counted in seconds, as Prometheus wants durations.
type Seconds = Counter<f64, AtomicU64>;

/// The metrics of the proxy's ports.
#[derive(Debug, Default)]
pub struct ProxyMetrics {
    requests: Family<RequestLabels, Counter>,
    request_bytes: Family<ClassLabel, Counter>,
    request_seconds: Family<ClassLabel, Seconds>,
    watches: Gauge,
    relists: Family<ReasonLabel, Counter>,
    /// Without a series where there is no such port.
    serving_certificate: Family<NoLabels, Gauge>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReasonLabel {
    reason: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ClassLabel {
    class: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    class: &'static str,
    code: u16,
}

/// Of a figure that is not there before it is first told.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct NoLabels {}

impl ProxyMetrics {
    /// Counts a finished request: its class (`forward`, `get`, `list`, `watch`, `upgrade`, `refused`), the answer's
    /// status code, body bytes sent to the client, and time from the request's head to the body's end.
    pub(super) fn request(&self, class: &'static str, code: u16, bytes: u64, time: Duration) {
        self.requests.get_or_create(&RequestLabels { class, code }).inc();
        let label = ClassLabel { class };
        self.request_bytes.get_or_create(&label).inc_by(bytes);
        self.request_seconds.get_or_create(&label).inc_by(time.as_secs_f64());
    }

    /// The number of open filtered watches; the caller adds and takes away.
    #[must_use]
    pub(super) fn watches(&self) -> &Gauge {
        &self.watches
    }

    /// Counts a watch that was ended with 410 so that its client lists again; `reason` from a closed set.
    pub(super) fn relist(&self, reason: &'static str) {
        self.relists.get_or_create(&ReasonLabel { reason }).inc();
    }

    /// Tells until when the certificate of the HTTPS port is good, in seconds since 1970.
    pub(super) fn serving_certificate(&self, ends: u64) {
        self.serving_certificate.get_or_create(&NoLabels {}).set(i64::try_from(ends).unwrap_or(i64::MAX));
    }

    /// Registers every family under its public name.
    pub fn register(&self, registry: &mut Registry) {
        registry.register("weir_requests", "Finished requests by class and status code", self.requests.clone());
        registry.register("weir_request_bytes", "Body bytes sent to clients by class", self.request_bytes.clone());
        registry.register("weir_request_seconds", "Time of finished requests by class", self.request_seconds.clone());
        registry.register("weir_watches", "Open filtered watches", self.watches.clone());
        registry.register("weir_relists", "Watches ended with 410 by reason", self.relists.clone());
        registry.register(
            "weir_serving_certificate_expiry_seconds",
            "Until when the certificate of the HTTPS port is good, in seconds since 1970",
            self.serving_certificate.clone(),
        );
    }
}
