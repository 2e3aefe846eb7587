//! Which fields the API server knows of a kind, and which of them Weir evaluates (`pkg/apis/*/v1/conversion.go`,
//! `pkg/registry/*/strategy.go`, `DefaultMetaV1FieldSelectorConversion`).

use super::FieldSelector;
use crate::GroupResource;

const NAME: &str = "metadata.name";
const NAMESPACE: &str = "metadata.namespace";

/// Built-in groups whose kinds, but for those below, have the fields of metadata alone.
const DEFAULT_GROUPS: &[&str] = &[
    "",
    "apps",
    "autoscaling",
    "batch",
    "coordination.k8s.io",
    "discovery.k8s.io",
    "networking.k8s.io",
    "node.k8s.io",
    "policy",
    "rbac.authorization.k8s.io",
    "scheduling.k8s.io",
    "storage.k8s.io",
];

/// Whether Weir evaluates a field selector.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FieldSupport {
    /// It evaluates all requirements as the API server does.
    Evaluated,
    /// Only the API server can: it may know this field of the kind.
    Upstream(String),
    /// The API server refuses this field of the kind.
    Refused(String),
}

/// The selectable fields of a kind.
struct Fields {
    /// Those that are the text at the same path of the object, on the API server, too.
    evaluated: &'static [&'static str],
    /// Those that the API server computes.
    computed: &'static [&'static str],
    /// Whether the server refuses all others.
    closed: bool,
}

impl FieldSelector {
    /// Whether Weir evaluates all requirements on objects of a resource. `is_namespaced`: the request names a namespace.
    #[must_use]
    pub fn support(&self, resource: &GroupResource, is_namespaced: bool) -> FieldSupport {
        let known = fields(resource, is_namespaced);
        let mut upstream = None;
        for field in self.fields() {
            if known.evaluated.contains(&field) {
                continue;
            }
            if known.closed && !known.computed.contains(&field) {
                return FieldSupport::Refused(field.to_owned());
            }
            upstream.get_or_insert(field);
        }
        upstream.map_or(FieldSupport::Evaluated, |field| FieldSupport::Upstream(field.to_owned()))
    }
}

fn fields(resource: &GroupResource, is_namespaced: bool) -> Fields {
    let closed = |evaluated, computed| Fields { evaluated, computed, closed: true };
    match (resource.group.as_str(), resource.resource.as_str()) {
        ("", "pods") => closed(
            &[
                NAME,
                NAMESPACE,
                "spec.nodeName",
                "spec.restartPolicy",
                "spec.schedulerName",
                "spec.serviceAccountName",
                "status.phase",
                "status.podIP",
                "status.nominatedNodeName",
            ],
            // An absent spec.hostNetwork is "false"; spec.host is another name of spec.nodeName.
            &["spec.hostNetwork", "spec.host", "status.podIPs"],
        ),
        ("", "services") => closed(&[NAME, NAMESPACE, "spec.clusterIP", "spec.type"], &[]),
        ("", "namespaces") => closed(&[NAME, "status.phase"], &[]),
        ("", "nodes") => closed(&[NAME], &["spec.unschedulable"]),
        ("", "secrets") => closed(&[NAME, NAMESPACE, "type"], &[]),
        ("", "replicationcontrollers") => closed(&[NAME, NAMESPACE], &["status.replicas"]),
        ("batch", "jobs") => closed(&[NAME, NAMESPACE], &["status.successful"]),
        ("", "events") => Fields { evaluated: &[NAME, NAMESPACE], computed: &[], closed: false },
        (group, _) if DEFAULT_GROUPS.contains(&group) => closed(&[NAME, NAMESPACE], &[]),
        // A custom resource may have further ones. One without namespaces has no metadata.namespace.
        _ if is_namespaced => Fields { evaluated: &[NAME, NAMESPACE], computed: &[], closed: false },
        _ => Fields { evaluated: &[NAME], computed: &[], closed: false },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_that_only_the_server_evaluates_go_upstream_and_others_are_refused() {
        let upstream = |field: &str| FieldSupport::Upstream(field.to_owned());
        let refused = |field: &str| FieldSupport::Refused(field.to_owned());
        for (resource, is_namespaced, selector, support) in [
            ("pods", false, "spec.nodeName=a,metadata.name=b", FieldSupport::Evaluated),
            ("pods", false, "spec.hostNetwork=true", upstream("spec.hostNetwork")),
            ("pods", false, "spec.hostNetwork=true,spec.x=1", refused("spec.x")),
            ("services", false, "spec.nodeName=a", refused("spec.nodeName")),
            ("services", false, "=b", refused("")),
            ("namespaces", true, "metadata.namespace=a", refused("metadata.namespace")),
            ("nodes", false, "spec.unschedulable!=true", upstream("spec.unschedulable")),
            ("nodes", false, "metadata.namespace=", refused("metadata.namespace")),
            ("configmaps", false, "metadata.namespace=a", FieldSupport::Evaluated),
            ("endpointslices", false, "spec.x=1", refused("spec.x")),
            ("nodepools", false, "metadata.namespace=a", upstream("metadata.namespace")),
            ("things.example.com", true, "metadata.namespace=a", FieldSupport::Evaluated),
            ("things.example.com", true, "spec.color=red", upstream("spec.color")),
            ("nodepools", false, "metadata.name=a", FieldSupport::Evaluated),
        ] {
            let parsed = FieldSelector::parse(selector).unwrap();
            assert_eq!(parsed.support(&resource.parse().unwrap(), is_namespaced), support, "{resource} {selector}");
        }
    }
}
