//! The columns of each kind, close to kube-apiserver's printers. Other kinds show name and age.
//!
//! Data and pure functions.

use serde_json::Value;

use super::TableColumn;
use crate::catalog::Resource;
use crate::clock;
use crate::store::StoredObject;

const NAME: TableColumn = TableColumn::new("Name", |object| object.key.name.clone().into());
const AGE: TableColumn = TableColumn::new("Age", |object| {
    let created = object.metadata().get("creationTimestamp");
    clock::age(created.and_then(Value::as_str)).into()
});

const PLAIN: &[TableColumn] = &[NAME, AGE];

const SERVICES: &[TableColumn] = &[
    NAME,
    TableColumn::new("Type", |object| or(text(object, "/spec/type"), "ClusterIP")),
    TableColumn::new("Cluster-IP", |object| or(text(object, "/spec/clusterIP"), "<none>")),
    TableColumn::new("External-IP", external_ip),
    TableColumn::new("Port(s)", |object| service_ports(object).into()),
    AGE,
    TableColumn::wide("Selector", |object| or(pairs(at(object, "/spec/selector")), "<none>")),
];

const PODS: &[TableColumn] = &[
    NAME,
    TableColumn::new("Ready", |object| {
        let ready = list(object, "/status/containerStatuses")
            .filter(|status| status.get("ready") == Some(&Value::Bool(true)))
            .count();
        format!("{ready}/{}", list(object, "/spec/containers").count()).into()
    }),
    TableColumn::new("Status", |object| or(text(object, "/status/phase"), "Pending")),
    TableColumn::new("Restarts", |object| {
        list(object, "/status/containerStatuses")
            .filter_map(|status| status.get("restartCount").and_then(Value::as_u64))
            .sum::<u64>()
            .to_string()
            .into()
    }),
    AGE,
    TableColumn::wide("IP", |object| or(text(object, "/status/podIP"), "<none>")),
    TableColumn::wide("Node", |object| or(text(object, "/spec/nodeName"), "<none>")),
];

const NODES: &[TableColumn] = &[
    NAME,
    TableColumn::new("Status", node_status),
    TableColumn::new("Roles", |object| {
        let roles = at(object, "/metadata/labels").and_then(Value::as_object);
        let roles = roles
            .into_iter()
            .flatten()
            .filter_map(|(key, _)| key.strip_prefix("node-role.kubernetes.io/").map(str::to_owned));
        or(join(roles), "<none>")
    }),
    AGE,
    TableColumn::new("Version", |object| text(object, "/status/nodeInfo/kubeletVersion").into()),
    TableColumn::wide("Internal-IP", |object| {
        let address = list(object, "/status/addresses")
            .find(|address| address.get("type").and_then(Value::as_str) == Some("InternalIP"))
            .and_then(|address| address.get("address").and_then(Value::as_str));
        address.unwrap_or("<none>").into()
    }),
];

const ENDPOINTS: &[TableColumn] = &[
    NAME,
    TableColumn::new("Endpoints", |object| {
        let addresses = list(object, "/subsets")
            .flat_map(|subset| subset.get("addresses").and_then(Value::as_array))
            .flatten()
            .filter_map(|address| address.get("ip").and_then(Value::as_str));
        or(join(addresses.map(str::to_owned)), "<none>")
    }),
    AGE,
];

const ENDPOINT_SLICES: &[TableColumn] = &[
    NAME,
    TableColumn::new("AddressType", |object| text(object, "/addressType").into()),
    TableColumn::new("Ports", |object| {
        let ports = list(object, "/ports").filter_map(|port| port.get("port").map(Value::to_string));
        or(join(ports), "<unset>")
    }),
    TableColumn::new("Endpoints", |object| {
        let addresses = list(object, "/endpoints")
            .flat_map(|endpoint| endpoint.get("addresses").and_then(Value::as_array))
            .flatten()
            .filter_map(Value::as_str);
        or(join(addresses.map(str::to_owned)), "<unset>")
    }),
    AGE,
];

