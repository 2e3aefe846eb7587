//! Match rules: `component/resource[.group]#verb;verb`, for example `kube-proxy/endpointslices#list;watch`.

use std::fmt;
use std::str::FromStr;

use weir_kube::{GroupResource, ResourceNameError, VerbClass};

/// One validated rule. Its `Display` is the text in the configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MatchRule {
    text: Box<str>,
    /// None: any.
    component: Option<Box<str>>,
    /// None: any.
    resource: Option<GroupResource>,
    classes: Classes,
    /// Whether the rule names one or two of the three read verbs. It covers all three.
    partial_read: bool,
}

/// The reason why a rule is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RuleError {
    /// There is no `/`, or a part is empty.
    #[error("rule {0:?}: write it as component/resource[.group]#verb;verb, e.g. kube-proxy/endpointslices#list;watch")]
    Malformed(String),
    /// The component has characters that the first token of a User-Agent cannot have.
    #[error(
        "rule {rule:?}: {component:?} is not a component name: it is the first word of a User-Agent, up to its `/`"
    )]
    Component {
        /// The rule.
        rule: String,
        /// The invalid component.
        component: String,
    },
    /// The resource name is invalid.
    #[error("rule {rule:?}: {source}")]
    Resource {
        /// The rule.
        rule: String,
        /// The reason.
        source: ResourceNameError,
    },
    /// The rule names a subresource. A rule for the parent covers its subresources.
    #[error("rule {rule:?}: {resource:?} names a subresource; name only {parent:?}, which covers its subresources")]
    SubResource {
        /// The rule.
        rule: String,
        /// The subresource.
        resource: String,
        /// The parent, which the rule must name instead.
        parent: String,
    },
    /// The verb does not exist in Kubernetes.
    #[error("rule {rule:?}: unknown verb {verb:?}: one of get, list, watch, create, update, patch, delete or *")]
    Verb {
        /// The rule.
        rule: String,
        /// The unknown verb.
        verb: String,
    },
}

/// A set of verb classes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Classes(u8);

/// The maximum length of a rule in bytes.
const MAX_RULE: usize = 512;

impl MatchRule {
    /// Returns whether the rule covers a request. The comparison of `component` ignores case.
    #[must_use]
    pub fn matches(&self, component: &str, resource: &GroupResource, class: VerbClass) -> bool {
        self.classes.has(class)
            && self.component.as_ref().is_none_or(|wanted| wanted.eq_ignore_ascii_case(component))
            && self.resource.as_ref().is_none_or(|wanted| wanted == resource)
    }

    /// Returns the client component; `None` is any.
    #[must_use]
    pub fn component(&self) -> Option<&str> {
        self.component.as_deref()
    }

    /// Returns the resource; `None` is any.
    #[must_use]
    pub fn resource(&self) -> Option<&GroupResource> {
        self.resource.as_ref()
    }

    /// Returns whether the rule covers reads of a resource by some client.
    #[must_use]
    pub fn covers(&self, resource: &GroupResource) -> bool {
        self.classes.has(VerbClass::Read) && self.resource.as_ref().is_none_or(|wanted| wanted == resource)
    }

    /// Returns a warning for a valid rule that covers other requests than it names: more of them, or none.
    #[must_use]
    pub(crate) fn warning(&self) -> Option<String> {
        if !self.classes.has(VerbClass::Read) {
            return Some(format!(
                "rule {:?} names none of get, list and watch: filters run on reads only, so the rule matches nothing",
                self.text
            ));
        }
        self.partial_read.then(|| {
            format!(
                "rule {:?} names only some of get, list and watch: it covers all three, so that a list and its watch agree",
                self.text
            )
        })
    }
}

impl FromStr for MatchRule {
    type Err = RuleError;

