//! Watches of private views, as without shared ones: the client's cache converges to the result of a new list. Tables stream.

use serde_json::{Value, json};
use weir_apiserver::{Action, ApiServer, End};
use weir_tests::client::{Client, Events};
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

/// Lists, then watches from that version, as an informer does. It is above the stamp of the filters in force.
async fn informed(server: &ApiServer, client: &Client) -> Events {
    client.json(SERVICES).await;
    server.store().advance();
    let version = version_of(&client.json(SERVICES).await);
    client.watch(&watch_from(&version)).await
}

fn version_of(list: &Value) -> String {
    list["metadata"]["resourceVersion"].as_str().unwrap().to_owned()
}

fn watch_from(version: &str) -> String {
    format!("{SERVICES}?watch=true&allowWatchBookmarks=true&resourceVersion={version}")
}

/// The next events, up to the BOOKMARK: type, name and version.
async fn until_bookmark(events: &mut Events) -> Vec<(String, String, String)> {
    let mut seen = Vec::new();
    loop {
        let event = events.next().await;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let metadata = &event["object"]["metadata"];
        if event["type"] == "BOOKMARK" {
            seen.push(("BOOKMARK".into(), String::new(), text(&metadata["resourceVersion"])));
            return seen;
        }
        seen.push((text(&event["type"]), text(&metadata["name"]), text(&metadata["resourceVersion"])));
    }
}

fn names_of(events: &[(String, String, String)]) -> Vec<String> {
    let mut names: Vec<_> = events.iter().map(|(kind, name, _)| format!("{kind} {name}").trim().to_owned()).collect();
    names.sort();
    names
}

fn retype(server: &ApiServer, name: &str, kind: &str) {
    server.store().edit("v1", "Service", "default", name, |object| object["spec"]["type"] = json!(kind)).unwrap();
}

#[tokio::test]
async fn added_of_a_hidden_object_is_not_sent() {
    let (server, _weir, client) = dropping().await;
    let mut events = informed(&server, &client).await;
    server.store().put(service("hidden", "LoadBalancer")).unwrap();
    server.store().put(service("seen", "ClusterIP")).unwrap();
    assert_eq!(events.next_named().await, "ADDED seen");
}

#[tokio::test]
async fn a_known_hidden_object_that_becomes_visible_is_added_and_its_deletion_is_sent() {
    let (server, _weir, client) = dropping().await;
    let mut events = informed(&server, &client).await;
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
    let mut events = informed(&server, &client).await;
    server
        .store()
        .edit("v1", "Service", "default", "shop", |object| object["metadata"]["labels"] = json!({"a": "b"}))
        .unwrap();
    server.store().delete("v1", "Service", "default", "shop").unwrap();
    server.store().put(service("next", "ClusterIP")).unwrap();
    assert_eq!(events.next_named().await, "ADDED next");
}

#[tokio::test]
async fn a_visible_object_that_becomes_hidden_is_deleted_with_its_last_state() {
    let (server, weir, client) = dropping().await;
    let mut events = informed(&server, &client).await;
    retype(&server, "web", "LoadBalancer");
    let event = events.next().await;
    let object = &event["object"];
    assert_eq!((&event["type"], &object["metadata"]["name"]), (&json!("DELETED"), &json!("web")), "{event}");
    assert_eq!(object["spec"]["type"], "ClusterIP", "as it was shown");
    let stored = server.store().get("v1", "Service", "default", "web").unwrap();
    assert_eq!(object["metadata"]["resourceVersion"], stored["metadata"]["resourceVersion"], "at its version");
    server.store().put(service("next", "ClusterIP")).unwrap();
    assert_eq!(events.next_named().await, "ADDED next", "the watch goes on");
    assert_eq!(weir.metric("weir_watches_expired").await, 0.0);
}

