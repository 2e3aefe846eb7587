//! The native side: the same filter on `weir-document`, the daemon's own object engine, with a made-up [`World`] around
//! it. What the host refuses or traps on fails here too: lookups that the plan does not declare, lookups in
//! `configure`, edits of protected fields or looked-up objects, malformed objects.

pub(crate) mod backend;
mod call;
mod runner;
mod store;

use weir_document::Document;

use crate::node::{Address, Endpoint};

pub use runner::{Fault, Runner};

/// What surrounds a filter: the node, and the objects of the cluster.
#[derive(Clone, Debug, Default)]
pub struct World {
    /// The node that the daemon would run on.
    pub node: Node,
    /// Whole objects, with apiVersion and kind, in any order.
    pub cluster: Vec<Document>,
}

/// What [`node`](crate::node) answers.
#[derive(Clone, Debug, Default)]
pub struct Node {
    /// The node's name.
    pub name: String,
    /// Its addresses.
    pub addresses: Vec<Address>,
    /// The daemon's address for pods.
    pub endpoint: Option<Endpoint>,
}
