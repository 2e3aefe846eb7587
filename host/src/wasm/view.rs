//! The cluster and the node as filters see them, as a trait: the daemon answers from its stores, `weir run` from files.
//!
//! Every answer is from memory and never waits. A [`Snapshot`] is one consistent state: a filter call takes one with its
//! first lookup and drops it at its end.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use super::cached::{CachedObject, Selection};
use crate::resource::GroupResource;

/// One kind that a module's plan declares; see `lookup` in `wit/module.wit`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lookup {
    /// The kind.
    pub resource: GroupResource,
    /// API versions that the module can read, preferred first; empty: the server's preferred one.
    pub versions: Vec<String>,
    /// Only the object of this name.
    pub name: Option<String>,
    /// Only objects that this label selector matches.
    pub label_selector: Option<String>,
    /// PartialObjectMetadata is enough.
    pub metadata_only: bool,
    /// A kind that the server lacks is treated as empty either way; if false, the daemon also warns.
    pub optional: bool,
}

impl Lookup {
    /// All objects of a kind, in the server's preferred version.
    #[must_use]
    pub fn of(resource: GroupResource) -> Self {
        Self {
            resource,
            versions: Vec::new(),
            name: None,
            label_selector: None,
            metadata_only: false,
            optional: false,
        }
    }
}

#[cfg(test)]
impl Lookup {
    /// All objects of a kind.
    pub(crate) fn test(resource: &str) -> Self {
        Self::of(resource.parse().unwrap())
    }
}

impl Hash for Lookup {
    /// Of the fields that tell lookups apart most often: a lookup is part of the key of every dependency.
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.resource.resource.hash(state);
        self.name.hash(state);
    }
}

/// One address of one of the node's interfaces.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Address {
    /// `eth0`.
    pub interface_name: String,
    /// The address, v4 or v6.
    pub ip: std::net::IpAddr,
    /// Of the on-link prefix.
    pub prefix_length: u8,
    /// Whether a default route of this family leaves through the interface.
    pub default_route: bool,
}

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
    fn addresses(&self) -> Arc<[Address]>;
}

/// Keeps what a filter looks up up to date while it lives; dropped with the filter.
pub trait LookupSubscription: Send + Sync + fmt::Debug {}
