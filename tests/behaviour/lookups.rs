//! Lookups: only declared and granted kinds, complete before a filter goes live. A change of a read value reaches open watches as
//! events.

use serde_json::{Value, json};
use weir_apiserver::{ApiServer, Enforce};
use weir_tests::client::{Client, Events, names};
use weir_tests::daemon::{Daemon, Setup};

use super::{edge, only};

const SERVICES: &str = "/api/v1/services";
const SLICES: &str = "/apis/discovery.k8s.io/v1/endpointslices";

async fn topology(more: &str) -> (ApiServer, Daemon, Client) {
    let server = edge().await;
    let weir = Setup::new(server.url())
        .filters(&only("servicetopology", more))
        .bundled("servicetopology")
        .uncached()
        .start_ready()
        .await;
    let client = weir.client("kube-proxy");
    (server, weir, client)
}

fn nodes(list: &serde_json::Value) -> Vec<&str> {
    let endpoints = list["items"][0]["endpoints"].as_array().unwrap();
    endpoints.iter().map(|endpoint| endpoint["nodeName"].as_str().unwrap()).collect()
}

/// Replaces the nodes of the local pool.
fn set_pool(server: &ApiServer, nodes: &[&str]) {
    let pools = server.store();
    pools
        .edit("apps.openyurt.io/v1beta2", "NodePool", "", "hangzhou", |pool| pool["status"]["nodes"] = json!(nodes))
        .unwrap();
}

async fn informed(server: &ApiServer, client: &Client) -> Events {
    client.json(SLICES).await;
    server.store().advance();
    let list = client.json(SLICES).await;
    let version = list["metadata"]["resourceVersion"].as_str().unwrap();
    client.watch(&format!("{SLICES}?watch=true&resourceVersion={version}")).await
}

/// Waits until a client has these nodes. Soon after another change its watch repeats what it holds first, and ends if the next change
/// comes while it catches up.
async fn shows(server: &ApiServer, client: &Client, mut events: Events, expected: &[&str]) {
    loop {
        match events.try_next().await.unwrap() {
            Some(event) if nodes_of(&event["object"]) == expected => return,
            Some(_) => {}
            None => {
                let version = server.store().revision();
                events = client.watch(&format!("{SLICES}?watch=true&resourceVersion={version}")).await;
            }
        }
    }
}

