//! The admin port: liveness, readiness, metrics and the state of the filters.

mod metrics;
mod port;
pub mod status;

pub use metrics::AdminMetrics;
pub use port::Admin;
