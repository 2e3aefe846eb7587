//! Watches that stream from the API server, without views: the client's cache converges to the result of a new list.

use serde_json::json;
use weir_apiserver::{Action, ApiServer, End};
use weir_tests::client::Client;
use weir_tests::daemon::{Daemon, Setup};

use super::{NO_LOAD_BALANCERS, edge, service};

const SERVICES: &str = "/api/v1/services";

async fn dropping() -> (ApiServer, Daemon, Client) {
    let server = edge().await;
    let weir = Setup::new(server.url())
        .filters(NO_LOAD_BALANCERS)
        .bundled("discardcloudservice")
        .uncached()
        .start_ready()
        .await;
    let client = weir.client("kube-proxy");
    (server, weir, client)
}

/// Lists, then watches from that version, as an informer does.
async fn informed(client: &Client) -> weir_tests::client::Events {
    let list = client.json(SERVICES).await;
    let version = list["metadata"]["resourceVersion"].as_str().unwrap();
    client.watch(&format!("{SERVICES}?watch=true&allowWatchBookmarks=true&resourceVersion={version}")).await
}

fn retype(server: &ApiServer, name: &str, kind: &str) {
    server.store().edit("v1", "Service", "default", name, |object| object["spec"]["type"] = json!(kind)).unwrap();
}

#[tokio::test]
async fn added_of_a_hidden_object_is_not_sent() {
    let (server, _weir, client) = dropping().await;
    let mut events = informed(&client).await;
    server.store().put(service("hidden", "LoadBalancer")).unwrap();
    server.store().put(service("seen", "ClusterIP")).unwrap();
    assert_eq!(events.next_named().await, "ADDED seen");
}

#[tokio::test]
async fn a_known_hidden_object_that_becomes_visible_is_added_and_its_deletion_is_sent() {
    let (server, _weir, client) = dropping().await;
    let mut events = informed(&client).await;
    retype(&server, "shop", "NodePort");
    assert_eq!(events.next_named().await, "ADDED shop");
    retype(&server, "shop", "ClusterIP");
    assert_eq!(events.next_named().await, "MODIFIED shop");
    server.store().delete("v1", "Service", "default", "shop").unwrap();
    assert_eq!(events.next_named().await, "DELETED shop");
}

#[tokio::test]
async fn events_of_a_known_hidden_object_are_not_sent() {
    let (server, _weir, client) = dropping().await;
    let mut events = informed(&client).await;
    server
        .store()
        .edit("v1", "Service", "default", "shop", |object| object["metadata"]["labels"] = json!({"a": "b"}))
        .unwrap();
    server.store().delete("v1", "Service", "default", "shop").unwrap();
    server.store().put(service("next", "ClusterIP")).unwrap();
    assert_eq!(events.next_named().await, "ADDED next");
}

#[tokio::test]
async fn a_visible_object_that_becomes_hidden_ends_the_watch_with_410() {
    let (server, weir, client) = dropping().await;
    let mut events = informed(&client).await;
    retype(&server, "web", "LoadBalancer");
    let event = events.next().await;
    assert_eq!((event["type"].as_str(), event["object"]["code"].as_u64()), (Some("ERROR"), Some(410)));
    assert_eq!(event["object"]["reason"], "Expired");
    assert_eq!(events.try_next().await, Ok(None), "it ends cleanly behind the event");
    assert!(!client.names(SERVICES).await.contains(&"web".to_owned()), "the re-list does not show it");
    assert!(weir.metric("weir_watches_expired").await >= 1.0);
}

#[tokio::test]
async fn deleted_of_an_object_that_the_client_holds_is_sent() {
    let (server, _weir, client) = dropping().await;
    let mut events = informed(&client).await;
    server.store().delete("v1", "Service", "default", "web").unwrap();
    assert_eq!(events.next_named().await, "DELETED web");
}

