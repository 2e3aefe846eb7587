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
    Chain, ChainPeriod, ChainVersion, ChangeSet, Decision, DependencySet, DocumentFilter, Failure, Filter,
    FilterExplanation, FilterSet, Filtered, Lookups, Outcome, Outcomes, Serving, ServingReceiver, ServingSender,
    SetAsideObject, Slot, Unwritable, Written, tick,
};
pub use metrics::{BreakerChange, FilterCounts, RuntimeMetrics};
pub use module::{ChildError, Compiler, LoadError, Loader, LookupSource, Probe, compile_child, memory_limit};
pub use wasm::{
    ClusterView, Dependency, Description, Edit, Endpoint, Engine, EngineError, FailureClass, LinkError, Linked,
    LookupSubscription, RawLookup, RawPlan, Read, Snapshot, Step, Steps, Target, Verdict, not_wasm,
};

pub(crate) use filter::*;
pub(crate) use wasm::*;
