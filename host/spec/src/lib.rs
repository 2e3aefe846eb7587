//! What a filter is given: its configuration, the objects that it looks up, and the addresses of the node.
//!
//! The configuration is a name, a module, match rules, limits and policies. Each type validates its text when it is parsed; the
//! daemon reads the files that contain the texts. Lookups, their objects and the addresses are here because the store provides them
//! and the runtime reads them, and neither knows the other.

mod cached;
mod digest;
mod interface_address;
mod limits;
mod lookup;
mod module_source;
mod name;
mod roll_out;
mod rule;

use serde_json::{Map, Value};
use weir_document::Path;
use weir_kube::{GroupResource, KUBELET, VerbClass};

pub use cached::{CachedObject, Selection, keyed_hasher};
pub use digest::{Digest, DigestError};
pub use interface_address::InterfaceAddress;
pub use limits::{LimitError, Limits, MAX_MODULE, MemoryLimit, TimeLimit};
pub use lookup::{LookupSpec, Presence};
pub use module_source::{
    ModuleSource, ModuleSourceError, ObjectName, OciReference, OciReferenceError, PinnedReference,
};
pub use name::{FilterName, ModuleFile, NameError};
pub use roll_out::{Mode, NodeSelection, Rollback, Share};
pub use rule::{MatchRule, RuleError};

/// One filter as configured.
#[derive(Debug, Clone, PartialEq)]
pub struct FilterEntry {
    /// The name, unique in the configuration.
    pub name: FilterName,
    /// Where its module is.
    pub module: ModuleSource,
    /// The digest that the module must have. None: any.
    pub digest: Option<Digest>,
    /// The signature of the module, for sources other than registries: what `cosign sign-blob` prints, or its bundle.
    pub signature: Option<String>,
    /// The match rules. None: the rules of the module's plan. An empty list matches nothing.
    pub matches: Option<Vec<MatchRule>>,
    /// The settings. The module receives them as JSON text.
    pub settings: Map<String, Value>,
    /// Whether it changes what clients see.
    pub mode: Mode,
    /// The nodes on which it is active. None: all.
    pub nodes: Option<NodeSelection>,
    /// When it is taken back after it became active. None: never.
    pub rollback: Option<Rollback>,
    /// The policy for objects that the filter fails on.
    pub failure_policy: FailurePolicy,
    /// Whether `Hide` may take pods and Nodes from kubelet.
    pub allow_hide: bool,
    /// The policy for writes of objects that the filter alters.
    pub writes: Writes,
    /// The resources that it may look up. None: [`default_grants`].
    pub grants: Option<Vec<GroupResource>>,
    /// The limits of one call.
    pub limits: Limits,
    /// The guarded paths that it may edit.
    pub edits: Vec<Path>,
}

/// The policy for an object that a filter fails on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum FailurePolicy {
    /// The response fails. The client never sees an unfiltered object.
    #[default]
    Fail,
    /// The object passes without the edits of this filter.
    Ignore,
    /// The object is omitted.
    Hide,
}

/// What kubelet cannot do without, and what it does with objects that are missing.
const KUBELET_NEEDS: [(&str, &str); 2] =
    [("pods", "it stops a pod that it no longer sees"), ("nodes", "without its Node it admits no pods")];

/// `failurePolicy: Hide` could take objects from kubelet.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`Hide` could take {resource} from kubelet by the rule {rule:?}: {effect}. Use `Fail`, or set `allowHide: true`"
)]
pub struct HideError {
    rule: String,
    resource: &'static str,
    effect: &'static str,
}

/// The policy for a write that replaces an object which the filter edits or hides for the writer. Such a write would
/// make the edit permanent in the cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Writes {
    /// Weir refuses the write with 403.
    #[default]
    Refuse,
    /// Weir forwards the write. Suits clients that write only fields that no filter edits.
    Pass,
}

