//! The lists: Services and EndpointSlices of `make bench`, and Pods. Of each kind, objects have many distinct shapes.

use serde_json::{Value, json};

#[allow(dead_code, reason = "`make bench` uses the rest")]
#[path = "../../bench/data.rs"]
mod data;

/// One list and what is done with its objects.
pub(crate) struct List {
    pub(crate) kind: &'static str,
    pub(crate) json: Vec<u8>,
    pub(crate) objects: usize,
    /// The third field that is read, after `metadata.name` and `metadata.namespace`.
    pub(crate) read: &'static [Key],
    /// The field that is edited, a string that all objects have.
    pub(crate) edit: &'static [&'static str],
    /// Its new value.
    pub(crate) value: &'static str,
}

impl List {
    /// The third field as a JSON pointer.
    pub(crate) fn read_pointer(&self) -> String {
        let step = |key: &Key| match key {
            Key::Member(name) => format!("/{name}"),
            Key::Element(index) => format!("/{index}"),
        };
        self.read.iter().map(step).collect()
    }
}

/// A step of the way to a field.
#[derive(Clone, Copy)]
pub(crate) enum Key {
    Member(&'static str),
    Element(usize),
}

pub(crate) fn services() -> List {
    List {
        kind: "Service",
        json: list("v1", "ServiceList", (0..5000).map(data::service)),
        objects: 5000,
        read: &[Key::Member("spec"), Key::Member("clusterIP")],
        edit: &["spec", "internalTrafficPolicy"],
        value: "Local",
    }
}

pub(crate) fn slices() -> List {
    List {
        kind: "EndpointSlice",
        json: list("discovery.k8s.io/v1", "EndpointSliceList", (0..400).map(|n| data::slice(n, 100))),
        objects: 400,
        read: &[Key::Member("endpoints"), Key::Element(0), Key::Member("nodeName")],
        edit: &["addressType"],
        value: "IPv6",
    }
}

pub(crate) fn pods() -> List {
    List {
        kind: "Pod",
        json: list("v1", "PodList", (0..2500).map(pod)),
        objects: 2500,
        read: &[Key::Member("spec"), Key::Member("nodeName")],
        edit: &["spec", "schedulerName"],
        value: "edge-scheduler",
    }
}

/// Objects in a typed list do not name their type.
fn list(api_version: &str, kind: &str, objects: impl Iterator<Item = Value>) -> Vec<u8> {
    let items: Vec<_> = objects.map(untyped).collect();
    let metadata = json!({"resourceVersion": "400000"});
    json!({"kind": kind, "apiVersion": api_version, "metadata": metadata, "items": items}).to_string().into_bytes()
}

/// Removes the type of an object, with the order of its other fields kept.
pub(crate) fn untyped(mut object: Value) -> Value {
    if let Some(members) = object.as_object_mut() {
        members.retain(|name, _| name != "apiVersion" && name != "kind");
    }
    object
}

/// Returns a running Pod of one to three containers, as a Deployment makes it.
fn pod(n: usize) -> Value {
    let containers = 1 + n % 3;
    let container = |i: usize| {
        let variables: Vec<_> = (0..n / 3 % 8)
            .map(|v| json!({"name": format!("VARIABLE_{v}"), "value": "v".repeat(1 + (n + 7 * v) % 40)}))
            .collect();
        json!({
            "name": format!("container-{i}"), "image": format!("registry.example.com/shop/app-{n}:1.{i}.{}", n % 30),
            "args": [format!("--listen=:{}", 8000 + i), "--config=/etc/app/config.yaml"],
            "ports": [{"name": "http", "containerPort": 8000 + i, "protocol": "TCP"}], "env": variables,
            "resources": {"limits": {"cpu": "500m", "memory": "256Mi"}, "requests": {"cpu": "100m", "memory": "128Mi"}},
            "volumeMounts": [
                {"name": "config", "mountPath": "/etc/app"},
                {"name": "kube-api-access", "readOnly": true, "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"}
            ],
            "livenessProbe": {"httpGet": {"path": "/healthz", "port": "http", "scheme": "HTTP"}, "timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3},
            "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File", "imagePullPolicy": "IfNotPresent"
        })
    };
    let status = |i: usize| {
        json!({
            "name": format!("container-{i}"), "state": {"running": {"startedAt": "2026-01-01T00:00:05Z"}}, "ready": true, "restartCount": n % 4,
            "image": format!("registry.example.com/shop/app-{n}:1.{i}.{}", n % 30),
            "imageID": format!("registry.example.com/shop/app-{n}@sha256:{n:064x}"), "containerID": format!("containerd://{n:064x}"), "started": true
        })
    };
    let conditions = ["Initialized", "Ready", "ContainersReady", "PodScheduled"]
        .map(|kind| json!({"type": kind, "status": "True", "lastTransitionTime": "2026-01-01T00:00:05Z"}));
    let labels: serde_json::Map<_, _> = [("app".to_owned(), json!(format!("app-{n}")))]
        .into_iter()
        .chain((0..n / 24 % 6).map(|i| (format!("example.com/tier-{i}"), json!("t".repeat(1 + (n + i) % 13)))))
        .collect();
    let mut pod = json!({
        "metadata": {
            "name": format!("app-{n}-5d8f9c7b6-x{n:04}"), "generateName": format!("app-{n}-5d8f9c7b6-"), "namespace": format!("team-{:02}", n % 50),
            "uid": format!("00000000-0000-4000-c000-{n:012}"), "resourceVersion": format!("{}", 300_000 + n), "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": labels, "annotations": {"description": "say \"hello\", C:\\path, Größe".repeat(n % 5)},
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": format!("app-{n}-5d8f9c7b6"), "uid": format!("00000000-0000-4000-d000-{n:012}"), "controller": true, "blockOwnerDeletion": true}],
            "managedFields": [
                {"manager": "kube-controller-manager", "operation": "Update", "apiVersion": "v1", "time": "2026-01-01T00:00:00Z", "fieldsType": "FieldsV1",
                 "fieldsV1": {"f:metadata": {"f:generateName": {}, "f:labels": {".": {}, "f:app": {}}, "f:ownerReferences": {".": {}, "k:{\"uid\":\"00000000-0000-4000-d000-000000000000\"}": {}}},
                  "f:spec": {"f:containers": {"k:{\"name\":\"container-0\"}": {".": {}, "f:args": {}, "f:image": {}, "f:livenessProbe": {".": {}, "f:failureThreshold": {}}, "f:name": {}, "f:resources": {}}}, "f:dnsPolicy": {}, "f:restartPolicy": {}, "f:schedulerName": {}}}}
            ]
        },
        "spec": {
            "volumes": [
                {"name": "config", "configMap": {"name": format!("app-{n}"), "defaultMode": 420}},
                {"name": "kube-api-access", "projected": {"defaultMode": 420, "sources": [{"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}}, {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}}]}}
            ],
            "containers": (0..containers).map(container).collect::<Vec<_>>(),
            "restartPolicy": "Always", "terminationGracePeriodSeconds": 30, "dnsPolicy": "ClusterFirst", "serviceAccountName": "default",
            "nodeName": format!("node-{:04}", n % data::NODES), "securityContext": {}, "schedulerName": "default-scheduler",
            "tolerations": [{"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}],
            "priority": 0, "enableServiceLinks": true, "preemptionPolicy": "PreemptLowerPriority"
        },
        "status": {
            "phase": "Running", "conditions": conditions,
            "hostIP": format!("192.0.2.{}", n % 100), "podIP": format!("10.128.{}.{}", n / 250, n % 250), "podIPs": [{"ip": format!("10.128.{}.{}", n / 250, n % 250)}],
            "startTime": "2026-01-01T00:00:00Z", "containerStatuses": (0..containers).map(status).collect::<Vec<_>>(), "qosClass": "Burstable"
        }
    });
    if (n / 144).is_multiple_of(2) {
        pod["spec"]["nodeSelector"] = json!({"kubernetes.io/os": "linux"});
    }
    pod
}