const CONFIG_MAPS: &[TableColumn] = &[
    NAME,
    TableColumn::new("Data", |object| (count(object, "/data") + count(object, "/binaryData")).to_string().into()),
    AGE,
];

const SECRETS: &[TableColumn] = &[
    NAME,
    TableColumn::new("Type", |object| or(text(object, "/type"), "Opaque")),
    TableColumn::new("Data", |object| count(object, "/data").to_string().into()),
    AGE,
];

const NAMESPACES: &[TableColumn] =
    &[NAME, TableColumn::new("Status", |object| or(text(object, "/status/phase"), "Active")), AGE];

const DEPLOYMENTS: &[TableColumn] = &[
    NAME,
    TableColumn::new("Ready", |object| {
        format!("{}/{}", number(object, "/status/readyReplicas", 0), number(object, "/spec/replicas", 1)).into()
    }),
    TableColumn::new("Up-to-date", |object| number(object, "/status/updatedReplicas", 0).into()),
    TableColumn::new("Available", |object| number(object, "/status/availableReplicas", 0).into()),
    AGE,
];

const DAEMON_SETS: &[TableColumn] = &[
    NAME,
    TableColumn::new("Desired", |object| number(object, "/status/desiredNumberScheduled", 0).into()),
    TableColumn::new("Ready", |object| number(object, "/status/numberReady", 0).into()),
    AGE,
];

const NODE_POOLS: &[TableColumn] = &[
    NAME,
    TableColumn::new("Type", |object| text(object, "/spec/type").into()),
    TableColumn::new("ReadyNodes", |object| number(object, "/status/readyNodeNum", 0).into()),
    TableColumn::new("Nodes", |object| list(object, "/status/nodes").count().to_string().into()),
    AGE,
];

/// The columns of a resource.
pub(super) fn of(resource: &Resource) -> &'static [TableColumn] {
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

fn at<'a>(object: &'a StoredObject, pointer: &str) -> Option<&'a Value> {
    let (first, rest) = pointer
        .strip_prefix('/')?
        .split_once('/')
        .map_or_else(|| (pointer.trim_start_matches('/'), String::new()), |(first, rest)| (first, format!("/{rest}")));
    object.body.get(first)?.pointer(&rest)
}

fn text(object: &StoredObject, pointer: &str) -> String {
    let found = at(object, pointer).and_then(Value::as_str);
    found.unwrap_or("").to_owned()
}

fn number(object: &StoredObject, pointer: &str, default: u64) -> String {
    let found = at(object, pointer).and_then(Value::as_u64);
    found.unwrap_or(default).to_string()
}

fn list<'a>(object: &'a StoredObject, pointer: &str) -> impl Iterator<Item = &'a Value> {
    at(object, pointer).and_then(Value::as_array).into_iter().flatten()
}

fn count(object: &StoredObject, pointer: &str) -> usize {
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

fn node_status(object: &StoredObject) -> Value {
    let ready = list(object, "/status/conditions").any(|condition| {
        condition.get("type").and_then(Value::as_str) == Some("Ready")
            && condition.get("status").and_then(Value::as_str) == Some("True")
    });
    let cordoned = at(object, "/spec/unschedulable") == Some(&Value::Bool(true));
    let status = if ready { "Ready" } else { "NotReady" };
    if cordoned { format!("{status},SchedulingDisabled").into() } else { status.into() }
}

fn external_ip(object: &StoredObject) -> Value {
    let given = list(object, "/spec/externalIPs").filter_map(Value::as_str);
    let balanced = list(object, "/status/loadBalancer/ingress")
        .filter_map(|ingress| ingress.get("ip").or_else(|| ingress.get("hostname")).and_then(Value::as_str));
    let shown = join(balanced.chain(given).map(str::to_owned));
    let waiting = text(object, "/spec/type") == "LoadBalancer";
    or(shown, if waiting { "<pending>" } else { "<none>" })
}

fn service_ports(object: &StoredObject) -> String {
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
