//! Runs filters: chains, the engine, instances of modules, loading and compiling.
//!
//! The crate does not depend on HTTP, reflectors or configuration files. It reads lookups through the trait
//! [`ClusterView`].

mod filter;
mod metrics;
mod module;
#[cfg(test)]
mod testing;
mod wasm;

pub use filter::*;
pub use metrics::{BreakerChange, FilterCounts, RuntimeMetrics};
pub use module::*;
pub use wasm::*;
