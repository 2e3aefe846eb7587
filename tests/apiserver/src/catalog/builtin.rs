//! The resources that are served by default: those of Kubernetes that node components and the demo use, and
//! OpenYurt's.
//!
//! It contains only data.

use super::Resource;

/// A row of the table: group, version, plural, kind, scope, short names, sub-resources, whether generation is counted.
struct Row(
    &'static str,
    &'static str,
    &'static str,
    &'static str,
    ResourceScope,
    &'static [&'static str],
    &'static [&'static str],
    bool,
);

#[derive(PartialEq)]
enum ResourceScope {
    Cluster,
    Namespace,
}

use ResourceScope::{Cluster, Namespace};

const RBAC: &str = "rbac.authorization.k8s.io";

#[rustfmt::skip]
const BUILT_IN: &[Row] = &[
    Row("", "v1", "namespaces", "Namespace", Cluster, &["ns"], &["status", "finalize"], false),
    Row("", "v1", "nodes", "Node", Cluster, &["no"], &["status", "proxy"], false),
    Row("", "v1", "pods", "Pod", Namespace, &["po"],
        &["status", "log", "exec", "attach", "portforward", "proxy", "binding", "eviction", "ephemeralcontainers", "resize"], true),
    Row("", "v1", "services", "Service", Namespace, &["svc"], &["status", "proxy"], false),
    Row("", "v1", "endpoints", "Endpoints", Namespace, &["ep"], &[], false),
    Row("", "v1", "configmaps", "ConfigMap", Namespace, &["cm"], &[], false),
    Row("", "v1", "secrets", "Secret", Namespace, &[], &[], false),
    Row("", "v1", "serviceaccounts", "ServiceAccount", Namespace, &["sa"], &["token"], false),
    Row("", "v1", "events", "Event", Namespace, &["ev"], &[], false),
    Row("events.k8s.io", "v1", "events", "Event", Namespace, &["ev"], &[], false),
    Row("apps", "v1", "deployments", "Deployment", Namespace, &["deploy"], &["status"], true),
    Row("apps", "v1", "daemonsets", "DaemonSet", Namespace, &["ds"], &["status"], true),
    Row("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice", Namespace, &[], &[], true),
    Row("discovery.k8s.io", "v1beta1", "endpointslices", "EndpointSlice", Namespace, &[], &[], true),
    Row("coordination.k8s.io", "v1", "leases", "Lease", Namespace, &[], &[], false),
    Row("networking.k8s.io", "v1", "ingresses", "Ingress", Namespace, &["ing"], &["status"], true),
    Row("certificates.k8s.io", "v1", "certificatesigningrequests", "CertificateSigningRequest", Cluster, &["csr"],
        &["status", "approval"], false),
    Row(RBAC, "v1", "clusterroles", "ClusterRole", Cluster, &[], &[], false),
    Row(RBAC, "v1", "clusterrolebindings", "ClusterRoleBinding", Cluster, &[], &[], false),
    Row(RBAC, "v1", "roles", "Role", Namespace, &[], &[], false),
    Row(RBAC, "v1", "rolebindings", "RoleBinding", Namespace, &[], &[], false),
];

#[rustfmt::skip]
const REVIEWS: &[Row] = &[
    Row("authorization.k8s.io", "v1", "selfsubjectaccessreviews", "SelfSubjectAccessReview", Cluster, &[], &[], false),
    Row("authorization.k8s.io", "v1", "subjectaccessreviews", "SubjectAccessReview", Cluster, &[], &[], false),
    Row("authorization.k8s.io", "v1", "localsubjectaccessreviews", "LocalSubjectAccessReview", Namespace, &[], &[], false),
    Row("authentication.k8s.io", "v1", "selfsubjectreviews", "SelfSubjectReview", Cluster, &[], &[], false),
    Row("authentication.k8s.io", "v1", "tokenreviews", "TokenReview", Cluster, &[], &[], false),
];

#[rustfmt::skip]
const CUSTOM: &[Row] = &[
    Row("apps.openyurt.io", "v1beta2", "nodepools", "NodePool", Cluster, &["np"], &["status"], true),
    Row("apps.openyurt.io", "v1beta1", "nodepools", "NodePool", Cluster, &["np"], &["status"], true),
    Row("apps.openyurt.io", "v1alpha1", "nodebuckets", "NodeBucket", Cluster, &["nb"], &[], true),
];

pub(super) fn resources() -> Vec<Resource> {
    let built_in = BUILT_IN.iter().map(|row| Resource { custom: false, ..row.resource() });
    let reviews = REVIEWS.iter().map(|row| Resource { custom: false, review: true, ..row.resource() });
    let custom = CUSTOM.iter().map(Row::resource);
    built_in.chain(reviews).chain(custom).collect()
}

impl Row {
    fn resource(&self) -> Resource {
        let Self(group, version, plural, kind, scope, short, sub, generation) = self;
        Resource {
            short_names: short.iter().map(ToString::to_string).collect(),
            subresources: sub.iter().map(ToString::to_string).collect(),
            namespaced: *scope == Namespace,
            generation: *generation,
            ..Resource::new(group, version, plural, kind)
        }
    }
}
