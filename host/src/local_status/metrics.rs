//! Metrics of the local status.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// The metrics of the local status.
#[derive(Debug, Default)]
pub struct LocalStatusMetrics {
    pods: Family<StateLabel, Gauge>,
    reports: Family<ResultLabel, Counter>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StateLabel {
    state: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResultLabel {
    result: &'static str,
}

impl LocalStatusMetrics {
    /// Registers the metrics under their exported names.
    pub fn register(&self, registry: &mut Registry) {
        registry.register(
            "weir_local_status_pods",
            "Pods whose status clients see from kubelet's reports instead of the API server's objects, by state: awaited (not reported since the node was restarted), reported, handed-over (the API server has taken the report).",
            self.pods.clone(),
        );
        registry.register(
            "weir_local_status_reports",
            "kubelet's patches of pod statuses by result: kept (the API server did not take it), accepted (it took a report that was kept before), ignored.",
            self.reports.clone(),
        );
    }

    /// Sets the number of pods in a state.
    pub(super) fn set_pods(&self, state: &'static str, pods: usize) {
        self.pods.get_or_create(&StateLabel { state }).set(i64::try_from(pods).unwrap_or(i64::MAX));
    }

    /// Counts a report.
    pub(super) fn report(&self, result: &'static str) {
        self.reports.get_or_create(&ResultLabel { result }).inc();
    }

    /// Creates a series of each metric, for the generated documentation.
    #[cfg(test)]
    pub(crate) fn sample(&self) {
        self.set_pods("", 0);
        self.report("");
    }
}
