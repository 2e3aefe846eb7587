//! Metrics of the API servers. Label values come from closed sets and from the configuration.

use std::sync::Arc;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// The metrics of the connections to the API servers.
#[derive(Debug, Default)]
pub struct UpstreamMetrics {
    server_up: Family<ServerLabel, Gauge>,
    server_requests: Family<ServerLabels, Counter>,
    relay_up: Family<PeerLabel, Gauge>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PeerLabel {
    peer: Arc<str>,
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
    /// Sets whether an API server is up.
    pub(crate) fn server_up(&self, server: &Arc<str>, up: bool) {
        self.server_up.get_or_create(&ServerLabel { server: server.clone() }).set(i64::from(up));
    }

    /// Counts an attempt to send a request. `result` is `answered` or the label of an error.
    pub(crate) fn server_request(&self, server: &Arc<str>, result: &'static str) {
        self.server_requests.get_or_create(&ServerLabels { server: server.clone(), result }).inc();
    }

    /// Sets whether API servers are reached through a peer.
    pub(crate) fn relay_up(&self, peer: &Arc<str>, up: bool) {
        self.relay_up.get_or_create(&PeerLabel { peer: peer.clone() }).set(i64::from(up));
    }

    /// Registers the metrics.
    pub fn register(&self, registry: &mut Registry) {
        registry.register("weir_server_up", "1 if the API server is up", self.server_up.clone());
        registry.register("weir_server_requests", "Requests to API servers by result", self.server_requests.clone());
        registry.register(
            "weir_relay_up",
            "1 while API servers are reached through the peer, because none is reached directly",
            self.relay_up.clone(),
        );
    }

    /// Creates a series of each metric, so that the generated documentation shows its labels.
    #[doc(hidden)]
    pub fn sample(&self) {
        self.server_up(&"".into(), false);
        self.server_request(&"".into(), "");
        self.relay_up(&"".into(), false);
    }
}
