//! A daemon that starts with a warm disk while its link drops packets: nothing is refused, and nothing answers.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde_json::json;
use weir_apiserver::{ApiServer, Enforce};
use weir_tests::client::{Client, PATIENCE};
use weir_tests::daemon::{Daemon, Setup, manifest};
use weir_tests::link::Link;
use weir_tests::until;

use super::{edge, only, service};

const OBJECTS: usize = 10_000;
const SERVICES: &str = "/api/v1/services?resourceVersion=0";
/// The time in which three probes find that a server does not answer is longer.
const PROBED: Duration = Duration::from_secs(3);

struct Node {
    server: ApiServer,
    link: Link,
    cache: tempfile::TempDir,
}

impl Node {
    async fn new(services: usize) -> Self {
        let server = edge().await;
        server.store().load(&manifest(&only("discardcloudservice", ""))).unwrap();
        for n in 0..services {
            let mut service = service(&format!("service-{n:05}"), "ClusterIP");
            service["metadata"]["annotations"] = json!({"description": "x".repeat(400)});
            server.store().put(service).unwrap();
        }
        let link = Link::to(&server).await;
        Self { server, link, cache: tempfile::tempdir().unwrap() }
    }

    async fn start(&self) -> Daemon {
        let setup = Setup::new(&self.link.url()).bundled("discardcloudservice");
        setup.on_disk(self.cache.path()).start().await
    }

    fn outage(&self) -> PathBuf {
        self.cache.path().join("offline-since")
    }
}

/// A client that must be authorized.
fn client(weir: &Daemon, token: &str) -> Client {
    weir.client("kube-proxy").with("authorization", &format!("Bearer {token}"))
}

/// The time from the start of the process to the last byte of the first list, and the number of objects.
async fn first_list(node: &Node) -> (Duration, usize, Daemon) {
    let started = Instant::now();
    let weir = node.start().await;
    let answer = client(&weir, "a").get(SERVICES).await;
    let took = started.elapsed();
    assert_eq!(answer.status, 200, "{}: {}", answer.text(), weir.log_text());
    let objects = answer.json()["items"].as_array().unwrap().len();
    (took, objects, weir)
}

#[tokio::test]
async fn the_first_list_after_a_restart_does_not_wait_for_a_silent_api_server() {
    let mut node = Node::new(OBJECTS).await;
    let (_, objects, weir) = first_list(&node).await;
    assert!(objects >= OBJECTS);
    assert_eq!(weir.stop().await, Some(0));
    let (reached, _, weir) = first_list(&node).await;
    assert_eq!(weir.stop().await, Some(0));
    node.link.silent().await;
    let (silent, offline, weir) = first_list(&node).await;
    println!(
        "first list of {objects} objects: {reached:?} after a start, {silent:?} after one with a silent API server"
    );
    assert_eq!(offline, objects);
    assert!(silent < reached + PROBED / 2, "{silent:?} instead of {reached:?}: {}", weir.log_text());
    assert_eq!(client(&weir, "b").get(SERVICES).await.status, 503, "only those who were allowed before");
    drop(node.server);
}

#[tokio::test]
async fn a_permission_of_before_the_start_ends_when_the_api_server_answers() {
    let mut node = Node::new(0).await;
    let weir = node.start().await;
    assert_eq!(client(&weir, "a").get(SERVICES).await.status, 200);
    assert_eq!(weir.stop().await, Some(0));
    node.link.silent().await;
    node.server.set_policy(|_| false);
    node.server.enforce(Enforce::Token("a".to_owned()));
    let weir = node.start().await;
    assert_eq!(client(&weir, "a").get(SERVICES).await.status, 200);
    node.link.down().await;
    node.link.up().await;
    let revoked = async {
        loop {
            match client(&weir, "a").get(SERVICES).await.status.as_u16() {
                200 => tokio::time::sleep(Duration::from_millis(5)).await,
                status => return status,
            }
        }
    };
    assert_eq!(tokio::time::timeout(PATIENCE, revoked).await, Ok(403));
}

#[tokio::test]
async fn an_outage_that_outlasts_the_daemon_is_known_after_one_probe() {
    let mut node = Node::new(0).await;
    let weir = node.start().await;
    assert_eq!(client(&weir, "a").get(SERVICES).await.status, 200);
    node.link.silent().await;
    let refused = Instant::now();
    assert_eq!(client(&weir, "a").get("/api/v1/namespaces").await.status, 503);
    let first = refused.elapsed();
    let since = weir.admin().json("/caches").await["offlineSince"].clone();
    until!(node.outage().exists());
    weir.kill().await;
    let weir = node.start().await;
    let started = Instant::now();
    assert_eq!(client(&weir, "a").get("/api/v1/namespaces").await.status, 503);
    let after_restart = started.elapsed();
    println!("the first request waits {first:?}, after a restart {after_restart:?}");
    assert!(after_restart < first / 2, "{after_restart:?} instead of {first:?}");
    assert_eq!(weir.admin().json("/caches").await["offlineSince"], since, "the outage is the same");
    node.link.down().await;
    node.link.up().await;
    weir.logged("the API server is up again").await;
    until!(!node.outage().exists());
}
