//! What a bundled filter costs grows with its object, and not faster: the owner of one object cannot use up the time of the
//! filter. The instructions of the module are counted, for the largest legal object and for one of half its size.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use weir_document::Document;
use weir_spec::LookupSpec;

use super::{Bounds, Engine, Epoch, InstanceContext, Linked};
use crate::testing::Fixed;

/// Kubernetes allows annotations of 256 KiB in all, and etcd objects of 1.5 MB.
const ANNOTATION: usize = 250_000;
const OBJECT: usize = 1_400_000;

/// A filter, its settings, and the cluster and the object of a share of the largest size.
type Subject = (&'static str, &'static str, fn(usize, usize) -> (Vec<Value>, Value));

const SUBJECTS: &[Subject] = &[
    ("servicetopology, annotation", "{}", topology_annotation),
    ("servicetopology, endpoints", "{}", topology_endpoints),
    ("servicetopology, subsets", "{}", topology_subsets),
    ("endpoints", "{}", topology_subsets),
    ("nodeportisolation", "{}", |part, of| {
        let service = annotated("nodeport.openyurt.io/listen", &text("-a,b,", ANNOTATION * part / of));
        (node(), service)
    }),
    ("discardcloudservice", "{}", |part, of| {
        (vec![], annotated("openyurt.io/skip-discard", &text("true", ANNOTATION * part / of)))
    }),
    ("nodeportaddresses, annotation", "{}", |part, of| {
        let blocks: String = (0..ANNOTATION * part / of / 13)
            .fold(String::new(), |all, n| format!("{all}10.{}.{}.0/24,", 250 - n % 250, 250 - n / 250 % 250));
        let mut node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node"}});
        node["metadata"]["annotations"] = json!({"nodeport.openyurt.io/addresses": blocks.trim_end_matches(',')});
        (vec![node], config("mode: x\n"))
    }),
    ("nodeportaddresses, blocks", r#"{"addresses": ["10.0.0.0/8"]}"#, |part, of| {
        (node(), config(&format!("nodePortAddresses:\n{}", text("- 10.0.0.0/8 # c\n", OBJECT * part / of))))
    }),
    ("nodeportaddresses, JSON", r#"{"addresses": ["10.0.0.0/8"]}"#, |part, of| {
        (node(), config(&format!("{{\"a\": [{}1]}}", text("[\"x\", {}],", OBJECT / 2 * part / of))))
    }),
    ("inclusterconfig, lines", "{}", |part, of| (vec![], config(&text("- kubeconfig: x\n", OBJECT / 4 * part / of)))),
    ("inclusterconfig, JSON", "{}", |part, of| {
        (vec![], config(&format!("[{}1]", text("{\"kubeconfig\": \"x\"}, ", OBJECT / 4 * part / of))))
    }),
    ("serviceenvupdater", r#"{"host": "10.0.0.9", "port": 1}"#, |part, of| {
        let env: Vec<_> = (0..OBJECT * part / of / 50)
            .map(|n| json!({"name": if n % 2 == 0 { "KUBERNETES_SERVICE_HOST" } else { "X" }, "value": "x"}))
            .collect();
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "namespace": "b"},
            "spec": {"containers": [{"name": "a", "env": env}]}});
        (vec![], pod)
    }),
    ("masterservice", r#"{"host": "10.0.0.9", "port": 1}"#, |part, of| {
        let ports: Vec<_> = (0..OBJECT * part / of / 40).map(|n| json!({"name": format!("p{n}"), "port": 1})).collect();
        let service = json!({"apiVersion": "v1", "kind": "Service",
            "metadata": {"name": "kubernetes", "namespace": "default"}, "spec": {"ports": ports}});
        (vec![], service)
    }),
    ("forwardkubesvctraffic", r#"{"host": "10.0.0.9", "port": 1}"#, |part, of| {
        let ports: Vec<_> = (0..OBJECT * part / of / 40).map(|n| json!({"name": format!("p{n}"), "port": 1})).collect();
        let slice = json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
            "metadata": {"name": "k", "namespace": "default", "labels": {"kubernetes.io/service-name": "kubernetes"}},
            "ports": ports, "endpoints": []});
        (vec![], slice)
    }),
];

/// Repeats a text up to a length.
fn text(part: &str, length: usize) -> String {
    part.repeat(length / part.len())
}

fn node() -> Vec<Value> {
    let pool = json!({"apps.openyurt.io/nodepool": "foo"});
    vec![
        json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node", "labels": pool}}),
        json!({"apiVersion": "apps.openyurt.io/v1beta2", "kind": "NodePool", "metadata": {"name": "foo"},
            "status": {"nodes": ["node", "other"]}}),
    ]
}

fn annotated(key: &str, value: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Service", "spec": {"type": "NodePort", "ports": [{"nodePort": 30_000}]},
        "metadata": {"name": "web", "namespace": "default", "annotations": {key: value}}})
}

