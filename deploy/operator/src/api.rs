//! The custom resource `YurtIngress` of `apps.openyurt.io/v1alpha1`, with OpenYurt's JSON names.
//!
//! `deploy/operator/crd.yaml` is generated from these types. What OpenYurt's resource does not have is optional.

#![allow(unreachable_pub, reason = "the derive macros repeat the types in private modules")]

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::{CustomResource, KubeSchema};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

/// The pools that get an ingress controller. The cluster has one acting YurtIngress: the oldest.
#[derive(CustomResource, KubeSchema, Debug, Clone, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "apps.openyurt.io",
    version = "v1alpha1",
    kind = "YurtIngress",
    plural = "yurtingresses",
    shortname = "ying",
    category = "yurt",
    doc = "An ingress controller in each of some node pools.",
    status = "YurtIngressStatus",
    derive = "PartialEq",
    printcolumn = r#"{"name":"Ready","type":"string","jsonPath":".status.standardConditions[?(@.type==\"Ready\")].status","description":"Whether the ingress controllers of all pools are ready"}"#,
    printcolumn = r#"{"name":"Reason","type":"string","jsonPath":".status.standardConditions[?(@.type==\"Ready\")].reason","description":"Why, in one word"}"#,
    printcolumn = r#"{"name":"Controller","type":"string","jsonPath":".spec.controller","description":"Template of the ingress controllers"}"#,
    printcolumn = r#"{"name":"Version","type":"string","jsonPath":".status.nginx_ingress_controller_version","description":"Version of the ingress controllers"}"#,
    printcolumn = r#"{"name":"Replicas-Per-Pool","type":"integer","jsonPath":".spec.ingress_controller_replicas_per_pool","description":"Replicas of the ingress controller of a pool"}"#,
    printcolumn = r#"{"name":"ReadyNum","type":"integer","jsonPath":".status.readyNum","description":"Pools whose ingress controller is ready"}"#,
    printcolumn = r#"{"name":"UnreadyNum","type":"integer","jsonPath":".status.unreadyNum","description":"Pools whose ingress controller is not ready"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct YurtIngressSpec {
    /// Replicas of the ingress controller in each pool.
    #[serde(rename = "ingress_controller_replicas_per_pool", default = "one")]
    #[schemars(range(min = 1, max = 1000))]
    pub replicas: i32,
    /// The pools that get an ingress controller.
    #[serde(default)]
    #[schemars(length(max = 1000), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub pools: Vec<IngressPool>,
    /// The template of the ingress controllers: `ingress-nginx`, `traefik`, or one of a ConfigMap with the label
    /// `weir.openyurt.io/ingress-template`.
    #[serde(default = "traefik")]
    #[schemars(length(max = 63), regex(pattern = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
    pub controller: String,
}

/// A pool with an ingress controller.
#[derive(KubeSchema, Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct IngressPool {
    /// The name of the pool, which is also the name of its IngressClass and the value of the label of its nodes.
    #[schemars(length(min = 1, max = 63))]
    #[x_kube(validation = Rule::new("self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')").message("the name of a pool is a label value and the name of an object: lower case letters, digits, '-' and '.'"))]
    pub name: String,
    /// Replicas of the ingress controller in this pool, instead of `ingress_controller_replicas_per_pool`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1000))]
    pub replicas: Option<i32>,
    /// The node ports of the pool's Service. By default the cluster assigns them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_ports: Option<NodePorts>,
}

/// Node ports of the Service of an ingress controller.
#[derive(KubeSchema, Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[x_kube(validation = Rule::new("!has(self.http) || !has(self.https) || self.http != self.https").message("http and https need different node ports"))]
pub struct NodePorts {
    /// The node port of HTTP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 65535))]
    pub http: Option<i32>,
    /// The node port of HTTPS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 65535))]
    pub https: Option<i32>,
}

