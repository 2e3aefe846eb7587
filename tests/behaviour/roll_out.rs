//! Roll-out: observed filters, filters of some nodes, the kill switch, and filters that are taken back.

use std::time::Instant;

use serde_json::{Value, json};
use weir_apiserver::{ApiServer, Enforce};
use weir_tests::client::{Client, Events};
use weir_tests::daemon::{Daemon, Setup};
use weir_tests::guests::hostile;
use weir_tests::until;

use super::{edge, service};

const SERVICES: &str = "/api/v1/services?resourceVersion=0";
const WATCH: &str = "/api/v1/services?watch=true&resourceVersion=0";
const ALL: [&str; 4] = ["dashboard", "kubernetes", "shop", "web"];
const NOT_SHOP: [&str; 3] = ["dashboard", "kubernetes", "web"];

/// A filter that hides the only LoadBalancer, `shop`.
fn discard(more: &str) -> String {
    format!("filters:\n  - {{name: discardcloudservice, match: ['*/services']{more}}}\n")
}

fn setup(server: &ApiServer, filters: &str) -> Setup {
    Setup::new(server.url())
        .flag("--node-name", "edge-a")
        .filters(filters)
        .bundled("discardcloudservice")
        .bundled("nodeportisolation")
}

fn proxy(weir: &Daemon) -> Client {
    weir.client("kube-proxy").with("authorization", "Bearer kube-proxy")
}

/// Opens a watch, and reads what there is.
async fn watch(weir: &Daemon, names: &[&str]) -> Events {
    let mut events = proxy(weir).watch(WATCH).await;
    let mut found = Vec::new();
    for _ in names {
        found.push(events.next_named().await);
    }
    found.sort();
    assert_eq!(found, names.iter().map(|name| format!("ADDED {name}")).collect::<Vec<_>>());
    events
}

fn annotate_node(server: &ApiServer, value: Option<&str>) {
    server.store().edit("v1", "Node", "", "edge-a", |node| {
        node["metadata"]["annotations"] = value.map_or(Value::Null, |value| json!({"weir.dev/filters": value}));
    });
}

fn put_in_pool(server: &ApiServer, pool: &str) {
    server.store().edit("v1", "Node", "", "edge-a", |node| {
        node["metadata"]["labels"]["apps.openyurt.io/nodepool"] = pool.into();
    });
}

/// Waits until the configuration is refused so many times more after a change.
async fn refused_again(weir: &Daemon, more: f64, change: impl FnOnce()) {
    let refused = "weir_reloads_total{result=\"refused\"}";
    let before = weir.metric(refused).await;
    change();
    until!(weir.metric(refused).await >= before + more);
}

#[tokio::test]
async fn an_observed_filter_changes_nothing_and_reports_what_it_would_do() {
    let server = edge().await;
    let weir = setup(&server, &discard(", mode: observe")).start_ready().await;
    let mut events = watch(&weir, &ALL).await;
    assert_eq!(proxy(&weir).names(SERVICES).await, ALL);
    let line = weir.logged("observed: what the filter would have done").await;
    assert_eq!(
        (&line["fields"]["filter"], &line["fields"]["example"]),
        (&json!("discardcloudservice"), &json!("default/shop"))
    );
    assert!(line["fields"]["hidden"].as_u64().unwrap() >= 1);
    assert!(
        weir.metric("weir_filter_observed_objects_total{filter=\"discardcloudservice\",outcome=\"hidden\"}").await
            >= 1.0
    );
    assert_eq!(weir.metric("weir_filter_objects_total{filter=\"discardcloudservice\"").await, 0.0);
    assert_eq!(weir.filter("discardcloudservice").await["mode"], "observe");
    let admin = weir.admin().with("authorization", "Bearer operator");
    let path = "/explain/api/v1/namespaces/default/services/shop?component=kube-proxy";
    let explained = admin.json(path).await;
    assert_eq!((&explained["outcome"], &explained["filters"][0]["decision"]), (&json!("unchanged"), &json!("hidden")));
    // A write of a client that it would hide the object from passes.
    let body = json!({"metadata": {"labels": {"a": "b"}}}).to_string();
    let patched = proxy(&weir).with("content-type", "application/merge-patch+json");
    let answer = patched.send(http::Method::PATCH, "/api/v1/namespaces/default/services/shop", body).await;
    assert_eq!(answer.status(), 200);
    assert_eq!(events.next_named().await, "MODIFIED shop");
    weir.put_filters(&discard(""));
    assert_eq!(events.next_named().await, "DELETED shop");
}

