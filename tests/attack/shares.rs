//! Clients that choose the names of what Weir holds: documents, selectors, User-Agents, tokens. The daemon runs with its caches
//! on, in memory and on disk, as it is shipped.

use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream;
use http::{Method, Response};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use serde_json::json;
use weir_apiserver::{Action, ApiServer};
use weir_tests::client::{Client, PATIENCE};
use weir_tests::daemon::{Daemon, Setup};
use weir_tests::edge::{NO_LOAD_BALANCERS, api_server, service};
use weir_tests::node_reads::NodeReads;

const SERVICES: &str = "/api/v1/services?resourceVersion=0";
/// The share of an owner of the budget of 256 MiB, in MiB.
const SHARE: f64 = 25.6;
const KUBELET: &str = "Bearer system:node:edge-a";
const KUBE_PROXY: &str = "Bearer system:serviceaccount:kube-system:kube-proxy";

async fn shipped(services: usize, cache: &Path, known_only: bool) -> (ApiServer, Daemon) {
    let proxy = "system:serviceaccount:kube-system:kube-proxy";
    let mut server =
        api_server().token(proxy, proxy, &[]).token("system:node:edge-a", "system:node:edge-a", &["system:nodes"]);
    if known_only {
        server = server.known_tokens_only();
    }
    let server = server.start().await.unwrap();
    server.store().put(json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "edge-a"}})).unwrap();
    for n in 0..services {
        server.store().put(service(&format!("service-{n}"), "ClusterIP")).unwrap();
    }
    let weir = Setup::new(server.url())
        .on_disk(cache)
        .flag("--memory", "512Mi")
        .filters(NO_LOAD_BALANCERS)
        .bundled("discardcloudservice")
        .start_ready()
        .await;
    assert!(serves_node(&weir).await);
    (server, weir)
}

fn tenant(weir: &Daemon, component: &str) -> Client {
    weir.client(component).with("authorization", "Bearer mallory")
}

/// Reads of the node, until they are ended.
async fn reads(weir: &Daemon) -> NodeReads {
    let kubelet = weir.client("kubelet").with("authorization", KUBELET);
    NodeReads::start(kubelet, weir.client("kube-proxy").with("authorization", KUBE_PROXY)).await
}

/// Whether kube-proxy's list and watch are served.
async fn serves_node(weir: &Daemon) -> bool {
    let proxy = weir.client("kube-proxy").with("authorization", KUBE_PROXY);
    let list = proxy.get(SERVICES).await.status;
    let watch = proxy.send(Method::GET, &format!("{SERVICES}&watch=true"), "").await.status();
    list == 200 && watch == 200
}

/// A selector that is almost as long as one of a shared resource may be.
fn long_selector(n: usize) -> String {
    (0..14).map(|key| format!("{n}-{key}-{}", "b".repeat(50))).collect::<Vec<_>>().join(",")
}

/// Opens watches until one is refused; all of them stay open. `None`: none is.
async fn refused(
    weir: &Daemon,
    most: usize,
    watch: impl Fn(usize) -> (Client, String),
) -> (Vec<Response<Incoming>>, Option<String>) {
    let mut open = Vec::new();
    for n in 0..most {
        let (client, path) = watch(n);
        let answer = client.send(Method::GET, &path, "").await;
        if answer.status() == 429 {
            assert!(answer.headers().contains_key("retry-after"));
            let body = answer.into_body().collect().await.unwrap().to_bytes();
            weir.logged("request refused").await;
            return (open, Some(String::from_utf8_lossy(&body).into_owned()));
        }
        assert_eq!(answer.status(), 200);
        open.push(answer);
    }
    (open, None)
}

/// Sends a request as client-go does: again after what `Retry-After` says, and only if the answer says it.
async fn retried(client: &Client, path: &str) {
    let served = async {
        loop {
            let answer = client.send(Method::GET, path, "").await;
            if answer.status() == 200 {
                return;
            }
            let after = answer.headers().get("retry-after").expect("client-go gives up without it");
            tokio::time::sleep(Duration::from_secs(after.to_str().unwrap().parse().unwrap())).await;
        }
    };
    tokio::time::timeout(2 * PATIENCE, served).await.expect("the share is given back");
}

