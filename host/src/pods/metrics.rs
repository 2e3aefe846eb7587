//! Metrics of the address for pods.

use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// The metrics of the address for pods.
#[derive(Debug, Default)]
pub struct PodMetrics {
    /// A family without labels, because a gauge would have a series without `--pod-address`, too.
    address: Family<[(&'static str, &'static str); 0], Gauge>,
}

impl PodMetrics {
    /// Sets whether an interface has the address.
    pub(crate) fn address(&self, up: bool) {
        self.address.get_or_create(&[]).set(i64::from(up));
    }

    /// Whether an interface has the address; `None` until it has been looked for.
    pub(crate) fn is_up(&self) -> Option<bool> {
        Some(self.address.get(&[])?.get() != 0)
    }

    /// Creates a series of each metric.
    #[cfg(test)]
    pub(crate) fn sample(&self) {
        self.address(false);
    }

    /// Registers all metrics under their exported names.
    pub fn register(&self, registry: &mut Registry) {
        registry.register("weir_pod_address_up", "1 if an interface has the pod address, else 0", self.address.clone());
    }
}
