//! watch: its start, its events, its end.

use std::io::Read;
use std::time::Duration;

use http::StatusCode;
use serde_json::json;
use weir_apiserver::{ApiServer, End, Gzip};

use crate::client::{Client, pool, service, services, soon, start};

const WATCH: &str = "/api/v1/services?watch=true";

#[tokio::test]
async fn a_watch_from_a_version_gets_everything_since() {
    let (server, client) = start().await;
    services(&server, 1);
    let from = server.store().revision();
    let added = server.store().put(service("a", json!({}))).unwrap();
    let mut watch = client.stream(&format!("{WATCH}&resourceVersion={from}")).await;
    assert_eq!(watch.brief().await, ("ADDED".into(), "a".into(), added));
    let modified = server.store().put(service("a", json!({"x": "y"}))).unwrap();
    assert_eq!(watch.brief().await, ("MODIFIED".into(), "a".into(), modified));
    let deleted = server.store().delete("v1", "Service", "default", "a").unwrap();
    let event = watch.event().await;
    assert_eq!(event["type"], "DELETED");
    assert_eq!((&event["object"]["kind"], &event["object"]["apiVersion"]), (&json!("Service"), &json!("v1")));
    assert_eq!(event["object"]["metadata"]["resourceVersion"], deleted.to_string());
    assert_eq!(event["object"]["metadata"]["labels"], json!({"x": "y"}));
}

#[tokio::test]
async fn a_watch_without_a_version_starts_with_the_state() {
    let (server, client) = start().await;
    services(&server, 200);
    for query in ["", "&resourceVersion=0", "&resourceVersion="] {
        let mut watch = client.stream(&format!("{WATCH}{query}")).await;
        for index in 0..200 {
            let (kind, name, _) = watch.brief().await;
            assert_eq!((kind.as_str(), name), ("ADDED", format!("s{index:04}")));
        }
        server.store().put(service("s0007", json!({"again": query.len().to_string()}))).unwrap();
        assert_eq!(watch.brief().await.0, "MODIFIED");
    }
}

#[tokio::test]
async fn a_watch_list_streams_the_initial_state_and_marks_its_end() {
    let (server, client) = start().await;
    server.store().put(pool("hz", &["n"])).unwrap();
    let path =
        "/apis/apps.openyurt.io/v1beta2/nodepools?watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan";
    let mut watch = client.stream(&format!("{path}&allowWatchBookmarks=true")).await;
    let added = watch.event().await;
    assert_eq!(added["object"]["kind"], "NodePool");
    let end = watch.event().await;
    assert_eq!(end["type"], "BOOKMARK");
    assert_eq!(end["object"]["kind"], "NodePool");
    assert_eq!(end["object"]["apiVersion"], "apps.openyurt.io/v1beta2");
    assert_eq!(end["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"], "true");
    assert_eq!(end["object"]["metadata"]["resourceVersion"], server.store().revision().to_string());
    server.store().put(pool("sh", &[])).unwrap();
    assert_eq!(watch.brief().await.1, "sh");
}

#[tokio::test]
async fn contradictory_options_are_refused() {
    let (_server, client) = start().await;
    for query in [
        "sendInitialEvents=true",
        "resourceVersionMatch=NotOlderThan",
        "sendInitialEvents=true&resourceVersionMatch=Exact",
    ] {
        let answer = client.get(&format!("{WATCH}&{query}")).await;
        assert_eq!((answer.status, answer.reason().as_str()), (StatusCode::UNPROCESSABLE_ENTITY, "Invalid"), "{query}");
    }
    let ahead = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion=999999";
    assert_eq!(client.get(&format!("{WATCH}&{ahead}")).await.status, StatusCode::GATEWAY_TIMEOUT);
}

#[tokio::test]
async fn a_compacted_version_gets_an_error_event_and_running_watches_continue() {
    let (server, client) = start().await;
    services(&server, 1);
    let old = server.store().revision();
    let mut running = client.stream(&format!("{WATCH}&resourceVersion={old}")).await;
    services(&server, 2);
    server.compact();
    let mut watch = client.stream(&format!("{WATCH}&resourceVersion={old}")).await;
    let error = watch.event().await;
    assert_eq!(error["type"], "ERROR");
    assert_eq!(
        (&error["object"]["kind"], &error["object"]["code"], &error["object"]["reason"]),
        (&json!("Status"), &json!(410), &json!("Expired"))
    );
    assert!(watch.ends().await);
    assert_eq!(running.brief().await.1, "s0000");
    assert_eq!(running.brief().await.1, "s0001");
    let current = server.store().revision();
    let mut fresh = client.stream(&format!("{WATCH}&resourceVersion={current}")).await;
    services(&server, 1);
    assert_eq!(fresh.brief().await.0, "MODIFIED");
}

