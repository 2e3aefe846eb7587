//! The last good filter set: an upgrade brings modules that do not work, and the disk still has those that did.

use std::path::Path;

use serde_json::Value;
use weir_apiserver::ApiServer;
use weir_tests::client::PATIENCE;
use weir_tests::daemon::{Daemon, Setup};
use weir_tests::guests::hostile;
use weir_tests::link::Link;

use super::{edge, only};

const SERVICES: &str = "/api/v1/services";
const FILTERED: [&str; 3] = ["dashboard", "kubernetes", "web"];

fn setup(url: &str, cache: &Path) -> Setup {
    // The match rules are those of the module.
    let filters = only("discardcloudservice", "    failurePolicy: Ignore\n");
    Setup::new(url).on_disk(cache).filters(&filters).bundled("discardcloudservice")
}

/// A node whose filter worked, stopped.
async fn former(server: &ApiServer, cache: &Path) -> Setup {
    let weir = setup(server.url(), cache).start_ready().await;
    assert_eq!(weir.client("kube-proxy").names(SERVICES).await, FILTERED);
    weir.stopped().await
}

async fn state(weir: &Daemon, name: &str) -> Value {
    weir.filter(name).await["state"].clone()
}

#[tokio::test]
async fn an_upgrade_whose_module_is_refused_leaves_the_last_good_set() {
    let (server, cache) = (edge().await, tempfile::tempdir().unwrap());
    let former = former(&server, cache.path()).await;
    let weir = former.module("discardcloudservice", &hostile("trap-in-configure")).start_ready().await;
    assert_eq!(weir.client("kube-proxy").names(SERVICES).await, FILTERED);
    assert_eq!(weir.client("kubectl").get("/api/v1/nodes").await.status, 200);
    weir.logged("configuration refused").await;
    assert_eq!(state(&weir, "discardcloudservice").await, "live, change refused");
    let last = weir.admin().json("/filters").await["lastReload"].clone();
    assert!(last["warnings"].to_string().contains("this is the last good configuration"), "{last}");
    // It stays the last good one through all failed attempts.
    let weir = weir.stopped().await.start_ready().await;
    assert_eq!(weir.client("kube-proxy").names(SERVICES).await, FILTERED);
    weir.put_module("discardcloudservice", &std::fs::read(weir_tests::built::module("discardcloudservice")).unwrap());
    // The active filter is the same, which the log does not say.
    let accepted = async {
        while state(&weir, "discardcloudservice").await != "live" {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, accepted).await.expect("accepted");
}

#[tokio::test]
async fn a_start_offline_after_an_upgrade_uses_the_modules_of_the_last_good_set() {
    let (server, cache) = (edge().await, tempfile::tempdir().unwrap());
    let mut link = Link::to(&server).await;
    let map = serde_json::json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "weir-filters", "namespace": "kube-system"},
        "data": {"filters.yaml": only("discardcloudservice", "")},
    });
    server.store().put(map).unwrap();
    let setup = Setup::new(&link.url()).on_disk(cache.path()).bundled("discardcloudservice");
    let weir = setup.start_ready().await;
    assert_eq!(weir.client("kube-proxy").names(&format!("{SERVICES}?resourceVersion=0")).await, FILTERED);
    super::offline::committed(&server, &weir).await;
    let setup = weir.stopped().await;
    link.down().await;
    std::fs::remove_file(setup.modules().join("discardcloudservice.wasm")).unwrap();
    let weir = setup.start_ready().await;
    assert_eq!(weir.client("kube-proxy").names(&format!("{SERVICES}?resourceVersion=0")).await, FILTERED);
}

#[tokio::test]
async fn a_node_without_a_last_good_set_leaves_out_what_cannot_be_loaded_and_may_be_ignored() {
    let (server, cache) = (edge().await, tempfile::tempdir().unwrap());
    let filters = |policy: &str| {
        only("discardcloudservice", "")
            + &format!("  - {{name: bad, module: bad.wasm, match: ['*/endpoints'], failurePolicy: {policy}}}\n")
    };
    let setup = |policy: &str| {
        let setup = Setup::new(server.url()).on_disk(cache.path()).filters(&filters(policy));
        setup.bundled("discardcloudservice").module("bad", &hostile("trap-in-configure")).flag("--start-wait", "50ms")
    };
    let weir = setup("Ignore").start_ready().await;
    assert_eq!(weir.client("kube-proxy").names(SERVICES).await, FILTERED);
    assert_eq!(weir.client("kube-proxy").get("/api/v1/endpoints").await.status, 200);
    let line = weir.logged("cannot be loaded, and its failurePolicy is Ignore").await;
    assert_eq!(line["level"], "WARN", "{line}");
    let line = weir.logged("only its other filters are active").await;
    assert_eq!((&line["level"], &line["fields"]["filter"]), (&"ERROR".into(), &"bad".into()), "{line}");
    assert_eq!(state(&weir, "bad").await, "failed");
    let from = weir.log_length();
    weir.put_module("bad", &std::fs::read(weir_tests::built::module("endpoints")).unwrap());
    weir.logged_after(from, "filter set activated").await;
    assert_eq!(state(&weir, "bad").await, "live");
}

#[tokio::test]
async fn reads_that_no_rule_can_match_are_served_while_a_module_is_refused() {
    let (server, cache) = (edge().await, tempfile::tempdir().unwrap());
    let filters = only("discardcloudservice", "")
        + "  - {name: bad, module: bad.wasm, match: ['*/endpoints'], failurePolicy: Fail}\n";
    let setup = Setup::new(server.url()).on_disk(cache.path()).filters(&filters);
    let setup = setup.bundled("discardcloudservice").module("bad", &hostile("trap-in-configure"));
    let weir = setup.flag("--start-wait", "50ms").start().await;
    weir.logged("configuration refused").await;
    assert_eq!(weir.client("kubectl").get("/api/v1/nodes").await.status, 200);
    for path in ["/api/v1/endpoints", SERVICES] {
        assert_eq!(weir.client("kube-proxy").get(path).await.status, 503, "{path}");
    }
}
