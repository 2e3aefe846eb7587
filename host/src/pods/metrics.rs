//! What is exported of the address that pods reach the daemon at.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// The metrics of the pod address.
#[derive(Debug, Default)]
pub struct PodMetrics {
    /// Without a series where pods are not to reach the daemon.
    address: Family<NoLabels, Gauge>,
}

/// Of a figure that is not there before it is first told.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct NoLabels {}

impl PodMetrics {
    /// Tells whether the address that pods reach the daemon at is on an interface.
    pub(super) fn address(&self, there: bool) {
        self.address.get_or_create(&NoLabels {}).set(i64::from(there));
    }

    /// Registers every family under its public name.
    pub fn register(&self, registry: &mut Registry) {
        registry.register(
            "weir_pod_address_up",
            "1 while the address that pods reach the daemon at is on an interface",
            self.address.clone(),
        );
    }
}