#[tokio::test]
async fn a_watch_from_scratch_starts_with_what_is_visible() {
    let (server, _weir, client) = dropping().await;
    for query in ["watch=true", "watch=1&resourceVersion=0"] {
        let mut events = client.watch(&format!("{SERVICES}?{query}")).await;
        let mut names = Vec::new();
        for _ in 0..3 {
            names.push(events.next_named().await);
        }
        names.sort();
        assert_eq!(names, ["ADDED dashboard", "ADDED kubernetes", "ADDED web"], "{query}");
        retype(&server, "shop", "ClusterIP");
        assert_eq!(events.next_named().await, "ADDED shop", "its hiding was seen on this watch");
        retype(&server, "shop", "LoadBalancer");
        assert_eq!(events.next_named().await, "ERROR");
    }
}

#[tokio::test]
async fn a_watch_list_is_filtered_and_its_initial_events_end_with_the_servers_bookmark() {
    let (_server, _weir, client) = dropping().await;
    let query = "watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    let mut events = client.watch(&format!("{SERVICES}?{query}")).await;
    let mut names = Vec::new();
    loop {
        let event = events.next().await;
        if event["type"] == "BOOKMARK" {
            assert_eq!(event["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"], "true");
            break;
        }
        assert_eq!(event["object"]["kind"], "Service");
        names.push(event["object"]["metadata"]["name"].as_str().unwrap().to_owned());
    }
    names.sort();
    assert_eq!(names, ["dashboard", "kubernetes", "web"]);
}

#[tokio::test]
async fn bookmarks_pass_unchanged() {
    let (server, _weir, client) = dropping().await;
    let mut events = informed(&client).await;
    server.store().put(service("hidden", "LoadBalancer")).unwrap();
    server.send_bookmarks();
    let event = events.next().await;
    assert_eq!((event["type"].as_str(), event["object"]["kind"].as_str()), (Some("BOOKMARK"), Some("Service")));
}

#[tokio::test]
async fn a_resume_without_a_list_under_this_set_gets_410() {
    let (server, _weir, client) = dropping().await;
    let version = server.store().revision();
    let mut events = client.watch(&format!("{SERVICES}?watch=true&resourceVersion={version}")).await;
    assert_eq!(events.next().await["object"]["code"], 410, "its state is from before this process");
    let mut events = informed(&client).await;
    server.store().put(service("later", "ClusterIP")).unwrap();
    assert_eq!(events.next_named().await, "ADDED later");
}

