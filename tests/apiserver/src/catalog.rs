//! The served resources and their properties. Tests add and remove resources at run time.
//!
//! Memory: one small record per served (group, version, resource).

use std::sync::{Arc, PoisonError, RwLock};

mod builtin;

/// One served resource in one version. Versions of the same group and plural share their objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resource {
    /// API group; empty for the core group.
    pub group: String,
    /// Version within the group. The first registered version of a group is its preferred one.
    pub version: String,
    /// The name in the path.
    pub plural: String,
    /// The kind of one object; a list's kind has `List` appended.
    pub kind: String,
    /// The short names that kubectl accepts.
    pub short_names: Vec<String>,
    /// Whether its objects are namespaced.
    pub namespaced: bool,
    /// Whether a CRD defines it. In its lists `kind` and `metadata` follow `items`, and items carry apiVersion and
    /// kind. It has no strategic merge patch.
    pub custom: bool,
    /// Whether `metadata.generation` counts changes of the spec.
    pub generation: bool,
    /// The served sub-resources.
    pub subresources: Vec<String>,
    /// Whether it is a review, such as SelfSubjectAccessReview: clients can only create it, and it is not stored.
    pub review: bool,
}

/// The resources served now.
#[derive(Debug)]
pub(crate) struct Catalog {
    resources: RwLock<Vec<Arc<Resource>>>,
}

// === impl Resource ===

impl Resource {
    /// A namespaced resource of a CRD without sub-resources.
    pub fn new(group: &str, version: &str, plural: &str, kind: &str) -> Self {
        Self {
            group: group.to_owned(),
            version: version.to_owned(),
            plural: plural.to_owned(),
            kind: kind.to_owned(),
            short_names: Vec::new(),
            namespaced: true,
            custom: true,
            generation: true,
            subresources: Vec::new(),
            review: false,
        }
    }

    /// The same resource, cluster-scoped.
    #[must_use]
    pub fn cluster_scoped(mut self) -> Self {
        self.namespaced = false;
        self
    }

    /// The same resource, built into the API server.
    #[must_use]
    pub fn built_in(mut self) -> Self {
        self.custom = false;
        self.generation = false;
        self
    }

    /// Adds a short name.
    #[must_use]
    pub fn short_name(mut self, name: &str) -> Self {
        self.short_names.push(name.to_owned());
        self
    }

    /// Adds a sub-resource. With `status`, writes of the main resource leave the status unchanged.
    #[must_use]
    pub fn subresource(mut self, name: &str) -> Self {
        self.subresources.push(name.to_owned());
        self
    }

    /// `v1` or `group/version`, as in `apiVersion`.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.clone() } else { format!("{}/{}", self.group, self.version) }
    }

    /// `services` or `nodepools.apps.openyurt.io`. It names the objects in all versions.
    pub fn qualified(&self) -> String {
        qualified(&self.group, &self.plural)
    }

    pub(crate) fn singular(&self) -> String {
        self.kind.to_lowercase()
    }

    pub(crate) fn list_kind(&self) -> String {
        format!("{}List", self.kind)
    }

    pub(crate) fn has(&self, subresource: &str) -> bool {
        self.subresources.iter().any(|name| name == subresource)
    }

    pub(crate) fn verbs(&self) -> &'static [&'static str] {
        if self.review {
            &["create"]
        } else {
            &["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]
        }
    }
}

/// The name of a collection.
pub(crate) fn qualified(group: &str, plural: &str) -> String {
    if group.is_empty() { plural.to_owned() } else { format!("{plural}.{group}") }
}

// === impl Catalog ===

impl Catalog {
    /// The built-in kinds and OpenYurt's CRDs.
    pub(crate) fn new() -> Self {
        Self { resources: RwLock::new(builtin::resources().into_iter().map(Arc::new).collect()) }
    }

    /// Adds a resource, or replaces the one with the same group, version and plural.
    pub(crate) fn add(&self, resource: Resource) {
        let mut resources = self.resources.write().unwrap_or_else(PoisonError::into_inner);
        resources.retain(|old| {
            (&old.group, &old.version, &old.plural) != (&resource.group, &resource.version, &resource.plural)
        });
        resources.push(Arc::new(resource));
    }

    /// Removes all versions of a resource, or one of them. Returns whether there was any.
    pub(crate) fn remove(&self, group: &str, plural: &str, version: Option<&str>) -> bool {
        let mut resources = self.resources.write().unwrap_or_else(PoisonError::into_inner);
        let before = resources.len();
        resources.retain(|old| {
            old.group != group || old.plural != plural || version.is_some_and(|only| only != old.version)
        });
        before != resources.len()
    }

    pub(crate) fn all(&self) -> Vec<Arc<Resource>> {
        self.resources.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn by_path(&self, group: &str, version: &str, plural: &str) -> Option<Arc<Resource>> {
        self.find(|known| known.group == group && known.version == version && known.plural == plural)
    }

    pub(crate) fn by_kind(&self, api_version: &str, kind: &str) -> Option<Arc<Resource>> {
        self.find(|known| known.kind == kind && known.api_version() == api_version)
    }

    fn find(&self, wanted: impl Fn(&Resource) -> bool) -> Option<Arc<Resource>> {
        self.resources.read().unwrap_or_else(PoisonError::into_inner).iter().find(|known| wanted(known)).cloned()
    }
}