/// Returns the resources that a filter may look up by default: those of the bundled filters, and never secrets.
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
    /// Creates an entry with defaults. The module file has the name of the filter.
    #[must_use]
    pub fn of(name: FilterName, matches: Option<Vec<MatchRule>>) -> Self {
        Self {
            module: ModuleSource::of_filter(&name),
            name,
            digest: None,
            signature: None,
            matches,
            settings: Map::new(),
            mode: Mode::default(),
            nodes: None,
            rollback: None,
            failure_policy: FailurePolicy::default(),
            allow_hide: false,
            writes: Writes::default(),
            grants: None,
            limits: Limits::default(),
            edits: Vec::new(),
        }
    }

    /// Returns the settings as JSON text.
    #[must_use]
    pub fn settings_json(&self) -> String {
        Value::Object(self.settings.clone()).to_string()
    }

    /// Returns the warnings about match rules of this filter: those of the configuration, or of the module's plan.
    #[must_use]
    pub fn rule_warnings(&self, rules: &[MatchRule]) -> Vec<String> {
        rules.iter().filter_map(MatchRule::warning).map(|warning| format!("filter {}: {warning}", self.name)).collect()
    }

    /// Checks that a failure of this filter takes no pods or Nodes from kubelet: it would stop the pods, or not find its Node.
    /// `rules` are those of the configuration, or of the module's plan.
    ///
    /// # Errors
    /// A rule covers such reads, the failure policy is `Hide`, and the entry does not allow that.
    pub fn check_hide(&self, rules: &[MatchRule]) -> Result<(), HideError> {
        if self.failure_policy != FailurePolicy::Hide || self.allow_hide {
            return Ok(());
        }
        let takes =
            |rule: &MatchRule, resource| rule.matches(KUBELET, &GroupResource::new(resource, ""), VerbClass::Read);
        for (resource, effect) in KUBELET_NEEDS {
            if let Some(rule) = rules.iter().find(|rule| takes(rule, resource)) {
                return Err(HideError { rule: rule.to_string(), resource, effect });
            }
        }
        Ok(())
    }

    /// Returns the resources that it may look up.
    #[must_use]
    pub fn granted(&self) -> Vec<GroupResource> {
        self.grants.clone().unwrap_or_else(default_grants)
    }
}

impl FailurePolicy {
    /// Returns the value in the configuration.
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
            other => Err(format!("{other:?} is not a policy for writes: refuse or pass")),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hide_takes_no_pods_and_nodes_from_kubelet_unless_that_is_allowed() {
        let mut entry =
            FilterEntry { failure_policy: FailurePolicy::Hide, ..FilterEntry::of("a".parse().unwrap(), None) };
        for (rule, refused) in [
            ("kubelet/pods", true),
            ("Kubelet/nodes#get", true),
            ("*/pods", true),
            ("kubelet/*", true),
            ("*/*", true),
            ("kubelet/pods#update", false),
            ("kubelet/services", false),
            ("kubelet/pods.metrics.k8s.io", false),
            ("kube-proxy/nodes", false),
        ] {
            let rules = ["x/pods", rule].map(|rule| rule.parse().unwrap());
            assert_eq!(entry.check_hide(&rules).is_err(), refused, "{rule}");
        }
        let rules: [MatchRule; 1] = ["*/nodes".parse().unwrap()];
        let error = entry.check_hide(&rules).unwrap_err().to_string();
        assert!(error.starts_with(r#"`Hide` could take nodes from kubelet by the rule "*/nodes": "#), "{error}");
        entry.allow_hide = true;
        assert_eq!(entry.check_hide(&rules), Ok(()));
        (entry.allow_hide, entry.failure_policy) = (false, FailurePolicy::Fail);
        assert_eq!(entry.check_hide(&rules), Ok(()));
    }

    #[test]
    fn a_warning_names_the_filter_and_the_rule() {
        let entry = FilterEntry::of("a".parse().unwrap(), None);
        let rules = ["kubelet/pods#update", "kubelet/pods", "x/pods#list"].map(|rule| rule.parse().unwrap());
        let warnings = entry.rule_warnings(&rules);
        assert_eq!(warnings.len(), 2, "{warnings:?}");
        assert!(warnings[0].starts_with(r#"filter a: rule "kubelet/pods#update" names none of"#), "{warnings:?}");
        assert!(warnings[1].starts_with(r#"filter a: rule "x/pods#list" names only some of"#), "{warnings:?}");
    }
}
