//! Metrics of reloads.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

/// The metrics of reloads.
#[derive(Debug, Default)]
pub struct ReloadMetrics {
    reloads: Family<ResultLabel, Counter>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResultLabel {
    result: &'static str,
}

impl ReloadMetrics {
    /// Counts a reload by its result: `applied`, `unchanged`, `refused` or `taken_back`.
    pub(crate) fn reload(&self, result: &'static str) {
        self.reloads.get_or_create(&ResultLabel { result }).inc();
    }

    /// The number of refused reloads.
    #[cfg(test)]
    pub(super) fn refused(&self) -> u64 {
        self.reloads.get_or_create(&ResultLabel { result: "refused" }).get()
    }

    /// Registers all metrics under their exported names.
    pub fn register(&self, registry: &mut Registry) {
        // A counter that appears with its first count has not increased: the alert on refusals would miss the first one.
        for result in ["applied", "unchanged", "refused", "taken_back"] {
            drop(self.reloads.get_or_create(&ResultLabel { result }));
        }
        registry.register(
            "weir_reloads",
            "Reloads of the configuration, by result: applied, unchanged, refused or taken_back",
            self.reloads.clone(),
        );
    }
}
