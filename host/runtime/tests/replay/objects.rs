//! Generated objects in both encodings. There are few shapes, so that traces repeat. Some objects are malformed.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Value, json};
use weir_document::{Document, TypeMeta, protobuf};

use super::cluster::{NAMESPACES, NODES, SERVICES};
use super::rng::Rng;

/// Malformed or ambiguous JSON objects, and objects with values of unexpected kinds.
const ODD: &[&str] = &[
    r#"{"apiVersion":"v1","kind":"Endpoints","metadata":{"name":"web","namespace":"team","namespace":"team"}}"#,
    r#"{"apiVersion":"v1","kind":"Service","metadata":{"name":"web","namespace":"team","namespace":"default","labels":{"service":"web"}},"spec":{"type":"NodePort"}}"#,
    r#"{"apiVersion":"v1","kind":"Service","metadata":{"name":"web","name":"db","namespace":"team"},"spec":{"type":"LoadBalancer"}}"#,
    r#"{"apiVersion":"v1","kind":"Service","metadata":{"name":"web","namespace":"team"},"spec":{"type":"NodePort","type":"ClusterIP"}}"#,
    r#"{"apiVersion":"v1","kind":"Service","metadata":{"name":"web","namespace":"team"},"spec":{"type":"#,
    r#"{"apiVersion":"v1","kind":"Service","metadata":{"name":7,"namespace":null},"spec":[1]}"#,
    r#"{"apiVersion":"v1","kind":"Service","metadata":"none","spec":{"type":{"a":1}}}"#,
    r#"{"apiVersion":"v1","kind":"Pod","metadata":{"labels":{"service":7},"annotations":[]},"spec":7,"subsets":{},"endpoints":"x"}"#,
    "{}",
    "[]",
    "",
];

/// Returns the documents of one batch.
pub(crate) fn batch(rng: &mut Rng) -> Vec<Document> {
    (0..=rng.below(9)).map(|_| document(rng)).collect()
}

fn document(rng: &mut Rng) -> Document {
    if rng.one_in(12) {
        return Document::json(Bytes::from_static(rng.pick(ODD).as_bytes()));
    }
    let object = object(rng);
    let text = |field: &str| object[field].as_str().unwrap().to_owned();
    let type_meta = TypeMeta { api_version: text("apiVersion"), kind: text("kind") };
    if rng.one_in(3)
        && let Ok(bytes) = protobuf::from_json(&type_meta, &object.to_string())
        && let Some(document) = Document::protobuf(bytes, Arc::new(type_meta))
    {
        return document;
    }
    Document::json(object.to_string().into())
}

fn object(rng: &mut Rng) -> Value {
    let mut metadata = json!({"name": rng.pick(SERVICES), "namespace": rng.pick(NAMESPACES), "labels": {}});
    if rng.one_in(2) {
        metadata["labels"]["service"] = json!(rng.pick(SERVICES));
    }
    if rng.one_in(3) {
        let items = ["hangzhou", "-hangzhou", "*", "-hangzhou, *", "beijing"];
        metadata["annotations"] = json!({"nodeport.openyurt.io/listen": rng.pick(&items)});
    }
    match rng.below(5) {
        0 => {
            let kind = rng.pick(&["ClusterIP", "NodePort", "LoadBalancer"]);
            json!({"apiVersion": "v1", "kind": "Service", "metadata": metadata,
                "spec": {"type": kind, "clusterIP": "10.96.0.1", "clusterIPs": ["10.96.0.1"],
                    "ports": [{"name": "https", "port": 443, "nodePort": 30443}]}})
        }
        1 => {
            metadata["labels"]["kubernetes.io/service-name"] = json!(rng.pick(SERVICES));
            json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "metadata": metadata,
                "addressType": "IPv4", "endpoints": endpoints(rng),
                "ports": [{"name": "https", "port": 6443}]})
        }
        2 => {
            let subset = |rng: &mut Rng| json!({"addresses": addresses(rng), "notReadyAddresses": addresses(rng)});
            let subsets: Vec<_> = (0..rng.below(3)).map(|_| subset(rng)).collect();
            json!({"apiVersion": "v1", "kind": "Endpoints", "metadata": metadata, "subsets": subsets})
        }
        3 => {
            metadata["name"] = json!("kube-proxy");
            metadata["namespace"] = json!("kube-system");
            let config = rng.pick(&["clientConnection:\n  kubeconfig: /x\nnodePortAddresses: null\n", "mode: \"\"\n"]);
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata,
                "data": {"config.conf": config, "key-0": "a", "key-1": "b"}})
        }
        _ => {
            let names = ["KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT", "OTHER"];
            let env: Vec<_> = (0..rng.below(3)).map(|_| json!({"name": rng.pick(&names), "value": "x"})).collect();
            json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata,
                "spec": {"nodeName": rng.pick(NODES), "containers": [{"name": "c", "image": "i:1", "env": env}]}})
        }
    }
}

fn endpoints(rng: &mut Rng) -> Vec<Value> {
    let endpoint = |rng: &mut Rng| json!({"addresses": ["10.0.0.1"], "nodeName": rng.pick(NODES)});
    (0..rng.below(4)).map(|_| endpoint(rng)).collect()
}

fn addresses(rng: &mut Rng) -> Vec<Value> {
    let address = |rng: &mut Rng| json!({"ip": "10.0.0.1", "nodeName": rng.pick(NODES)});
    (0..rng.below(3)).map(|_| address(rng)).collect()
}
