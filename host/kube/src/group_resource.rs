//! Resource names as users write them in match rules, grants and lookups: `services`, `nodepools.apps.openyurt.io`.
//!
//! A name without a group means one built-in group, never any group. Otherwise the rule `kube-proxy/services` would also
//! match the resource `services.serving.knative.dev` of Knative.

use std::fmt;
use std::str::FromStr;

/// The plural name of a resource and its API group.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GroupResource {
    /// The plural name in lower case, for example `endpointslices`.
    pub resource: String,
    /// The API group, for example `discovery.k8s.io`. Empty for the core group.
    pub group: String,
}

/// An invalid resource name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ResourceNameError {
    /// The name is empty or contains characters that no resource name has.
    #[error("{0:?} is not a resource name: write `services` or `nodepools.apps.openyurt.io`")]
    Malformed(String),
    /// The name has no group and is not one of the built-in resources whose group is known.
    #[error("{0:?} is not a built-in resource: write it with its group, as {0}.<group>")]
    UnknownGroup(String),
}

/// The groups that the API server itself serves. Those that end in `.k8s.io` but are missing, such as `metrics.k8s.io`, may be
/// aggregated.
const BUILT_IN: [&str; 20] = [
    "",
    "admissionregistration.k8s.io",
    "apiextensions.k8s.io",
    "apiregistration.k8s.io",
    "apps",
    "autoscaling",
    "batch",
    "certificates.k8s.io",
    "coordination.k8s.io",
    "discovery.k8s.io",
    "events.k8s.io",
    "flowcontrol.apiserver.k8s.io",
    "networking.k8s.io",
    "node.k8s.io",
    "policy",
    "rbac.authorization.k8s.io",
    "resource.k8s.io",
    "scheduling.k8s.io",
    "storage.k8s.io",
    "storagemigration.k8s.io",
];

/// Resources that may be written without their group: built-in ones and those of OpenYurt.
const GROUPS: &[(&str, &[&str])] = &[
    (
        "",
        &[
            "bindings",
            "configmaps",
            "endpoints",
            "events",
            "limitranges",
            "namespaces",
            "nodes",
            "persistentvolumeclaims",
            "persistentvolumes",
            "pods",
            "podtemplates",
            "replicationcontrollers",
            "resourcequotas",
            "secrets",
            "serviceaccounts",
            "services",
        ],
    ),
    ("discovery.k8s.io", &["endpointslices"]),
    ("apps", &["daemonsets", "deployments", "replicasets", "statefulsets", "controllerrevisions"]),
    ("batch", &["jobs", "cronjobs"]),
    ("networking.k8s.io", &["ingresses", "ingressclasses", "networkpolicies", "servicecidrs", "ipaddresses"]),
    ("coordination.k8s.io", &["leases"]),
    ("storage.k8s.io", &["csinodes", "csidrivers", "storageclasses", "volumeattachments", "csistoragecapacities"]),
    ("node.k8s.io", &["runtimeclasses"]),
    ("policy", &["poddisruptionbudgets"]),
    ("autoscaling", &["horizontalpodautoscalers"]),
    ("rbac.authorization.k8s.io", &["roles", "rolebindings", "clusterroles", "clusterrolebindings"]),
    ("apps.openyurt.io", &["nodepools", "nodebuckets"]),
];

impl GroupResource {
    /// Joins a name and a group that were parsed already, for example from a request path.
    #[must_use]
    pub fn new(resource: &str, group: &str) -> Self {
        Self { resource: resource.to_owned(), group: group.to_owned() }
    }

    /// Whether kube-apiserver always serves an API group itself.
    #[must_use]
    pub fn is_built_in(group: &str) -> bool {
        BUILT_IN.contains(&group)
    }

    /// Returns the resource of a kind: the plural of the lower-case kind, in the group of the apiVersion. This is a heuristic,
    /// client-go's `UnsafeGuessKindToResource`. Use discovery where it is available.
    #[must_use]
    pub fn of_kind(api_version: &str, kind: &str) -> Self {
        let kind = kind.to_lowercase();
        let resource = match kind.strip_suffix('y') {
            _ if kind.ends_with("endpoints") => kind,
            _ if kind.ends_with('s') => kind + "es",
            Some(stem) => format!("{stem}ies"),
            None => kind + "s",
        };
        let group = api_version.split_once('/').map_or("", |(group, _)| group);
        Self { resource, group: group.to_owned() }
    }
}

impl FromStr for GroupResource {
    type Err = ResourceNameError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (resource, group) = text.split_once('.').map_or((text, None), |(resource, group)| (resource, Some(group)));
        let word = |part: &str, extra: &[u8]| {
            !part.is_empty()
                && part.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || extra.contains(&byte))
        };
        if !word(resource, b"-") || group.is_some_and(|group| !word(group, b"-.")) {
            return Err(ResourceNameError::Malformed(text.to_owned()));
        }
        if let Some(group) = group {
            return Ok(Self::new(resource, group));
        }
        GROUPS
            .iter()
            .find(|(_, resources)| resources.contains(&resource))
            .map(|(group, _)| Self::new(resource, group))
            .ok_or_else(|| ResourceNameError::UnknownGroup(resource.to_owned()))
    }
}

impl fmt::Display for GroupResource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.group.is_empty() { f.write_str(&self.resource) } else { write!(f, "{}.{}", self.resource, self.group) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_without_a_group_means_one_built_in_group() {
        assert_eq!("endpointslices".parse(), Ok(GroupResource::new("endpointslices", "discovery.k8s.io")));
        assert_eq!("services".parse(), Ok(GroupResource::new("services", "")));
        assert_eq!("nodepools".parse(), "nodepools.apps.openyurt.io".parse::<GroupResource>());
        assert_eq!("services.serving.knative.dev".parse(), Ok(GroupResource::new("services", "serving.knative.dev")));
    }

    #[test]
    fn the_resource_of_a_kind_follows_the_rule_of_client_go() {
        for (api_version, kind, resource) in [
            ("v1", "Service", "services"),
            ("v1", "Endpoints", "endpoints"),
            ("discovery.k8s.io/v1", "EndpointSlice", "endpointslices.discovery.k8s.io"),
            ("networking.k8s.io/v1", "Ingress", "ingresses.networking.k8s.io"),
            ("networking.k8s.io/v1", "NetworkPolicy", "networkpolicies.networking.k8s.io"),
            ("apps.openyurt.io/v1beta2", "NodePool", "nodepools.apps.openyurt.io"),
        ] {
            assert_eq!(GroupResource::of_kind(api_version, kind).to_string(), resource);
        }
    }

    #[test]
    fn unknown_and_malformed_names_are_errors_that_name_them() {
        assert_eq!("foos".parse::<GroupResource>(), Err(ResourceNameError::UnknownGroup("foos".into())));
        for bad in ["", ".", "a.", ".b", "Services", "a/b", "a b"] {
            assert_eq!(bad.parse::<GroupResource>(), Err(ResourceNameError::Malformed(bad.into())), "{bad}");
        }
    }
}
