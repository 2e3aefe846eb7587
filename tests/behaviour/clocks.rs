//! Machines whose clock is wrong: 1970 after a power cut, or years ahead.

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use http::Method;
use serde_json::json;
use weir_apiserver::ApiServer;
use weir_tests::client::{Client, whole};
use weir_tests::daemon::{Daemon, Setup};
use weir_tests::edge::grant_kubelets;
use weir_tests::link::Link;
use weir_tests::machine::Machine;
use weir_tests::pki::Authority;

use super::secure::secure_edge;

const SERVICES: &str = "/api/v1/services?resourceVersion=0";
const TOKEN: &str = "/api/v1/namespaces/default/serviceaccounts/web/token";
const YEAR: i64 = 365 * 24 * 3600;

/// Seconds from now to 1970.
fn to_1970() -> i64 {
    -i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()).unwrap()
}

struct Node {
    server: ApiServer,
    link: Link,
    machine: Machine,
    cache: tempfile::TempDir,
    ca: Authority,
    clients: Authority,
}

impl Node {
    /// `None` without a C compiler, which the machine needs.
    async fn new() -> Option<Self> {
        let machine = Machine::new()?;
        let server = super::edge().await;
        grant_kubelets(&server);
        let account =
            json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "web", "namespace": "default"}});
        server.store().put(account).unwrap();
        let link = Link::to(&server).await;
        let (ca, clients) = (Authority::new("weir"), Authority::new("clients"));
        Some(Self { server, link, machine, cache: tempfile::tempdir().unwrap(), ca, clients })
    }

    async fn start(&self) -> Daemon {
        let setup = Setup::new(&self.link.url())
            .filters("filters: []")
            .on_disk(self.cache.path())
            .tls(&self.ca.server())
            .file("--client-ca-file", "clients.crt", self.clients.pem());
        self.machine.run(setup, self.cache.path()).start_ready().await
    }

    async fn kubelet(&self, weir: &Daemon) -> Client {
        let pair = self.clients.client("system:node:edge-a", "system:nodes");
        Client::trusting(&weir.secure_url().await, "kubelet", Some(self.ca.pem()), Some(&pair))
    }
}

async fn token(kubelet: &Client) -> u16 {
    let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}).to_string();
    let kubelet = kubelet.clone().with("content-type", "application/json");
    whole(kubelet.send(Method::POST, TOKEN, request).await).await.unwrap().status.as_u16()
}

#[tokio::test]
async fn a_node_without_a_clock_serves_kubelet_without_the_api_server() {
    let Some(mut node) = Node::new().await else { return };
    let weir = node.start().await;
    let kubelet = node.kubelet(&weir).await;
    let names = kubelet.names(SERVICES).await;
    assert_eq!(token(&kubelet).await, 201);
    weir.logged("the API server reported the time").await;
    weir.stop().await;

    node.link.down().await;
    node.machine.put_clock_ahead(to_1970());
    let weir = node.start().await;
    weir.logged("the clock of this machine is wrong").await;
    // In 1970, the certificate of kubelet is not valid yet.
    let kubelet = node.kubelet(&weir).await;
    assert_eq!((kubelet.names(SERVICES).await, token(&kubelet).await), (names.clone(), 201));
    // Later somebody sets the clock.
    node.machine.put_clock_ahead(0);
    let kubelet = node.kubelet(&weir).await;
    assert_eq!((kubelet.names(SERVICES).await, token(&kubelet).await), (names, 201));
}

#[tokio::test]
async fn a_node_without_a_clock_trusts_the_certificate_of_the_api_server() {
    let Some(machine) = Machine::new() else { return };
    let (ca, cache) = (Authority::new("cluster"), tempfile::tempdir().unwrap());
    let server = secure_edge(&ca.server(), None).await;
    let setup = |cache: &Path| {
        let setup = Setup::new(server.url()).filters("filters: []");
        let setup = setup.flag("--cache-dir", &cache.display().to_string()).flag("--cache-size", "64Mi");
        machine.run(setup.file("--certificate-authority", "ca.crt", ca.pem()), cache)
    };
    let weir = setup(cache.path()).start_ready().await;
    assert_eq!(weir.client("tool").get("/api/v1/services").await.status, 200);
    weir.logged("the API server reported the time").await;
    weir.stop().await;
    machine.put_clock_ahead(to_1970());
    let weir = setup(cache.path()).start_ready().await;
    assert_eq!(weir.client("tool").get("/api/v1/services").await.status, 200);
    // A machine that never knew the time asks the server.
    let other = tempfile::tempdir().unwrap();
    let weir = setup(other.path()).start_ready().await;
    weir.logged("the API server reported the time").await;
    weir.logged("the API server is up again").await;
    assert_eq!(weir.client("tool").get("/api/v1/services").await.status, 200);
}

#[tokio::test]
async fn a_clock_that_was_years_ahead_costs_nothing_once_it_is_set() {
    let Some(mut node) = Node::new().await else { return };
    let weir = node.start().await;
    let kubelet = node.kubelet(&weir).await;
    let names = kubelet.names(SERVICES).await;
    assert_eq!(token(&kubelet).await, 201);
    weir.logged("the API server reported the time").await;
    node.link.down().await;
    weir.logged("the API server is down").await;

    node.machine.put_clock_ahead(200 * YEAR);
    assert_eq!(token(&kubelet).await, 503, "as if it had expired");
    node.machine.put_clock_ahead(0);
    assert_eq!((kubelet.names(SERVICES).await, token(&kubelet).await), (names.clone(), 201));

    // Between two runs, too.
    node.machine.put_clock_ahead(200 * YEAR);
    weir.stop().await;
    let weir = node.start().await;
    let kubelet = node.kubelet(&weir).await;
    // A node component's permissions do not expire. Its token does.
    assert_eq!((kubelet.names(SERVICES).await, token(&kubelet).await), (names.clone(), 503));
    node.machine.put_clock_ahead(0);
    let kubelet = node.kubelet(&weir).await;
    assert_eq!((kubelet.names(SERVICES).await, token(&kubelet).await), (names.clone(), 201));

    // A clock that goes back while the daemon runs is not believed: it has heard a later time.
    node.machine.put_clock_ahead(to_1970());
    let kubelet = node.kubelet(&weir).await;
    assert_eq!((kubelet.names(SERVICES).await, token(&kubelet).await), (names, 201));
    drop(node.server);
}
