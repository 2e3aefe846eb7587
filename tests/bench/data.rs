//! The filtered objects, Services of about 2 KB and EndpointSlices of 100 endpoints in the form of a real API server,
//! and the objects that filters look up.

use serde_json::{Value, json};

/// The nodes of the cluster, ten per pool.
pub(crate) const NODES: usize = 100;

/// Returns a Service of about 2 KB, including managed fields.
pub(crate) fn service(n: usize) -> Value {
    let mut annotations = json!({"prometheus.io/scrape": "true", "description": "x".repeat(640)});
    if n.is_multiple_of(10) {
        annotations["nodeport.openyurt.io/listen"] = json!("pool-1, -pool-2");
    }
    if n.is_multiple_of(2) {
        annotations["openyurt.io/topologyKeys"] = json!("openyurt.io/nodepool");
    }
    let kind = match n % 20 {
        0 => "NodePort",
        1 => "LoadBalancer",
        _ => "ClusterIP",
    };
    json!({
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
            "clusterIP": format!("10.96.{}.{}", n / 250 % 250, n % 250), "clusterIPs": [format!("10.96.{}.{}", n / 250 % 250, n % 250)],
            "internalTrafficPolicy": "Cluster", "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack",
            "ports": [{"name": "http", "port": 80, "protocol": "TCP", "targetPort": 8080, "nodePort": 30000 + n % 2000}],
            "selector": {"app.kubernetes.io/name": format!("app-{n}")}, "sessionAffinity": "None", "type": kind
        },
        "status": {"loadBalancer": {}}
    })
}

/// Returns an EndpointSlice with this number of endpoints.
pub(crate) fn slice(n: usize, endpoints: usize) -> Value {
    let endpoint = |i: usize| {
        json!({
            "addresses": [format!("10.{}.{}.{}", 128 + n % 100, i / 250, i % 250)],
            "conditions": {"ready": !i.is_multiple_of(7), "serving": true, "terminating": false},
            "nodeName": format!("node-{:04}", (n + i) % NODES),
            "targetRef": {"kind": "Pod", "name": format!("service-{n:05}-{i:04}"), "namespace": format!("team-{:02}", n % 50), "uid": format!("00000000-0000-4000-9000-{:012}", n * 1000 + i)},
            "zone": "cn-hangzhou-a"
        })
    };
    json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": {
            "name": format!("service-{n:05}-abcde"), "namespace": format!("team-{:02}", n % 50), "uid": format!("00000000-0000-4000-a000-{n:012}"),
            "resourceVersion": format!("{}", 200_000 + n), "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {"kubernetes.io/service-name": format!("service-{n:05}"), "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io"},
        },
        "addressType": "IPv4",
        "endpoints": (0..endpoints).map(endpoint).collect::<Vec<_>>(),
        "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}]
    })
}

/// The local node, a member of pool-1.
pub(crate) const NODE: &str = "node-0000";

/// Returns the pools and nodes.
pub(crate) fn cluster() -> Vec<Value> {
    let node = |n: usize| json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": format!("node-{n:04}"), "labels": {"apps.openyurt.io/nodepool": format!("pool-{}", n / 10 + 1)}}});
    let pool = |p: usize| {
        let nodes: Vec<_> = (0..10).map(|n| format!("node-{:04}", p * 10 + n)).collect();
        json!({"apiVersion": "apps.openyurt.io/v1beta2", "kind": "NodePool", "metadata": {"name": format!("pool-{}", p + 1)}, "spec": {"type": "Edge"}, "status": {"nodes": nodes}})
    };
    (0..NODES).map(node).chain((0..NODES / 10).map(pool)).collect()
}

/// Returns all objects that filters look up: pools, nodes, and the Services of the slices.
pub(crate) fn lookups() -> Vec<Value> {
    cluster().into_iter().chain((0..1000).map(service)).collect()
}
