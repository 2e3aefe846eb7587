//! A boot without the API server, where the daemon's own credential cannot be had either: it serves what is on disk, and goes
//! online without a restart.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use weir_apiserver::ApiServer;
use weir_tests::client::PATIENCE;
use weir_tests::daemon::{Daemon, Setup, replace};
use weir_tests::link::Link;
use weir_tests::pki::{Authority, kubeconfig};

use super::offline::committed;
use super::secure::secure_edge;
use super::{NO_LOAD_BALANCERS, service};

const SERVICES: &str = "/api/v1/services?resourceVersion=0";

/// A node whose kubeconfig has an exec plugin. A file controls the plugin.
struct Node {
    server: ApiServer,
    link: Link,
    folder: tempfile::TempDir,
    kubeconfig: String,
}

impl Node {
    async fn new() -> Self {
        let ca = Authority::new("cluster");
        let server = secure_edge(&ca.server(), None).await;
        let link = Link::to(&server).await;
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name).display().to_string();
        let plugin = format!(
            r#"while [ "$(cat {state})" = hangs ]; do sleep 0.05; done
[ "$(cat {state})" = works ] || {{ echo no network >&2; exit 1; }}
echo '{{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{{"token":"t"}}}}'"#,
            state = path("state")
        );
        std::fs::write(path("plugin.sh"), plugin).unwrap();
        let user = format!(
            "exec: {{apiVersion: client.authentication.k8s.io/v1, command: sh, args: [{}], interactiveMode: Never}}",
            path("plugin.sh")
        );
        let kubeconfig = kubeconfig(&link.url(), ca.pem(), &user);
        let node = Self { server, link, folder, kubeconfig };
        node.restore();
        node
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn plugin(&self, state: &str) {
        replace(&self.path("state"), state.as_bytes());
    }

    fn restore(&self) {
        self.plugin("works");
        replace(&self.path("kubeconfig"), self.kubeconfig.as_bytes());
    }

    fn setup(&self) -> Setup {
        let cache: &Path = &self.path("cache");
        let setup = Setup::kubeconfig(&self.path("kubeconfig")).on_disk(cache);
        setup.filters(NO_LOAD_BALANCERS).bundled("discardcloudservice")
    }

    /// Starts the daemon. Returns what it serves, and how long it took until it answered on all ports.
    async fn boot(&self) -> (Daemon, Vec<String>, Duration) {
        let began = Instant::now();
        let weir = self.setup().start().await;
        assert_eq!(weir.admin().get("/livez").await.status, 200);
        let names = weir.client("kube-proxy").names(SERVICES).await;
        (weir, names, began.elapsed())
    }
}

async fn serves_from_disk_and_goes_online(breaks: impl FnOnce(&Node)) {
    let mut node = Node::new().await;
    let weir = node.setup().start_ready().await;
    assert_eq!(weir.client("kube-proxy").names(SERVICES).await, ["dashboard", "kubernetes", "web"]);
    committed(&node.server, &weir).await;
    assert_eq!(weir.stop().await, Some(0));
    node.link.down().await;
    let (weir, names, usual) = node.boot().await;
    assert_eq!(names, ["dashboard", "kubernetes", "web"]);
    assert_eq!(weir.stop().await, Some(0));

    breaks(&node);
    node.server.clear_requests();
    let (weir, names, took) = node.boot().await;
    assert_eq!(names, ["dashboard", "kubernetes", "web"], "{}", weir.log_text());
    println!("first list after {took:?}, with a credential after {usual:?}");
    assert!(took < usual * 4 + Duration::from_secs(1), "{took:?} instead of {usual:?}");
    weir.logged("it serves what is on disk").await;

    node.link.up().await;
    node.server.store().put(service("new", "ClusterIP")).unwrap();
    node.restore();
    weir.logged("reloaded credential").await;
    let online = async {
        while !weir.client("kube-proxy").names(SERVICES).await.contains(&"new".to_owned()) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    if tokio::time::timeout(PATIENCE, online).await.is_err() {
        panic!("it stays offline: {}", weir.log_text());
    }
    let own = node.server.requests();
    // A client's credential is asked about with itself.
    let is_own = |request: &&weir_apiserver::Recorded| {
        request.header("user-agent").starts_with("weir/") && !request.path.ends_with("reviews")
    };
    let mut own = own.iter().filter(is_own);
    assert!(own.all(|request| request.path == "/readyz" || request.header("authorization") == "Bearer t"));
}

#[tokio::test]
async fn with_an_exec_plugin_that_fails() {
    serves_from_disk_and_goes_online(|node| node.plugin("fails")).await;
}

#[tokio::test]
async fn with_an_exec_plugin_that_hangs() {
    serves_from_disk_and_goes_online(|node| node.plugin("hangs")).await;
}

#[tokio::test]
async fn with_a_torn_kubeconfig() {
    serves_from_disk_and_goes_online(|node| {
        let torn = &node.kubeconfig[..node.kubeconfig.len() / 2];
        std::fs::write(node.path("kubeconfig"), torn).unwrap();
    })
    .await;
}

#[tokio::test]
async fn without_a_kubeconfig_or_with_an_empty_one() {
    serves_from_disk_and_goes_online(|node| std::fs::write(node.path("kubeconfig"), "").unwrap()).await;
    serves_from_disk_and_goes_online(|node| std::fs::remove_file(node.path("kubeconfig")).unwrap()).await;
}

#[tokio::test]
async fn with_a_damaged_certificate() {
    serves_from_disk_and_goes_online(|node| {
        let damaged =
            node.kubeconfig.replace("exec: {", "client-certificate-data: bm9uZQ==, client-key-data: bm9uZQ==, x: {");
        std::fs::write(node.path("kubeconfig"), damaged).unwrap();
    })
    .await;
}
