//! A daemon that is killed and started again: its cache on disk is not corrupt, and its clients catch up.
//!
//! `WEIR_TEST_CYCLES` sets how often; `make kills` sets it.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use weir_apiserver::ApiServer;
use weir_tests::client::{Client, Events};
use weir_tests::daemon::{Daemon, Setup};

use super::{NO_LOAD_BALANCERS, edge, service};

const SERVICES: &str = "/api/v1/services?resourceVersion=0";
/// How many objects the changes are about.
const NAMES: u64 = 24;

fn setup(server: &ApiServer, cache: &Path, filters: &str) -> Setup {
    Setup::new(server.url())
        .bundled("discardcloudservice")
        .filters(filters)
        .flag("--cache-dir", &cache.display().to_string())
        .flag("--cache-size", "64Mi")
        .flag("--cache-commit-interval", "10ms")
        .flag("--cache-resources", "services")
}

async fn watch_from(client: &Client, version: &str) -> Events {
    client.watch(&format!("/api/v1/services?watch=true&allowWatchBookmarks=true&resourceVersion={version}")).await
}

async fn next_of(watch: &mut Events, wanted: &str) -> Value {
    loop {
        let event = watch.next().await;
        let name = event["object"]["metadata"]["name"].as_str().unwrap_or_default();
        if format!("{} {name}", event["type"].as_str().unwrap()) == wanted {
            return event;
        }
    }
}

/// What the daemon read last before a kill is not on disk. Its clients hold it all the same.
#[tokio::test]
async fn a_client_that_is_ahead_of_the_disk_loses_what_other_filters_hide_after_a_kill() {
    let (server, cache) = (edge().await, tempfile::tempdir().unwrap());
    let weir = setup(&server, cache.path(), "filters: []\n").start_ready().await;
    weir.client("kube-proxy").json(SERVICES).await;
    while weir.metric("weir_cache_commits_total").await == 0.0 {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    // Nothing more gets to the disk, as in the last moment before a kill.
    let weir = weir.killed().await.flag("--cache-commit-interval", "1h").start_ready().await;
    let client = weir.client("kube-proxy");
    let list = client.json(SERVICES).await;
    let mut watch = watch_from(&client, list["metadata"]["resourceVersion"].as_str().unwrap()).await;
    server.store().put(service("late", "LoadBalancer")).unwrap();
    let version = next_of(&mut watch, "ADDED late").await["object"]["metadata"]["resourceVersion"].clone();

    let weir = weir.killed().await.filters(NO_LOAD_BALANCERS).start_ready().await;
    // Two clients of one name: the first tells nothing of the second.
    for _ in 0..2 {
        let mut watch = watch_from(&weir.client("kube-proxy"), version.as_str().unwrap()).await;
        next_of(&mut watch, "DELETED late").await;
    }
}
