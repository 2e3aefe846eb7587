//! Discovery without the API server: kubectl starts on a node where nobody has used it, and nobody learns more than online.

use std::process::Stdio;

use serde_json::Value;
use tokio::process::Command;
use weir_apiserver::ApiServer;
use weir_tests::client::{Client, PATIENCE};
use weir_tests::daemon::{Daemon, Setup};
use weir_tests::link::Link;
use weir_tests::pki::kubeconfig;
use weir_tests::plane::skipped;
use weir_tests::until;

use super::edge;
use super::offline::committed;

const SERVICES: &str = "/api/v1/services?resourceVersion=0";
const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
/// As kubectl 1.34.
const KUBECTL: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,\
    application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json";

struct Node {
    server: ApiServer,
    link: Link,
    cache: tempfile::TempDir,
}

impl Node {
    async fn new() -> Self {
        let server = edge().await;
        let link = Link::to(&server).await;
        Self { server, link, cache: tempfile::tempdir().unwrap() }
    }

    /// Local clients have the credential of the node.
    async fn start(&self) -> Daemon {
        let node = kubeconfig(&self.link.url(), "", "token: node");
        let setup = Setup::new(&self.link.url()).filters("filters: []").on_disk(self.cache.path());
        setup.file("--node-kubeconfig", "node.yaml", &node).start_ready().await
    }

    /// Waits until Weir has fetched its last document.
    async fn fetched(&self, weir: &Daemon) {
        let mut requests = self.server.request_count();
        let fetched = async {
            let is_last = |target: String, agent: &str| target == "/version" && agent.starts_with("weir/");
            while !self.server.requests().iter().any(|sent| is_last(sent.target(), sent.header("user-agent"))) {
                requests.changed().await.unwrap();
            }
        };
        tokio::time::timeout(PATIENCE, fetched).await.unwrap();
        committed(&self.server, weir).await;
    }
}

async fn discover(client: &Client, path: &str, accept: &str, encoding: Option<&str>) -> (u16, String) {
    let client = client.clone().with("accept", accept);
    let client = match encoding {
        Some(encoding) => client.with("accept-encoding", encoding),
        None => client,
    };
    let answer = client.get(path).await;
    let kind = answer.headers.get("content-type").and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    (answer.status.as_u16(), kind.to_owned())
}

#[tokio::test]
async fn kubectl_starts_offline_on_a_node_where_nobody_has_used_it() {
    let mut node = Node::new().await;
    let weir = node.start().await;
    assert_eq!(weir.client("kube-proxy").names(SERVICES).await.len(), 4);
    node.fetched(&weir).await;
    assert_eq!(weir.stop().await, Some(0));
    node.link.down().await;
    let weir = node.start().await;
    let kubectl = weir.client("kubectl");
    for encoding in [None, Some("gzip"), Some("identity")] {
        for path in ["/api?timeout=32s", "/apis?timeout=32s"] {
            let answer = discover(&kubectl, path, KUBECTL, encoding).await;
            assert_eq!(answer, (200, AGGREGATED.to_owned()), "{path} {encoding:?}");
        }
        for path in ["/api", "/apis", "/version"] {
            let answer = discover(&kubectl, path, "application/json, */*", encoding).await;
            assert_eq!(answer, (200, "application/json".to_owned()), "{path} {encoding:?}");
        }
    }
    let groups = kubectl.clone().with("accept", KUBECTL).json("/apis").await;
    assert!(groups["items"].as_array().is_some_and(|items| items.len() > 3), "{groups}");
    // A token that the API server has never accepted gets no more than online, where it gets 401.
    let stranger = kubectl.clone().with("authorization", "Bearer made-up");
    assert_eq!(discover(&stranger, "/apis", KUBECTL, None).await.0, 503);
    prints_services(&weir).await;
}

/// kubectl, if it is installed.
async fn prints_services(weir: &Daemon) {
    let home = tempfile::tempdir().unwrap();
    let mut kubectl = Command::new("kubectl");
    kubectl.args(["get", "services", "--all-namespaces", "--server", weir.url()]);
    kubectl.env("HOME", home.path()).env("KUBECONFIG", home.path().join("none")).stdin(Stdio::null());
    let Ok(output) = tokio::time::timeout(PATIENCE, kubectl.kill_on_drop(true).output()).await.unwrap() else {
        skipped("there is no kubectl on PATH");
        return;
    };
    let (printed, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && printed.contains("dashboard"), "{printed}{errors}");
}

#[tokio::test]
async fn clients_without_a_credential_learn_offline_what_they_learnt_online() {
    let mut node = Node::new().await;
    let weir = Setup::new(&node.link.url()).filters("filters: []").start_ready().await;
    let (anonymous, accepted) = (weir.client("tool"), weir.client("tool").with("authorization", "Bearer mine"));
    assert_eq!(anonymous.get("/version").await.status, 200);
    assert_eq!(accepted.get("/apis").await.status, 200);
    node.link.down().await;
    until!(anonymous.get("/healthz").await.status == 503);
    assert_eq!(
        (anonymous.get("/version").await.status, anonymous.get("/apis").await.status.as_u16()),
        (http::StatusCode::OK, 503)
    );
    let discovery: Value = accepted.json("/apis").await;
    assert_eq!(discovery["kind"], "APIGroupList");
    assert_eq!(accepted.clone().with("authorization", "Bearer made-up").get("/apis").await.status, 503);
}
