//! The admin port: livez, readyz, metrics, /filters.

pub mod metrics;
pub mod status;
