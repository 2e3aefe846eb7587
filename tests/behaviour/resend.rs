//! Objects that filters show in another state, at the resourceVersion that their clients hold (`--resend`).

use serde_json::{Value, json};
use weir_apiserver::ApiServer;
use weir_tests::client::{Client, Events};
use weir_tests::daemon::{Daemon, Setup};
use weir_tests::protobuf::{CLIENT_GO, Frames};

use super::{edge, only};

const SLICES: &str = "/apis/discovery.k8s.io/v1/endpointslices";
const METADATA: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";

/// Each slice has the endpoints of the nodes of the local pool only, and comes from a watch cache.
async fn topology(resend: &str) -> (ApiServer, Daemon) {
    let server = edge().await;
    let filters = only("servicetopology", "    match: ['*/endpointslices']\n");
    let setup = Setup::new(server.url()).filters(&filters).bundled("servicetopology");
    (server, setup.flag("--resend", resend).start_ready().await)
}

fn set_pool(server: &ApiServer, nodes: &[&str]) {
    let pools = server.store();
    pools
        .edit("apps.openyurt.io/v1beta2", "NodePool", "", "hangzhou", |pool| pool["status"]["nodes"] = json!(nodes))
        .unwrap();
}

/// The version of an informer's list.
async fn listed(client: &Client) -> String {
    let list = client.json(&format!("{SLICES}?resourceVersion=0")).await;
    list["metadata"]["resourceVersion"].as_str().unwrap().to_owned()
}

async fn watch(client: &Client, from: &str) -> Events {
    client.watch(&format!("{SLICES}?watch=true&allowWatchBookmarks=true&resourceVersion={from}")).await
}

/// The type, the resourceVersion and the nodes of an event.
fn summary(event: &Value) -> String {
    let object = &event["object"];
    let endpoints = object["endpoints"].as_array().into_iter().flatten();
    let nodes: Vec<_> = endpoints.map(|endpoint| endpoint["nodeName"].as_str().unwrap()).collect();
    let version = object["metadata"]["resourceVersion"].as_str().unwrap();
    format!("{} {version} {}", event["type"].as_str().unwrap(), nodes.join(" ")).trim_end().to_owned()
}

async fn next(events: &mut Events, count: usize) -> Vec<String> {
    let mut all = Vec::with_capacity(count);
    for _ in 0..count {
        all.push(summary(&events.next().await));
    }
    all
}

/// Reads events until one shows the slice with an endpoint on `node`: a DELETED names the state before.
async fn until_shown(events: &mut Events, node: &str) {
    loop {
        let event = events.next_change().await;
        if event["type"] != "DELETED" && summary(&event).ends_with(node) {
            return;
        }
    }
}

#[tokio::test]
async fn a_changed_outcome_is_modified_or_deleted_and_added_by_component_and_a_bookmark_follows() {
    let (server, weir) = topology("custom=replace").await;
    let direct = Client::new(server.url(), "test").json(SLICES).await;
    let held = direct["items"][0]["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
    let component = |name: &str| weir.client(name);
    let mut open = Vec::new();
    for name in ["kube-proxy", "traefik", "custom"] {
        listed(&component(name)).await;
    }
    weir.settled(&server).await;
    for name in ["kube-proxy", "traefik", "custom"] {
        let client = component(name);
        let from = listed(&client).await;
        open.push((name, watch(&client, &from).await, from));
    }
    let protobuf = component("traefik").with("accept", CLIENT_GO);
    let metadata = component("traefik").with("accept", METADATA);
    let mut frames = Frames::of(watch(&protobuf, &open[1].2).await);
    let mut metadata = watch(&metadata, &open[1].2).await;

    set_pool(&server, &["edge-a", "edge-c"]);
    for (name, events, from) in &mut open {
        let bookmark = format!("BOOKMARK {from}");
        let expected = match *name {
            "kube-proxy" => vec![format!("MODIFIED {held} edge-a edge-c"), bookmark],
            _ => vec![format!("DELETED {held} edge-a edge-b"), format!("ADDED {held} edge-a edge-c"), bookmark],
        };
        assert_eq!(next(events, expected.len()).await, expected, "{name}");
    }
    let from = open[1].2.clone();
    let mut decoded = Vec::new();
    for _ in 0..3 {
        decoded.push(summary(&frames.next().await.unwrap()));
    }
    let whole =
        [format!("DELETED {held} edge-a edge-b"), format!("ADDED {held} edge-a edge-c"), format!("BOOKMARK {from}")];
    assert_eq!(decoded, whole, "in protobuf");
    let reduced = [format!("DELETED {held}"), format!("ADDED {held}"), format!("BOOKMARK {from}")];
    assert_eq!(next(&mut metadata, 3).await, reduced, "of a client of metadata");

    // An event of the API server has a version of its own.
    let edit = |slice: &mut Value| slice["metadata"]["annotations"] = json!({"a": "b"});
    server.store().edit("discovery.k8s.io/v1", "EndpointSlice", "default", "web-x7k2p", edit).unwrap();
    for (name, events, _) in &mut open {
        let event = events.next_change().await;
        assert!(
            summary(&event).starts_with("MODIFIED ") && summary(&event).ends_with(" edge-a edge-c"),
            "{name}: {event}"
        );
    }
}

#[tokio::test]
async fn a_client_between_two_watches_gets_what_changed_as_its_component_takes_it() {
    let (server, weir) = topology("kube-proxy=replace,traefik=modified").await;
    for name in ["kube-proxy", "traefik"] {
        listed(&weir.client(name)).await;
    }
    weir.settled(&server).await;
    let edit = |slice: &mut Value| slice["metadata"]["annotations"] = json!({"a": "b"});
    server.store().edit("discovery.k8s.io/v1", "EndpointSlice", "default", "web-x7k2p", edit).unwrap();
    let held = server.store().revision().to_string();
    let mut open = Vec::new();
    for name in ["kube-proxy", "traefik"] {
        let client = weir.client(name);
        let list = client.json(&format!("{SLICES}?resourceVersion={held}")).await;
        let from = list["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
        let events = watch(&client, &from).await;
        open.push((name, client, from, events));
    }
    // Every component has a view of its own: each has to have shown a change before the next one.
    for node in ["edge-c", "edge-b"] {
        set_pool(&server, &["edge-a", node]);
        for (_, _, _, events) in &mut open {
            until_shown(events, node).await;
        }
    }
    for (name, client, from, events) in open {
        drop(events);
        let mut events = watch(&client, &from).await;
        let bookmark = format!("BOOKMARK {from}");
        let expected = match name {
            "traefik" => vec![format!("MODIFIED {held} edge-a edge-b"), bookmark],
            // What the client holds is not known: the state that it gets replaces any other one.
            _ => vec![format!("DELETED {held} edge-a edge-b"), format!("ADDED {held} edge-a edge-b"), bookmark],
        };
        assert_eq!(next(&mut events, expected.len()).await, expected, "{name}");
    }
}
