//! Changes of the cluster that can affect dependencies.

use std::collections::HashSet;
use std::sync::Arc;

use weir_spec::LookupSpec;

/// Changes of looked-up objects and of the node.
#[derive(Debug, Default)]
pub struct ChangeSet {
    /// Whether anything may have changed.
    everything: bool,
    /// Whether the node's addresses have changed.
    pub(super) addresses: bool,
    /// Lookups, any object of which may have changed.
    pub(super) whole: HashSet<Arc<LookupSpec>>,
    /// Changed objects.
    pub(super) objects: HashSet<ObjectId>,
    /// Lookups, an object of which has changed.
    pub(super) touched: HashSet<Arc<LookupSpec>>,
}

/// An object of a lookup. The namespace is empty for cluster-scoped objects.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct ObjectId {
    pub(super) lookup: Arc<LookupSpec>,
    pub(super) namespace: Box<str>,
    pub(super) name: Box<str>,
}

impl ChangeSet {
    /// Adds every object: anything may have changed.
    pub fn add_everything(&mut self) {
        self.everything = true;
    }

    /// Adds the node's addresses.
    pub fn add_addresses(&mut self) {
        self.addresses = true;
    }

    /// Adds a lookup, any object of which may have changed.
    pub fn add_lookup(&mut self, lookup: &Arc<LookupSpec>) {
        self.touched.insert(lookup.clone());
        self.whole.insert(lookup.clone());
    }

    /// Adds an object that has changed. The namespace is empty for cluster-scoped objects.
    pub fn add_object(&mut self, lookup: &Arc<LookupSpec>, namespace: &str, name: &str) {
        self.touched.insert(lookup.clone());
        self.objects.insert(ObjectId { lookup: lookup.clone(), namespace: namespace.into(), name: name.into() });
    }

    /// Returns whether every dependency is affected.
    pub(super) fn is_everything(&self) -> bool {
        self.everything
    }
}
