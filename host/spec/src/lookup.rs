//! A lookup: the objects of one resource that a filter declares to read.

use std::hash::{Hash, Hasher};

use weir_kube::GroupResource;

/// Selects the objects of one resource that a filter reads beside the object it filters.
///
/// A module declares its lookups in its plan; see `lookup` in `wit/module.wit`. Each distinct lookup is served by one
/// reflector, and equal lookups share it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LookupSpec {
    /// The resource to list and watch.
    pub resource: GroupResource,
    /// The API versions that the module can read, in order of preference. Empty: the preferred version of the API server.
    pub versions: Vec<String>,
    /// Restricts the lookup to the object of this name (a field selector on `metadata.name`).
    pub name: Option<String>,
    /// Restricts the lookup to objects that this label selector matches.
    pub label_selector: Option<String>,
    /// Requests `PartialObjectMetadata` instead of whole objects.
    pub metadata_only: bool,
    /// Whether the cluster may lack the resource. A missing resource is treated as empty either way; Weir logs a warning
    /// only if this is false.
    pub optional: bool,
}

/// What is known of an object that a lookup covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Presence {
    /// It exists.
    Present,
    /// It does not exist.
    Absent,
    /// The API server does not serve the kind in a version that the lookup names.
    NotServed,
    /// The kind has not been read.
    NotKnown,
}

impl Presence {
    const ALL: [Self; 4] = [Self::Present, Self::Absent, Self::NotServed, Self::NotKnown];

    /// Returns a number that stands for it.
    #[must_use]
    pub fn number(self) -> u64 {
        self as u64
    }

    /// Returns the presence that a number stands for. Nothing is known by any other number.
    #[must_use]
    pub fn of_number(number: u64) -> Self {
        Self::ALL.into_iter().find(|presence| presence.number() == number).unwrap_or(Self::NotKnown)
    }
}

impl LookupSpec {
    /// All objects of a resource, whole, in the preferred version of the API server.
    #[must_use]
    pub fn all(resource: GroupResource) -> Self {
        Self { resource, versions: Vec::new(), name: None, label_selector: None, metadata_only: false, optional: false }
    }
}

impl Hash for LookupSpec {
    /// Hashes only the fields that differ most often. Every recorded read is keyed by a lookup, so hashing must be cheap.
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.resource.resource.hash(state);
        self.name.hash(state);
    }
}
