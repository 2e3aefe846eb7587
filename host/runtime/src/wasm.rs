//! Hosting of filter modules: engine, linking, instances, limits and faults. Knows nothing of HTTP; sees lookups as
//! the trait [`World`].

mod approve;
mod bindings;
mod cluster;
mod engine;
mod fault;
mod finder;
mod found;
mod instance;
mod lesson;
mod node;
mod objects;
mod pool;
mod replay;
mod state;
mod wasi;
mod world;

pub use approve::Refused;
pub use bindings::exports::weir::filter::module::Lookup as RawLookup;
pub use engine::{Engine, EngineError, TICK, Ticking};
pub use fault::{Fault, one_line};
pub use finder::{Declared, Finder};
pub use instance::{Answer, Bounds, Description, Instance, LinkError, Linked, RawPlan, StartError};
pub use lesson::{Lesson, Question, Reply, Step, Which};
pub use pool::{Checkout, Pool};
pub(crate) use replay::Replay;
pub use state::Surroundings;
pub use world::{Endpoint, Read, Recorder, Snapshot, World};