#[tokio::test]
async fn an_observed_filter_may_fail() {
    let server = edge().await;
    let filters = "filters:\n  - {name: deep-recursion, mode: observe, match: ['*/services']}\n";
    let weir = setup(&server, filters).module("deep-recursion", &hostile("deep-recursion")).start_ready().await;
    assert_eq!(proxy(&weir).names(SERVICES).await, ALL);
    let line = weir.logged("observed: what the filter would have done").await;
    assert!(line["fields"]["failed"].as_u64().unwrap() >= 1);
    assert!(weir.filter("deep-recursion").await["lastError"].as_str().unwrap().starts_with("stack"));
}

#[tokio::test]
async fn a_filter_is_active_on_the_nodes_that_it_selects_and_follows_their_labels() {
    let server = edge().await;
    let weir = setup(&server, &discard(", nodes: {pools: [beijing]}")).start_ready().await;
    let mut events = watch(&weir, &ALL).await;
    let state = weir.filter("discardcloudservice").await["state"].clone();
    assert_eq!(state, "not on this node: its `nodes` do not select it");
    put_in_pool(&server, "beijing");
    assert_eq!(events.next_named().await, "DELETED shop");
    assert_eq!(weir.filter("discardcloudservice").await["state"], "live");
    put_in_pool(&server, "hangzhou");
    assert_eq!(events.next_named().await, "ADDED shop");
    weir.put_filters(&discard(", nodes: {labelSelector: 'kubernetes.io/hostname in (edge-a, edge-b)'}"));
    assert_eq!(events.next_named().await, "DELETED shop");
}

#[tokio::test]
async fn filters_of_some_nodes_are_refused_where_the_node_cannot_be_read() {
    let server = edge().await;
    server.set_policy(|asked| asked.resource != "nodes");
    server.enforce(Enforce::Everybody);
    let weir = setup(&server, &discard(", nodes: {pools: [hangzhou]}")).start().await;
    let line = weir.logged("configuration refused").await;
    let reason = line["fields"]["reason"].as_str().unwrap();
    assert!(reason.starts_with("`nodes` cannot be evaluated: the Node cannot be read: "), "{reason}");
    assert_eq!(proxy(&weir).get(SERVICES).await.status, 503, "nothing passes unfiltered");
    // Without `nodes` the Node is not needed.
    weir.put_filters(&discard(""));
    weir.logged("filter set activated").await;
    assert_eq!(proxy(&weir).names(SERVICES).await, NOT_SHOP);
}

#[tokio::test]
async fn the_annotation_of_the_node_turns_all_filters_off_within_seconds_also_at_a_start() {
    let server = edge().await;
    let cache = tempfile::tempdir().unwrap();
    let weir = setup(&server, &discard("")).on_disk(cache.path()).start_ready().await;
    let mut events = watch(&weir, &NOT_SHOP).await;
    let began = Instant::now();
    annotate_node(&server, Some("off"));
    assert_eq!(events.next_named().await, "ADDED shop");
    println!("off after {:?}", began.elapsed());
    assert_eq!(
        weir.filter("discardcloudservice").await["state"],
        "off: the Node has the annotation weir.dev/filters: off"
    );
    let warnings = weir.admin().json("/filters").await["lastReload"]["warnings"].clone();
    assert!(warnings.to_string().contains("all filters are off"), "{warnings}");
    drop(events);
    let weir = weir.stopped().await.start_ready().await;
    assert_eq!(proxy(&weir).names(SERVICES).await, ALL, "a restarted daemon obeys, too");
    let mut events = watch(&weir, &ALL).await;
    annotate_node(&server, None);
    assert_eq!(events.next_named().await, "DELETED shop");
    annotate_node(&server, Some("on"));
    assert_eq!(proxy(&weir).names(SERVICES).await, NOT_SHOP, "no other value turns them off");
}

