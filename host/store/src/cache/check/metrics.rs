//! Metrics of the self-check, by resource.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::{Registry, Unit};
use weir_kube::GroupResource;

/// The metrics of comparisons of watch caches with the API server.
#[derive(Debug, Default)]
pub struct CheckMetrics {
    checks: Family<ResultLabels, Counter>,
    received: Family<ResourceLabel, Counter>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResultLabels {
    resource: String,
    result: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResourceLabel {
    resource: String,
}

impl CheckMetrics {
    pub(super) fn count(&self, resource: &GroupResource, result: &'static str, bytes: u64) {
        let resource = resource.to_string();
        self.checks.get_or_create(&ResultLabels { resource: resource.clone(), result }).inc();
        self.received.get_or_create(&ResourceLabel { resource }).inc_by(bytes);
    }

    /// The comparisons of a resource with this result.
    #[cfg(test)]
    pub(crate) fn checks(&self, resource: &GroupResource, result: &'static str) -> u64 {
        self.checks.get_or_create(&ResultLabels { resource: resource.to_string(), result }).get()
    }

    /// Registers all metrics under their exported names.
    pub fn register(&self, registry: &mut Registry) {
        registry.register(
            "weir_cache_checks",
            "Comparisons of watch caches with the API server, by resource and result: same, different or unclear",
            self.checks.clone(),
        );
        registry.register_with_unit(
            "weir_cache_check_received",
            "Bytes that the API server sent for comparisons with watch caches, by resource",
            Unit::Bytes,
            self.received.clone(),
        );
    }

    /// Creates a series of each metric, so that the generated documentation shows its labels.
    #[doc(hidden)]
    pub fn sample(&self) {
        self.count(&GroupResource::new("", ""), "", 0);
    }
}
