//! Runs filters: chains of them over documents, the engine and the instances of their modules, loading and compiling.
//!
//! Knows nothing of HTTP, of reflectors or of the daemon's configuration files; sees lookups as the trait [`ClusterView`].

mod filter;
mod metrics;
mod module;
mod spec;
#[cfg(test)]
mod testing;
mod wasm;

pub use filter::*;
pub use metrics::RuntimeMetrics;
pub use module::*;
pub use spec::*;
pub use wasm::*;
