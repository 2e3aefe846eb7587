//! A filter as configured: its name, its module, its match rules, its limits and what happens when it fails. The types
//! validate; where they are read from is the daemon's affair.

mod digest;
mod limits;
mod name;
mod rule;

use serde_json::{Map, Value};
use weir_document::Path;
use weir_kube::GroupResource;

pub use self::digest::{Digest, DigestError};
pub use self::limits::{LimitError, Limits, MemoryLimit, TimeLimit, duration, quantity};
pub use self::name::{FilterName, ModuleFile, NameError};
pub use self::rule::{MatchRule, RuleError};

/// One filter as configured.
#[derive(Debug, Clone, PartialEq)]
pub struct FilterEntry {
    /// Unique in the configuration.
    pub name: FilterName,
    /// Where its code is.
    pub module: ModuleFile,
    /// What the code must be.
    pub digest: Option<Digest>,
    /// None: the rules of the module's plan. Never empty unless written so, which matches nothing.
    pub matches: Option<Vec<MatchRule>>,
    /// Given to the module as JSON text.
    pub settings: Map<String, Value>,
    /// What becomes of an object on which it fails.
    pub failure_policy: FailurePolicy,
    /// What becomes of a write that would put back what the filter alters.
    pub writes: Writes,
    /// What it may look up; none: [`default_grants`].
    pub grants: Option<Vec<GroupResource>>,
    /// Per call.
    pub limits: Limits,
    /// Guarded paths that it may edit nevertheless.
    pub edits: Vec<Path>,
}

/// What becomes of an object on which a filter fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum FailurePolicy {
    /// The answer fails: the client never sees an object that was not filtered.
    #[default]
    Fail,
    /// The object passes as it came to this filter.
    Ignore,
    /// The object is left out.
    Hide,
}

/// What becomes of a write that replaces an object which the filter shows altered, or not at all, to its writer: written
/// back, the filter's cut would become the cluster's state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Writes {
    /// It is refused with 403.
    #[default]
    Refuse,
    /// It passes: the writer is known to write only what it means.
    Pass,
}

/// What a filter may look up when its entry says nothing: what the bundled filters need, and never secrets.
#[must_use]
pub fn default_grants() -> Vec<GroupResource> {
    [
        ("services", ""),
        ("endpointslices", "discovery.k8s.io"),
        ("endpoints", ""),
        ("nodes", ""),
        ("nodepools", "apps.openyurt.io"),
        ("nodebuckets", "apps.openyurt.io"),
        ("namespaces", ""),
    ]
    .map(|(resource, group)| GroupResource::new(resource, group))
    .into()
}

impl FilterEntry {
    /// A filter with defaults: its module is the file of its name.
    #[must_use]
    pub fn of(name: FilterName, matches: Option<Vec<MatchRule>>) -> Self {
        Self {
            module: ModuleFile::of_filter(&name),
            name,
            digest: None,
            matches,
            settings: Map::new(),
            failure_policy: FailurePolicy::default(),
            writes: Writes::default(),
            grants: None,
            limits: Limits::default(),
            edits: Vec::new(),
        }
    }

    /// The settings as the module receives them.
    #[must_use]
    pub fn settings_json(&self) -> String {
        Value::Object(self.settings.clone()).to_string()
    }

    /// What it may look up.
    #[must_use]
    pub fn granted(&self) -> Vec<GroupResource> {
        self.grants.clone().unwrap_or_else(default_grants)
    }
}

impl FailurePolicy {
    /// As it is written in the configuration.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Fail => "Fail",
            Self::Ignore => "Ignore",
            Self::Hide => "Hide",
        }
    }
}

impl std::str::FromStr for Writes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "refuse" => Ok(Self::Refuse),
            "pass" => Ok(Self::Pass),
            other => Err(format!("{other:?} is not what becomes of writes: refuse or pass")),
        }
    }
}

impl std::str::FromStr for FailurePolicy {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "Fail" => Ok(Self::Fail),
            "Ignore" => Ok(Self::Ignore),
            "Hide" => Ok(Self::Hide),
            other => Err(format!("{other:?} is not a failure policy: Fail, Ignore or Hide")),
        }
    }
}
