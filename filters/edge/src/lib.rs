//! Code that several bundled filters share: this node's pool and its members ([`pool`]), endpoints grouped by node
//! ([`addresses`]), and the address at which pods reach the daemon instead of the API server ([`gateway`]).

pub mod addresses;
pub mod gateway;
mod names;
pub mod pool;
