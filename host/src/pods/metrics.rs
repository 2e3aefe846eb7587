//! Metrics of the pod address.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// The metrics of the pod address.
#[derive(Debug, Default)]
pub struct PodMetrics {
    /// Has no series if no pod address is configured.
    address: Family<NoLabels, Gauge>,
}

/// The empty label set of a gauge that is exported only once it is set.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct NoLabels {}

impl PodMetrics {
    /// Sets whether an interface has the pod address.
    pub(super) fn address(&self, there: bool) {
        self.address.get_or_create(&NoLabels {}).set(i64::from(there));
    }

    /// Registers the metrics.
    pub fn register(&self, registry: &mut Registry) {
        registry.register(
            "weir_pod_address_up",
            "1 if a network interface has the address at which pods reach the daemon",
            self.address.clone(),
        );
    }
}
