//! Hosting of filter modules: engine, linking, instances, limits and faults. Knows nothing of HTTP; sees lookups as
//! the trait [`World`].

mod world;

pub use world::{Address, Endpoint, LookedUp, Lookup, Read, Selection, Snapshot, World};
