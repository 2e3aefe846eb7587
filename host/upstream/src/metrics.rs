//! What is exported of the API servers. Labels come from closed sets and from the configuration.

use std::sync::Arc;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// The metrics of the way to the API servers.
#[derive(Debug, Default)]
pub struct UpstreamMetrics {
    server_up: Family<ServerLabel, Gauge>,
    server_requests: Family<ServerLabels, Counter>,
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

impl UpstreamMetrics {
    /// Tells whether an API server works, as far as is known.
    pub(crate) fn server_up(&self, server: &Arc<str>, up: bool) {
        self.server_up.get_or_create(&ServerLabel { server: server.clone() }).set(i64::from(up));
    }

    /// Counts a request that was sent to an API server: `answered`, or why not, from a closed set.
    pub(crate) fn server_request(&self, server: &Arc<str>, result: &'static str) {
        self.server_requests.get_or_create(&ServerLabels { server: server.clone(), result }).inc();
    }

    /// Registers every family under its public name.
    pub fn register(&self, registry: &mut Registry) {
        registry.register("weir_server_up", "1 while an API server works", self.server_up.clone());
        registry.register("weir_server_requests", "Requests to API servers by result", self.server_requests.clone());
    }

    /// Creates a series of each metric, so that the generated documentation shows its labels.
    #[doc(hidden)]
    pub fn sample(&self) {
        self.server_up(&"".into(), false);
        self.server_request(&"".into(), "");
    }
}
