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
use tokio::sync::broadcast;

use crate::FailureClass;
use weir_spec::Mode;

/// A duration in seconds, the unit of Prometheus.
type Seconds = Counter<f64, AtomicU64>;

/// The metrics of all filters of a process.
#[derive(Debug, Default)]
pub struct RuntimeMetrics {
    objects: Family<ObjectLabels, Counter>,
    observed: Family<ObjectLabels, Counter>,
    replayed: Family<FilterLabel, Counter>,
    failures: Family<FailureLabels, Counter>,
    seconds: Family<FilterLabel, Seconds>,
    impure: Family<FilterLabel, Counter>,
    breaker_open: Family<FilterLabel, Gauge>,
    breaker_changes: BreakerChanges,
}

/// A circuit breaker that opened or closed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BreakerChange {
    /// The filter.
    pub filter: Arc<str>,
    /// Whether it is open now.
    pub is_open: bool,
}

/// Notifies subscribers. One that is slow misses the oldest changes.
#[derive(Debug)]
struct BreakerChanges(broadcast::Sender<BreakerChange>);

/// The most changes that a subscriber has yet to read.
const MAX_BREAKER_CHANGES: usize = 64;

impl Default for BreakerChanges {
    fn default() -> Self {
        Self(broadcast::Sender::new(MAX_BREAKER_CHANGES))
    }
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

impl BatchCounts {
    /// The number of objects.
    pub(crate) fn objects(self) -> u64 {
        self.kept + self.edited + self.hidden + self.failed
    }

    /// Records the counts in the span of the batch.
    pub(crate) fn record(self, span: &tracing::Span) {
        let Self { kept, edited, hidden, failed, replayed } = self;
        let counts =
            [("kept", kept), ("edited", edited), ("hidden", hidden), ("failed", failed), ("replayed", replayed)];
        for (name, count) in counts {
            span.record(name, count);
        }
    }
}

/// What one filter has done since the process started.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct FilterCounts {
    /// Objects that passed unchanged.
    pub kept: u64,
    /// Objects that passed edited.
    pub edited: u64,
    /// Hidden objects.
    pub hidden: u64,
    /// Objects that the filter failed on.
    pub failed: u64,
    /// Objects with a replayed verdict. They are also counted as kept, edited or hidden.
    pub replayed: u64,
    /// The wall time spent in it.
    pub seconds: f64,
}

impl RuntimeMetrics {
    /// Returns what a filter has done, or what it would have done in the mode `observe`. A filter of the same name that was in
    /// force before counts, too.
    #[must_use]
    pub fn counts(&self, filter: &Arc<str>, mode: Mode) -> FilterCounts {
        let family = match mode {
            Mode::Enforce => &self.objects,
            Mode::Observe => &self.observed,
        };
        let objects = |outcome| {
            let labels = ObjectLabels { filter: filter.clone(), outcome };
            family.get(&labels).map_or(0, |counter| counter.get())
        };
        let label = FilterLabel { filter: filter.clone() };
        FilterCounts {
            kept: objects("kept"),
            edited: objects("edited"),
            hidden: objects("hidden"),
            failed: objects("failed"),
            replayed: self.replayed.get(&label).map_or(0, |counter| counter.get()),
            seconds: self.seconds.get(&label).map_or(0.0, |counter| counter.get()),
        }
    }

    /// Registers every family under its public name.
    pub fn register(&self, registry: &mut Registry) {
        registry.register("weir_filter_objects", "Filtered objects by filter and outcome", self.objects.clone());
        registry.register(
            "weir_filter_observed_objects",
            "Objects by what a filter in the mode observe would have made of them",
            self.observed.clone(),
        );
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

    /// Counts one batch of one filter, with the wall time spent in it. `observed`: clients do not see what it made.
    pub(crate) fn batch(&self, filter: &Arc<str>, observed: bool, counts: BatchCounts, time: Duration) {
        let objects = if observed { &self.observed } else { &self.objects };
        for (outcome, count) in
            [("kept", counts.kept), ("edited", counts.edited), ("hidden", counts.hidden), ("failed", counts.failed)]
        {
            if count > 0 {
                objects.get_or_create(&ObjectLabels { filter: filter.clone(), outcome }).inc_by(count);
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
        // Nobody may have subscribed.
        let _ = self.breaker_changes.0.send(BreakerChange { filter: filter.clone(), is_open: open });
    }

    /// Keeps the circuit breakers of these filters alone. One that was replaced while its breaker was open does not close it. Each has a
    /// count of contradictions from then on, which stays, as counters do.
    pub(crate) fn retain_breakers<'a>(&self, active: impl Iterator<Item = (&'a Arc<str>, bool)>) {
        self.breaker_open.clear();
        for (filter, open) in active {
            let label = FilterLabel { filter: filter.clone() };
            // A counter that appears with its first count has not increased: an alert would miss the first contradiction.
            drop(self.impure.get_or_create(&label));
            if open {
                self.breaker_open.get_or_create(&label).set(i64::from(open));
            }
        }
    }

    /// Returns the sender of circuit breakers that open and close, to subscribe to.
    #[must_use]
    pub fn breaker_changes(&self) -> &broadcast::Sender<BreakerChange> {
        &self.breaker_changes.0
    }

    /// Creates a series of each metric, so that the generated documentation shows its labels.
    #[doc(hidden)]
    pub fn sample(&self) {
        let filter: Arc<str> = "".into();
        for observed in [false, true] {
            let counts = BatchCounts { kept: 1, replayed: 1, ..BatchCounts::default() };
            self.batch(&filter, observed, counts, Duration::ZERO);
        }
        self.failures.get_or_create(&FailureLabels { filter: filter.clone(), class: "" }).inc();
        self.impure(&filter);
        self.breaker(&filter, false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_those_of_one_filter_and_create_no_series() {
        let metrics = RuntimeMetrics::default();
        let (one, two): (Arc<str>, Arc<str>) = ("one".into(), "two".into());
        let counts = BatchCounts { kept: 1, edited: 2, hidden: 3, failed: 4, replayed: 5 };
        metrics.batch(&one, false, counts, Duration::from_millis(1500));
        metrics.batch(&one, false, counts, Duration::from_millis(500));
        let expected = FilterCounts { kept: 2, edited: 4, hidden: 6, failed: 8, replayed: 10, seconds: 2.0 };
        assert_eq!(metrics.counts(&one, Mode::Enforce), expected);
        assert_eq!(metrics.counts(&two, Mode::Enforce), FilterCounts::default());
        assert_eq!(metrics.counts(&one, Mode::Observe).kept, 0);
        assert!(metrics.seconds.get(&FilterLabel { filter: two }).is_none());
    }
}
