//! Match rules: `component/resource[.group]#verb;verb`, as `kube-proxy/endpointslices#list;watch`.

use std::fmt;
use std::str::FromStr;

use weir_kube::{GroupResource, ResourceNameError, VerbClass};

/// One validated rule. Shown as it was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MatchRule {
    text: Box<str>,
    /// None: any.
    component: Option<Box<str>>,
    /// None: any.
    resource: Option<GroupResource>,
    classes: Classes,
    /// Whether the read verbs named are only some of the three that the rule covers.
    partial_read: bool,
}

/// Why a rule was refused. Never retryable: the text must change.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RuleError {
    /// No `/`, or more than one part missing.
    #[error("rule {0:?}: write it as component/resource[.group]#verb;verb, e.g. kube-proxy/endpointslices#list;watch")]
    Malformed(String),
    /// The component has characters that no User-Agent's first token has.
    #[error(
        "rule {rule:?}: {component:?} is not a component name: it is the first word of a User-Agent, up to its `/`"
    )]
    Component {
        /// The whole rule.
        rule: String,
        /// Its component.
        component: String,
    },
    /// The resource is none.
    #[error("rule {rule:?}: {source}")]
    Resource {
        /// The whole rule.
        rule: String,
        /// What is wrong with its resource.
        source: ResourceNameError,
    },
    /// A sub-resource: those are matched with their parent.
    #[error(
        "rule {rule:?}: {resource:?} names a sub-resource; name only {parent:?}, its sub-resources are matched with it"
    )]
    SubResource {
        /// The whole rule.
        rule: String,
        /// What was named.
        resource: String,
        /// The part to name instead.
        parent: String,
    },
    /// A verb is none of Kubernetes'.
    #[error("rule {rule:?}: unknown verb {verb:?}: one of get, list, watch, create, update, patch, delete or *")]
    Verb {
        /// The whole rule.
        rule: String,
        /// The verb.
        verb: String,
    },
}

/// A set of classes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Classes(u8);

/// Longer texts are refused: no component or resource name comes near.
const MAX_RULE: usize = 512;

impl MatchRule {
    /// Whether the rule names this request. `component` is compared without regard to case.
    #[must_use]
    pub fn matches(&self, component: &str, resource: &GroupResource, class: VerbClass) -> bool {
        self.classes.has(class)
            && self.component.as_ref().is_none_or(|wanted| wanted.eq_ignore_ascii_case(component))
            && self.resource.as_ref().is_none_or(|wanted| wanted == resource)
    }

    /// What `weir check` should tell about the rule: it is valid, but does more than it says.
    #[must_use]
    pub fn warning(&self) -> Option<String> {
        if !self.classes.has(VerbClass::Read) {
            return Some(format!(
                "rule {:?} names none of get, list and watch: filters see only what is read, so the rule matches nothing",
                self.text
            ));
        }
        self.partial_read.then(|| {
            format!(
                "rule {:?} names only some of get, list and watch: it covers all three, so that a list and its watch never disagree",
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

/// The classes that a list of verbs names, and whether it names some but not all of the read verbs.
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
    fn naming_list_covers_get_and_watch_and_is_warned_of() {
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
    fn a_rule_without_a_read_verb_is_warned_of_because_it_matches_nothing() {
        for verbs in ["#update", "#patch;update", "#create", "#delete"] {
            let text = format!("kubelet/pods{verbs}");
            let warning = rule(&text).warning().unwrap();
            assert!(warning.contains(&text) && warning.contains("matches nothing"), "{warning}");
        }
        assert_eq!(rule("kubelet/pods#get;list;watch;patch;update").warning(), None);
    }

    #[test]
    fn component_matches_without_regard_to_case() {
        assert!(rule("coredns/endpointslices").matches("CoreDNS", &slices(), VerbClass::Read));
        assert!(!rule("coredns/endpointslices").matches("CoreDNS2", &slices(), VerbClass::Read));
    }

    #[test]
    fn a_star_stands_for_any_component_or_resource_and_a_group_is_exact() {
        assert!(rule("*/endpointslices").matches("", &slices(), VerbClass::Read));
        assert!(rule("kubelet/*").matches("kubelet", &slices(), VerbClass::Read));
        let knative = GroupResource::new("services", "serving.knative.dev");
        assert!(!rule("kube-proxy/services").matches("kube-proxy", &knative, VerbClass::Read));
        assert!(rule("kube-proxy/services.serving.knative.dev").matches("kube-proxy", &knative, VerbClass::Read));
    }

    #[test]
    fn every_refusal_names_the_rule_and_the_part() {
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
    fn a_rule_is_shown_as_written() {
        assert_eq!(rule(" test/endpoints#list;watch ").to_string(), "test/endpoints#list;watch");
    }
}
