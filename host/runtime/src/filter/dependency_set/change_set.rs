//! What changed in the cluster, as far as dependencies are concerned.

use std::collections::HashSet;
use std::sync::Arc;

use weir_kube::Lookup;

/// Changes of looked-up objects and of the node.
#[derive(Debug, Default)]
pub struct ChangeSet {
    /// Anything may have changed.
    everything: bool,
    /// The node's addresses.
    pub(super) addresses: bool,
    /// Lookups of which any object may have changed.
    pub(super) whole: HashSet<Arc<Lookup>>,
    /// Changed objects.
    pub(super) objects: HashSet<ObjectId>,
    /// Lookups of which an object has changed.
    pub(super) touched: HashSet<Arc<Lookup>>,
}

/// An object of a lookup; the namespace is empty outside namespaces.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct ObjectId {
    pub(super) lookup: Arc<Lookup>,
    pub(super) namespace: Box<str>,
    pub(super) name: Box<str>,
}

impl ChangeSet {
    /// Anything may have changed.
    pub fn add_everything(&mut self) {
        self.everything = true;
    }

    /// The node's addresses have changed.
    pub fn add_addresses(&mut self) {
        self.addresses = true;
    }

    /// Any object of a lookup may have changed.
    pub fn add_lookup(&mut self, lookup: &Arc<Lookup>) {
        self.touched.insert(lookup.clone());
        self.whole.insert(lookup.clone());
    }

    /// An object has changed; the namespace is empty outside namespaces.
    pub fn add_object(&mut self, lookup: &Arc<Lookup>, namespace: &str, name: &str) {
        self.touched.insert(lookup.clone());
        self.objects.insert(ObjectId { lookup: lookup.clone(), namespace: namespace.into(), name: name.into() });
    }

    /// Whether every dependency is concerned.
    pub(super) fn is_everything(&self) -> bool {
        self.everything
    }
}
