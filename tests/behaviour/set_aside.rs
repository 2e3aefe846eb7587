//! An object that a filter fails on again and again is set aside alone. What the owner of one namespace writes does not suspend
//! the filter for all others.

use serde_json::json;
use weir_tests::daemon::{Daemon, Setup};
use weir_tests::guests::hostile;

use super::{edge, service};

const SERVICES: &str = "/api/v1/services";

/// A daemon whose filter fails on every object, by the class of the fault.
async fn failing(guest: &str, policy: &str, server: &weir_apiserver::ApiServer) -> Daemon {
    let filters =
        format!("filters:\n  - {{name: bad, module: {guest}.wasm, match: ['*/services'], failurePolicy: {policy}}}\n");
    // Each list goes to the API server, and through the filter.
    Setup::new(server.url()).filters(&filters).module(guest, &hostile(guest)).uncached().start_ready().await
}

async fn failures(weir: &Daemon, class: &str) -> f64 {
    weir.metric(&format!("weir_filter_failures_total{{filter=\"bad\",class=\"{class}\"}}")).await
}

#[tokio::test]
async fn objects_of_one_namespace_do_not_open_the_breaker() {
    let server = edge().await;
    for n in 0..20 {
        server.store().put(service(&format!("s-{n}"), "ClusterIP")).unwrap();
    }
    let weir = failing("bad-handle", "Ignore", &server).await;
    let client = weir.client("test");
    let path = "/api/v1/namespaces/default/services";
    // An object is set aside at its third failure, and the fourth list does not call the filter for it.
    for _ in 0..4 {
        client.names(path).await;
    }
    assert!(failures(&weir, "set-aside").await > 0.0);
    assert_eq!(failures(&weir, "breaker-open").await, 0.0);
    let filter = weir.filter("bad").await;
    assert_eq!(filter["state"], "failing", "it is called for other objects: {filter}");
    assert!(filter["setAside"]["count"].as_u64().unwrap() > 0, "{filter}");
    assert!(filter["setAside"]["objects"].as_array().unwrap().len() <= 20, "{filter}");
}

#[tokio::test]
async fn an_object_whose_filter_returns_errors_is_set_aside_and_named() {
    let server = edge().await;
    let weir = failing("fails-once", "Fail", &server).await;
    let (client, path) = (weir.client("test"), "/api/v1/namespaces/default/services/web");
    for _ in 0..3 {
        assert_eq!(client.get(path).await.status, 500);
    }
    let line = weir.logged("object set aside").await;
    assert_eq!((&line["fields"]["filter"], &line["fields"]["object"]), (&json!("bad"), &json!("web")), "{line}");
    let filter = weir.filter("bad").await;
    assert_eq!(filter["setAside"]["count"], 1, "{filter}");
    assert_eq!(filter["setAside"]["objects"][0]["object"], "Service default/web", "{filter}");
    let text = weir.admin().get("/readyz?verbose").await.text();
    let notice = "[!] filter-failing: the filter bad fails again and again on 1 objects, first Service default/web";
    assert!(text.starts_with("health: degraded\n") && text.contains(notice), "{text}");
    // Another object of the same namespace is still filtered: its own error, not that of the first.
    let other = client.get("/api/v1/namespaces/default/services/kubernetes").await;
    assert!(other.status == 500 && !other.text().contains("set aside"), "{}", other.text());
    assert_eq!(client.get(SERVICES).await.status, 500);
}

/// No object fails often enough to be set aside.
#[tokio::test]
async fn a_filter_that_fails_once_on_each_of_many_objects_makes_the_node_degraded() {
    let server = edge().await;
    for n in 0..5 {
        server.store().put(service(&format!("s-{n}"), "ClusterIP")).unwrap();
    }
    let weir = failing("fails-once", "Ignore", &server).await;
    weir.client("test").names("/api/v1/namespaces/default/services").await;
    let filter = weir.filter("bad").await;
    assert_eq!((&filter["state"], &filter["setAside"]["count"]), (&json!("failing"), &json!(0)), "{filter}");
    let text = weir.admin().get("/readyz?verbose").await.text();
    let notice = "[!] filter-failing: the filter bad failed on more than 1% of its objects within five minutes";
    assert!(text.starts_with("health: degraded\n") && text.contains(notice), "{text}");
}
