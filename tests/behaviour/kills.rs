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
use weir_tests::until;

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
    until!(weir.metric("weir_cache_commits_total").await != 0.0);
    // Nothing more gets to the disk, as in the last moment before a kill.
    let weir = weir.killed().await.flag("--cache-commit-interval", "1h").start_ready().await;
    let client = weir.client("kube-proxy");
    let list = client.json(SERVICES).await;
    let mut watch = watch_from(&client, list["metadata"]["resourceVersion"].as_str().unwrap()).await;
    server.store().put(service("late", "LoadBalancer")).unwrap();
    let version = next_of(&mut watch, "ADDED late").await["object"]["metadata"]["resourceVersion"].clone();

    let weir = weir.killed().await.filters(NO_LOAD_BALANCERS).start_ready().await;
    // Two clients of one name: the state of the first says nothing about the second.
    for _ in 0..2 {
        let mut watch = watch_from(&weir.client("kube-proxy"), version.as_str().unwrap()).await;
        next_of(&mut watch, "DELETED late").await;
    }
}

/// A client's cache: names and versions of Services, at a version.
#[derive(Default)]
struct Informer {
    held: BTreeMap<String, u64>,
    /// The versions of the deletions that it has seen.
    gone: BTreeMap<String, u64>,
    version: String,
    /// How often it had to list again.
    expired: u64,
}

impl Informer {
    async fn list(&mut self, client: &Client, path: &str) {
        let list = client.json(path).await;
        self.version = list["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
        self.held = list["items"].as_array().unwrap().iter().map(name_and_version).collect();
    }

    /// Applies events until the cache is this one.
    async fn catch_up(&mut self, weir: &Daemon, wanted: &BTreeMap<String, u64>) {
        let client = weir.client("kube-proxy");
        if self.version.is_empty() {
            self.list(&client, SERVICES).await;
        }
        let mut watch = watch_from(&client, &self.version).await;
        while self.held != *wanted {
            let event = watch.next().await;
            if event["type"] == "ERROR" {
                // It is not known what it holds of an object that is hidden. It lists the latest state, as client-go does.
                assert_eq!(event["object"]["code"], 410, "{event}");
                self.expired += 1;
                self.list(&client, "/api/v1/services").await;
                watch = watch_from(&client, &self.version).await;
                continue;
            }
            let (name, version) = name_and_version(&event["object"]);
            // Objects that are sent again keep their versions, and a BOOKMARK follows them.
            let before = self.version.parse::<u64>().unwrap();
            self.version = before.max(version).to_string();
            match event["type"].as_str().unwrap() {
                "BOOKMARK" => {}
                "DELETED" => {
                    self.held.remove(&name);
                    // One that does not raise the version may be of a later one, which a kill makes come again.
                    if version > before {
                        self.gone.insert(name, version);
                    }
                }
                _ => {
                    let deleted = self.gone.get(&name).copied().unwrap_or_default();
                    assert!(version >= deleted, "{name} at {version} came back after its deletion at {deleted}");
                    let before = self.held.insert(name.clone(), version).unwrap_or_default();
                    assert!(version >= before, "{name} went back from {before} to {version}");
                }
            }
        }
    }
}

fn name_and_version(object: &Value) -> (String, u64) {
    let metadata = &object["metadata"];
    let version = metadata["resourceVersion"].as_str().unwrap().parse().unwrap();
    let text = |key: &str| metadata[key].as_str().unwrap_or_default();
    (format!("{}/{}", text("namespace"), text("name")), version)
}

/// splitmix64
pub(super) fn random(seed: u64) -> u64 {
    let seed = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(0x1234_5678_9abc_def1);
    let seed = (seed ^ (seed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let seed = (seed ^ (seed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    seed ^ (seed >> 31)
}

/// Creates, changes or deletes a Service.
fn change(server: &ApiServer, step: u64) {
    let name = format!("object-{}", random(step) % NAMES);
    let store = server.store();
    if random(step).is_multiple_of(5) {
        store.delete("v1", "Service", "default", &name);
        return;
    }
    let mut object = service(&name, if random(step).is_multiple_of(7) { "LoadBalancer" } else { "ClusterIP" });
    object["metadata"]["labels"] = json!({"step": step.to_string()});
    store.put(object).unwrap();
}

#[tokio::test]
async fn a_daemon_that_is_killed_again_and_again_never_has_a_corrupt_or_stale_store() {
    let cycles = std::env::var("WEIR_TEST_CYCLES").map_or(20, |cycles| cycles.parse().unwrap());
    let (server, cache) = (edge().await, tempfile::tempdir().unwrap());
    let (mut informer, mut step, mut restored) = (Informer::default(), 0, 0);
    let mut next = setup(&server, cache.path(), NO_LOAD_BALANCERS);
    for cycle in 0..cycles {
        let weir = next.start_ready().await;
        let list = server.store().list("v1", "Service");
        let shown = list.iter().filter(|object| object["spec"]["type"] != "LoadBalancer").map(name_and_version);
        informer.catch_up(&weir, &shown.collect()).await;
        // What is on the disk is as it was committed: a corrupt store is dropped, counted and listed again.
        assert_eq!(weir.metric_sum("weir_cache_errors_total").await, 0.0, "cycle {cycle}: {}", weir.log_text());
        restored += usize::from(weir.log_text().contains("store restored from disk"));
        // The kill arrives while the changes get to the disk.
        for _ in 0..1 + random(cycle) % 40 {
            change(&server, step);
            step += 1;
            if random(step).is_multiple_of(8) {
                tokio::time::sleep(Duration::from_millis(random(step) % 12)).await;
            }
        }
        next = weir.killed().await;
    }
    println!(
        "{cycles} kills, {step} changes, {restored} starts with objects from disk, {} lists after 410",
        informer.expired
    );
    assert!(restored as u64 + 3 >= cycles, "{restored} of {cycles} starts had objects from disk");
}

/// kube-proxy's trackers remove the ports that the object of a deletion names.
#[tokio::test]
async fn what_other_filters_hide_after_a_kill_is_deleted_in_the_state_that_the_client_was_shown() {
    let (server, cache) = (edge().await, tempfile::tempdir().unwrap());
    let mut object = service("renamed", "LoadBalancer");
    server.store().put(object.clone()).unwrap();
    let weir = setup(&server, cache.path(), "filters: []\n").start_ready().await;
    let list = weir.client("kube-proxy").json(SERVICES).await;
    let version = list["metadata"]["resourceVersion"].as_str().unwrap();
    until!(weir.metric("weir_cache_commits_total").await != 0.0);
    let setup = weir.killed().await;
    let weir = setup.filters(NO_LOAD_BALANCERS).start_ready().await;
    let mut watch = watch_from(&weir.client("kube-proxy"), version).await;
    let first = next_of(&mut watch, "DELETED renamed").await;
    assert_eq!(first["object"]["spec"]["ports"][0]["name"], "http");
    object["spec"]["ports"][0]["name"] = json!("other");
    server.store().put(object).unwrap();
    server.store().delete("v1", "Service", "default", "renamed").unwrap();
    // A client that comes later lacks the same.
    let mut watch = watch_from(&weir.client("kube-proxy"), version).await;
    let first = next_of(&mut watch, "DELETED renamed").await;
    assert_eq!(first["object"]["spec"]["ports"][0]["name"], "http");
}
