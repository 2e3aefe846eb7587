//! What filter calls depend on beside their object: values of looked-up objects and of the node, as fingerprints.
//!
//! A call collects its dependencies in [`Dependencies`]; the filter stores them when the call's outcome is stored. A value
//! that the filter has stored already is collected no more: the looked-up object remembers in which [`Epoch`] of the
//! filter's dependency set it was stored.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use weir_document::{CachedObject, Path, Selection};
use weir_kube::{InterfaceAddress, Lookup};

use super::view::Snapshot;

/// Stands for a value that can not be read.
const UNREADABLE: u64 = 0x7265_6164_6572_726f;

/// A value that a filter read beside its object: enough to read it again.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Dependency {
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
        /// The path read; none: only which objects.
        at: Option<Path>,
    },
    /// The node's addresses.
    Addresses,
}

/// The dependencies of one call that the filter has not stored yet, and the snapshot that they were read from.
#[derive(Debug, Default)]
pub struct Dependencies {
    pub(super) snapshot: Option<Arc<dyn Snapshot>>,
    pub(super) new: Vec<Collected>,
}

/// One of them.
#[derive(Debug)]
pub(super) struct Collected {
    pub(super) dependency: Dependency,
    pub(super) value: u64,
    pub(super) memory: Remembering,
}

/// Where it is remembered that the value was stored.
#[derive(Debug)]
pub(super) enum Remembering {
    Nowhere,
    Object(Arc<CachedObject>),
    Selection(Arc<Selection>),
}

/// Identifies a dependency set and how often it was cleared. What was stored in an earlier epoch is to be stored again.
#[derive(Debug)]
pub struct Epoch {
    set: u64,
    generation: AtomicU64,
}

/// The epoch at one moment: the number of the set, and its generation.
pub type EpochMark = (u64, u64);

impl Dependency {
    /// Reads the value again. Equal to the stored one while nothing has changed that counts.
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

impl Dependencies {
    /// The snapshot that the call's lookups saw; none if it looked nothing up.
    #[must_use]
    pub fn snapshot(&self) -> Option<&Arc<dyn Snapshot>> {
        self.snapshot.as_ref()
    }

    /// Whether there is nothing to store.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.new.is_empty()
    }

    /// Those to be stored, with their values.
    pub fn iter(&self) -> impl Iterator<Item = (&Dependency, u64)> {
        self.new.iter().map(|collected| (&collected.dependency, collected.value))
    }

    /// Remembers that they were stored in this epoch. Only then: a call that finds them stored relies on it.
    pub fn mark_stored(&self, mark: EpochMark) {
        for Collected { dependency, memory, .. } in &self.new {
            let at = match dependency {
                Dependency::Object { at, .. } | Dependency::Selection { at, .. } => at.as_ref(),
                Dependency::Addresses => None,
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
    /// The epoch of a new dependency set.
    #[must_use]
    pub fn new(generation: u64) -> Self {
        static SETS: AtomicU64 = AtomicU64::new(1);
        Self { set: SETS.fetch_add(1, Ordering::Relaxed), generation: AtomicU64::new(generation) }
    }

    /// At this moment.
    #[must_use]
    pub fn mark(&self) -> EpochMark {
        (self.set, self.generation.load(Ordering::Acquire))
    }

    /// The set was cleared.
    pub fn advance(&self, generation: u64) {
        self.generation.store(generation, Ordering::Release);
    }
}

/// The fingerprint of the node's addresses.
#[must_use]
pub(super) fn addresses_value(addresses: &[InterfaceAddress]) -> u64 {
    use std::hash::BuildHasher;
    foldhash::fast::FixedState::default().hash_one(addresses)
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
