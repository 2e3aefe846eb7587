//! The metrics of filters. Labels come from closed sets or from the configuration, so that the number of series is
//! bounded.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use crate::FailureClass;

/// A duration in seconds, the unit of Prometheus.
type Seconds = Counter<f64, AtomicU64>;

/// The metrics of all filters of a process.
#[derive(Debug, Default)]
pub struct RuntimeMetrics {
    objects: Family<ObjectLabels, Counter>,
    replayed: Family<FilterLabel, Counter>,
    failures: Family<FailureLabels, Counter>,
    seconds: Family<FilterLabel, Seconds>,
    impure: Family<FilterLabel, Counter>,
    breaker_open: Family<FilterLabel, Gauge>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct FilterLabel {
    filter: Arc<str>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ObjectLabels {
    filter: Arc<str>,
    outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct FailureLabels {
    filter: Arc<str>,
    class: &'static str,
}

/// The outcomes of one filter in one batch.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct BatchCounts {
    /// Objects that pass unchanged.
    pub(crate) kept: u64,
    /// Objects that pass edited.
    pub(crate) edited: u64,
    /// Hidden objects.
    pub(crate) hidden: u64,
    /// Objects that the filter failed on, with any failure policy.
    pub(crate) failed: u64,
    /// Objects with a replayed verdict. They are also counted as kept, edited or hidden.
    pub(crate) replayed: u64,
}

impl RuntimeMetrics {
    /// Registers every family under its public name.
    pub fn register(&self, registry: &mut Registry) {
        registry.register("weir_filter_objects", "Filtered objects by filter and outcome", self.objects.clone());
        registry.register(
            "weir_filter_replayed",
            "Objects whose verdict was replayed from recorded traces, without a call of the module",
            self.replayed.clone(),
        );
        registry.register("weir_filter_failures", "Failures by filter and class", self.failures.clone());
        registry.register("weir_filter_seconds", "Wall time spent in a filter", self.seconds.clone());
        registry.register(
            "weir_filter_impure",
            "Contradictions between two calls of a filter that read the same",
            self.impure.clone(),
        );
        registry.register("weir_filter_breaker_open", "1 while a filter's breaker is open", self.breaker_open.clone());
    }

    /// Counts one batch of one filter, with the wall time spent in it.
    pub(crate) fn batch(&self, filter: &Arc<str>, counts: BatchCounts, time: Duration) {
        for (outcome, count) in
            [("kept", counts.kept), ("edited", counts.edited), ("hidden", counts.hidden), ("failed", counts.failed)]
        {
            if count > 0 {
                self.objects.get_or_create(&ObjectLabels { filter: filter.clone(), outcome }).inc_by(count);
            }
        }
        let label = FilterLabel { filter: filter.clone() };
        if counts.replayed > 0 {
            self.replayed.get_or_create(&label).inc_by(counts.replayed);
        }
        self.seconds.get_or_create(&label).inc_by(time.as_secs_f64());
    }

    /// Counts one failure of a filter by class.
    pub(crate) fn failure(&self, filter: &Arc<str>, class: FailureClass) {
        self.failures.get_or_create(&FailureLabels { filter: filter.clone(), class: class.label() }).inc();
    }

    /// Counts a contradiction.
    pub(crate) fn impure(&self, filter: &Arc<str>) {
        self.impure.get_or_create(&FilterLabel { filter: filter.clone() }).inc();
    }

    /// Reports whether a filter's breaker is open.
    pub(crate) fn breaker(&self, filter: &Arc<str>, open: bool) {
        self.breaker_open.get_or_create(&FilterLabel { filter: filter.clone() }).set(i64::from(open));
    }

    /// Creates a series of each metric, so that the generated documentation shows its labels.
    #[doc(hidden)]
    pub fn sample(&self) {
        let filter: Arc<str> = "".into();
        self.batch(&filter, BatchCounts { kept: 1, replayed: 1, ..BatchCounts::default() }, Duration::ZERO);
        self.failures.get_or_create(&FailureLabels { filter: filter.clone(), class: "" }).inc();
        self.impure(&filter);
        self.breaker(&filter, false);
    }
}
