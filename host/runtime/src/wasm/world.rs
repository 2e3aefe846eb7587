//! What a filter may read beside its object, as a trait: the daemon answers from feeds, `weir run` from files.
//!
//! Every answer is from memory and never waits. A [`Snapshot`] is one consistent state: it is taken once per call of a
//! filter and dropped with it.

use std::fmt;
use std::sync::Arc;

use weir_document::Path;

use weir_document::{LookedUp, Selection};
use weir_kube::{InterfaceAddress, Lookup};

/// Where pods of this node reach the daemon.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Endpoint {
    /// An IP address.
    pub host: String,
    /// TCP port.
    pub port: u16,
}

/// The node and the cluster as filters see them.
pub trait World: Send + Sync + fmt::Debug {
    /// One consistent state of all looked-up kinds. Cheap: pointers are cloned, nothing is copied.
    fn snapshot(&self) -> Arc<dyn Snapshot>;
    /// The name of the node that the daemon runs on.
    fn node_name(&self) -> &str;
    /// The daemon's own endpoint for pods, if it has one.
    fn secure_endpoint(&self) -> Option<Endpoint>;
}

/// Where reads are recorded, so that a change of what a filter looked up is told from a change of what it did not.
pub trait Recorder: Send + Sync + fmt::Debug {
    /// A number that no other recorder of this process has or had.
    fn identity(&self) -> u64;
    /// Moves when what was recorded no longer counts: what is read from then on is to be recorded again.
    fn generation(&self) -> u64;
    /// A value was read. Called for every read: it must be cheap when nothing is new.
    fn note(&self, read: &Read, value: u64);
}

/// One consistent state. Objects are unfiltered.
pub trait Snapshot: Send + Sync + fmt::Debug {
    /// One object, or nothing. `lookup` is the declared lookup that covers the question.
    fn get(&self, lookup: &Lookup, namespace: Option<&str>, name: &str) -> Option<Arc<LookedUp>>;
    /// The objects of a namespace (or all) that a label selector matches, sorted by namespace and name.
    /// `Err` when the selector is malformed.
    fn find(&self, lookup: &Lookup, namespace: Option<&str>, label_selector: &str) -> Result<Arc<Selection>, String>;
    /// The node's addresses at this moment.
    fn addresses(&self) -> Arc<[InterfaceAddress]>;
}

/// A read that a filter made beside its object, as recorded: what was asked, so that it can be asked again.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Read {
    /// Whether an object exists (`at: None`), or a value in it.
    Object {
        /// The lookup that answered.
        lookup: Arc<Lookup>,
        /// As asked.
        namespace: Option<Box<str>>,
        /// As asked.
        name: Box<str>,
        /// The path read; none: only whether the object exists.
        at: Option<Path>,
    },
    /// Which objects a selection holds (`at: None`), or a value in all of them.
    Selection {
        /// The lookup that answered.
        lookup: Arc<Lookup>,
        /// As asked.
        namespace: Option<Box<str>>,
        /// As asked.
        label_selector: Box<str>,
        /// The path read; none: only the objects' names.
        at: Option<Path>,
    },
    /// The node's addresses.
    Addresses,
}

impl Read {
    /// Reads again, as it is now. Equal to what was recorded while nothing that counts has changed.
    #[must_use]
    pub fn value(&self, snapshot: &dyn Snapshot) -> u64 {
        match self {
            Self::Object { lookup, namespace, name, at } => {
                match (snapshot.get(lookup, namespace.as_deref(), name), at) {
                    (Some(object), Some(at)) => object.value(at),
                    (found, _) => u64::from(found.is_some()),
                }
            }
            Self::Selection { lookup, namespace, label_selector, at } => {
                match (snapshot.find(lookup, namespace.as_deref(), label_selector), at) {
                    (Ok(selection), Some(at)) => selection.value(at),
                    (Ok(selection), None) => selection.identity(),
                    (Err(_), _) => UNREADABLE,
                }
            }
            Self::Addresses => addresses_value(&snapshot.addresses()),
        }
    }
}

/// Stands for a value that can't be read.
pub(super) const UNREADABLE: u64 = 0x7265_6164_6572_726f;

/// The recorded form of the node's addresses.
#[must_use]
pub(super) fn addresses_value(addresses: &[InterfaceAddress]) -> u64 {
    use std::hash::BuildHasher;
    foldhash::fast::FixedState::default().hash_one(addresses)
}
