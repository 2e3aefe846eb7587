//! What `/caches` and the metrics report of stores and views.

use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use weir_runtime::Outcome;

use super::*;

const WATCH: &str = "/api/v1/services?watch=1&allowWatchBookmarks=true&resourceVersion=";

/// Hides `b`.
fn script() -> Script {
    Script::new(|document| match document.name().unwrap().as_ref() {
        "b" => Outcome::Hidden,
        _ => Outcome::Unchanged,
    })
}

async fn cached() -> (ProxyFixture, Script) {
    let fixture = fixture_with(|setup| setup.cached = vec!["services".parse().unwrap()]).await;
    let script = script();
    fixture.filter("*/services", &script);
    for name in ["a", "b", "c"] {
        fixture.service(name, "ClusterIP");
    }
    (fixture, script)
}

pub(super) fn metrics(fixture: &ProxyFixture) -> String {
    let mut registry = Registry::default();
    fixture.caches.metrics.register(&mut registry);
    fixture.caches.sample();
    let mut text = String::new();
    encode(&mut text, &registry).unwrap();
    text
}

#[tokio::test]
async fn caches_shows_each_store_with_its_views() {
    let (fixture, _script) = cached().await;
    assert_eq!(
        fixture.caches.to_json(),
        json!({"offlineSince": null, "localStatus": null, "stores": []}),
        "nobody has read anything"
    );
    let list = fixture.settle("/api/v1/services?resourceVersion=0").await;
    let mut events = fixture.watch(&format!("{WATCH}{}", version(&list))).await;
    fixture.service("d", "ClusterIP");
    assert_eq!(events.next_summary().await, "ADDED d");
    let status = fixture.caches.to_json();
    let [store] = status["stores"].as_array().unwrap().as_slice() else { panic!("{status:#}") };
    assert_eq!((&store["resource"], &store["path"]), (&json!("services"), &json!("/api/v1/services")));
    assert_eq!(
        (&store["identity"], &store["encoding"], &store["state"]),
        (&json!("daemon"), &json!("protobuf"), &json!("synced"))
    );
    assert_eq!((&store["objects"], &store["error"], &store["disk"]), (&json!(4), &json!(null), &json!(null)));
    let revision = fixture.server.store().revision().to_string();
    assert_eq!(store["resourceVersion"], revision);
    assert!(
        store["bytes"].as_u64().unwrap() > 100 && store["receivedBytes"].as_u64() > store["bytes"].as_u64(),
        "{store:#}"
    );
    assert!(store["lagSeconds"].as_f64().is_some());
    assert!(store["history"]["events"].as_u64().unwrap() >= 1);
    let [view] = store["views"].as_array().unwrap().as_slice() else { panic!("{store:#}") };
    assert_eq!((&view["components"], &view["clients"]), (&json!(["kube-proxy"]), &json!(1)));
    assert_eq!((&view["hidden"], &view["edited"], &view["degraded"]), (&json!(1), &json!(0), &json!(0)));
    assert_eq!(view["resourceVersion"], revision);
    assert!(view["chainVersion"].as_str().unwrap().parse::<u64>().is_ok());
}

#[tokio::test]
async fn a_store_weighs_what_its_objects_weigh_after_changes_and_deletions() {
    let (fixture, _script) = cached().await;
    let list = fixture.settle("/api/v1/services?resourceVersion=0").await;
    let bytes = |fixture: &ProxyFixture| fixture.caches.to_json()["stores"][0]["bytes"].as_u64().unwrap();
    let before = bytes(&fixture);
    let mut events = fixture.watch(&format!("{WATCH}{}", version(&list))).await;
    fixture.service("d", "ClusterIP");
    fixture.service("d", "NodePort");
    assert_eq!([events.next_summary().await, events.next_summary().await], ["ADDED d", "MODIFIED d"]);
    assert!(bytes(&fixture) > before);
    fixture.server.store().delete("v1", "Service", "default", "d").unwrap();
    assert_eq!(events.next_summary().await, "DELETED d");
    assert_eq!(bytes(&fixture), before);
}

#[tokio::test]
async fn metrics_of_caches_are_by_resource_and_count_what_watches_get() {
    let (fixture, _script) = cached().await;
    let list = fixture.settle("/api/v1/services?resourceVersion=0").await;
    let mut all = Vec::new();
    for _ in 0..3 {
        all.push(fixture.watch(&format!("{WATCH}{}", version(&list))).await);
    }
    fixture.service("d", "ClusterIP");
    for events in &mut all {
        assert_eq!(events.next_summary().await, "ADDED d");
    }
    let text = metrics(&fixture);
    for line in [
        "weir_cache_objects{resource=\"services\"} 4",
        "weir_cache_watches{resource=\"services\"} 3",
        "weir_cache_stores{resource=\"services\",state=\"synced\"} 1",
        "weir_cache_events_sent_total{resource=\"services\"} 3",
        "weir_cache_degraded_objects{resource=\"services\"} 0",
    ] {
        assert!(text.lines().any(|found| found == line), "{line} in {text}");
    }
    let received = |text: &str| {
        let line =
            text.lines().find_map(|line| line.strip_prefix("weir_cache_received_bytes_total{resource=\"services\"} "));
        line.unwrap().parse::<u64>().unwrap()
    };
    let first = received(&text);
    assert!(first > 0);
    assert_eq!(received(&metrics(&fixture)), first, "a scrape counts nothing twice");
}

#[tokio::test]
async fn caches_reports_since_when_no_api_server_is_reachable() {
    let (mut fixture, _script) = cached().await;
    fixture.json("/api/v1/services?resourceVersion=0").await;
    fixture.server = ApiServer::builder().start().await.unwrap();
    fixture.json("/api/v1/services?resourceVersion=0").await;
    fixture.json("/api/v1/services").await;
    let since = fixture.caches.to_json()["offlineSince"].as_str().map(str::to_owned);
    assert!(since.expect("it is offline").parse::<jiff::Timestamp>().is_ok());
}