    fn from_str(text: &str) -> Result<Self, RuleError> {
        let text = text.trim();
        let malformed = || RuleError::Malformed(text.chars().take(MAX_RULE).collect());
        if text.len() > MAX_RULE {
            return Err(malformed());
        }
        let (component, rest) = text.split_once('/').ok_or_else(malformed)?;
        let (resource, verbs) = rest.split_once('#').map_or((rest, None), |(resource, verbs)| (resource, Some(verbs)));
        let (component, resource) = (component.trim(), resource.trim());
        if component.is_empty() || resource.is_empty() {
            return Err(malformed());
        }
        let (classes, partial_read) = verbs.map_or(Ok((Classes::READ, false)), |verbs| verb_list(text, verbs))?;
        Ok(Self {
            text: text.into(),
            component: (component != "*").then(|| component_name(text, component)).transpose()?,
            resource: (resource != "*").then(|| resource_name(text, resource)).transpose()?,
            classes,
            partial_read,
        })
    }
}

fn component_name(rule: &str, component: &str) -> Result<Box<str>, RuleError> {
    let allowed = |c: char| c.is_ascii_graphic() && !matches!(c, '*' | '#' | ';' | ',' | '/');
    if component.chars().all(allowed) {
        Ok(component.into())
    } else {
        Err(RuleError::Component { rule: rule.to_owned(), component: component.to_owned() })
    }
}

fn resource_name(rule: &str, resource: &str) -> Result<GroupResource, RuleError> {
    if let Some((parent, _)) = resource.split_once('/') {
        return Err(RuleError::SubResource {
            rule: rule.to_owned(),
            resource: resource.to_owned(),
            parent: parent.to_owned(),
        });
    }
    resource.parse().map_err(|source| RuleError::Resource { rule: rule.to_owned(), source })
}

/// Returns the classes of a list of verbs, and whether it names some but not all read verbs.
fn verb_list(rule: &str, verbs: &str) -> Result<(Classes, bool), RuleError> {
    let mut classes = Classes::default();
    let mut reads: u8 = 0;
    for verb in verbs.split(';').map(str::trim) {
        match verb {
            "*" => return Ok((Classes::ALL, false)),
            "get" => reads |= 1,
            "list" => reads |= 2,
            "watch" => reads |= 4,
            "create" => classes.add(VerbClass::Create),
            "update" => classes.add(VerbClass::Update),
            "patch" => classes.add(VerbClass::Patch),
            "delete" => classes.add(VerbClass::Delete),
            _ => {
                return Err(RuleError::Verb { rule: rule.to_owned(), verb: verb.to_owned() });
            }
        }
    }
    if reads != 0 {
        classes.add(VerbClass::Read);
    }
    Ok((classes, reads != 0 && reads != 7))
}

impl Classes {
    const READ: Self = Self(Self::bit(VerbClass::Read));
    const ALL: Self = Self(0b1_1111);

    const fn bit(class: VerbClass) -> u8 {
        match class {
            VerbClass::Read => 1,
            VerbClass::Create => 2,
            VerbClass::Update => 4,
            VerbClass::Patch => 8,
            VerbClass::Delete => 16,
        }
    }

    fn add(&mut self, class: VerbClass) {
        self.0 |= Self::bit(class);
    }

    fn has(self, class: VerbClass) -> bool {
        self.0 & Self::bit(class) != 0
    }
}