fn file_size(cache: &Path) -> u64 {
    cache.join("watch-cache.redb").metadata().map_or(0, |file| file.len())
}

#[tokio::test]
async fn parameters_of_openapi_name_nothing_that_is_remembered() {
    let folder = tempfile::tempdir().unwrap();
    let cache = folder.path().join("cache");
    let (server, weir) = shipped(3, &cache, false).await;
    let text: String = (0..1_u64 << 16).map(|n| format!("{:016x}", n.wrapping_mul(0x9e37_79b9_7f4a_7c15))).collect();
    let body = Bytes::from(text);
    server.on_request(move |request| match request.path.starts_with("/openapi") {
        true => Action::answer(200, "application/json", body.clone()),
        false => Action::Serve,
    });
    let node = reads(&weir).await;
    let before = weir.resident();
    let client = tenant(&weir, "tool");
    let gets = stream::iter(0..400).map(|n| {
        let client = client.clone();
        async move { client.get(&format!("/openapi/v2?x={n}")).await.status }
    });
    let statuses: Vec<_> = gets.buffer_unordered(40).collect().await;
    assert!(statuses.iter().all(|status| *status == 200));
    node.end().await;
    assert!(serves_node(&weir).await);
    weir.settles_at(before + SHARE).await;
    // A commit follows each change; what is on disk has been written by now, or is on its way.
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(file_size(&cache) < 40 << 20, "{} bytes", file_size(&cache));
}

#[tokio::test]
async fn selectors_name_stores_within_the_share_of_their_user() {
    let folder = tempfile::tempdir().unwrap();
    let (server, weir) = shipped(3, &folder.path().join("cache"), false).await;
    let node = reads(&weir).await;
    let before = weir.resident();
    // What is parsed of a long selector is many times its text: no view keeps it, that of a shared resource neither.
    let long = format!("{SERVICES}&labelSelector={}", ["long"; 300].join(","));
    assert_eq!(tenant(&weir, "tool").get(&long).await.status, 200);
    assert!(server.requests().iter().any(|request| request.query.contains("labelSelector=long")));
    // Lists go to the API server: they open no store.
    let client = tenant(&weir, "tool");
    for n in 0..200 {
        let selector = format!("a{n}%3D{}", "b".repeat(45_000));
        client.get(&format!("/api/v1/pods?resourceVersion=0&labelSelector={selector}")).await;
        client.get(&format!("/api/v1/pods?resourceVersion=0&labelSelector=a{n}")).await;
    }
    weir.settles_at(before).await;
    // The share is used up before the number of views is, also once all stores are filled.
    let path = |n: usize| format!("/api/v1/pods?watch=true&resourceVersion=0&labelSelector={}", long_selector(n));
    let (open, refusal) = refused(&weir, 1200, |n| (tenant(&weir, "tool"), path(n))).await;
    let refusal = refusal.expect("a share is used up before that");
    assert!(refusal.contains("share of Weir's memory"), "{refusal}");
    assert!(serves_node(&weir).await, "{} watches are open", open.len());
    node.end().await;
    weir.settles_at(before + SHARE).await;
    // A store takes more while it is filled than after that.
    let (more, refusal) = refused(&weir, 100, |n| (tenant(&weir, "tool"), path(5000 + n))).await;
    assert!(refusal.is_some(), "{} more watches are open, after {}", more.len(), open.len());
    assert_eq!(weir.log_text().matches("request refused").count(), 1, "once a minute");
    let line = weir.logged("request refused").await["fields"].take();
    assert_eq!((&line["component"], &line["client"]), (&json!("tool"), &json!("127.0.0.1")), "{line}");
    assert!(line["error"].as_str().unwrap().contains("share of Weir's memory"), "{line}");
    assert!(!weir.log_text().contains("mallory"));
    drop((open, more));
    retried(&tenant(&weir, "tool"), &path(9999)).await;
}

