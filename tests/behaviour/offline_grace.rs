//! The hours after `--offline-grace`: node components get what is on disk as before, and everybody else learns why not.

use weir_apiserver::ApiServer;
use weir_tests::client::{Client, PATIENCE};
use weir_tests::daemon::{Daemon, Setup};
use weir_tests::edge::api_server;
use weir_tests::link::Link;
use weir_tests::machine::Machine;

const SERVICES: &str = "/api/v1/services?resourceVersion=0";
const YEAR: i64 = 365 * 24 * 3600;

/// A node with a kube-proxy, whose token is that of its service account, and a tenant.
struct Node {
    server: ApiServer,
    link: Link,
    machine: Machine,
    cache: tempfile::TempDir,
}

impl Node {
    /// `None` without a C compiler, which the machine needs.
    async fn new() -> Option<Self> {
        let machine = Machine::new()?;
        let builder = api_server().known_tokens_only();
        let builder = builder.token("proxy", "system:serviceaccount:kube-system:kube-proxy", &[]);
        let server = builder.token("tenant", "tenant", &[]).start().await.unwrap();
        server.store().load(include_str!("../demo/cluster.yaml")).unwrap();
        let link = Link::to(&server).await;
        Some(Self { server, link, machine, cache: tempfile::tempdir().unwrap() })
    }

    async fn start(&self) -> Daemon {
        let setup = Setup::new(&self.link.url()).on_disk(self.cache.path()).filters("filters: []");
        self.machine.run(setup.flag("--offline-grace", "5s"), self.cache.path()).start_ready().await
    }
}

fn client(weir: &Daemon, token: &str) -> Client {
    weir.client("tool").with("authorization", &format!("Bearer {token}"))
}

async fn status(weir: &Daemon, token: &str) -> u16 {
    client(weir, token).get(SERVICES).await.status.as_u16()
}

/// Waits until a client gets this answer.
async fn gets(weir: &Daemon, token: &str, wanted: u16) {
    let got = async {
        while status(weir, token).await != wanted {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    assert!(tokio::time::timeout(PATIENCE, got).await.is_ok(), "{token} {wanted}: {}", weir.log_text());
}

#[tokio::test]
async fn after_the_grace_node_components_go_on_and_others_get_the_reason() {
    let Some(mut node) = Node::new().await else { return };
    let weir = node.start().await;
    for token in ["proxy", "tenant"] {
        assert_eq!(status(&weir, token).await, 200);
    }
    node.link.down().await;
    weir.logged("the API server is down").await;
    assert_eq!([status(&weir, "proxy").await, status(&weir, "tenant").await], [200, 200]);
    // What the API server said of them within minutes holds for as long. A start does without.
    weir.stop().await;
    let weir = node.start().await;
    gets(&weir, "tenant", 503).await;
    let text = client(&weir, "tenant").get(SERVICES).await.text();
    assert!(text.contains("--offline-grace=5s ended") && text.contains("unknown since 20"), "{text}");
    assert_eq!(status(&weir, "proxy").await, 200);
    assert_eq!(weir.metric("weir_offline_grace_left_seconds").await, 0.0);
    assert!(weir.metric("weir_offline_seconds").await >= 5.0);
    let ready = weir.admin().get("/readyz?verbose").await.text();
    assert!(ready.contains("[!] grace: clients other than node components have lost their permissions"), "{ready}");
    assert!(ready.contains("[!] offline: what is served is") && ready.ends_with("ok\n"), "{ready}");

    weir.stop().await;

    // Neither a restart nor a clock restarts the grace period, or ends permissions that do not expire.
    for ahead in [0, YEAR] {
        node.machine.put_clock_ahead(ahead);
        weir_stopped_and_started(&node).await;
    }
    node.machine.put_clock_ahead(0);
    let weir = node.start().await;
    node.link.up().await;
    gets(&weir, "tenant", 200).await;
    assert_eq!(node.server.store().list("v1", "Service").len(), client(&weir, "tenant").names(SERVICES).await.len());
}

async fn weir_stopped_and_started(node: &Node) {
    let weir = node.start().await;
    gets(&weir, "proxy", 200).await;
    gets(&weir, "tenant", 503).await;
    weir.stop().await;
}
