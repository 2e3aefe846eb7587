//! The dependencies of filter calls besides their object: values of looked-up objects and of the node, as fingerprints.
//!
//! A call collects its dependencies in [`Dependencies`]. The filter stores them with the outcome of the call. A stored
//! value is not collected again: its looked-up object has a mark with the [`Epoch`] of the filter's dependency set.

use std::hash::{Hash as _, Hasher as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use weir_document::Path;
use weir_spec::{CachedObject, InterfaceAddress, LookupSpec, Selection, keyed_hasher};

use super::view::Snapshot;

/// The fingerprint of a value that cannot be read.
const UNREADABLE: u64 = 0x7265_6164_6572_726f;

/// A value that a filter read besides its object, with everything that is needed to read it again.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Dependency {
    /// The existence of an object (`at: None`), or a value in it.
    Object {
        /// The lookup that covers it.
        lookup: Arc<LookupSpec>,
        /// An argument of the lookup.
        namespace: Option<Box<str>>,
        /// An argument of the lookup.
        name: Box<str>,
        /// The path. None: the existence of the object.
        at: Option<Path>,
    },
    /// The existence of an object or of what was last known of it (`at: None`), or a value in it.
    LastKnown {
        /// The lookup that covers it.
        lookup: Arc<LookupSpec>,
        /// An argument of the lookup.
        namespace: Option<Box<str>>,
        /// An argument of the lookup.
        name: Box<str>,
        /// The path. None: the existence of the object.
        at: Option<Path>,
    },
    /// What is known of an object.
    Presence {
        /// The lookup that covers it.
        lookup: Arc<LookupSpec>,
        /// An argument of the lookup.
        namespace: Option<Box<str>>,
        /// An argument of the lookup.
        name: Box<str>,
    },
    /// The identity of the objects in a selection (`at: None`), or a value in all of them.
    Selection {
        /// The lookup that covers it.
        lookup: Arc<LookupSpec>,
        /// An argument of the lookup.
        namespace: Option<Box<str>>,
        /// An argument of the lookup.
        label_selector: Box<str>,
        /// Whether what was last known of it counts if it is empty.
        last_known: bool,
        /// The path. None: the identity of the objects.
        at: Option<Path>,
    },
    /// The node's addresses.
    Addresses,
}

/// The dependencies of one call that the filter has not stored yet, and their snapshot.
#[derive(Debug, Default)]
pub(crate) struct Dependencies {
    pub(super) snapshot: Option<Arc<dyn Snapshot>>,
    pub(super) new: Vec<Collected>,
}

/// A collected dependency.
#[derive(Debug)]
pub(super) struct Collected {
    pub(super) dependency: Dependency,
    pub(super) value: u64,
    pub(super) memory: Remembering,
}

/// The object or selection that is marked when the value has been stored.
#[derive(Debug)]
pub(super) enum Remembering {
    Nowhere,
    Object(Arc<CachedObject>),
    Selection(Arc<Selection>),
}

/// Identifies a dependency set and its generation. Values that were stored in an earlier epoch must be stored again.
#[derive(Debug)]
pub(crate) struct Epoch {
    set: u64,
    generation: AtomicU64,
}

/// An epoch at one moment: the number of the set, and its generation.
pub(crate) type EpochMark = (u64, u64);

impl Dependency {
    /// Reads the value again. It equals the stored one unless a relevant change has happened.
    #[must_use]
    pub(crate) fn value(&self, snapshot: &dyn Snapshot) -> u64 {
        let in_object = |found: Option<Arc<CachedObject>>, at: &Option<Path>| match (found, at) {
            (Some(object), Some(at)) => object.value(at),
            (found, _) => u64::from(found.is_some()),
        };
        match self {
            Self::Object { lookup, namespace, name, at } => {
                in_object(snapshot.get(lookup, namespace.as_deref(), name), at)
            }
            Self::LastKnown { lookup, namespace, name, at } => {
                in_object(snapshot.last_known(lookup, namespace.as_deref(), name), at)
            }
            Self::Presence { lookup, namespace, name } => {
                snapshot.presence(lookup, namespace.as_deref(), name).number()
            }
            Self::Selection { lookup, namespace, label_selector, last_known, at } => {
                match (snapshot.find_as(*last_known, lookup, namespace.as_deref(), label_selector), at) {
                    (Ok(selection), Some(at)) => selection.value(at),
                    (Ok(selection), None) => selection.identity(),
                    (Err(_), _) => UNREADABLE,
                }
            }
            Self::Addresses => addresses_value(&snapshot.addresses()),
        }
    }
}

