//! The filtered objects, Services of about 2 KB and EndpointSlices of 100 endpoints in the form of a real API server,
//! and the objects that filters look up.
//!
//! A filter host that remembers what a filter did must not profit from objects that are alike. Services and slices have
//! [`SHAPES`] distinct shapes each, which differ in labels, annotations, ports and optional fields. Lengths and values vary
//! within a shape.

use serde_json::{Value, json};

/// The nodes of the cluster, ten per pool.
pub(crate) const NODES: usize = 100;
/// The number of distinct shapes of an object.
const SHAPES: usize = 1000;
/// The names of up to four ports, and their numbers.
const PORTS: [(&str, usize); 4] = [("http", 80), ("https", 443), ("metrics", 9090), ("grpc", 9000)];

/// What distinguishes a shape: numbers of labels, annotations and ports, and which optional fields are set.
struct Shape {
    labels: usize,
    annotations: usize,
    ports: usize,
    optional: usize,
}

impl Shape {
    fn of(n: usize) -> Self {
        let n = n % SHAPES;
        Self { labels: n % 5, annotations: n / 5 % 5, ports: 1 + n / 25 % 4, optional: n / 100 }
    }

    /// Adds labels and annotations, whose values have different lengths.
    fn decorate(&self, n: usize, metadata: &mut Value) {
        for i in 0..self.labels {
            metadata["labels"][format!("example.com/tier-{i}")] = json!("t".repeat(1 + (n + i * 5) % 13));
        }
        for i in 0..self.annotations {
            metadata["annotations"][format!("example.com/contact-{i}")] = json!("a".repeat(4 + (n * 3 + i * 7) % 41));
        }
    }
}

/// Returns a Service of about 2 KB, including managed fields.
pub(crate) fn service(n: usize) -> Value {
    let shape = Shape::of(n);
    let mut annotations = json!({"prometheus.io/scrape": "true", "description": "x".repeat(n * 37 % 551)});
    if n.is_multiple_of(10) {
        let other = 2 + n / 40 % 25;
        annotations["nodeport.openyurt.io/listen"] = json!(match n / 10 % 4 {
            0 => format!("pool-1, -pool-{other}"),
            1 => format!("-pool-1, pool-{other}, *"),
            2 => format!("pool-{other}"),
            _ => "*".to_owned(),
        });
    }
    if n.is_multiple_of(2) {
        let keys = if n % 10 == 6 { "kubernetes.io/hostname" } else { "openyurt.io/nodepool" };
        annotations["openyurt.io/topologyKeys"] = json!(keys);
    }
    let kind = match n % 20 {
        0 => "NodePort",
        1 => "LoadBalancer",
        _ => "ClusterIP",
    };
    let port = |i: usize| {
        let (name, number) = PORTS[i];
        let target = if (n + i).is_multiple_of(3) { json!(name) } else { json!(8000 + number % 1000) };
        json!({"name": name, "port": number, "protocol": "TCP", "targetPort": target, "nodePort": 30_000 + (n + 500 * i) % 2000})
    };
    let address = format!("10.96.{}.{}", n / 250 % 250, n % 250);
    let mut service = json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {
            "name": format!("service-{n:05}"), "namespace": format!("team-{:02}", n % 50), "uid": format!("00000000-0000-4000-8000-{n:012}"),
            "resourceVersion": format!("{}", 100_000 + n), "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {"app.kubernetes.io/name": format!("app-{n}"), "app.kubernetes.io/part-of": "shop", "team": format!("team-{:02}", n % 50)},
            "annotations": annotations,
            "managedFields": [
                {"manager": "kubectl-client-side-apply", "operation": "Update", "apiVersion": "v1", "time": "2026-01-01T00:00:00Z", "fieldsType": "FieldsV1",
                 "fieldsV1": {"f:metadata": {"f:annotations": {".": {}, "f:description": {}, "f:prometheus.io/scrape": {}}, "f:labels": {".": {}, "f:app.kubernetes.io/name": {}, "f:app.kubernetes.io/part-of": {}, "f:team": {}}},
                  "f:spec": {"f:internalTrafficPolicy": {}, "f:ports": {".": {}, "k:{\"port\":80,\"protocol\":\"TCP\"}": {".": {}, "f:name": {}, "f:port": {}, "f:protocol": {}, "f:targetPort": {}}}, "f:selector": {}, "f:sessionAffinity": {}, "f:type": {}}}}
            ]
        },
        "spec": {
            "clusterIP": address, "clusterIPs": [address], "internalTrafficPolicy": "Cluster", "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack",
            "ports": (0..shape.ports).map(port).collect::<Vec<_>>(),
            "selector": {"app.kubernetes.io/name": format!("app-{n}")}, "sessionAffinity": "None", "type": kind
        },
        "status": {"loadBalancer": {}}
    });
    shape.decorate(n, &mut service["metadata"]);
    let [metadata, spec] = ["metadata", "spec"].map(|part| service[part].take());
    let (metadata, spec) = service_options(n, shape.optional, metadata, spec);
    service["metadata"] = metadata;
    service["spec"] = spec;
    service
}