fn config(text: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "kube-proxy", "namespace": "kube-system"},
        "data": {"config.conf": text}})
}

/// A slice of a Service whose preference list has this text.
fn topology(list: &str, endpoints: &[Value]) -> (Vec<Value>, Value) {
    let slice = json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": {"name": "web-a", "namespace": "default", "labels": {"kubernetes.io/service-name": "web"}},
        "ports": [{"name": "http", "port": 80}], "endpoints": endpoints});
    let mut cluster = node();
    cluster.extend([annotated("openyurt.io/topologyKeys", list), slice.clone()]);
    (cluster, slice)
}

fn endpoints(count: usize) -> Vec<Value> {
    let name = |n: usize| if n.is_multiple_of(2) { "other" } else { "far" };
    (0..count)
        .map(|n| json!({"addresses": ["10.0.0.1"], "nodeName": name(n), "conditions": {"ready": n != 7}}))
        .collect()
}

/// No key leaves an endpoint, so that each is tried.
fn topology_annotation(part: usize, of: usize) -> (Vec<Value>, Value) {
    let far: Vec<_> = (0..800 * part / of).map(|_| json!({"addresses": ["10.0.0.1"], "nodeName": "far"})).collect();
    topology(&text("openyurt.io/nodepool,kubernetes.io/hostname,", ANNOTATION * part / of), &far)
}

fn topology_endpoints(part: usize, of: usize) -> (Vec<Value>, Value) {
    topology("kubernetes.io/hostname,openyurt.io/nodepool,*", &endpoints(OBJECT * part / of / 80))
}

fn topology_subsets(part: usize, of: usize) -> (Vec<Value>, Value) {
    let subset = |n: usize| {
        json!({"addresses": [{"ip": "10.0.0.1", "nodeName": "other"}, {"ip": "fd00::1", "nodeName": "far"}],
            "ports": [{"name": format!("p{}", n * 7919 % 100_003), "port": 1}]})
    };
    let subsets: Vec<_> = (0..OBJECT * part / of / 140).map(subset).collect();
    let mut cluster = node();
    cluster.push(annotated("openyurt.io/topologyKeys", "kubernetes.io/hostname,openyurt.io/nodepool,*"));
    let metadata = json!({"name": "web", "namespace": "default"});
    (cluster, json!({"apiVersion": "v1", "kind": "Endpoints", "metadata": metadata, "subsets": subsets}))
}

/// Returns the instructions that the module runs for the object.
async fn instructions(linked: &Linked, settings: &str, (cluster, object): (Vec<Value>, Value)) -> u64 {
    let bounds = Bounds { memory: 256 << 20, time: Duration::from_secs(600) };
    let view = Arc::new(Fixed::new(cluster));
    let context =
        |lookups| Arc::new(InstanceContext::new("test".into(), view.clone(), lookups, Arc::new(Epoch::new(0))));
    let (_, plan) = linked.instance(context(Vec::new()), bounds, settings).await.unwrap();
    let lookup = |raw: &super::RawLookup| {
        let (name, label_selector) = (raw.name.clone(), raw.label_selector.clone());
        Arc::new(LookupSpec { name, label_selector, ..LookupSpec::all(raw.resource.parse().unwrap()) })
    };
    let lookups = plan.lookups.iter().map(lookup).collect();
    let (mut instance, _) = linked.instance(context(lookups), bounds, settings).await.unwrap();
    let before = instance.fuel();
    let called = instance.filter(Document::json(object.to_string().into()), None, false).await;
    called.verdict.unwrap();
    before - instance.fuel()
}

#[tokio::test]
async fn the_cost_of_each_bundled_filter_is_linear_in_its_object() {
    let engine = Engine::metered().unwrap();
    let program = std::env::current_exe().unwrap();
    let modules = program.ancestors().nth(3).unwrap().join("modules");
    let mut compiled: Option<(&str, Linked)> = None;
    for (subject, settings, of_size) in SUBJECTS {
        let name = subject.split(',').next().unwrap();
        if compiled.as_ref().is_none_or(|(of, _)| *of != name) {
            let path = modules.join(format!("{name}.wasm"));
            let bytes =
                std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}: make modules", path.display()));
            compiled = Some((name, Linked::new(&engine, &bytes).unwrap()));
        }
        let (_, linked) = compiled.as_ref().unwrap();
        let (half, whole) =
            (instructions(linked, settings, of_size(1, 2)).await, instructions(linked, settings, of_size(1, 1)).await);
        println!("{subject}: {half} instructions for half of the object, {whole} for the whole");
        // A sort takes a little more than twice as much, a quadratic step four times.
        assert!(whole * 2 < half * 5, "{subject}: {half} instructions for half of the object, {whole} for the whole");
    }
}