impl Dependencies {
    /// Returns the snapshot of the call's lookups, or none if there were no lookups.
    #[must_use]
    pub(crate) fn snapshot(&self) -> Option<&Arc<dyn Snapshot>> {
        self.snapshot.as_ref()
    }

    /// Returns whether there is nothing to store.
    #[must_use]
    pub(crate) fn is_empty(&self) -> bool {
        self.new.is_empty()
    }

    /// Iterates over the dependencies with their values.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Dependency, u64)> {
        self.new.iter().map(|collected| (&collected.dependency, collected.value))
    }

    /// Marks them as stored in this epoch. The caller must have stored them, because later calls rely on the mark.
    pub(crate) fn mark_stored(&self, mark: EpochMark) {
        for Collected { dependency, memory, .. } in &self.new {
            let at = match dependency {
                Dependency::Object { at, .. } | Dependency::LastKnown { at, .. } | Dependency::Selection { at, .. } => {
                    at.as_ref()
                }
                Dependency::Presence { .. } | Dependency::Addresses => None,
            };
            match memory {
                Remembering::Nowhere => {}
                Remembering::Object(object) => object.mark(at, mark),
                Remembering::Selection(selection) => selection.mark(at, mark),
            }
        }
    }
}

impl Epoch {
    /// Creates the epoch of a new dependency set.
    #[must_use]
    pub(crate) fn new(generation: u64) -> Self {
        static SETS: AtomicU64 = AtomicU64::new(1);
        Self { set: SETS.fetch_add(1, Ordering::Relaxed), generation: AtomicU64::new(generation) }
    }

    /// Returns the current epoch.
    #[must_use]
    pub(crate) fn mark(&self) -> EpochMark {
        (self.set, self.generation.load(Ordering::Acquire))
    }

    /// Advances the epoch after the set was cleared.
    pub(crate) fn advance(&self, generation: u64) {
        self.generation.store(generation, Ordering::Release);
    }
}

/// Returns the fingerprint of the node's addresses.
#[must_use]
pub(super) fn addresses_value(addresses: &[InterfaceAddress]) -> u64 {
    let mut hasher = keyed_hasher();
    addresses.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
impl Dependencies {
    /// As a call would have collected them.
    pub(crate) fn test(snapshot: Arc<dyn Snapshot>, values: Vec<(Dependency, u64)>) -> Self {
        let collected = |(dependency, value)| Collected { dependency, value, memory: Remembering::Nowhere };
        Self { snapshot: Some(snapshot), new: values.into_iter().map(collected).collect() }
    }
}

#[cfg(test)]
mod tests {
    use weir_document::Document;

    use super::*;

    #[test]
    fn a_value_is_stored_once_in_each_epoch_of_each_dependency_set() {
        let object = CachedObject::new(Document::json(r#"{"metadata":{"name":"a"},"x":"y"}"#.into()));
        let (one, other) = (Epoch::new(0), Epoch::new(0));
        let store = |at: Option<&Path>, epoch: &Epoch| {
            let stored = object.is_marked(at, epoch.mark());
            object.mark(at, epoch.mark());
            stored
        };
        let x = Path::parse("x").unwrap();
        assert!(!store(None, &one) && !store(Some(&x), &one));
        assert!(store(None, &one) && store(Some(&x), &one));
        assert!(!store(Some(&x), &other), "another set does not have it");
        one.advance(1);
        assert!(!store(Some(&x), &one), "the set was cleared");
    }
}
