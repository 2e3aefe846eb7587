//! Metrics of requests. The values of labels come from closed sets, never from a client.

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use weir_kube::Verb;

/// The metrics of the plain and the HTTPS port.
#[derive(Debug, Default)]
pub struct ProxyMetrics {
    requests: Family<RequestLabels, Counter>,
    response_bytes: Family<HandlerLabel, Counter>,
    request_seconds: Family<HandlerLabel, Counter<f64, AtomicU64>>,
    watches: Gauge,
    relists: Family<ReasonLabel, Counter>,
    offline_responses: Counter,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReasonLabel {
    reason: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct HandlerLabel {
    handler: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    handler: &'static str,
    code: u16,
}

/// The label of a read.
pub(crate) fn handler_of(verb: Verb) -> &'static str {
    match verb {
        Verb::List => "list",
        Verb::Watch => "watch",
        _ => "get",
    }
}

impl ProxyMetrics {
    /// Counts a finished request: its handler (`forward`, `upgrade`, `get`, `list`, `watch`, `write`, `refused`), the status code of
    /// the response, body bytes sent to the client, and the time from the request head to the end of the response body.
    pub(crate) fn request(&self, handler: &'static str, code: u16, bytes: u64, time: Duration) {
        self.requests.get_or_create(&RequestLabels { handler, code }).inc();
        let label = HandlerLabel { handler };
        self.response_bytes.get_or_create(&label).inc_by(bytes);
        self.request_seconds.get_or_create(&label).inc_by(time.as_secs_f64());
    }

    /// The gauge of open filtered watches. The caller increments and decrements it.
    #[must_use]
    pub(crate) fn watches(&self) -> &Gauge {
        &self.watches
    }

    /// Counts a watch that was ended with 410 Expired so that its client lists again; `reason` is from a closed set.
    pub(crate) fn relist(&self, reason: &'static str) {
        self.relists.get_or_create(&ReasonLabel { reason }).inc();
    }

    /// Counts a response from a view while no API server could be reached.
    pub(crate) fn offline_response(&self) {
        self.offline_responses.inc();
    }

    /// Creates a series of each metric.
    #[cfg(test)]
    pub(crate) fn sample(&self) {
        self.request("", 200, 0, Duration::ZERO);
        self.relist("");
    }

    /// Registers all metrics under their exported names.
    pub fn register(&self, registry: &mut Registry) {
        registry.register("weir_requests", "Finished requests, by handler and status code", self.requests.clone());
        registry.register(
            "weir_response_bytes",
            "Bytes of response bodies sent to clients, by handler",
            self.response_bytes.clone(),
        );
        registry.register(
            "weir_request_duration_seconds",
            "Total duration of finished requests, by handler",
            self.request_seconds.clone(),
        );
        registry.register("weir_watches", "Open filtered watches", self.watches.clone());
        registry.register(
            "weir_watches_expired",
            "Watches that Weir ended with 410 Expired, by reason",
            self.relists.clone(),
        );
        registry.register(
            "weir_offline_responses",
            "Responses from watch caches while no API server could be reached",
            self.offline_responses.clone(),
        );
    }
}
