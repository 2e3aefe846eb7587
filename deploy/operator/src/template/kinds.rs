//! The kinds of objects that a template may have. `deploy/operator/rbac.yaml` permits exactly these; a test compares.

use kube::core::ApiResource;

/// A kind of objects that the operator applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Kind {
    /// The API group.
    pub group: &'static str,
    /// The version.
    pub version: &'static str,
    /// The kind.
    pub kind: &'static str,
    /// The resource.
    pub plural: &'static str,
    /// Whether its objects have a namespace.
    pub namespaced: bool,
}

const fn kind(group: &'static str, kind: &'static str, plural: &'static str, namespaced: bool) -> Kind {
    Kind { group, version: "v1", kind, plural, namespaced }
}

/// ConfigMaps, in which the operator itself keeps revisions of templates, too.
pub const CONFIG_MAP: Kind = kind("", "ConfigMap", "configmaps", true);

/// All kinds, in the order in which objects are applied: what others refer to comes first.
pub const KINDS: [Kind; 9] = [
    kind("", "ServiceAccount", "serviceaccounts", true),
    CONFIG_MAP,
    kind("rbac.authorization.k8s.io", "RoleBinding", "rolebindings", true),
    kind("rbac.authorization.k8s.io", "ClusterRoleBinding", "clusterrolebindings", false),
    kind("networking.k8s.io", "IngressClass", "ingressclasses", false),
    kind("", "Service", "services", true),
    kind("batch", "Job", "jobs", true),
    kind("apps", "Deployment", "deployments", true),
    kind("admissionregistration.k8s.io", "ValidatingWebhookConfiguration", "validatingwebhookconfigurations", false),
];

impl Kind {
    /// `apiVersion` of its objects.
    #[must_use]
    pub fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.to_owned() } else { format!("{}/{}", self.group, self.version) }
    }

    /// The resource, for kube's client.
    #[must_use]
    pub fn resource(&self) -> ApiResource {
        ApiResource {
            group: self.group.to_owned(),
            version: self.version.to_owned(),
            api_version: self.api_version(),
            kind: self.kind.to_owned(),
            plural: self.plural.to_owned(),
        }
    }
}

/// The kind of an object; `None` if no template may have it.
#[must_use]
pub fn kind_of(api_version: &str, kind: &str) -> Option<&'static Kind> {
    KINDS.iter().find(|known| known.kind == kind && known.api_version() == api_version)
}
