//! Native runs of a filter, without wasm. The filter runs on `weir-document`, the daemon's document engine, in an
//! [`Environment`] that the test provides. A run fails where the host refuses or traps: undeclared lookups, lookups in
//! `configure`, edits of protected fields or of looked-up objects, malformed objects.

pub(crate) mod backend;
mod call;
mod runner;
mod store;

use weir_document::Document;

use crate::node::{Address, Endpoint};

pub use runner::{NativeError, Runner};

/// The environment of a filter: the node and the objects of the cluster.
#[derive(Clone, Debug, Default)]
pub struct Environment {
    /// The node that the daemon would run on.
    pub node: Node,
    /// Complete objects, with apiVersion and kind, in any order.
    pub cluster: Vec<Document>,
}

/// The results of the functions in [`node`](crate::node).
#[derive(Clone, Debug, Default)]
pub struct Node {
    /// The node's name.
    pub name: String,
    /// The node's addresses.
    pub addresses: Vec<Address>,
    /// The daemon's address for pods.
    pub endpoint: Option<Endpoint>,
}
