//! Code that several bundled filters share: this node's pool and its members ([`pool`]), endpoints grouped by node
//! ([`addresses`]), the address at which pods reach the daemon instead of the API server ([`gateway`]), and the ConfigMap with
//! kube-proxy's configuration ([`kube_proxy`]).

pub mod addresses;
pub mod gateway;
mod heap_sort;
pub mod kube_proxy;
mod names;
pub mod pool;

pub use heap_sort::heap_sort;
