//! The admin port: liveness, readiness, metrics, and the state of filters and watch caches.

mod caches;
mod metrics;
mod port;
pub mod status;

pub use caches::Caches;
pub use metrics::AdminMetrics;
pub use port::Admin;
