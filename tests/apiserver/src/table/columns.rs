//! The columns of each kind, close to kube-apiserver's printers. Other kinds show name and age.
//!
//! Data and pure functions.

use serde_json::Value;

use super::Column;
use crate::catalog::Resource;
use crate::clock;
use crate::store::Object;

const NAME: Column = Column::new("Name", |object| object.key.name.clone().into());
const AGE: Column = Column::new("Age", |object| {
    let created = object.metadata().get("creationTimestamp");
    clock::age(created.and_then(Value::as_str)).into()
});

const PLAIN: &[Column] = &[NAME, AGE];

const SERVICES: &[Column] = &[
    NAME,
    Column::new("Type", |object| or(text(object, "/spec/type"), "ClusterIP")),
    Column::new("Cluster-IP", |object| or(text(object, "/spec/clusterIP"), "<none>")),
    Column::new("External-IP", external_ip),
    Column::new("Port(s)", |object| service_ports(object).into()),
    AGE,
    Column::wide("Selector", |object| or(pairs(at(object, "/spec/selector")), "<none>")),
];

const PODS: &[Column] = &[
    NAME,
    Column::new("Ready", |object| {
        let ready = list(object, "/status/containerStatuses")
            .filter(|status| status.get("ready") == Some(&Value::Bool(true)))
            .count();
        format!("{ready}/{}", list(object, "/spec/containers").count()).into()
    }),
    Column::new("Status", |object| or(text(object, "/status/phase"), "Pending")),
    Column::new("Restarts", |object| {
        list(object, "/status/containerStatuses")
            .filter_map(|status| status.get("restartCount").and_then(Value::as_u64))
            .sum::<u64>()
            .to_string()
            .into()
    }),
    AGE,
    Column::wide("IP", |object| or(text(object, "/status/podIP"), "<none>")),
    Column::wide("Node", |object| or(text(object, "/spec/nodeName"), "<none>")),
];

const NODES: &[Column] = &[
    NAME,
    Column::new("Status", node_status),
    Column::new("Roles", |object| {
        let roles = at(object, "/metadata/labels").and_then(Value::as_object);
        let roles = roles
            .into_iter()
            .flatten()
            .filter_map(|(key, _)| key.strip_prefix("node-role.kubernetes.io/").map(str::to_owned));
        or(join(roles), "<none>")
    }),
    AGE,
    Column::new("Version", |object| text(object, "/status/nodeInfo/kubeletVersion").into()),
    Column::wide("Internal-IP", |object| {
        let address = list(object, "/status/addresses")
            .find(|address| address.get("type").and_then(Value::as_str) == Some("InternalIP"))
            .and_then(|address| address.get("address").and_then(Value::as_str));
        address.unwrap_or("<none>").into()
    }),
];

const ENDPOINTS: &[Column] = &[
    NAME,
    Column::new("Endpoints", |object| {
        let addresses = list(object, "/subsets")
            .flat_map(|subset| subset.get("addresses").and_then(Value::as_array))
            .flatten()
            .filter_map(|address| address.get("ip").and_then(Value::as_str));
        or(join(addresses.map(str::to_owned)), "<none>")
    }),
    AGE,
];

const ENDPOINT_SLICES: &[Column] = &[
    NAME,
    Column::new("AddressType", |object| text(object, "/addressType").into()),
    Column::new("Ports", |object| {
        let ports = list(object, "/ports").filter_map(|port| port.get("port").map(Value::to_string));
        or(join(ports), "<unset>")
    }),
    Column::new("Endpoints", |object| {
        let addresses = list(object, "/endpoints")
            .flat_map(|endpoint| endpoint.get("addresses").and_then(Value::as_array))
            .flatten()
            .filter_map(Value::as_str);
        or(join(addresses.map(str::to_owned)), "<unset>")
    }),
    AGE,
];

const CONFIG_MAPS: &[Column] = &[
    NAME,
    Column::new("Data", |object| (count(object, "/data") + count(object, "/binaryData")).to_string().into()),
    AGE,
];

const SECRETS: &[Column] = &[
    NAME,
    Column::new("Type", |object| or(text(object, "/type"), "Opaque")),
    Column::new("Data", |object| count(object, "/data").to_string().into()),
    AGE,
];

const NAMESPACES: &[Column] = &[NAME, Column::new("Status", |object| or(text(object, "/status/phase"), "Active")), AGE];

const DEPLOYMENTS: &[Column] = &[
    NAME,
    Column::new("Ready", |object| {
        format!("{}/{}", number(object, "/status/readyReplicas", 0), number(object, "/spec/replicas", 1)).into()
    }),
    Column::new("Up-to-date", |object| number(object, "/status/updatedReplicas", 0).into()),
    Column::new("Available", |object| number(object, "/status/availableReplicas", 0).into()),
    AGE,
];

