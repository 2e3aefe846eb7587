//! The interface through which filters read the cluster and the node. The daemon implements it with its stores, and
//! `weir run` with files.
//!
//! Every read is from memory and never waits. A [`Snapshot`] is one consistent state. A filter call takes one at its
//! first lookup and drops it at its end.

use std::fmt;
use std::sync::Arc;

use weir_spec::{CachedObject, InterfaceAddress, LookupSpec, Presence, Selection};

/// The address at which pods of this node reach the daemon.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Endpoint {
    /// An IP address.
    pub host: String,
    /// TCP port.
    pub port: u16,
}

/// The cluster and the node as filters see them.
pub trait ClusterView: Send + Sync + fmt::Debug {
    /// Returns one consistent state of all looked-up kinds. Cheap, because it clones pointers and copies no objects.
    fn snapshot(&self) -> Arc<dyn Snapshot>;
    /// Returns the version of the current snapshot.
    fn version(&self) -> u64;
    /// Returns the name of the daemon's node.
    fn node_name(&self) -> &str;
    /// Returns the daemon's own endpoint for pods, if it has one.
    fn secure_endpoint(&self) -> Option<Endpoint>;
}

/// One consistent state. Objects are unfiltered.
pub trait Snapshot: Send + Sync + fmt::Debug {
    /// Returns the version. It grows with every change. Equal versions mean the same state.
    fn version(&self) -> u64;
    /// Returns one object. `lookup` is the declared lookup that covers it.
    fn get(&self, lookup: &LookupSpec, namespace: Option<&str>, name: &str) -> Option<Arc<CachedObject>>;
    /// Returns what is known of one object.
    fn presence(&self, lookup: &LookupSpec, namespace: Option<&str>, name: &str) -> Presence {
        if self.get(lookup, namespace, name).is_some() { Presence::Present } else { Presence::Absent }
    }
    /// Returns one object, or what this function last returned for it while it existed.
    fn last_known(&self, lookup: &LookupSpec, namespace: Option<&str>, name: &str) -> Option<Arc<CachedObject>> {
        self.get(lookup, namespace, name)
    }
    /// Returns the objects that a label selector matches, of one namespace or of all, sorted by namespace and name.
    /// Returns an error if the selector is malformed.
    fn find(
        &self,
        lookup: &LookupSpec,
        namespace: Option<&str>,
        label_selector: &str,
    ) -> Result<Arc<Selection>, String>;
    /// Returns the same, or what this function last returned for it while there was an object.
    /// Returns an error if the selector is malformed.
    fn find_last_known(
        &self,
        lookup: &LookupSpec,
        namespace: Option<&str>,
        label_selector: &str,
    ) -> Result<Arc<Selection>, String> {
        self.find(lookup, namespace, label_selector)
    }
    /// Returns the number of objects that a lookup covers.
    fn count(&self, _lookup: &LookupSpec) -> usize {
        0
    }
    /// Returns how many objects [`Snapshot::find`] reads: none if it remembers the selection. While it reads many, another
    /// thread runs the other tasks of this one.
    fn objects_to_read(&self, _lookup: &LookupSpec, _namespace: Option<&str>, _label_selector: &str) -> usize {
        0
    }
    /// Returns the node's addresses.
    fn addresses(&self) -> Arc<[InterfaceAddress]>;
}

impl dyn Snapshot + '_ {
    /// Calls [`Snapshot::find_last_known`] or [`Snapshot::find`].
    pub(super) fn find_as(
        &self,
        last_known: bool,
        lookup: &LookupSpec,
        namespace: Option<&str>,
        label_selector: &str,
    ) -> Result<Arc<Selection>, String> {
        match last_known {
            true => self.find_last_known(lookup, namespace, label_selector),
            false => self.find(lookup, namespace, label_selector),
        }
    }
}