fn nodes_of(slice: &Value) -> Vec<&str> {
    slice["endpoints"].as_array().unwrap().iter().map(|endpoint| endpoint["nodeName"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn kube_proxy_sees_the_endpoints_of_its_own_pool() {
    let (_server, _weir, client) = topology("").await;
    assert_eq!(nodes(&client.json(SLICES).await), ["edge-a", "edge-b"]);
}

#[tokio::test]
async fn a_changed_annotation_of_the_looked_up_service_changes_the_watch_and_the_list() {
    let (server, _weir, client) = topology("").await;
    let mut events = informed(&server, &client).await;
    server.store().edit("v1", "Service", "default", "web", |web| {
        web["metadata"]["annotations"]["openyurt.io/topologyKeys"] = json!("kubernetes.io/hostname");
    });
    let event = events.next().await;
    assert_eq!((&event["type"], nodes_of(&event["object"])), (&json!("MODIFIED"), vec!["edge-a"]));
    assert_eq!(nodes(&client.json(SLICES).await), ["edge-a"]);
}

#[tokio::test]
async fn a_changed_pool_changes_the_watch_and_the_list() {
    let (server, _weir, client) = topology("").await;
    let mut events = informed(&server, &client).await;
    set_pool(&server, &["edge-a", "edge-c"]);
    let event = events.next().await;
    assert_eq!((&event["type"], nodes_of(&event["object"])), (&json!("MODIFIED"), vec!["edge-a", "edge-c"]));
    assert_eq!(nodes(&client.json(SLICES).await), ["edge-a", "edge-c"]);
}

/// The next events of a watch of a view, up to the BOOKMARK.
async fn until_bookmark(events: &mut Events) -> Vec<Value> {
    let mut changes = Vec::new();
    loop {
        let event = events.next().await;
        if event["type"] == "BOOKMARK" {
            return changes;
        }
        changes.push(event);
    }
}

/// An informer's list and watch of a view.
async fn informed_by_view(server: &ApiServer, weir: &Daemon, path: &str) -> (Value, Events) {
    let client = weir.client("kube-proxy");
    client.json(&format!("{path}?resourceVersion=0")).await;
    weir.settled(server).await;
    let list = client.json(&format!("{path}?resourceVersion=0")).await;
    let version = list["metadata"]["resourceVersion"].as_str().unwrap();
    let path = format!("{path}?watch=true&allowWatchBookmarks=true&resourceVersion={version}");
    let events = client.watch(&path).await;
    (list, events)
}

#[tokio::test]
async fn watches_of_a_view_get_what_changed_lookups_change_and_a_bookmark_after_it() {
    let server = edge().await;
    let setup = Setup::new(server.url()).filters(&only("servicetopology", "")).bundled("servicetopology");
    let weir = setup.start_ready().await;
    let (list, mut events) = informed_by_view(&server, &weir, SLICES).await;
    assert_eq!(nodes(&list), ["edge-a", "edge-b"]);
    let edit = |keys: &str| {
        let change = |web: &mut Value| web["metadata"]["annotations"]["openyurt.io/topologyKeys"] = json!(keys);
        server.store().edit("v1", "Service", "default", "web", change).unwrap();
    };
    let changes: [(&dyn Fn(), &[&str]); 4] = [
        (&|| edit("kubernetes.io/hostname"), &["edge-a"]),
        (&|| edit("openyurt.io/nodepool"), &["edge-a", "edge-b"]),
        (&|| set_pool(&server, &["edge-a", "edge-b", "edge-c"]), &["edge-a", "edge-b", "edge-c"]),
        (&|| set_pool(&server, &["edge-a", "edge-c"]), &["edge-a", "edge-c"]),
    ];
    for (change, expected) in changes {
        change();
        let got = until_bookmark(&mut events).await;
        let [event] = &got[..] else { panic!("one event: {got:?}") };
        assert_eq!(event["type"], "MODIFIED", "{event}");
        assert_eq!(nodes(&json!({"items": [event["object"]]})), expected, "{event}");
    }
}

#[tokio::test]
async fn a_service_that_the_nodes_pool_hides_and_shows_is_deleted_and_added_on_watches_of_a_view() {
    let server = edge().await;
    let filters = only("nodeportisolation", "    settings: {whenClosed: drop}\n");
    let weir = Setup::new(server.url()).filters(&filters).bundled("nodeportisolation").start_ready().await;
    let (list, mut events) = informed_by_view(&server, &weir, SERVICES).await;
    assert_eq!(names(&list), ["kubernetes", "shop", "web"], "dashboard is for the pool beijing");
    let stored = server.store().get("v1", "Service", "default", "dashboard").unwrap();
    for (pool, event_type) in [("beijing", "ADDED"), ("hangzhou", "DELETED"), ("beijing", "ADDED")] {
        server.store().edit("v1", "Node", "", "edge-a", |node| {
            node["metadata"]["labels"]["apps.openyurt.io/nodepool"] = json!(pool);
        });
        let got = until_bookmark(&mut events).await;
        let [event] = &got[..] else { panic!("one event: {got:?}") };
        assert_eq!(event["type"], event_type, "{event}");
        for part in ["metadata", "spec"] {
            assert_eq!(event["object"][part], stored[part], "with the state that is shown");
        }
    }
}

#[tokio::test]
async fn replayed_edits_of_slices_follow_every_change_of_a_looked_up_value() {
    let (server, weir, client) = topology("").await;
    let replayed = async || weir.metric("weir_filter_replayed_total{filter=\"servicetopology\"}").await;
    let settled = async |expected: &[&str]| {
        for _ in 0..8 {
            assert_eq!(nodes(&client.json(SLICES).await), expected);
        }
        let before = replayed().await;
        assert_eq!(nodes(&client.json(SLICES).await), expected);
        assert!(replayed().await > before, "no call was saved");
    };
    settled(&["edge-a", "edge-b"]).await;
    for n in 0..3 {
        let events = informed(&server, &client).await;
        let (keys, expected) = match n % 2 {
            0 => ("kubernetes.io/hostname", &["edge-a"][..]),
            _ => ("openyurt.io/nodepool", &["edge-a", "edge-b"][..]),
        };
        server.store().edit("v1", "Service", "default", "web", |web| {
            web["metadata"]["annotations"]["openyurt.io/topologyKeys"] = json!(keys);
        });
        shows(&server, &client, events, expected).await;
        settled(expected).await;
    }
    let events = informed(&server, &client).await;
    server.store().edit("v1", "Service", "default", "web", |web| {
        web["metadata"]["annotations"]["openyurt.io/topologyKeys"] = json!("openyurt.io/nodepool");
    });
    shows(&server, &client, events, &["edge-a", "edge-b"]).await;
    settled(&["edge-a", "edge-b"]).await;
    let events = informed(&server, &client).await;
    set_pool(&server, &["edge-a", "edge-c"]);
    shows(&server, &client, events, &["edge-a", "edge-c"]).await;
    settled(&["edge-a", "edge-c"]).await;
    let events = informed(&server, &client).await;
    server.store().delete("v1", "Service", "default", "web").unwrap();
    shows(&server, &client, events, &["edge-a", "edge-b", "edge-c"]).await;
    settled(&["edge-a", "edge-b", "edge-c"]).await;
}

#[tokio::test]
async fn a_change_that_no_filter_read_sends_nothing() {
    let (server, _weir, client) = topology("").await;
    let mut events = informed(&server, &client).await;
    server.store().edit("v1", "Service", "default", "web", |web| web["spec"]["clusterIP"] = json!("10.96.10.99"));
    server.store().edit("v1", "Node", "", "edge-a", |node| node["metadata"]["annotations"] = json!({"heartbeat": "1"}));
    server
        .store()
        .edit("apps.openyurt.io/v1beta2", "NodePool", "", "beijing", |pool| pool["status"]["nodes"] = json!([]))
        .unwrap();
    // Within this time the daemon batches the changes and validates outcomes. The next event is then the slice's own.
    tokio::time::sleep(std::time::Duration::from_millis(500)).await;
    server
        .store()
        .edit("discovery.k8s.io/v1", "EndpointSlice", "default", "web-x7k2p", |slice| {
            slice["metadata"]["annotations"] = json!({"a": "b"})
        })
        .unwrap();
    assert_eq!(events.next_named().await, "MODIFIED web-x7k2p");
}

#[tokio::test]
async fn a_pool_of_a_kind_that_the_cluster_lacks_is_a_fault_and_not_an_unknown_pool() {
    let server = edge().await;
    server.remove_resource("apps.openyurt.io", "nodepools");
    let weir =
        Setup::new(server.url()).filters(&only("servicetopology", "")).bundled("servicetopology").start_ready().await;
    let answer = weir.client("kube-proxy").get(SLICES).await;
    assert_eq!(answer.status, 500, "by its failurePolicy");
    assert!(answer.text().contains("nodepools.apps.openyurt.io cannot be read"), "{}", answer.text());
}

#[tokio::test]
async fn a_missing_permission_keeps_the_filter_from_going_live_and_is_logged() {
    let server = edge().await;
    server.set_policy(|attributes| !(attributes.resource == "services" && attributes.verb == "list"));
    server.enforce(Enforce::Everybody);
    let weir = Setup::new(server.url()).filters(&only("servicetopology", "")).bundled("servicetopology").start().await;
    let line = weir.logged("configuration refused").await.to_string();
    assert!(line.contains("services") && line.contains("list") && line.contains("servicetopology"), "{line}");
    assert_eq!(weir.admin().get("/readyz").await.status, 503);
    server.set_policy(|_| true);
    weir.ready().await;
    assert_eq!(nodes(&weir.client("kube-proxy").json(SLICES).await).len(), 2);
}

#[tokio::test]
async fn a_filter_goes_live_only_when_its_lookups_are_complete() {
    let server = edge().await;
    let (release, held) = tokio::sync::watch::channel(false);
    server.on_request(move |request| {
        if !request.target().contains("nodepools") || request.target().contains("watch") {
            return weir_apiserver::Action::Serve;
        }
        let mut held = held.clone();
        let wait = async move { drop(held.wait_for(|released| *released).await) };
        weir_apiserver::Action::After(Box::pin(wait), Box::new(weir_apiserver::Action::Serve))
    });
    let weir = Setup::new(server.url())
        .filters(&only("servicetopology", ""))
        .bundled("servicetopology")
        .flag("--start-wait", "60s")
        .start()
        .await;
    let client = weir.client("kube-proxy");
    let waiting = tokio::spawn(async move { client.json(SLICES).await });
    server
        .request_count()
        .wait_for(|_| server.requests().iter().any(|request| request.target().contains("nodepools")))
        .await
        .unwrap();
    assert_eq!(weir.admin().get("/readyz").await.status, 503);
    assert!(!waiting.is_finished());
    release.send_replace(true);
    assert_eq!(nodes(&waiting.await.unwrap()), ["edge-a", "edge-b"], "filtered only with complete lookups");
}

#[tokio::test]
async fn a_lookup_without_a_grant_is_refused_by_name() {
    let server = edge().await;
    let weir = Setup::new(server.url())
        .filters(&only("servicetopology", "    grants: [services, nodes]\n"))
        .bundled("servicetopology")
        .start()
        .await;
    let line = weir.logged("configuration refused").await.to_string();
    assert!(line.contains("grants") && (line.contains("nodepools") || line.contains("endpointslices")), "{line}");
}

#[tokio::test]
async fn lookups_request_only_the_declared_objects() {
    let (server, _weir, _client) = topology("").await;
    let targets: Vec<_> = server.requests().iter().map(weir_apiserver::Recorded::target).collect();
    assert!(
        targets.iter().any(|target| target.contains("/nodes?") && target.contains("metadata.name%3Dedge-a")),
        "{targets:?}"
    );
    assert!(!targets.iter().any(|target| target.contains("secrets")), "{targets:?}");
    let node = server.requests().into_iter().find(|request| request.target().contains("/nodes?")).unwrap();
    assert!(node.header("accept").contains("PartialObjectMetadata"), "{}", node.header("accept"));
}