#[tokio::test]
async fn user_agents_name_no_views_and_their_watches_are_within_the_share_of_their_user() {
    let folder = tempfile::tempdir().unwrap();
    let (_server, weir) = shipped(2000, &folder.path().join("cache"), false).await;
    let node = reads(&weir).await;
    let before = weir.resident();
    for n in 0..300 {
        let answer = tenant(&weir, &format!("tool-{n}")).get(SERVICES).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
    }
    let caches = weir.admin().json("/caches").await;
    let stores = caches["stores"].as_array().unwrap();
    let services = stores.iter().find(|store| store["path"] == "/api/v1/services").unwrap();
    assert_eq!(services["views"].as_array().unwrap().len(), 1, "no filter applies to any: {services:#}");
    weir.settles_at(before + SHARE).await;
    let path = format!("{SERVICES}&watch=true&labelSelector={}", long_selector(0));
    let (open, refusal) = refused(&weir, 1500, |n| (tenant(&weir, &format!("other-{n}")), path.clone())).await;
    assert!(refusal.is_some(), "{} watches are open", open.len());
    node.end().await;
    assert!(serves_node(&weir).await);
    assert_eq!(weir.client("b").with("authorization", "Bearer bob").get(SERVICES).await.status, 200);
    drop(open);
    let served = async {
        while tenant(&weir, "again").send(Method::GET, &path, "").await.status() != 200 {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::time::timeout(PATIENCE, served).await.expect("the share is given back");
    weir.settles_at(before + SHARE).await;
}

#[tokio::test]
async fn garbage_tokens_leave_nothing_on_disk() {
    let folder = tempfile::tempdir().unwrap();
    let cache = folder.path().join("cache");
    let (_server, weir) = shipped(3, &cache, true).await;
    let node = reads(&weir).await;
    let before = weir.resident();
    let size = file_size(&cache);
    let gets = stream::iter(0..5000).map(|n| {
        let client = weir.client("tool").with("authorization", &format!("Bearer garbage-{n}"));
        async move { (client.get("/version").await.status, client.get(SERVICES).await.status) }
    });
    gets.buffer_unordered(40).collect::<Vec<_>>().await;
    node.end().await;
    assert!(serves_node(&weir).await);
    // Removals of names that were never stored write nothing: flash wears. A second is more than the interval of commits.
    let commits = weir.metric("weir_cache_commits_total").await;
    for round in 0..6 {
        for n in 0..10 {
            let client = weir.client("tool").with("authorization", &format!("Bearer garbage-{round}-{n}"));
            for path in ["/version", "/api/v1/namespaces/default/services/service-1"] {
                assert_eq!(client.get(path).await.status, 401, "{path}");
            }
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    let more = weir.metric("weir_cache_commits_total").await - commits;
    assert!(more <= 2.0, "{more} commits");
    weir.settles_at(before + SHARE).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(file_size(&cache) <= size + (2 << 20), "{size} before, {} after", file_size(&cache));
}

#[tokio::test]
async fn lists_that_one_user_begins_at_a_time_take_its_share_while_they_arrive() {
    let folder = tempfile::tempdir().unwrap();
    let (server, weir) = shipped(3, &folder.path().join("cache"), false).await;
    for n in 0..2000 {
        let mut pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"namespace": "default", "name": format!("pod-{n}")}});
        pod["metadata"]["annotations"]["a"] = "x".repeat(8 << 10).into();
        server.store().put(pod).unwrap();
    }
    let node = reads(&weir).await;
    let before = weir.resident();
    let path = |n: usize| format!("/api/v1/pods?watch=true&resourceVersion=0&labelSelector=x%21%3D{n}");
    let watches = stream::iter(0..40).map(|n| {
        let client = tenant(&weir, "tool");
        let path = path(n);
        async move { client.send(Method::GET, &path, "").await }
    });
    let mut watches = std::pin::pin!(watches.buffer_unordered(40).collect::<Vec<_>>());
    let mut most = before;
    let open = loop {
        tokio::select! {
            open = &mut watches => break open,
            () = tokio::time::sleep(Duration::from_millis(20)) => most = most.max(weir.resident()),
        }
    };
    assert!(most.max(weir.resident()) <= before + 4.0 * SHARE, "{before:.1} MiB before, {most:.1} MiB at most");
    assert!(open.iter().all(|answer| matches!(answer.status().as_u16(), 200 | 429)));
    weir.logged("its list exceeds what is left").await;
    node.end().await;
    assert!(serves_node(&weir).await);
}