#[tokio::test]
async fn history_is_bounded_per_resource() {
    let server = ApiServer::builder().history(2).start().await.unwrap();
    let client = Client::of(&server);
    let old = server.store().revision();
    services(&server, 3);
    let mut watch = client.stream(&format!("{WATCH}&resourceVersion={old}")).await;
    assert_eq!(watch.event().await["object"]["code"], 410);
    let mut other = client.stream(&format!("/api/v1/pods?watch=1&resourceVersion={old}&timeoutSeconds=1")).await;
    assert!(other.ends().await);
}

#[tokio::test]
async fn selectors_turn_changes_into_added_and_deleted() {
    let (server, client) = start().await;
    let from = server.store().revision();
    let mut watch = client.stream(&format!("{WATCH}&labelSelector=app%3Ddns&resourceVersion={from}")).await;
    server.store().put(service("a", json!({}))).unwrap();
    server.store().put(service("a", json!({"app": "dns"}))).unwrap();
    server.store().put(service("a", json!({"app": "dns", "x": "y"}))).unwrap();
    let left = server.store().put(service("a", json!({"app": "web"}))).unwrap();
    server.store().put(service("b", json!({"app": "dns"}))).unwrap();
    assert_eq!(watch.brief().await.0, "ADDED");
    assert_eq!(watch.brief().await.0, "MODIFIED");
    let gone = watch.event().await;
    assert_eq!(gone["type"], "DELETED");
    assert_eq!(gone["object"]["metadata"]["labels"], json!({"app": "dns", "x": "y"}));
    assert_eq!(gone["object"]["metadata"]["resourceVersion"], left.to_string());
    assert_eq!(watch.brief().await.1, "b");
}

#[tokio::test]
async fn one_object_is_watched_by_field_selector_or_by_the_old_prefix() {
    let (server, client) = start().await;
    let from = server.store().revision();
    for path in [
        format!("/api/v1/namespaces/default/services?watch=1&fieldSelector=metadata.name%3Da&resourceVersion={from}"),
        format!("/api/v1/watch/namespaces/default/services/a?resourceVersion={from}"),
    ] {
        let mut watch = client.stream(&path).await;
        server.store().put(service("b", json!({}))).unwrap();
        server.store().put(service("a", json!({}))).unwrap();
        assert_eq!(watch.brief().await.1, "a", "{path}");
    }
    let mut all = client.stream("/api/v1/watch/services").await;
    assert_eq!(all.brief().await.0, "ADDED");
}

#[tokio::test]
async fn bookmarks_come_only_where_they_are_allowed() {
    let server = ApiServer::builder().bookmark_interval(Duration::from_millis(20)).start().await.unwrap();
    let client = Client::of(&server);
    let from = server.store().revision();
    let mut plain = client.stream(&format!("{WATCH}&resourceVersion={from}")).await;
    let mut marked = client.stream(&format!("{WATCH}&resourceVersion={from}&allowWatchBookmarks=true")).await;
    let moved = server.store().advance();
    loop {
        let (kind, _, version) = marked.brief().await;
        assert_eq!(kind, "BOOKMARK");
        if version == moved {
            break;
        }
    }
    server.send_bookmarks();
    services(&server, 1);
    assert_eq!(plain.brief().await.0, "ADDED");
}

#[tokio::test]
async fn a_watch_ends_at_its_timeout() {
    let (_server, client) = start().await;
    let mut watch = client.stream(&format!("{WATCH}&timeoutSeconds=1")).await;
    assert!(watch.ends().await);
}

#[tokio::test]
async fn a_client_that_disconnects_frees_its_watch() {
    let server = ApiServer::builder().start().await.unwrap();
    for client in [Client::of(&server), Client::http2(&server)] {
        let mut open = server.open_watches();
        let first = client.stream(WATCH).await;
        let second = client.stream(WATCH).await;
        soon(open.wait_for(|open| *open == 2)).await.unwrap();
        drop(first);
        soon(open.wait_for(|open| *open == 1)).await.unwrap();
        drop(second);
        soon(open.wait_for(|open| *open == 0)).await.unwrap();
    }
}

#[tokio::test]
async fn a_test_can_end_all_watches() {
    let (server, client) = start().await;
    let mut watch = client.stream(WATCH).await;
    server.close_watches(End::Clean);
    assert!(watch.ends().await);
    for client in [Client::of(&server), Client::http2(&server)] {
        let mut watch = client.stream(WATCH).await;
        server.close_watches(End::Abort);
        assert!(watch.line().await.unwrap().is_err());
    }
}

#[tokio::test]
async fn a_compressed_watch_list_has_one_gzip_member_per_event() {
    let server = ApiServer::builder().gzip(Gzip::Always).start().await.unwrap();
    services(&server, 2);
    let client = Client::of(&server).header("accept-encoding", "gzip");
    let mut watch = client
        .stream(&format!("{WATCH}&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"))
        .await;
    assert_eq!(watch.headers["content-encoding"], "gzip");
    for kind in ["ADDED", "ADDED", "BOOKMARK"] {
        let frame = watch.frame().await.unwrap();
        let mut text = String::new();
        flate2::read::GzDecoder::new(frame.as_ref()).read_to_string(&mut text).unwrap();
        let event: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(event["type"], kind);
    }
}
