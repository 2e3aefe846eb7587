//! The cluster and the node as filters see them, as a trait: the daemon answers from its stores, `weir run` from files.
//!
//! Every answer is from memory and never waits. A [`Snapshot`] is one consistent state: a filter call takes one with its
//! first lookup and drops it at its end.

use std::fmt;
use std::sync::Arc;

use weir_document::{CachedObject, Selection};
use weir_kube::{InterfaceAddress, Lookup};

/// Where pods of this node reach the daemon.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Endpoint {
    /// An IP address.
    pub host: String,
    /// TCP port.
    pub port: u16,
}

/// The cluster and the node as filters see them.
pub trait ClusterView: Send + Sync + fmt::Debug {
    /// One consistent state of all looked-up kinds. Cheap: pointers are cloned, nothing is copied.
    fn snapshot(&self) -> Arc<dyn Snapshot>;
    /// The version of the snapshot that [`ClusterView::snapshot`] returns now.
    fn version(&self) -> u64;
    /// The name of the node that the daemon runs on.
    fn node_name(&self) -> &str;
    /// The daemon's own endpoint for pods, if it has one.
    fn secure_endpoint(&self) -> Option<Endpoint>;
}

/// One consistent state. Objects are unfiltered.
pub trait Snapshot: Send + Sync + fmt::Debug {
    /// Grows with every change of anything in it; equal versions are the same state.
    fn version(&self) -> u64;
    /// One object, or nothing. `lookup` is the declared lookup that covers the object.
    fn get(&self, lookup: &Lookup, namespace: Option<&str>, name: &str) -> Option<Arc<CachedObject>>;
    /// The objects of a namespace (or all) that a label selector matches, sorted by namespace and name.
    /// `Err` when the selector is malformed.
    fn find(&self, lookup: &Lookup, namespace: Option<&str>, label_selector: &str) -> Result<Arc<Selection>, String>;
    /// The node's addresses.
    fn addresses(&self) -> Arc<[InterfaceAddress]>;
}

/// Keeps what a filter looks up up to date while it lives; dropped with the filter.
pub trait LookupSubscription: Send + Sync + fmt::Debug {}
