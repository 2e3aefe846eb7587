//! The types that a filter's author implements and returns: the [`Filter`] trait, the plan and the verdict.

use serde::de::DeserializeOwned;

use crate::{Error, Object};

/// A filter of Kubernetes objects on their way to a client of this node.
///
/// `filter` takes `&self` because a filter is a pure function of its settings and of what it reads. Between objects it
/// may keep only values that derive from something it read, keyed by that value's fingerprint. [`Memo`](crate::Memo)
/// holds such values.
pub trait Filter: Sized + 'static {
    /// The settings. Derive `Deserialize` with `#[serde(deny_unknown_fields, rename_all = "camelCase")]`. A wrong key
    /// or type then rejects the configuration with a message that names the key.
    type Settings: DeserializeOwned;

    /// Creates the filter from its settings. [`Error::setting`] names an invalid key. This function may read the
    /// [`node`](crate::node), but not the cluster.
    fn configure(settings: Self::Settings) -> Result<Self, Error>;

    /// Returns the default match rules and all lookups of `filter`. Equal settings must give equal plans.
    fn plan(&self) -> Plan;

    /// Filters one object and edits it in place. If it returns an error, the host undoes its edits and applies the
    /// failure policy.
    fn filter(&self, object: &mut Object<'_>) -> Result<Verdict, Error>;
}

/// The decision on an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The client receives the object with the edits.
    Keep,
    /// The client does not receive the object.
    Hide,
}

/// What a configured filter handles and needs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// The match rules for a configuration without any: `component/resource[.group]#verb;verb`.
    pub matches: Vec<String>,
    /// Every lookup that the filter may make.
    pub lookups: Vec<Lookup>,
}

impl Plan {
    /// Creates a plan with these default match rules, such as `["kube-proxy/services#get;list;watch"]`.
    pub fn matching<T: Into<String>>(matches: impl IntoIterator<Item = T>) -> Self {
        Self { matches: matches.into_iter().map(Into::into).collect(), lookups: Vec::new() }
    }

    /// Adds one lookup.
    #[must_use]
    pub fn with(mut self, lookup: Lookup) -> Self {
        self.lookups.push(lookup);
        self
    }

    /// Adds lookups.
    #[must_use]
    pub fn with_all(mut self, lookups: impl IntoIterator<Item = Lookup>) -> Self {
        self.lookups.extend(lookups);
        self
    }
}

/// A declaration of objects to look up. Declare as few objects as possible: the daemon watches them and holds them in
/// memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lookup {
    /// The plural name with the group: `services`, `nodepools.apps.openyurt.io`.
    pub resource: String,
    /// The versions that the filter can read, preferred first. Empty means any version.
    pub versions: Vec<String>,
    /// Restricts the lookup to objects of this name.
    pub name: Option<String>,
    /// Restricts the lookup to objects that match this label selector.
    pub label_selector: Option<String>,
    /// Restricts the objects to their metadata. All other reads then return none.
    pub metadata_only: bool,
    /// Whether the API server may lack the kind. Lookups of a missing kind return nothing.
    pub optional: bool,
}

impl Lookup {
    /// Declares all objects of a resource, complete and in any version. The API server is expected to serve the kind.
    pub fn of(resource: impl Into<String>) -> Self {
        Self {
            resource: resource.into(),
            versions: Vec::new(),
            name: None,
            label_selector: None,
            metadata_only: false,
            optional: false,
        }
    }

    /// Restricts the lookup to these versions, preferred first.
    #[must_use]
    pub fn versions<T: Into<String>>(mut self, versions: impl IntoIterator<Item = T>) -> Self {
        self.versions = versions.into_iter().map(Into::into).collect();
        self
    }

    /// Restricts the lookup to objects of this name.
    #[must_use]
    pub fn named(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Restricts the lookup to objects that match the label selector.
    #[must_use]
    pub fn selected(mut self, label_selector: impl Into<String>) -> Self {
        self.label_selector = Some(label_selector.into());
        self
    }

    /// Restricts the objects to their metadata. That is a small part of a Node, and changes rarely.
    #[must_use]
    pub fn metadata_only(mut self) -> Self {
        self.metadata_only = true;
        self
    }

    /// Allows an API server that lacks the kind.
    #[must_use]
    pub fn optional(mut self) -> Self {
        self.optional = true;
        self
    }
}