/// Sets one of ten combinations of optional fields.
fn service_options(n: usize, which: usize, mut metadata: Value, mut spec: Value) -> (Value, Value) {
    let owner = json!([{"apiVersion": "apps/v1", "kind": "StatefulSet", "name": format!("app-{n}"), "uid": format!("00000000-0000-4000-b000-{n:012}")}]);
    match which {
        1 => {
            spec["sessionAffinity"] = json!("ClientIP");
            spec["sessionAffinityConfig"] = json!({"clientIP": {"timeoutSeconds": 600 + n % 10_800}});
        }
        2 => spec["publishNotReadyAddresses"] = json!(true),
        3 => {
            spec["ipFamilies"] = json!(["IPv4", "IPv6"]);
            spec["ipFamilyPolicy"] = json!("PreferDualStack");
            let first = spec["clusterIP"].take();
            spec["clusterIPs"] = json!([first, format!("fd00:10:96::{n:x}")]);
            spec["clusterIP"] = first;
        }
        4 => metadata["ownerReferences"] = owner,
        5 => metadata["finalizers"] = json!(["service.kubernetes.io/load-balancer-cleanup"]),
        6 => spec["trafficDistribution"] = json!("PreferClose"),
        7 => spec["externalIPs"] = json!([format!("192.0.2.{}", n % 250)]),
        8 => {
            spec["ports"][0]["appProtocol"] = json!("kubernetes.io/h2c");
            metadata["generateName"] = json!("service-");
        }
        9 => {
            metadata["ownerReferences"] = owner;
            spec["publishNotReadyAddresses"] = json!(true);
        }
        _ => {}
    }
    (metadata, spec)
}

/// Returns an EndpointSlice with this number of endpoints.
pub(crate) fn slice(n: usize, endpoints: usize) -> Value {
    let shape = Shape::of(n);
    let ports = |i: usize| json!({"name": PORTS[i].0, "port": 8000 + PORTS[i].1 % 1000, "protocol": "TCP"});
    let mut slice = json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": {
            "name": format!("service-{n:05}-abcde"), "namespace": format!("team-{:02}", n % 50), "uid": format!("00000000-0000-4000-a000-{n:012}"),
            "resourceVersion": format!("{}", 200_000 + n), "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {"kubernetes.io/service-name": format!("service-{n:05}"), "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io"},
        },
        "addressType": "IPv4",
        "endpoints": (0..endpoints).map(|i| endpoint(n, i, shape.optional)).collect::<Vec<_>>(),
        "ports": (0..shape.ports).map(ports).collect::<Vec<_>>()
    });
    shape.decorate(n, &mut slice["metadata"]);
    if shape.optional == 8 {
        slice["metadata"]["generateName"] = json!(format!("service-{n:05}-"));
    }
    slice
}

