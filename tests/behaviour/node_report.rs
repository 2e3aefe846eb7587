//! What the daemon reports on its Node: events and the condition `WeirFiltersReady`.

use std::time::Duration;

use serde_json::{Value, json};
use weir_apiserver::ApiServer;
use weir_tests::client::{Client, Events, PATIENCE};
use weir_tests::daemon::Setup;
use weir_tests::edge::grant;
use weir_tests::guests::hostile;
use weir_tests::rights::Rights;

use super::edge;

const FILTERS: &str =
    "filters:\n  - {name: bad, module: bad-handle.wasm, match: ['victim/services'], failurePolicy: Hide}\n";

async fn watch(server: &ApiServer, path: &str) -> Events {
    Client::new(server.url(), "observer").watch(path).await
}

/// The next event about the Node.
async fn event(events: &mut Events) -> Value {
    events.next_change().await["object"].take()
}

/// Whether the daemon has read or written its Node by name, as it does for the condition alone.
fn has_asked_for_the_node(server: &ApiServer) -> bool {
    server.requests().iter().any(|request| request.path.starts_with("/api/v1/nodes/edge-a"))
}

/// A fault is written once it has lasted for 30 seconds.
const SETTLED: Duration = Duration::from_secs(30);

/// The condition, once it has this reason.
async fn condition(nodes: &mut Events, reason: &str) -> Value {
    let found = async {
        loop {
            let mut node = nodes.next_change().await;
            let conditions = node["object"]["status"]["conditions"].take();
            let is_ours = |condition: &&Value| condition["type"] == "WeirFiltersReady" && condition["reason"] == reason;
            if let Some(condition) = conditions.as_array().into_iter().flatten().find(is_ours) {
                return condition.clone();
            }
        }
    };
    tokio::time::timeout(SETTLED + PATIENCE, found)
        .await
        .unwrap_or_else(|_| panic!("no condition with reason {reason}"))
}

#[tokio::test]
async fn refused_configurations_and_open_breakers_are_events_and_a_condition_of_the_node() {
    let server = edge().await;
    grant(&server, Rights::shipped().with("node-condition.yaml"));
    // The breaker opens on faults on objects of three namespaces.
    for namespace in ["team-a", "team-b"] {
        let service =
            json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web", "namespace": namespace}});
        server.store().put(service).unwrap();
    }
    server.store().edit("v1", "Node", "", "edge-a", |node| {
        node["status"] = json!({"conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}]});
    });
    let mut events = watch(&server, "/apis/events.k8s.io/v1/namespaces/default/events?watch=1").await;
    let mut nodes = watch(&server, "/api/v1/nodes?watch=1&fieldSelector=metadata.name%3Dedge-a").await;
    let weir = Setup::new(server.url())
        .flag("--node-condition", "on")
        .filters(FILTERS)
        .module("bad-handle", &hostile("bad-handle"))
        .start_ready()
        .await;
    let active = condition(&mut nodes, "FiltersActive").await;
    assert_eq!(active["status"], "True");

    for _ in 0..3 {
        weir.client("victim").get("/api/v1/services").await;
    }
    let opened = event(&mut events).await;
    assert_eq!((&opened["reason"], &opened["type"]), (&"CircuitBreakerOpened".into(), &"Warning".into()), "{opened}");
    assert_eq!(opened["regarding"], json!({"apiVersion": "v1", "kind": "Node", "name": "edge-a", "uid": "edge-a"}));
    let note = opened["note"].as_str().unwrap();
    assert!(note.contains("Filter bad failed too often") && note.contains("policy Hide"), "{note}");
    weir.put_filters("filters: [\n");
    let refused = event(&mut events).await;
    assert_eq!(refused["reason"], "ConfigurationRefused", "{refused}");
    assert!(refused["note"].as_str().unwrap().contains("The last valid filter set stays active"), "{refused}");
    // One write has both faults, the worse one as its reason.
    let both = condition(&mut nodes, "Refused").await;
    let message = both["message"].as_str().unwrap();
    assert_eq!(both["status"], "False", "{both}");
    assert!(message.starts_with("refused (") && message.contains("), filter-suspended (bad)"), "{message}");
    assert!(message.ends_with("; see weir status on the node"), "{message}");
    assert_ne!(both["lastTransitionTime"], active["lastTransitionTime"], "{both}");

    let node = server.store().get("v1", "Node", "", "edge-a").unwrap();
    assert!(node.to_string().contains("KubeletReady"), "the conditions of kubelet stay: {node}");
    assert!(has_asked_for_the_node(&server));
}

#[tokio::test]
async fn the_daemons_own_credential_sets_no_condition_by_default() {
    let server = edge().await;
    let mut events = watch(&server, "/apis/events.k8s.io/v1/namespaces/default/events?watch=1").await;
    let weir = Setup::new(server.url()).filters("filters: []").start_ready().await;
    weir.put_filters("filters: [\n");
    assert_eq!(event(&mut events).await["reason"], "ConfigurationRefused");
    // The same task would have read the Node at its start, before the second event.
    weir.put_filters("filters: [{name: a}]\n");
    assert_eq!(event(&mut events).await["reason"], "ConfigurationRefused");
    assert!(!has_asked_for_the_node(&server), "{:?}", server.requests());
}
