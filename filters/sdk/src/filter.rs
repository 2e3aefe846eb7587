//! What an author implements: the [`Filter`] trait, the plan it answers with and its verdict. Types only.

use serde::de::DeserializeOwned;

use crate::{Error, Object};

/// A filter: judges Kubernetes objects on their way to a client of this node.
///
/// `filter` takes `&self` on purpose. A filter is a pure function of its settings and of what it reads; the one thing
/// it may keep between objects is a value derived from something it read, keyed by that value's fingerprint, and that
/// is what
/// [`Memo`](crate::Memo) holds.
pub trait Filter: Sized + 'static {
    /// The settings. Derive `Deserialize` with `#[serde(deny_unknown_fields, rename_all = "camelCase")]`: a wrong key
    /// or type then refuses the configuration with a message that names the key.
    type Settings: DeserializeOwned;

    /// Makes the filter from its settings, or says why they will not do ([`Error::setting`] names the key). The node
    /// may be asked ([`node`](crate::node)), the cluster may not.
    fn configure(settings: Self::Settings) -> Result<Self, Error>;

    /// The default requests, and all that `filter` looks up. The same for the same settings.
    fn plan(&self) -> Plan;

    /// Judges one object, and edits it in place. With an error its edits are undone and the failure policy decides.
    fn filter(&self, object: &mut Object<'_>) -> Result<Verdict, Error>;
}

/// What becomes of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The client sees it, with the edits made.
    Keep,
    /// The client does not see it.
    Hide,
}

/// What a configured filter is for and what it needs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// The requests it filters when its configuration names none: `component/resource[.group]#verb;verb`.
    pub matches: Vec<String>,
    /// Everything it looks up.
    pub lookups: Vec<Lookup>,
}

impl Plan {
    /// A plan with these default requests, as `["kube-proxy/services#get;list;watch"]`.
    pub fn matching<T: Into<String>>(matches: impl IntoIterator<Item = T>) -> Self {
        Self { matches: matches.into_iter().map(Into::into).collect(), lookups: Vec::new() }
    }

    /// The same plan with one more lookup.
    #[must_use]
    pub fn with(mut self, lookup: Lookup) -> Self {
        self.lookups.push(lookup);
        self
    }

    /// The same plan with more lookups.
    #[must_use]
    pub fn with_all(mut self, lookups: impl IntoIterator<Item = Lookup>) -> Self {
        self.lookups.extend(lookups);
        self
    }
}

/// One declared kind of object to look up. Narrow it: the daemon keeps and watches all that it matches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lookup {
    /// `services`, `nodepools.apps.openyurt.io`.
    pub resource: String,
    /// Versions that the filter can read, preferred first; empty = any.
    pub versions: Vec<String>,
    /// Only the object of this name.
    pub name: Option<String>,
    /// Only objects that this label selector matches.
    pub label_selector: Option<String>,
    /// Only metadata: all other reads find nothing.
    pub metadata_only: bool,
    /// Whether a server without the kind will do: then nothing is found.
    pub optional: bool,
}

impl Lookup {
    /// All objects of a resource, whole, in any version, on a server that has the kind.
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

    /// Only in these versions, preferred first.
    #[must_use]
    pub fn versions<T: Into<String>>(mut self, versions: impl IntoIterator<Item = T>) -> Self {
        self.versions = versions.into_iter().map(Into::into).collect();
        self
    }

    /// Only the object of this name.
    #[must_use]
    pub fn named(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Only objects that the label selector matches.
    #[must_use]
    pub fn selected(mut self, label_selector: impl Into<String>) -> Self {
        self.label_selector = Some(label_selector.into());
        self
    }

    /// Only their metadata: a small fraction of a Node, and it changes seldom.
    #[must_use]
    pub fn metadata_only(mut self) -> Self {
        self.metadata_only = true;
        self
    }

    /// A server without the kind will do.
    #[must_use]
    pub fn optional(mut self) -> Self {
        self.optional = true;
        self
    }
}
