//! What is counted of the watches of a resource.

use prometheus_client::metrics::counter::Counter;

/// The counters of the watches of one resource.
#[derive(Debug, Clone)]
pub(super) struct WatchCounters {
    /// Events sent.
    pub(super) sent: Counter,
    /// Watches ended because their client reads too slowly.
    pub(super) slow: Counter,
}
