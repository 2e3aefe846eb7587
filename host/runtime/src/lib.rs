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

pub use filter::{
    Chain, ChainPeriod, ChainVersion, ChangeSet, Decision, DocumentFilter, Failure, Filter, FilterExplanation,
    FilterSet, Filtered, Lookups, Outcome, Outcomes, Serving, ServingReceiver, SetAsideObject, Slot, Unwritable,
    Written,
};
pub use metrics::{BreakerChange, FilterCounts, RuntimeMetrics};
pub use module::{ChildError, Compiler, LoadError, Loader, LookupSource, Probe};
pub use wasm::{
    ClusterView, Description, Endpoint, Engine, EngineError, FailureClass, LinkError, RawLookup, Snapshot, Step, Steps,
    not_wasm,
};

pub(crate) use filter::*;
pub(crate) use wasm::*;
