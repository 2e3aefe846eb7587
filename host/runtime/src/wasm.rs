//! The host of filter modules: engine, linking, instances, host calls and their traces, limits and faults. It does not
//! depend on HTTP or on the configuration of filters. It reads lookups through the trait [`ClusterView`].

mod approve;
mod bindings;
mod budget;
mod cluster;
mod dependency;
mod engine;
mod evaluate;
mod explanation;
mod fault;
mod handles;
mod header;
mod hit;
mod host_call;
mod instance;
mod log_rate;
mod long_work;
mod lookup;
mod memory_limit;
mod node;
mod objects;
mod paths;
mod pool;
mod state;
mod trace;
mod verdict;
mod view;
mod wasi;

pub use bindings::exports::weir::filter::module::Lookup as RawLookup;
pub(crate) use bindings::exports::weir::filter::module::Plan;
pub(crate) use dependency::{Dependencies, Dependency, Epoch};
pub use engine::{Engine, EngineError};
pub(crate) use evaluate::{Scope, evaluate};
pub use explanation::{Step, Steps};
pub use fault::FailureClass;
pub(crate) use fault::Fault;
pub use header::not_wasm;
#[cfg(test)]
pub(crate) use host_call::{Edit, Read, Target};
pub(crate) use host_call::{HostCall, Observed};
pub(crate) use instance::{Bounds, Called, Linked, StartError};
pub use instance::{Description, LinkError};
#[cfg(test)]
pub(crate) use lookup::{Declared, LookupContext};
pub(crate) use pool::{Checkout, Pool};
pub(crate) use state::InstanceContext;
pub(crate) use trace::{Extent, Trace};
pub(crate) use verdict::Verdict;
pub use view::{ClusterView, Endpoint, Snapshot};

#[cfg(test)]
mod linear_cost;
#[cfg(test)]
mod tests;