#[tokio::test]
async fn the_annotation_of_the_node_counts_while_the_configuration_is_refused() {
    let server = edge().await;
    let weir = setup(&server, &discard("")).start_ready().await;
    let mut events = watch(&weir, &NOT_SHOP).await;
    let missing =
        "filters: [{name: discardcloudservice, match: ['*/services']}, {name: missing, module: missing.wasm}]";
    for refused in ["filters: [{name: discardcloudservice, nonsense: 1}]", missing] {
        let from = weir.log_length();
        weir.put_filters(refused);
        weir.logged_after(from, "configuration refused").await;
        annotate_node(&server, Some("off"));
        assert_eq!(events.next_named().await, "ADDED shop", "{refused}");
        let off = "off: the Node has the annotation weir.dev/filters: off";
        assert_eq!(weir.filter("discardcloudservice").await["state"], off);
        annotate_node(&server, None);
        assert_eq!(events.next_named().await, "DELETED shop", "what held before holds again: {refused}");
        if refused == missing {
            // It is tried again, and holds on.
            refused_again(&weir, 1.0, || {}).await;
            assert_eq!(proxy(&weir).names(SERVICES).await, NOT_SHOP);
        }
    }
    // What a refused configuration has removed does not come back by the switch.
    weir.put_filters("filters: [{name: missing, module: missing.wasm}]");
    annotate_node(&server, Some("off"));
    assert_eq!(events.next_named().await, "ADDED shop");
    refused_again(&weir, 2.0, || annotate_node(&server, None)).await;
    assert_eq!(proxy(&weir).names(SERVICES).await, ALL);
}

#[tokio::test]
async fn a_filter_that_is_removed_while_the_labels_leave_it_out_does_not_come_back_by_them() {
    let server = edge().await;
    let here = ", nodes: {pools: [hangzhou]}";
    let weir = setup(&server, &discard(here)).start_ready().await;
    let mut events = watch(&weir, &NOT_SHOP).await;
    let missing = "  - {name: missing, module: missing.wasm}\n";
    weir.put_filters(&format!("{}{missing}", discard(here)));
    weir.logged("configuration refused").await;
    put_in_pool(&server, "beijing");
    assert_eq!(events.next_named().await, "ADDED shop");
    refused_again(&weir, 1.0, || {}).await;
    weir.put_filters(&format!("filters:\n{missing}"));
    refused_again(&weir, 2.0, || {}).await;
    put_in_pool(&server, "hangzhou");
    refused_again(&weir, 2.0, || {}).await;
    assert_eq!(proxy(&weir).names(SERVICES).await, ALL);
}

#[tokio::test]
async fn filters_that_the_node_had_off_from_the_start_hold_once_it_has_them_on() {
    let server = edge().await;
    annotate_node(&server, Some("off"));
    let weir = setup(&server, &discard("")).start_ready().await;
    assert_eq!(proxy(&weir).names(SERVICES).await, ALL);
    weir.put_filters("filters: [{name: discardcloudservice, nonsense: 1}]");
    weir.logged("configuration refused").await;
    let mut events = watch(&weir, &ALL).await;
    annotate_node(&server, None);
    assert_eq!(events.next_named().await, "DELETED shop");
}

/// Fifteen LoadBalancers: a filter is judged by ten objects or more.
async fn balancers() -> ApiServer {
    let server = edge().await;
    for n in 0..15 {
        server.store().put(service(&format!("lb-{n:02}"), "LoadBalancer")).unwrap();
    }
    server
}

