//! The API path of an object that a user names as with kubectl.

use std::any::TypeId;

use k8s_openapi::api::apps::v1::{DaemonSet, Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::batch::v1::{CronJob, Job};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{
    ConfigMap, Endpoints, Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod, Secret, Service,
    ServiceAccount,
};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::networking::v1::{Ingress, IngressClass, NetworkPolicy};
use k8s_openapi::api::storage::v1::{CSIDriver, StorageClass};
use k8s_openapi::{ClusterResourceScope, Resource};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;

use crate::cli::CommandError;

/// What a name has besides letters and digits.
const NAME: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_');

/// An object, as far as its path is known.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ObjectPath {
    /// The path.
    Known(String),
    /// An object of a group whose version the user did not name.
    OfUnknownVersion(Unversioned),
}

/// An object of a resource that is not built in.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Unversioned {
    /// `nodepools.apps.openyurt.io`.
    resource: String,
    namespace: Option<String>,
    name: String,
}

struct BuiltIn {
    group: &'static str,
    version: &'static str,
    plural: &'static str,
    kind: &'static str,
    short: &'static str,
    is_namespaced: bool,
}

fn built_in<K: Resource>(short: &'static str) -> BuiltIn
where
    K::Scope: 'static,
{
    BuiltIn {
        group: K::GROUP,
        version: K::VERSION,
        plural: K::URL_PATH_SEGMENT,
        kind: K::KIND,
        short,
        is_namespaced: TypeId::of::<K::Scope>() != TypeId::of::<ClusterResourceScope>(),
    }
}

fn built_ins() -> [BuiltIn; 24] {
    [
        built_in::<Service>("svc"),
        built_in::<EndpointSlice>(""),
        built_in::<Endpoints>("ep"),
        built_in::<Node>("no"),
        built_in::<Namespace>("ns"),
        built_in::<Pod>("po"),
        built_in::<ConfigMap>("cm"),
        built_in::<Secret>(""),
        built_in::<ServiceAccount>("sa"),
        built_in::<PersistentVolume>("pv"),
        built_in::<PersistentVolumeClaim>("pvc"),
        built_in::<Ingress>("ing"),
        built_in::<IngressClass>(""),
        built_in::<NetworkPolicy>("netpol"),
        built_in::<Deployment>("deploy"),
        built_in::<DaemonSet>("ds"),
        built_in::<StatefulSet>("sts"),
        built_in::<ReplicaSet>("rs"),
        built_in::<Job>(""),
        built_in::<CronJob>("cj"),
        built_in::<Lease>(""),
        built_in::<StorageClass>("sc"),
        built_in::<CSIDriver>(""),
        built_in::<k8s_openapi::api::node::v1::RuntimeClass>(""),
    ]
}

impl BuiltIn {
    fn is_called(&self, resource: &str) -> bool {
        let bare = match resource.split_once('.') {
            Some((bare, group)) if group == self.group => bare,
            Some(_) => return false,
            None => resource,
        };
        !bare.is_empty() && (bare == self.plural || bare == self.short || bare == self.kind.to_ascii_lowercase())
    }
}

impl ObjectPath {
    /// Returns the path of `RESOURCE/NAME`, or of `RESOURCE` and `NAME`. The resource is a built-in one by any of its names, or
    /// `RESOURCE.GROUP`, or `RESOURCE.VERSION.GROUP`.
    pub(super) fn of(object: &str, name: Option<&str>, namespace: Option<&str>) -> Result<Self, CommandError> {
        let (resource, name) = match (object.split_once('/'), name) {
            (Some((resource, name)), None) => (resource, name),
            (None, Some(name)) => (object, name),
            _ => return Err(CommandError::invalid(object, "an object is RESOURCE/NAME, or RESOURCE NAME")),
        };
        if resource.is_empty() || name.is_empty() || name.contains('/') {
            return Err(CommandError::invalid(object, "an object is RESOURCE/NAME, or RESOURCE NAME"));
        }
        let resource = resource.to_ascii_lowercase();
        if let Some(found) = built_ins().iter().find(|built_in| built_in.is_called(&resource)) {
            let namespace = match (found.is_namespaced, namespace) {
                (true, namespace) => Some(namespace.unwrap_or("default")),
                (false, None) => None,
                (false, Some(_)) => {
                    return Err(CommandError::invalid("--namespace", format!("{} have none", found.plural)));
                }
            };
            return Ok(Self::Known(path(found.group, found.version, namespace, found.plural, name)));
        }
        let mut parts = resource.splitn(3, '.');
        match (parts.next(), parts.next(), parts.next()) {
            (Some(plural), Some(version), Some(group)) if is_version(version) => {
                Ok(Self::Known(path(group, version, namespace, plural, name)))
            }
            (_, Some(_), _) => Ok(Self::OfUnknownVersion(Unversioned {
                namespace: namespace.map(str::to_owned),
                name: name.to_owned(),
                resource,
            })),
            _ => Err(CommandError::invalid(
                &resource,
                "no built-in resource: name others as RESOURCE.GROUP or RESOURCE.VERSION.GROUP",
            )),
        }
    }
}

impl Unversioned {
    /// Returns the path in the version that the daemon reads.
    pub(super) fn path_in(&self, caches: &Value) -> Result<String, CommandError> {
        let stores = caches["stores"].as_array().map(Vec::as_slice).unwrap_or_default();
        let of_resource = stores.iter().find(|store| store["resource"] == self.resource.as_str());
        // `/apis/GROUP/VERSION/…`
        let version = of_resource.and_then(|store| store["path"].as_str()?.split('/').nth(3));
        let (plural, group) = self.resource.split_once('.').unwrap_or_default();
        let unknown = || {
            let reason = format!("the daemon does not read it: name its version, as {plural}.VERSION.{group}");
            CommandError::invalid(&self.resource, reason)
        };
        Ok(path(group, version.ok_or_else(unknown)?, self.namespace.as_deref(), plural, &self.name))
    }
}

/// Whether a text is a version of an API: `v1`, `v1beta2`.
fn is_version(text: &str) -> bool {
    text.strip_prefix('v').is_some_and(|rest| rest.starts_with(|first: char| first.is_ascii_digit()))
}

fn path(group: &str, version: &str, namespace: Option<&str>, plural: &str, name: &str) -> String {
    let root = if group.is_empty() { format!("/api/{version}") } else { format!("/apis/{group}/{version}") };
    let encoded = |text| utf8_percent_encode(text, NAME);
    let namespace = namespace.map(|namespace| format!("/namespaces/{}", encoded(namespace))).unwrap_or_default();
    format!("{root}{namespace}/{}/{}", encoded(plural), encoded(name))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn known(object: &str, name: Option<&str>, namespace: Option<&str>) -> String {
        match ObjectPath::of(object, name, namespace) {
            Ok(ObjectPath::Known(path)) => path,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn built_in_resources_have_all_the_names_that_kubectl_knows() {
        let slice = "/apis/discovery.k8s.io/v1/namespaces/shop/endpointslices/web-abc";
        for name in ["endpointslice/web-abc", "endpointslices/web-abc", "endpointslices.discovery.k8s.io/web-abc"] {
            assert_eq!(known(name, None, Some("shop")), slice, "{name}");
        }
        assert_eq!(known("EndpointSlice", Some("web-abc"), Some("shop")), slice);
        assert_eq!(known("svc/web", None, None), "/api/v1/namespaces/default/services/web");
        assert_eq!(known("no/edge-a", None, None), "/api/v1/nodes/edge-a");
        assert_eq!(known("ns/a b?", None, None), "/api/v1/namespaces/a%20b%3F");
        assert_eq!(
            known("nodepools.v1beta2.apps.openyurt.io/hangzhou", None, None),
            "/apis/apps.openyurt.io/v1beta2/nodepools/hangzhou"
        );
    }

    #[test]
    fn a_missing_version_is_that_which_the_daemon_reads() {
        let Ok(ObjectPath::OfUnknownVersion(pool)) = ObjectPath::of("nodepools.apps.openyurt.io/a", None, None) else {
            panic!("it is not built in");
        };
        let caches = json!({"stores": [{"resource": "nodepools.apps.openyurt.io", "path": "/apis/apps.openyurt.io/v1beta2/nodepools"}]});
        assert_eq!(pool.path_in(&caches).unwrap(), "/apis/apps.openyurt.io/v1beta2/nodepools/a");
        let error = pool.path_in(&json!({"stores": []})).unwrap_err().to_string();
        assert!(error.contains("nodepools.VERSION.apps.openyurt.io"), "{error}");
    }

    #[test]
    fn an_invalid_object_name_is_reported() {
        for (object, name, namespace, reason) in [
            ("web", None, None, "RESOURCE/NAME"),
            ("svc/web", Some("web"), None, "RESOURCE/NAME"),
            ("svc/", None, None, "RESOURCE/NAME"),
            ("/web", None, None, "RESOURCE/NAME"),
            ("svc/web/x", None, None, "RESOURCE/NAME"),
            ("gadget/web", None, None, "no built-in resource"),
            ("no/edge", None, Some("shop"), "nodes have none"),
        ] {
            let error = ObjectPath::of(object, name, namespace).unwrap_err().to_string();
            assert!(error.contains(reason), "{object}: {error}");
        }
    }
}