/// What the operator observed.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct YurtIngressStatus {
    /// Replicas of the ingress controller in each pool.
    #[serde(rename = "ingress_controller_replicas_per_pool", default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,
    /// The pools by state.
    #[serde(default)]
    pub conditions: YurtIngressCondition,
    /// The pools whose ingress controller is ready and not yet what the template says.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub upgrading_pools: Vec<UpgradingPool>,
    /// The pools whose ingress controller is ready, and which no Node is in: their pods run on Nodes that were in them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pools_without_nodes: Vec<String>,
    /// The version of the ingress controllers, whatever their template.
    #[serde(rename = "nginx_ingress_controller_version", default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The number of pools whose ingress controller is ready.
    #[serde(default)]
    pub ready_num: i32,
    /// The number of pools whose ingress controller is not ready.
    #[serde(default)]
    pub unready_num: i32,
    /// The generation of the spec that this status is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Conditions in the standard form: `Accepted`, `Ready` and `Progressing`. `conditions` has another form in OpenYurt.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "conditions_schema")]
    pub standard_conditions: Vec<Condition>,
}

/// The pools by state.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct YurtIngressCondition {
    /// The pools whose ingress controller is ready.
    #[serde(rename = "readypools", default, skip_serializing_if = "Vec::is_empty")]
    pub ready_pools: Vec<String>,
    /// The pools whose ingress controller is not ready.
    #[serde(rename = "unreadypools", default, skip_serializing_if = "Vec::is_empty")]
    pub unready_pools: Vec<UnreadyPool>,
}

/// A pool whose ingress controller is ready, and not yet what the template says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct UpgradingPool {
    /// The name of the pool.
    pub name: String,
    /// The version that the pool has, if it is another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// What it waits for, in one word.
    pub reason: String,
    /// What it waits for, for people.
    pub message: String,
}

/// A pool whose ingress controller is not ready.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UnreadyPool {
    /// The name of the pool.
    pub name: String,
    /// Whether the operator waits or something failed.
    #[serde(rename = "type")]
    pub kind: UnreadyKind,
    /// When the type or the reason changed.
    #[schemars(schema_with = "time_schema")]
    pub last_transition_time: Time,
    /// Why the ingress controller is not ready, in one word.
    pub reason: String,
    /// Why the ingress controller is not ready, for people.
    pub message: String,
}

/// Why a pool is not ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum UnreadyKind {
    /// Something that is still to come: the pool itself, pods, or the turn of the pool in a roll-out.
    Pending,
    /// Something that does not mend by itself.
    Failure,
}

impl YurtIngressSpec {
    /// The replicas in a pool.
    #[must_use]
    pub fn replicas_of(&self, pool: &IngressPool) -> i32 {
        pool.replicas.unwrap_or(self.replicas)
    }

    /// The pools by name; each name that occurs again is also in the second list. The CRD rejects such a spec, but one that is
    /// older than the CRD may be stored.
    #[must_use]
    pub fn pools_by_name(&self) -> (BTreeMap<&str, &IngressPool>, Vec<&str>) {
        let (mut pools, mut repeated) = (BTreeMap::new(), Vec::new());
        for pool in &self.pools {
            if pools.insert(pool.name.as_str(), pool).is_some() && !repeated.contains(&pool.name.as_str()) {
                repeated.push(pool.name.as_str());
            }
        }
        (pools, repeated)
    }
}

/// Why a name cannot be that of a pool; `None` if it can.
#[must_use]
pub fn invalid_pool_name(name: &str) -> Option<String> {
    let is_valid = name.len() <= 63 && is_subdomain(name);
    (!is_valid).then(|| {
        format!(
            "{name:?} is not the name of a pool: it is the name of an object and a label value, at most 63 lower case \
             letters, digits, '-' and '.'"
        )
    })
}

/// Whether the text has the characters of a DNS subdomain (RFC 1123). Its length is not checked.
fn is_subdomain(text: &str) -> bool {
    let is_inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    text.split('.').all(|label| {
        !label.is_empty() && label.bytes().all(is_inner) && !label.starts_with('-') && !label.ends_with('-')
    })
}

/// Whether the text is a label key: `NAME` or `PREFIX/NAME`, where the prefix is a DNS subdomain.
#[must_use]
pub fn is_label_key(text: &str) -> bool {
    let (prefix, name) = text.split_once('/').map_or((None, text), |(prefix, name)| (Some(prefix), name));
    let is_edge = |byte: Option<u8>| byte.is_some_and(|byte| byte.is_ascii_alphanumeric());
    prefix.is_none_or(|prefix| prefix.len() <= 253 && is_subdomain(prefix))
        && name.len() <= 63
        && is_edge(name.bytes().next())
        && is_edge(name.bytes().last())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'))
}