const HARMLESS: &str = "filters:\n  - {name: nodeportisolation, match: ['*/services']}\n";
const HIDES_TOO_MANY: &str = "filters:
  - {name: nodeportisolation, match: ['*/services']}
  - {name: discardcloudservice, match: ['*/services'], rollback: {hidden: 20%, within: 10m}}
";

#[tokio::test]
async fn a_filter_that_hides_too_much_is_taken_back() {
    let server = balancers().await;
    let weir = setup(&server, HARMLESS).start_ready().await;
    let client = proxy(&weir);
    assert_eq!(client.names(SERVICES).await.len(), 19);
    let from = weir.log_length();
    weir.put_filters(HIDES_TOO_MANY);
    let (_, line) = weir.logged_after(from, "filter set taken back").await;
    assert_eq!(line["fields"]["filter"], "discardcloudservice");
    let reason = line["fields"]["reason"].as_str().unwrap();
    assert!(reason.contains("more than 20% beyond the 0% before"), "{reason}");
    let mut events = client.watch(WATCH).await;
    for _ in 0..19 {
        assert!(events.next_named().await.starts_with("ADDED "));
    }
    assert_eq!(client.names(SERVICES).await.len(), 19);
    assert_eq!(weir.metric("weir_reloads_total{result=\"taken_back\"}").await, 1.0);
    let last = weir.admin().json("/filters").await["lastReload"].clone();
    assert_eq!(last["result"], "refused");
    assert!(last["errors"][0].as_str().unwrap().contains("taken back: it hid"), "{last}");
    assert!(weir.filter("nodeportisolation").await["state"] == "live");

    // These filters stay refused when anything else changes.
    let from = weir.log_length();
    weir.put_filters(&format!("# Once more.\n{HIDES_TOO_MANY}"));
    weir.logged_after(from, "configuration refused").await;
    assert_eq!(client.names(SERVICES).await.len(), 19);
    // Another one does not.
    weir.put_filters(&discard(", rollback: {hidden: 90%}"));
    let mut hidden = 0;
    while hidden < 16 {
        hidden += usize::from(events.next_named().await.starts_with("DELETED"));
    }
    assert_eq!(client.names(SERVICES).await, NOT_SHOP);
}

#[tokio::test]
async fn a_module_that_fails_too_often_is_taken_back_and_a_good_one_is_not() {
    let server = balancers().await;
    let bounded = |name: &str| {
        format!(
            "filters:\n  - {{name: services, module: {name}.wasm, match: ['*/services'], failurePolicy: Hide, rollback: {{failed: 10%}}}}\n"
        )
    };
    let setup = setup(&server, &bounded("nodeportisolation")).module("bad-handle", &hostile("bad-handle"));
    let weir = setup.start_ready().await;
    let client = proxy(&weir);
    assert_eq!(client.names(SERVICES).await.len(), 19);
    weir.put_filters(&bounded("bad-handle"));
    let line = weir.logged("filter set taken back").await;
    assert!(line["fields"]["reason"].as_str().unwrap().contains("it failed on "), "{line}");
    let mut events = client.watch(WATCH).await;
    for _ in 0..19 {
        assert!(events.next_named().await.starts_with("ADDED "));
    }
}

#[tokio::test]
async fn a_daemon_that_starts_with_a_bad_set_falls_back_to_the_one_on_disk() {
    let server = balancers().await;
    let cache = tempfile::tempdir().unwrap();
    let weir = setup(&server, HARMLESS).on_disk(cache.path()).start_ready().await;
    assert_eq!(proxy(&weir).names(SERVICES).await.len(), 19);
    let stopped = weir.stopped().await.filters(HIDES_TOO_MANY);
    let weir = stopped.start_ready().await;
    // Its first client makes it judge.
    proxy(&weir).get(SERVICES).await;
    weir.logged("filter set taken back").await;
    let mut events = proxy(&weir).watch(WATCH).await;
    let mut shown = 0;
    while shown < 19 {
        shown += usize::from(events.next_named().await.starts_with("ADDED"));
    }
    // The set from disk is active, and then the status says why.
    until!(weir.admin().json("/filters").await.to_string().contains("taken back: it hid"));
}