#[tokio::test]
async fn deleted_of_an_object_that_the_client_holds_is_sent() {
    let (server, _weir, client) = dropping().await;
    let mut events = informed(&server, &client).await;
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
        assert_eq!(events.next_named().await, "ADDED shop");
        retype(&server, "shop", "LoadBalancer");
        assert_eq!(events.next_named().await, "DELETED shop");
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
async fn a_bookmark_brings_the_client_above_what_is_hidden() {
    let (server, _weir, client) = dropping().await;
    client.json(SERVICES).await;
    server.store().advance();
    let version = version_of(&client.json(SERVICES).await);
    let mut events = client.watch(&format!("{}&timeoutSeconds=5", watch_from(&version))).await;
    server.store().put(service("hidden", "LoadBalancer")).unwrap();
    let hidden = server.store().revision().to_string();
    let event = events.next().await;
    assert_eq!((event["type"].as_str(), event["object"]["kind"].as_str()), (Some("BOOKMARK"), Some("Service")));
    assert_eq!(event["object"]["metadata"]["resourceVersion"], hidden);
}

#[tokio::test]
async fn a_client_of_which_nothing_is_known_gets_the_present_state_and_then_the_events() {
    let (server, _weir, client) = dropping().await;
    let version = server.store().revision().to_string();
    // It may come from a former process, or from the API server itself.
    let mut events = client.watch(&watch_from(&version)).await;
    let seen = until_bookmark(&mut events).await;
    let expected = ["BOOKMARK", "DELETED shop", "MODIFIED dashboard", "MODIFIED kubernetes", "MODIFIED web"];
    assert_eq!(names_of(&seen), expected);
    let (_, _, deleted) = seen.iter().find(|(kind, ..)| kind == "DELETED").unwrap();
    assert_eq!((deleted, &seen.last().unwrap().2), (&version, &version), "they do not move the client");
    server.store().put(service("later", "ClusterIP")).unwrap();
    assert_eq!(events.next_named().await, "ADDED later");
    retype(&server, "shop", "ClusterIP");
    assert_eq!(events.next_named().await, "ADDED shop", "the client does not have it");
}

/// More than what is decoded together, as it is in the connection already.
#[tokio::test]
async fn a_large_present_state_arrives_whole() {
    let (server, _weir, client) = dropping().await;
    for n in 0..600 {
        let mut object = service(&format!("large-{n:03}"), "ClusterIP");
        object["metadata"]["annotations"] = json!({"filler": "x".repeat(4000)});
        server.store().put(object).unwrap();
    }
    let version = server.store().revision().to_string();
    for _ in 0..3 {
        let seen = until_bookmark(&mut client.watch(&watch_from(&version)).await).await;
        let large = names_of(&seen).iter().filter(|name| name.starts_with("MODIFIED large-")).count();
        assert_eq!((large, seen.len()), (600, 605), "with three others, a hidden one and the BOOKMARK");
    }
}

#[tokio::test]
async fn what_has_changed_since_the_clients_version_arrives_as_events_alone() {
    let (server, _weir, client) = dropping().await;
    let version = server.store().revision().to_string();
    retype(&server, "web", "NodePort");
    server.store().delete("v1", "Service", "default", "dashboard").unwrap();
    let mut events = client.watch(&watch_from(&version)).await;
    let seen = until_bookmark(&mut events).await;
    assert_eq!(names_of(&seen), ["BOOKMARK", "DELETED shop", "MODIFIED kubernetes"]);
    assert_eq!(events.next_named().await, "MODIFIED web");
    assert_eq!(events.next_named().await, "DELETED dashboard");
}

#[tokio::test]
async fn a_client_that_may_not_list_gets_the_api_servers_refusal() {
    let (server, _weir, client) = dropping().await;
    server.on_request(|request| match request.query.contains("watch") {
        true => Action::Serve,
        false => Action::json(403, r#"{"kind":"Status","apiVersion":"v1","code":403,"reason":"Forbidden"}"#),
    });
    let version = server.store().revision().to_string();
    assert_eq!(client.get(&watch_from(&version)).await.status, 403);
}

#[tokio::test]
async fn a_watch_that_continues_knows_the_hidden_objects() {
    let (server, _weir, client) = dropping().await;
    let mut events = informed(&server, &client).await;
    server.store().put(service("mark", "ClusterIP")).unwrap();
    let mark = events.next().await;
    let version = mark["object"]["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
    drop(events);
    let mut events = client.watch(&watch_from(&version)).await;
    retype(&server, "shop", "ClusterIP");
    assert_eq!(events.next_named().await, "ADDED shop");
}

#[tokio::test]
async fn a_new_set_arrives_in_matched_watches_and_only_in_those() {
    let (server, weir, client) = dropping().await;
    let mut events = informed(&server, &client).await;
    let version = server.store().revision().to_string();
    let other = weir.client("kube-proxy");
    let slices = "/apis/discovery.k8s.io/v1/endpointslices";
    let mut untouched = other.watch(&format!("{slices}?watch=true")).await;
    assert_eq!(untouched.next_named().await, "ADDED web-x7k2p");
    weir.put_filters(&NO_LOAD_BALANCERS.replace("match", "settings: {loadBalancers: keep}\n    match"));
    assert_eq!(names_of(&until_bookmark(&mut events).await), ["ADDED shop", "BOOKMARK"], "what differs");
    let mut events = client.watch(&watch_from(&version)).await;
    let seen = until_bookmark(&mut events).await;
    let all = ["BOOKMARK", "MODIFIED dashboard", "MODIFIED kubernetes", "MODIFIED shop", "MODIFIED web"];
    assert_eq!(names_of(&seen), all, "the next one begins with what the filters show now");
    server.store().delete("discovery.k8s.io/v1", "EndpointSlice", "default", "web-x7k2p").unwrap();
    assert_eq!(untouched.next_named().await, "DELETED web-x7k2p");
}

#[tokio::test]
async fn a_watch_is_cut_when_a_filter_begins_to_match_it_and_goes_on_when_it_ceases() {
    let server = edge().await;
    let weir =
        Setup::new(server.url()).filters("filters: []").bundled("discardcloudservice").uncached().start_ready().await;
    let client = weir.client("kube-proxy");
    let mut events = informed(&server, &client).await;
    let version = server.store().revision().to_string();
    weir.put_filters(NO_LOAD_BALANCERS);
    // It was forwarded without parsing.
    while let Ok(Some(event)) = events.try_next().await {
        assert_ne!(event["type"], "ADDED");
    }
    let mut events = client.watch(&watch_from(&version)).await;
    let seen = until_bookmark(&mut events).await;
    let rest = ["MODIFIED dashboard", "MODIFIED kubernetes", "MODIFIED web"];
    assert_eq!(names_of(&seen), [&["BOOKMARK", "DELETED shop"][..], &rest].concat());
    weir.put_filters("filters: []");
    assert_eq!(names_of(&until_bookmark(&mut events).await), ["ADDED shop", "BOOKMARK"], "it lacks what was hidden");
    let mut events = client.watch(&watch_from(&version)).await;
    let seen = until_bookmark(&mut events).await;
    let all = ["BOOKMARK", "MODIFIED dashboard", "MODIFIED kubernetes", "MODIFIED shop", "MODIFIED web"];
    assert_eq!(names_of(&seen), all, "it lacks what was hidden");
    // Above the stamp of that change the watch is forwarded again.
    server.store().put(service("later", "ClusterIP")).unwrap();
    let later = events.next().await;
    let version = later["object"]["metadata"]["resourceVersion"].as_str().unwrap();
    let mut events = client.watch(&watch_from(version)).await;
    server.store().put(service("last", "ClusterIP")).unwrap();
    assert_eq!(events.next_named().await, "ADDED last");
}

#[tokio::test]
async fn a_table_stays_on_the_screen_when_filters_change() {
    let (server, weir, client) = dropping().await;
    let client = client.with("accept", "application/json;as=Table;v=v1;g=meta.k8s.io,application/json");
    let version = version_of(&client.json(SERVICES).await);
    let mut events = client.watch(&watch_from(&version)).await;
    let from = weir.log_length();
    weir.put_filters(&NO_LOAD_BALANCERS.replace("match", "settings: {loadBalancers: keep}\n    match"));
    weir.logged_after(from, "filter set activated").await;
    server.store().edit("v1", "Service", "default", "shop", |shop| shop["metadata"]["labels"] = json!({"a": "b"}));
    let event = events.next().await;
    let row = &event["object"]["rows"][0];
    assert_eq!((&event["type"], &row["object"]["metadata"]["name"]), (&json!("MODIFIED"), &json!("shop")), "{event}");
}

/// Whether it was on the screen, Weir does not know.
#[tokio::test]
async fn what_is_hidden_leaves_the_screen_and_what_is_new_and_hidden_does_not_get_there() {
    let (server, _weir, client) = dropping().await;
    let client = client.with("accept", "application/json;as=Table;v=v1;g=meta.k8s.io,application/json");
    let version = version_of(&client.json(SERVICES).await);
    let mut events = client.watch(&watch_from(&version)).await;
    let mut next = async || {
        let event = events.next().await;
        let name = event["object"]["rows"][0]["object"]["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        format!("{} {name}", event["type"].as_str().unwrap())
    };
    server.store().put(service("hidden", "LoadBalancer")).unwrap();
    retype(&server, "web", "LoadBalancer");
    assert_eq!(next().await, "DELETED web");
    retype(&server, "web", "ClusterIP");
    assert_eq!(next().await, "MODIFIED web");
    server.store().delete("v1", "Service", "default", "web").unwrap();
    assert_eq!(next().await, "DELETED web");
}

#[tokio::test]
async fn a_client_that_disconnects_ends_the_upstream_watch() {
    let (server, _weir, client) = dropping().await;
    let mut open = server.open_watches();
    let before = *open.borrow();
    let events = informed(&server, &client).await;
    open.wait_for(|open| *open == before + 1).await.unwrap();
    drop(events);
    tokio::time::timeout(weir_tests::client::PATIENCE, open.wait_for(|open| *open == before)).await.unwrap().unwrap();
}

#[tokio::test]
async fn timeouts_end_a_watch_cleanly() {
    let (server, _weir, client) = dropping().await;
    client.json(SERVICES).await;
    server.store().advance();
    let version = version_of(&client.json(SERVICES).await);
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
async fn garbage_in_the_api_servers_watch_does_not_reach_clients() {
    for (what, garbage) in [
        ("truncated", "{\"type\":\"ADDED\",\"object\":{\"kind\""),
        ("no JSON", "hello\n"),
        ("no object", "{\"type\":\"ADDED\"}\n"),
        ("no type", "{\"object\":{\"metadata\":{\"name\":\"b\"}}}\n"),
        ("no version", "{\"type\":\"ADDED\",\"object\":{\"metadata\":{\"name\":\"b\",\"namespace\":\"default\"}}}\n"),
    ] {
        let (server, _weir, client) = dropping().await;
        let mut events = informed(&server, &client).await;
        let is_first = std::sync::atomic::AtomicBool::new(true);
        server.on_request(move |request| {
            let is_watch = request.path == SERVICES && request.query.contains("watch=");
            match is_watch && is_first.swap(false, std::sync::atomic::Ordering::Relaxed) {
                true => Action::json(200, garbage),
                false => Action::Serve,
            }
        });
        server.close_watches(End::Clean);
        server.store().put(service("next", "ClusterIP")).unwrap();
        assert_eq!(events.next_named().await, "ADDED next", "{what}");
    }
}

#[tokio::test]
async fn a_broken_upstream_watch_does_not_end_the_clients_watch() {
    let (server, _weir, client) = dropping().await;
    let mut events = informed(&server, &client).await;
    server.close_watches(End::Abort);
    server.store().put(service("next", "ClusterIP")).unwrap();
    assert_eq!(events.next_named().await, "ADDED next");
}