/// The schema of `metav1.Condition`.
fn conditions_schema(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "description": "Conditions in the standard form: `Accepted`, `Ready` and `Progressing`. `conditions` has another form in OpenYurt.",
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type"],
        "items": {
            "type": "object",
            "required": ["type", "status", "reason", "message", "lastTransitionTime"],
            "properties": {
                "type": {"type": "string", "maxLength": 316},
                "status": {"type": "string", "enum": ["True", "False", "Unknown"]},
                "reason": {"type": "string", "minLength": 1, "maxLength": 1024},
                "message": {"type": "string", "maxLength": 32768},
                "observedGeneration": {"type": "integer", "format": "int64", "minimum": 0},
                "lastTransitionTime": {"type": "string", "format": "date-time"}
            }
        }
    })
}

fn time_schema(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "format": "date-time", "description": "When the type or the reason changed."})
}

fn one() -> i32 {
    1
}

fn traefik() -> String {
    "traefik".to_owned()
}

#[cfg(test)]
mod tests {
    use kube::CustomResourceExt as _;

    use super::*;

    /// The committed manifest is that of the types. `make crd` rewrites it.
    #[test]
    fn the_committed_definition_is_that_of_the_types() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/crd.yaml");
        let committed = std::fs::read_to_string(path).unwrap();
        let generated = crate::template::yaml::write(&YurtIngress::crd()).unwrap();
        assert!(committed == generated, "run `make crd`\n{generated}");
    }

    #[test]
    fn the_example_is_valid_and_the_kustomization_names_every_manifest() {
        let read = |file: &str| {
            let text = std::fs::read_to_string(format!("{}/{file}", env!("CARGO_MANIFEST_DIR"))).unwrap();
            crate::template::yaml::documents(&text).unwrap().remove(0)
        };
        let example: YurtIngress = serde_json::from_value(read("example.yaml")).unwrap();
        let (pools, repeated) = example.spec.pools_by_name();
        assert_eq!((pools.len(), repeated.len()), (2, 0));
        assert!(crate::template::BUILT_IN.contains(&example.spec.controller.as_str()));
        let kustomization = read("kustomization.yaml");
        let named: Vec<_> =
            kustomization["resources"].as_array().unwrap().iter().map(|file| file.as_str().unwrap()).collect();
        assert_eq!(
            named,
            [
                "namespaces.yaml",
                "crd.yaml",
                "rbac.yaml",
                "rbac-ingress-nginx.yaml",
                "policy.yaml",
                "roles.yaml",
                "deployment.yaml"
            ]
        );
        for file in named {
            read(file);
        }
    }

    #[test]
    fn the_json_names_are_those_of_openyurt() {
        let spec: YurtIngressSpec =
            serde_json::from_str(r#"{"ingress_controller_replicas_per_pool":2,"pools":[{"name":"hangzhou"}]}"#)
                .unwrap();
        assert_eq!((spec.replicas, spec.controller.as_str()), (2, "traefik"));
        let status = YurtIngressStatus {
            version: Some("1".into()),
            conditions: YurtIngressCondition { ready_pools: vec!["a".into()], unready_pools: Vec::new() },
            ..YurtIngressStatus::default()
        };
        let text = serde_json::to_string(&status).unwrap();
        assert_eq!(
            text,
            r#"{"conditions":{"readypools":["a"]},"nginx_ingress_controller_version":"1","readyNum":0,"unreadyNum":0}"#
        );
    }

    #[test]
    fn names_that_are_no_labels_are_not_pools() {
        assert_eq!((invalid_pool_name("hang-zhou1"), invalid_pool_name("zone.1")), (None, None));
        for name in ["", "-a", "a-", "A", "a..b", "a.", "a/b", "a_b", "ä", &"a".repeat(64)] {
            assert!(invalid_pool_name(name).is_some(), "{name}");
        }
    }
}
