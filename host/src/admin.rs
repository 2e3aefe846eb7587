//! The admin port: livez, readyz, metrics, /filters.

pub mod metrics;
