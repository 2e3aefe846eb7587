//! A daemon that starts without its API server: filters, their lookups and the objects come from disk.

use std::path::Path;
use std::time::Instant;

use serde_json::{Value, json};
use weir_apiserver::{Action, ApiServer};
use weir_tests::client::{Client, PATIENCE};
use weir_tests::daemon::{Daemon, Setup, manifest};
use weir_tests::link::Link;
use weir_tests::until;

use super::{edge, only};

const SLICES: &str = "/apis/discovery.k8s.io/v1/endpointslices?resourceVersion=0";
const SERVICES: &str = "/api/v1/services?resourceVersion=0";

/// How the first daemon ends.
#[derive(Debug, Clone, Copy)]
enum End {
    Stopped,
    Killed,
}

impl End {
    async fn end(self, weir: Daemon) {
        match self {
            Self::Stopped => assert_eq!(weir.stop().await, Some(0)),
            Self::Killed => weir.kill().await,
        }
    }
}

/// A cluster whose ConfigMap has one filter, which looks up Services, Nodes and NodePools.
pub(super) async fn cluster() -> ApiServer {
    let server = edge().await;
    server.store().load(&manifest(&only("servicetopology", ""))).unwrap();
    server
}

pub(super) fn setup(link: &Link, cache: &Path) -> Setup {
    Setup::new(&link.url())
        .bundled("servicetopology")
        .on_disk(cache)
        .flag("--cache-resources", "services,endpointslices.discovery.k8s.io")
}

/// What kube-proxy gets: the nodes of the first slice's endpoints, and the names of the Services.
pub(super) async fn shown(client: &Client) -> (Vec<String>, Vec<String>) {
    let list = client.json(SLICES).await;
    (nodes(&list["items"][0]), client.names(SERVICES).await)
}

fn nodes(slice: &Value) -> Vec<String> {
    let endpoints = slice["endpoints"].as_array().unwrap();
    endpoints.iter().map(|endpoint| endpoint["nodeName"].as_str().unwrap().to_owned()).collect()
}

/// Waits until everything that the daemon knows now is on disk. A commit that ends after a first one holds all that was
/// known when the first one ended.
pub(super) async fn committed(server: &ApiServer, weir: &Daemon) {
    for n in 0..2 {
        let commits = weir.metric("weir_cache_commits_total").await;
        server
            .store()
            .edit("v1", "Service", "default", "web", |web| web["metadata"]["labels"] = json!({"n": format!("{n}")}));
        until!(weir.metric("weir_cache_commits_total").await > commits);
    }
}

async fn restarts_offline(end: End) {
    let (server, cache) = (cluster().await, tempfile::tempdir().unwrap());
    let mut link = Link::to(&server).await;
    let weir = setup(&link, cache.path()).start_ready().await;
    let before = shown(&weir.client("kube-proxy")).await;
    assert_eq!(before.0, ["edge-a", "edge-b"]);
    committed(&server, &weir).await;
    end.end(weir).await;

    let started = Instant::now();
    let weir = setup(&link, cache.path()).start().await;
    assert_eq!(shown(&weir.client("kube-proxy")).await, before);
    let baseline = started.elapsed();
    committed(&server, &weir).await;
    end.end(weir).await;

    link.down().await;
    let started = Instant::now();
    let weir = setup(&link, cache.path()).start().await;
    let client = weir.client("kube-proxy");
    assert_eq!(shown(&client).await, before, "{end:?}: {}", weir.log_text());
    let offline = started.elapsed();
    println!("{end:?}: first filtered lists {baseline:?} after a start, {offline:?} after one without the API server");
    assert!(offline < baseline * 4, "{offline:?} instead of {baseline:?}");
    reports_its_age(&weir).await;
    follows_when_the_server_returns(&server, &mut link, &client).await;
}

/// `/filters` and the log say that configuration and lookups are old.
async fn reports_its_age(weir: &Daemon) {
    let filters = weir.admin().json("/filters").await;
    let lookups = filters["lookups"].as_array().unwrap();
    assert!(lookups.iter().all(|lookup| lookup["stale"] == true && lookup["synced"] == true), "{lookups:?}");
    assert!(filters["lastReload"]["warnings"].to_string().contains("last good configuration, activated"), "{filters}");
    let line = weir.logged("last good configuration").await;
    assert_eq!(line["level"], "WARN");
    assert_eq!(weir.log_text().matches("last good configuration, activated").count(), 1);
}