#[tokio::test]
async fn a_resumed_watch_knows_the_hidden_objects() {
    let (server, _weir, client) = dropping().await;
    let mut events = informed(&client).await;
    server.store().put(service("mark", "ClusterIP")).unwrap();
    let mark = events.next().await;
    let version = mark["object"]["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
    server.close_watches(End::Clean);
    assert_eq!(events.try_next().await, Ok(None));
    let mut events = client.watch(&format!("{SERVICES}?watch=true&resourceVersion={version}")).await;
    retype(&server, "shop", "ClusterIP");
    assert_eq!(events.next_named().await, "ADDED shop");
}

#[tokio::test]
async fn a_new_set_ends_matched_watches_and_only_those() {
    let (server, weir, client) = dropping().await;
    let mut events = informed(&client).await;
    let other = weir.client("kube-proxy");
    let slices = "/apis/discovery.k8s.io/v1/endpointslices";
    let mut untouched = other.watch(&format!("{slices}?watch=true")).await;
    assert_eq!(untouched.next_named().await, "ADDED web-x7k2p");
    weir.put_filters(&NO_LOAD_BALANCERS.replace("match", "settings: {loadBalancers: keep}\n    match"));
    assert_eq!(events.next().await["object"]["code"], 410);
    assert!(client.names(SERVICES).await.contains(&"shop".to_owned()));
    server.store().delete("discovery.k8s.io/v1", "EndpointSlice", "default", "web-x7k2p").unwrap();
    assert_eq!(untouched.next_named().await, "DELETED web-x7k2p");
}

#[tokio::test]
async fn a_watch_is_cut_when_a_filter_begins_or_ceases_to_match_it() {
    let server = edge().await;
    let weir =
        Setup::new(server.url()).filters("filters: []").bundled("discardcloudservice").uncached().start_ready().await;
    let client = weir.client("kube-proxy");
    let mut events = informed(&client).await;
    weir.put_filters(NO_LOAD_BALANCERS);
    // It was forwarded without parsing, so it is cut. A resume then gets 410, and the client lists again.
    while let Ok(Some(event)) = events.try_next().await {
        assert_ne!(event["type"], "ADDED");
    }
    let version = server.store().revision();
    let mut events = client.watch(&format!("{SERVICES}?watch=true&resourceVersion={version}")).await;
    assert_eq!(events.next().await["object"]["code"], 410);
    let mut events = informed(&client).await;
    weir.put_filters("filters: []");
    assert_eq!(events.next().await["object"]["code"], 410);
    let mut resumed = client.watch(&format!("{SERVICES}?watch=true&resourceVersion={version}")).await;
    assert_eq!(resumed.next().await["object"]["code"], 410, "what it holds is filtered, what it would see is not");
}

#[tokio::test]
async fn a_client_that_disconnects_ends_the_upstream_watch() {
    let (server, _weir, client) = dropping().await;
    let mut open = server.open_watches();
    let before = *open.borrow();
    let events = informed(&client).await;
    open.wait_for(|open| *open == before + 1).await.unwrap();
    drop(events);
    tokio::time::timeout(weir_tests::client::PATIENCE, open.wait_for(|open| *open == before)).await.unwrap().unwrap();
}

#[tokio::test]
async fn timeouts_end_a_watch_cleanly() {
    let (_server, _weir, client) = dropping().await;
    let list = client.json(SERVICES).await;
    let version = list["metadata"]["resourceVersion"].as_str().unwrap();
    let mut events = client.watch(&format!("{SERVICES}?watch=true&timeoutSeconds=1&resourceVersion={version}")).await;
    assert_eq!(events.try_next().await, Ok(None));
}

#[tokio::test]
async fn an_upgrade_does_not_bypass_the_filters_of_a_watch() {
    let (_server, _weir, client) = dropping().await;
    // To a WebSocket it leads: see websocket.rs.
    let client = client.with("connection", "Upgrade").with("upgrade", "SPDY/3.1");
    let mut events = client.watch(&format!("{SERVICES}?watch=true")).await;
    let mut names = vec![events.next_named().await, events.next_named().await, events.next_named().await];
    names.sort();
    assert_eq!(names, ["ADDED dashboard", "ADDED kubernetes", "ADDED web"]);
}

#[tokio::test]
async fn garbage_in_a_watch_gives_an_error_event_and_ends_it() {
    let (server, _weir, client) = dropping().await;
    client.json(SERVICES).await;
    let good = r#"{"type":"ADDED","object":{"kind":"Service","apiVersion":"v1","metadata":{"name":"a","namespace":"default","resourceVersion":"5"},"spec":{"type":"ClusterIP"}}}"#;
    for (what, tail) in [
        ("truncated", "{\"type\":\"ADDED\",\"object\":{\"kind\""),
        ("no JSON", "hello\n"),
        ("no object", "{\"type\":\"ADDED\"}\n"),
        ("no type", "{\"object\":{\"metadata\":{\"name\":\"b\"}}}\n"),
        (
            "a key twice",
            "{\"type\":\"ADDED\",\"object\":{\"kind\":\"Service\",\"apiVersion\":\"v1\",\"metadata\":{\"name\":\"b\",\"namespace\":\"default\"},\"spec\":{\"type\":\"ClusterIP\",\"type\":\"LoadBalancer\"}}}\n",
        ),
    ] {
        let body = format!("{good}\n{tail}");
        server.on_request(move |_| Action::json(200, body.clone()));
        let mut events = client.watch(&format!("{SERVICES}?watch=true")).await;
        assert_eq!(events.next_named().await, "ADDED a", "{what}");
        let event = events.next().await;
        assert_eq!(event["type"], "ERROR", "{what}: {event}");
        assert_eq!(event["object"]["kind"], "Status", "{what}");
        assert_eq!(events.try_next().await, Ok(None), "{what}");
    }
}

#[tokio::test]
async fn a_broken_upstream_watch_ends_the_clients_watch() {
    let (server, _weir, client) = dropping().await;
    let mut events = informed(&client).await;
    server.close_watches(End::Abort);
    match events.try_next().await {
        Ok(None) | Err(_) => {}
        Ok(Some(event)) => assert_eq!(event["type"], "ERROR"),
    }
}
