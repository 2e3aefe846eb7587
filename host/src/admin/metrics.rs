//! Every metric of the daemon, in one registry. Labels come from closed sets or from the configuration, never from
//! a client, so that the number of series is bounded.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use crate::filter::RuntimeMetrics;

/// Counted in seconds, as Prometheus wants durations.
type Seconds = Counter<f64, AtomicU64>;

/// The registry and its families; one per daemon, shared by reference.
#[derive(Debug, Default)]
pub struct Metrics {
    runtime: Arc<RuntimeMetrics>,
    reloads: Family<ResultLabel, Counter>,
    requests: Family<RequestLabels, Counter>,
    request_bytes: Family<ClassLabel, Counter>,
    request_seconds: Family<ClassLabel, Seconds>,
    watches: Gauge,
    informers_relisted: Family<ReasonLabel, Counter>,
    server_up: Family<ServerLabel, Gauge>,
    server_requests: Family<ServerLabels, Counter>,
    /// Without a series where there is no such port.
    serving_certificate: Family<NoLabels, Gauge>,
    /// Without a series where pods are not to reach the daemon.
    pod_address: Family<NoLabels, Gauge>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResultLabel {
    result: &'static str,
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
struct ServerLabel {
    server: Arc<str>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ServerLabels {
    server: Arc<str>,
    result: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    class: &'static str,
    code: u16,
}

/// Of a figure that is not there before it is first told.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct NoLabels {}

impl Metrics {
    /// The metrics of filters.
    #[must_use]
    pub fn runtime(&self) -> &Arc<RuntimeMetrics> {
        &self.runtime
    }

    /// Counts a reload by its result: `applied`, `unchanged`, `refused`.
    pub fn reload(&self, result: &'static str) {
        self.reloads.get_or_create(&ResultLabel { result }).inc();
    }

    /// Counts a finished request: its class (`forward`, `get`, `list`, `watch`, `upgrade`, `refused`), the answer's
    /// status code, body bytes sent to the client, and time from the request's head to the body's end.
    pub fn request(&self, class: &'static str, code: u16, bytes: u64, time: Duration) {
        self.requests.get_or_create(&RequestLabels { class, code }).inc();
        let label = ClassLabel { class };
        self.request_bytes.get_or_create(&label).inc_by(bytes);
        self.request_seconds.get_or_create(&label).inc_by(time.as_secs_f64());
    }

    /// The number of open filtered watches; the caller adds and takes away.
    #[must_use]
    pub fn watches(&self) -> &Gauge {
        &self.watches
    }

    /// Counts a watch that was ended with 410 so that its client lists again; `reason` from a closed set.
    pub fn relist(&self, reason: &'static str) {
        self.informers_relisted.get_or_create(&ReasonLabel { reason }).inc();
    }

    /// Tells whether an API server works, as far as is known.
    pub fn server_up(&self, server: &Arc<str>, up: bool) {
        self.server_up.get_or_create(&ServerLabel { server: server.clone() }).set(i64::from(up));
    }

    /// Counts a request that was sent to an API server: `answered`, or why not, from a closed set.
    pub fn server_request(&self, server: &Arc<str>, result: &'static str) {
        self.server_requests.get_or_create(&ServerLabels { server: server.clone(), result }).inc();
    }

    /// Tells until when the certificate of the HTTPS port is good, in seconds since 1970.
    pub fn serving_certificate(&self, ends: u64) {
        self.serving_certificate.get_or_create(&NoLabels {}).set(i64::try_from(ends).unwrap_or(i64::MAX));
    }

    /// Tells whether the address that pods reach the daemon at is on an interface.
    pub fn pod_address(&self, there: bool) {
        self.pod_address.get_or_create(&NoLabels {}).set(i64::from(there));
    }

    /// Registers every family under its public name.
    pub fn register(&self, registry: &mut Registry) {
        self.runtime.register(registry);
        registry.register("weir_reloads", "Reloads by result", self.reloads.clone());
        registry.register("weir_requests", "Finished requests by class and status code", self.requests.clone());
        registry.register("weir_request_bytes", "Body bytes sent to clients by class", self.request_bytes.clone());
        registry.register("weir_request_seconds", "Time of finished requests by class", self.request_seconds.clone());
        registry.register("weir_watches", "Open filtered watches", self.watches.clone());
        registry.register("weir_relists", "Watches ended with 410 by reason", self.informers_relisted.clone());
        registry.register("weir_server_up", "1 while an API server works", self.server_up.clone());
        registry.register("weir_server_requests", "Requests to API servers by result", self.server_requests.clone());
        registry.register(
            "weir_serving_certificate_expiry_seconds",
            "Until when the certificate of the HTTPS port is good, in seconds since 1970",
            self.serving_certificate.clone(),
        );
        registry.register(
            "weir_pod_address_up",
            "1 while the address that pods reach the daemon at is on an interface",
            self.pod_address.clone(),
        );
    }
}
