//! Which objects of a resource a filter looks up: what a reflector is opened with.

use std::hash::{Hash, Hasher};

use crate::GroupResource;

/// One kind that a module's plan declares; see `lookup` in `wit/module.wit`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lookup {
    /// The kind.
    pub resource: GroupResource,
    /// API versions the module can read, preferred first; empty: the server's preferred one.
    pub versions: Vec<String>,
    /// Only the object of this name.
    pub name: Option<String>,
    /// Only objects that this label selector matches.
    pub label_selector: Option<String>,
    /// PartialObjectMetadata is enough.
    pub metadata_only: bool,
    /// A server without the kind has none of it either way; if false, that is worth a warning.
    pub optional: bool,
}

impl Lookup {
    /// All objects of a resource, whole, in whichever version the server prefers.
    #[must_use]
    pub fn all(resource: GroupResource) -> Self {
        Self { resource, versions: Vec::new(), name: None, label_selector: None, metadata_only: false, optional: false }
    }
}

impl Hash for Lookup {
    /// Of what tells lookups apart most often: they are in the key of every read that is recorded.
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.resource.resource.hash(state);
        self.name.hash(state);
    }
}