/// Returns an endpoint with one of ten combinations of optional fields.
fn endpoint(n: usize, i: usize, which: usize) -> Value {
    let pod = format!("service-{n:05}-{i:04}{}", &"bcdfghj"[..(n * 5 + i * 3) % 7]);
    let mut endpoint = json!({
        "addresses": [format!("10.{}.{}.{}", 128 + n % 100, i / 250, i % 250)],
        "conditions": {"ready": !i.is_multiple_of(7), "serving": true, "terminating": false},
        "nodeName": format!("node-{:04}", (n + i) % NODES),
        "targetRef": {"kind": "Pod", "name": pod, "namespace": format!("team-{:02}", n % 50), "uid": format!("00000000-0000-4000-9000-{:012}", n * 1000 + i)},
        "zone": "cn-hangzhou-a"
    });
    let members = endpoint.as_object_mut().unwrap();
    if matches!(which, 1 | 5 | 9) {
        members.insert("hints".to_owned(), json!({"forZones": [{"name": "cn-hangzhou-a"}]}));
    }
    if matches!(which, 2 | 7) {
        members.remove("zone");
    }
    if matches!(which, 3 | 5 | 7) {
        members.insert("hostname".to_owned(), json!(format!("app-{n}-{i}")));
    }
    if matches!(which, 4 | 9) {
        members.insert("conditions".to_owned(), json!({"ready": true}));
    }
    match which {
        6 => endpoint["targetRef"]["resourceVersion"] = json!(format!("{}", 300_000 + n)),
        8 => endpoint["zone"] = json!(format!("cn-hangzhou-{}", &"abcdef"[i % 6..][..1])),
        _ => {}
    }
    endpoint
}

/// The local node, a member of pool-1.
pub(crate) const NODE: &str = "node-0000";

/// Returns the pools and nodes.
pub(crate) fn cluster() -> Vec<Value> {
    let node = |n: usize| json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": format!("node-{n:04}"), "labels": {"apps.openyurt.io/nodepool": format!("pool-{}", n / 10 + 1)}}});
    let pool = |p: usize| {
        let nodes: Vec<_> = (0..10).map(|n| format!("node-{:04}", p * 10 + n)).collect();
        json!({"apiVersion": "apps.openyurt.io/v1beta2", "kind": "NodePool", "metadata": {"name": format!("pool-{}", p + 1), "labels": {"openyurt.io/pool-name": format!("pool-{}", p + 1)}}, "spec": {"type": "Edge"}, "status": {"nodes": nodes}})
    };
    (0..NODES).map(node).chain((0..NODES / 10).map(pool)).collect()
}

/// Returns all objects that filters look up: pools, nodes, and the Services of the slices.
pub(crate) fn lookups() -> Vec<Value> {
    cluster().into_iter().chain((0..1000).map(service)).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Adds the path of each field and the length of each array. Sibling endpoints may differ.
    fn fields(at: &str, value: &Value, out: &mut BTreeSet<String>) {
        match value {
            Value::Object(members) => {
                members.iter().for_each(|(name, value)| fields(&format!("{at}.{name}"), value, out))
            }
            Value::Array(items) => {
                out.insert(format!("{at}[{}]", items.len()));
                items.iter().for_each(|item| fields(&format!("{at}[]"), item, out));
            }
            _ => drop(out.insert(at.to_owned())),
        }
    }

    fn check(object: impl Fn(usize) -> Value, bytes: f64) {
        let mut shapes = BTreeSet::new();
        let mut sum = 0;
        for n in 0..SHAPES {
            let object = object(n);
            let mut shape = BTreeSet::new();
            fields("", &object, &mut shape);
            shapes.insert(shape);
            sum += object.to_string().len();
        }
        assert_eq!(shapes.len(), SHAPES);
        let mean = sum as f64 / SHAPES as f64;
        assert!((mean / bytes - 1.0).abs() < 0.03, "{mean} instead of {bytes} bytes");
    }

    #[test]
    fn services_have_as_many_shapes_as_promised_and_their_size() {
        check(service, 1960.0);
    }

    #[test]
    fn slices_have_as_many_shapes_as_promised_and_their_size() {
        check(|n| slice(n, 100), 28_380.0);
    }
}