async fn follows_when_the_server_returns(server: &ApiServer, link: &mut Link, client: &Client) {
    let list = client.json(SLICES).await;
    let version = list["metadata"]["resourceVersion"].as_str().unwrap();
    let watch = SLICES.replace("resourceVersion=0", &format!("watch=true&resourceVersion={version}"));
    let mut events = client.watch(&watch).await;
    let before = server.requests().len();
    link.up().await;
    server.store().edit("v1", "Service", "default", "web", |web| {
        web["metadata"]["annotations"]["openyurt.io/topologyKeys"] = json!("kubernetes.io/hostname");
    });
    // Offline, the client got the present state first.
    let event = loop {
        let event = events.next_change().await;
        if nodes(&event["object"]) != ["edge-a", "edge-b"] {
            break event;
        }
    };
    assert_eq!((&event["type"], nodes(&event["object"])), (&json!("MODIFIED"), vec!["edge-a".to_owned()]), "{event}");
    let requests = server.requests();
    let targets: Vec<_> = requests.iter().skip(before).map(|request| request.target()).collect();
    // A read of one object returns the newest version of the continued history.
    let is_glance = |target: &str| target.contains("limit=1") && !target.contains("limit=1000");
    let lists =
        |target: &&String| target.contains("limit=") && !target.contains("/configmaps") && !is_glance(target.as_str());
    assert_eq!(targets.iter().find(lists), None, "stores are continued, not listed again");
}

#[tokio::test]
async fn a_daemon_restarted_offline_serves_filtered_lists_from_disk() {
    restarts_offline(End::Stopped).await;
}

#[tokio::test]
async fn a_daemon_killed_and_restarted_offline_serves_filtered_lists_from_disk() {
    restarts_offline(End::Killed).await;
}

#[tokio::test]
async fn a_damaged_disk_is_reported_and_nothing_is_served_unfiltered() {
    let (server, cache) = (cluster().await, tempfile::tempdir().unwrap());
    let mut link = Link::to(&server).await;
    let weir = setup(&link, cache.path()).start_ready().await;
    shown(&weir.client("kube-proxy")).await;
    weir.stop().await;
    let file = cache.path().join("watch-cache.redb");
    let bytes = std::fs::read(&file).unwrap();
    std::fs::write(&file, &bytes[..bytes.len() / 2]).unwrap();
    link.down().await;
    let weir = setup(&link, cache.path()).flag("--start-wait", "2s").start().await;
    for path in [SLICES, SERVICES] {
        let answer = weir.client("kube-proxy").get(path).await;
        assert_eq!(answer.status, 503, "{path}: {}", answer.text());
    }
    assert_eq!(weir.admin().get("/readyz").await.status, 503);
    assert!(weir.metric_sum("weir_cache_errors_total").await > 0.0, "{}", weir.log_text());
}

#[tokio::test]
async fn forms_that_the_api_server_refuses_are_refused_offline() {
    const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";
    let (server, cache) = (cluster().await, tempfile::tempdir().unwrap());
    let mut link = Link::to(&server).await;
    let weir = setup(&link, cache.path()).start_ready().await;
    let _ = shown(&weir.client("kube-proxy")).await;
    link.down().await;
    for (accept, include, status) in [
        ("application/json", "nonsense", 200),
        (TABLE, "None", 200),
        (TABLE, "nonsense", 400),
        ("text/html", "None", 406),
    ] {
        let path = format!("{SERVICES}&includeObject={include}");
        let answer = weir.client("kube-proxy").with("accept", accept).get(&path).await;
        assert_eq!(answer.status, status, "{accept} {include}: {}", answer.text());
    }
}

#[tokio::test]
async fn what_the_api_server_forbade_online_is_not_served_offline_nor_after_a_restart() {
    let (server, cache) = (cluster().await, tempfile::tempdir().unwrap());
    let mut link = Link::to(&server).await;
    let weir = setup(&link, cache.path()).start_ready().await;
    let _ = shown(&weir.client("kube-proxy")).await;
    committed(&server, &weir).await;
    server.on_request(|request| {
        let is_own = request.path == "/api/v1/services" && request.header("user-agent").starts_with("weir");
        match is_own {
            true => Action::json(403, r#"{"kind":"Status","apiVersion":"v1","status":"Failure","code":403}"#),
            false => Action::Serve,
        }
    });
    server.close_watches(weir_apiserver::End::Clean);
    weir.logged("listing services is forbidden").await;
    link.down().await;
    let refused = async |weir: &Daemon| {
        let client = weir.client("kube-proxy");
        assert_eq!(client.get(SLICES).await.status, 200, "{}", weir.log_text());
        assert_eq!(client.get(SERVICES).await.status, 503);
    };
    refused(&weir).await;
    assert_eq!(weir.stop().await, Some(0));
    let weir = setup(&link, cache.path()).start().await;
    refused(&weir).await;
    server.clear_hook();
    link.up().await;
    let client = weir.client("kube-proxy");
    let is_synced = |caches: &Value| {
        let mut stores = caches["stores"].as_array().unwrap().iter();
        stores.any(|store| store["resource"] == "services" && store["state"] == "synced")
    };
    let again = async { while !is_synced(&weir.admin().json("/caches").await) {} };
    tokio::time::timeout(PATIENCE, again).await.expect("the store follows again");
    link.down().await;
    assert_eq!(client.get(SERVICES).await.status, 200, "the API server has allowed it since");
}