const DAEMON_SETS: &[Column] = &[
    NAME,
    Column::new("Desired", |object| number(object, "/status/desiredNumberScheduled", 0).into()),
    Column::new("Ready", |object| number(object, "/status/numberReady", 0).into()),
    AGE,
];

const NODE_POOLS: &[Column] = &[
    NAME,
    Column::new("Type", |object| text(object, "/spec/type").into()),
    Column::new("ReadyNodes", |object| number(object, "/status/readyNodeNum", 0).into()),
    Column::new("Nodes", |object| list(object, "/status/nodes").count().to_string().into()),
    AGE,
];

/// The columns of a resource.
pub(super) fn of(resource: &Resource) -> &'static [Column] {
    match (resource.group.as_str(), resource.plural.as_str()) {
        ("", "services") => SERVICES,
        ("", "pods") => PODS,
        ("", "nodes") => NODES,
        ("", "endpoints") => ENDPOINTS,
        ("", "configmaps") => CONFIG_MAPS,
        ("", "secrets") => SECRETS,
        ("", "namespaces") => NAMESPACES,
        ("apps", "deployments") => DEPLOYMENTS,
        ("apps", "daemonsets") => DAEMON_SETS,
        ("discovery.k8s.io", "endpointslices") => ENDPOINT_SLICES,
        ("apps.openyurt.io", "nodepools") => NODE_POOLS,
        _ => PLAIN,
    }
}

fn at<'a>(object: &'a Object, pointer: &str) -> Option<&'a Value> {
    let (first, rest) = pointer
        .strip_prefix('/')?
        .split_once('/')
        .map_or_else(|| (pointer.trim_start_matches('/'), String::new()), |(first, rest)| (first, format!("/{rest}")));
    object.body.get(first)?.pointer(&rest)
}

fn text(object: &Object, pointer: &str) -> String {
    let found = at(object, pointer).and_then(Value::as_str);
    found.unwrap_or("").to_owned()
}

fn number(object: &Object, pointer: &str, default: u64) -> String {
    let found = at(object, pointer).and_then(Value::as_u64);
    found.unwrap_or(default).to_string()
}

fn list<'a>(object: &'a Object, pointer: &str) -> impl Iterator<Item = &'a Value> {
    at(object, pointer).and_then(Value::as_array).into_iter().flatten()
}

fn count(object: &Object, pointer: &str) -> usize {
    at(object, pointer).and_then(Value::as_object).map_or(0, serde_json::Map::len)
}

fn or(text: String, otherwise: &str) -> Value {
    if text.is_empty() { otherwise.into() } else { text.into() }
}

/// The first three items, and the number of the others.
fn join(parts: impl Iterator<Item = String>) -> String {
    let parts: Vec<String> = parts.collect();
    let mut text = parts.iter().take(3).cloned().collect::<Vec<_>>().join(",");
    if parts.len() > 3 {
        text.push_str(&format!(" + {} more...", parts.len() - 3));
    }
    text
}

fn pairs(map: Option<&Value>) -> String {
    let map = map.and_then(Value::as_object).into_iter().flatten();
    map.map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or(""))).collect::<Vec<_>>().join(",")
}

fn node_status(object: &Object) -> Value {
    let ready = list(object, "/status/conditions").any(|condition| {
        condition.get("type").and_then(Value::as_str) == Some("Ready")
            && condition.get("status").and_then(Value::as_str) == Some("True")
    });
    let cordoned = at(object, "/spec/unschedulable") == Some(&Value::Bool(true));
    let status = if ready { "Ready" } else { "NotReady" };
    if cordoned { format!("{status},SchedulingDisabled").into() } else { status.into() }
}

fn external_ip(object: &Object) -> Value {
    let given = list(object, "/spec/externalIPs").filter_map(Value::as_str);
    let balanced = list(object, "/status/loadBalancer/ingress")
        .filter_map(|ingress| ingress.get("ip").or_else(|| ingress.get("hostname")).and_then(Value::as_str));
    let shown = join(balanced.chain(given).map(str::to_owned));
    let waiting = text(object, "/spec/type") == "LoadBalancer";
    or(shown, if waiting { "<pending>" } else { "<none>" })
}

fn service_ports(object: &Object) -> String {
    let ports = list(object, "/spec/ports").map(|port| {
        let protocol = port.get("protocol").and_then(Value::as_str).unwrap_or("TCP");
        let number = port.get("port").map(Value::to_string).unwrap_or_default();
        match port.get("nodePort").and_then(Value::as_u64) {
            Some(node) if node > 0 => format!("{number}:{node}/{protocol}"),
            _ => format!("{number}/{protocol}"),
        }
    });
    let ports: Vec<String> = ports.collect();
    if ports.is_empty() { "<none>".to_owned() } else { ports.join(",") }
}