impl fmt::Display for MatchRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(text: &str) -> MatchRule {
        text.parse().unwrap()
    }

    fn refused(text: &str) -> String {
        text.parse::<MatchRule>().unwrap_err().to_string()
    }

    fn slices() -> GroupResource {
        GroupResource::new("endpointslices", "discovery.k8s.io")
    }

    #[test]
    fn a_rule_for_some_read_verbs_covers_all_of_them_and_has_a_warning() {
        for verbs in ["#list", "#list;watch", "#watch", "#get", "#list; watch"] {
            let rule = rule(&format!("kube-proxy/endpointslices{verbs}"));
            assert!(rule.matches("kube-proxy", &slices(), VerbClass::Read), "{verbs}");
            assert!(!rule.matches("kube-proxy", &slices(), VerbClass::Update), "{verbs}");
            assert!(rule.warning().unwrap().contains("covers all three"), "{verbs}");
        }
        assert_eq!(rule("kube-proxy/endpointslices#get;list;watch").warning(), None);
    }

    #[test]
    fn without_verbs_a_rule_covers_reads_only_and_a_star_covers_writes_too() {
        let reads = rule("kubelet/pods");
        let all = rule("kubelet/pods#*");
        let pods = GroupResource::new("pods", "");
        for class in [VerbClass::Create, VerbClass::Update, VerbClass::Patch, VerbClass::Delete] {
            assert!(!reads.matches("kubelet", &pods, class));
            assert!(all.matches("kubelet", &pods, class));
        }
        assert!(reads.matches("kubelet", &pods, VerbClass::Read) && all.matches("kubelet", &pods, VerbClass::Read));
        assert_eq!(reads.warning(), None);
    }

    #[test]
    fn write_verbs_alone_do_not_cover_reads() {
        let rule = rule("kubelet/pods#patch;update");
        let pods = GroupResource::new("pods", "");
        assert!(rule.matches("kubelet", &pods, VerbClass::Patch) && rule.matches("kubelet", &pods, VerbClass::Update));
        assert!(!rule.matches("kubelet", &pods, VerbClass::Read));
    }

    #[test]
    fn a_rule_without_a_read_verb_has_a_warning_that_it_matches_nothing() {
        for verbs in ["#update", "#patch;update", "#create", "#delete"] {
            let text = format!("kubelet/pods{verbs}");
            let warning = rule(&text).warning().unwrap();
            assert!(warning.contains(&text) && warning.contains("matches nothing"), "{warning}");
        }
        assert_eq!(rule("kubelet/pods#get;list;watch;patch;update").warning(), None);
    }

    #[test]
    fn the_comparison_of_components_ignores_case() {
        assert!(rule("coredns/endpointslices").matches("CoreDNS", &slices(), VerbClass::Read));
        assert!(!rule("coredns/endpointslices").matches("CoreDNS2", &slices(), VerbClass::Read));
    }

    #[test]
    fn a_star_matches_any_component_or_resource_and_groups_match_exactly() {
        assert!(rule("*/endpointslices").matches("", &slices(), VerbClass::Read));
        assert!(rule("kubelet/*").matches("kubelet", &slices(), VerbClass::Read));
        let knative = GroupResource::new("services", "serving.knative.dev");
        assert!(!rule("kube-proxy/services").matches("kube-proxy", &knative, VerbClass::Read));
        assert!(rule("kube-proxy/services.serving.knative.dev").matches("kube-proxy", &knative, VerbClass::Read));
    }

    #[test]
    fn every_error_names_the_rule_and_its_invalid_part() {
        for bad in ["", "kube-proxy", "/services", "kube-proxy/", "kube-proxy/#list"] {
            assert!(refused(bad).starts_with(&format!("rule {bad:?}: write it as component/resource")), "{bad}");
        }
        assert_eq!(
            refused("kube-proxy/services#lst"),
            r#"rule "kube-proxy/services#lst": unknown verb "lst": one of get, list, watch, create, update, patch, delete or *"#
        );
        assert!(refused("kube-proxy/services#").contains(r#"unknown verb """#));
        assert_eq!(
            refused("kube-proxy/foos#list"),
            r#"rule "kube-proxy/foos#list": "foos" is not a built-in resource: write it with its group, as foos.<group>"#
        );
        assert!(refused("kubelet/pods/status#get").contains(r#"name only "pods""#));
        assert!(refused("kube proxy/pods").contains(r#""kube proxy" is not a component name"#));
        assert!(refused(&"x".repeat(10_000)).len() < 1000, "a message is bounded");
    }

    #[test]
    fn a_rule_prints_the_text_of_the_configuration() {
        assert_eq!(rule(" test/endpoints#list;watch ").to_string(), "test/endpoints#list;watch");
    }
}
