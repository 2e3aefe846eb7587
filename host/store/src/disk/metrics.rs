//! Metrics of the cache on disk.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};

use super::error::REASONS;

/// The metrics of the cache on disk.
#[derive(Debug, Default)]
pub struct DiskMetrics {
    bytes: Gauge,
    commits: Counter,
    written: Counter,
    errors: Family<ReasonLabel, Counter>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReasonLabel {
    reason: &'static str,
}

impl DiskMetrics {
    pub(super) fn size(&self, bytes: u64) {
        self.bytes.set(i64::try_from(bytes).unwrap_or(i64::MAX));
    }

    pub(super) fn wrote(&self, bytes: u64) {
        self.written.inc_by(bytes);
    }

    pub(super) fn commit(&self) {
        self.commits.inc();
    }

    pub(super) fn error(&self, reason: &'static str) {
        self.errors.get_or_create(&ReasonLabel { reason }).inc();
    }

    /// The number of commits.
    #[cfg(test)]
    pub(crate) fn commits(&self) -> u64 {
        self.commits.get()
    }

    /// The bytes written to the file.
    #[cfg(test)]
    pub(crate) fn written(&self) -> u64 {
        self.written.get()
    }

    /// The number of errors with this reason.
    #[cfg(test)]
    pub(crate) fn errors(&self, reason: &'static str) -> u64 {
        self.errors.get_or_create(&ReasonLabel { reason }).get()
    }

    /// Registers all metrics under their exported names.
    pub fn register(&self, registry: &mut Registry) {
        // A counter that appears with its first count has not increased: an alert would miss the first error.
        for reason in REASONS {
            drop(self.errors.get_or_create(&ReasonLabel { reason }));
        }
        registry.register_with_unit(
            "weir_cache_disk",
            "Size of the watch cache on disk",
            Unit::Bytes,
            self.bytes.clone(),
        );
        registry.register("weir_cache_commits", "Commits of the watch cache to disk", self.commits.clone());
        registry.register_with_unit(
            "weir_cache_written",
            "Bytes written to the watch cache on disk",
            Unit::Bytes,
            self.written.clone(),
        );
        registry.register("weir_cache_errors", "Errors of the watch cache on disk, by reason", self.errors.clone());
    }

    /// Creates a series of each metric, so that the generated documentation shows its labels.
    #[doc(hidden)]
    pub fn sample(&self) {
        self.error("");
    }
}
