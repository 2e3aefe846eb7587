//! What is gone turns no filter off: neither a ConfigMap that is deleted, nor keys or a list that are not there.

use std::path::Path;

use serde_json::{Value, json};
use weir_apiserver::ApiServer;
use weir_tests::daemon::{Daemon, Setup};
use weir_tests::edge::grant;
use weir_tests::link::Link;
use weir_tests::rights::Rights;
use weir_tests::until;

use super::{NO_LOAD_BALANCERS, edge};

const SERVICES: &str = "/api/v1/services";
const FILTERED: [&str; 3] = ["dashboard", "kubernetes", "web"];

fn put(server: &ApiServer, data: &Value) {
    let map = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "weir-filters", "namespace": "kube-system"}, "data": data,
    });
    server.store().put(map).unwrap();
}

fn delete(server: &ApiServer) {
    server.store().delete("v1", "ConfigMap", "kube-system", "weir-filters").unwrap();
}

fn setup(server: &ApiServer, cache: &Path) -> Setup {
    Setup::new(server.url()).on_disk(cache).bundled("discardcloudservice")
}

async fn names(weir: &Daemon) -> Vec<String> {
    weir.client("kube-proxy").names(SERVICES).await
}

/// The daemon has said why the configuration is refused, and filters as before.
async fn holds(weir: &Daemon, from: usize, reason: &str) -> usize {
    let (from, line) = weir.logged_after(from, "configuration refused, keeping the last valid filter set").await;
    let said = line["fields"]["reason"].as_str().unwrap();
    assert!(said.contains(reason) && said.contains("`filters: []` turns filters off"), "{line}");
    assert_eq!(names(weir).await, FILTERED, "{reason}");
    let last = weir.admin().json("/filters").await["lastReload"].clone();
    assert!(last.to_string().contains(reason), "{last}");
    from
}

#[tokio::test]
async fn a_config_map_that_names_no_set_keeps_the_last_one() {
    let (server, cache) = (edge().await, tempfile::tempdir().unwrap());
    grant(&server, Rights::shipped().reading("", "configmaps"));
    put(&server, &json!({"filters.yaml": NO_LOAD_BALANCERS}));
    let weir = setup(&server, cache.path()).start_ready().await;
    assert_eq!(names(&weir).await, FILTERED);
    let mut from = weir.log_length();
    for (data, reason) in [
        (json!({}), "neither the key filters.yaml nor a key filter_"),
        (json!({"filters.yaml": ""}), "has no list"),
        (json!({"filters.yaml": "# none yet\n"}), "has no list"),
        (json!({"filters.yaml": "filters:\n"}), "has no list"),
        (json!({"filters.yaml": "{}"}), "has no list"),
    ] {
        put(&server, &data);
        from = holds(&weir, from, reason).await;
        // The log has a reason once for each change.
        put(&server, &json!({"filters.yaml": NO_LOAD_BALANCERS}));
        until!(!weir.admin().json("/filters").await["lastReload"].to_string().contains("turns filters off"));
    }
    delete(&server);
    holds(&weir, from, "it does not exist").await;
    // Across a restart, and where another ConfigMap is named, which does not exist.
    let setup = weir.stopped().await;
    let weir = setup.start_ready().await;
    assert_eq!(names(&weir).await, FILTERED);
    let setup = weir.stopped().await.flag("--config-map", "kube-system/other");
    let weir = setup.start_ready().await;
    assert_eq!(names(&weir).await, FILTERED);
    weir.logged("configuration refused").await;
    let setup = weir.stopped().await.flag("--config-map", "kube-system/weir-filters");

    // An empty list is a set.
    put(&server, &json!({"filters.yaml": "filters: []"}));
    let weir = setup.start_ready().await;
    let all = names(&weir).await;
    assert!(all.contains(&"shop".to_owned()), "{all:?}");
    let from = weir.log_length();
    delete(&server);
    weir.logged_after(from, "configuration refused").await;
    let weir = weir.stopped().await.start_ready().await;
    assert_eq!(names(&weir).await, all, "the last set has no filters");
}

#[tokio::test]
async fn a_config_map_that_is_replaced_by_force_shows_nothing_meanwhile() {
    let (server, cache) = (edge().await, tempfile::tempdir().unwrap());
    put(&server, &json!({"filter_discardcloudservice": "kube-proxy/services#list;watch"}));
    let weir = setup(&server, cache.path()).start_ready().await;
    let mut events = weir.client("kube-proxy").watch(&format!("{SERVICES}?watch=true&resourceVersion=0")).await;
    let mut shown = [events.next_named().await, events.next_named().await, events.next_named().await];
    shown.sort();
    assert_eq!(shown, FILTERED.map(|name| format!("ADDED {name}")));
    let from = weir.log_length();
    delete(&server);
    let (from, _) = weir.logged_after(from, "configuration refused").await;
    put(&server, &json!({"filters.yaml": "filters: []"}));
    weir.logged_after(from, "filter set activated").await;
    assert_eq!(events.next_named().await, "ADDED shop", "not before the filter was turned off explicitly");
}

#[tokio::test]
async fn a_node_that_has_never_had_a_set_has_none() {
    let (server, cache) = (edge().await, tempfile::tempdir().unwrap());
    let mut link = Link::to(&server).await;
    let weir = Setup::new(&link.url()).on_disk(cache.path()).start_ready().await;
    let cached = format!("{SERVICES}?resourceVersion=0");
    assert!(weir.client("kube-proxy").names(&cached).await.contains(&"shop".to_owned()));
    super::offline::committed(&server, &weir).await;
    assert_eq!(weir.stop().await, Some(0));
    // Without an API server, too.
    for is_up in [true, false] {
        if !is_up {
            link.down().await;
        }
        let weir = Setup::new(&link.url()).on_disk(cache.path()).start_ready().await;
        assert!(weir.client("kube-proxy").names(&cached).await.contains(&"shop".to_owned()), "{is_up}");
        assert!(!weir.log_text().contains("configuration refused"), "{}", weir.log_text());
        assert_eq!(weir.stop().await, Some(0));
    }
}
