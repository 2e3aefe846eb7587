//! What several bundled filters know of the edge, said once: which pool this node is in and who else is ([`pool`]),
//! endpoints by the node they are on ([`addresses`]), and where pods reach the daemon instead of the API server
//! ([`gateway`]).

pub mod addresses;
pub mod gateway;
mod names;
pub mod pool;
