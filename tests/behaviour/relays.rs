//! A Weir whose own way to the API server is down goes through a peer.

use std::net::Ipv4Addr;
use std::time::Instant;

use http::{Method, StatusCode};
use serde_json::{Value, json};
use tokio::io::AsyncReadExt as _;
use weir_apiserver::ApiServer;
use weir_tests::client::{Client, PATIENCE, whole};
use weir_tests::daemon::{Daemon, Setup};
use weir_tests::edge::api_server;
use weir_tests::link::Link;
use weir_tests::network::{self, SERVER};

use super::peers::Pool;
use super::service;
use super::uplinks::Site;

const SERVICES: &str = "/api/v1/services";
const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/edge-0";
/// Several renewals of a Lease, as kubelet sends them.
const REQUESTS: usize = 20;

/// An API server with TLS in the test's namespace, to which each node has an uplink of its own.
struct Uplinks {
    site: Site,
    server: ApiServer,
}

impl Uplinks {
    async fn new(nodes: u8) -> Self {
        let site = Site::new(nodes);
        let pair = site.ca.server_at([SERVER.to_string()]);
        let builder = api_server().address((Ipv4Addr::UNSPECIFIED, 0).into());
        let server = builder.tls(pair.certificate, pair.key).start().await.unwrap();
        server.store().put(service("first", "ClusterIP")).unwrap();
        let metadata = json!({"name": "edge-0", "namespace": "kube-node-lease"});
        let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata});
        server.store().put(lease).unwrap();
        Self { site, server }
    }

    async fn start(&self, index: usize) -> Daemon {
        let server = format!("https://{SERVER}:{}", self.server.address().port());
        let setup = self.site.setup(index, &server).flag("--cache-resources", "services");
        setup.file("--certificate-authority", "ca.crt", self.site.ca.pem()).start_ready().await
    }

    /// Sends reads and renewals that all have to reach the API server.
    async fn all_pass(&self, client: &Client, round: &str) {
        for number in 0..REQUESTS {
            client.json(SERVICES).await;
            assert_eq!(renew(client, &format!("{round}-{number}")).await, 200, "{round} {number}");
            let lease = self.server.store().get("coordination.k8s.io/v1", "Lease", "kube-node-lease", "edge-0");
            assert_eq!(lease.unwrap()["spec"]["holderIdentity"], format!("{round}-{number}"));
        }
    }
}

/// kubelet's patch of its Lease. Returns the code of the answer.
async fn renew(client: &Client, holder: &str) -> u16 {
    let body = json!({"spec": {"holderIdentity": holder}}).to_string();
    let client = client.clone().with("content-type", "application/merge-patch+json");
    whole(client.send(Method::PATCH, LEASE, body).await).await.unwrap().status.as_u16()
}

/// Repeats a renewal until one passes, as kubelet does.
async fn renewed(client: &Client) {
    let begun = Instant::now();
    loop {
        match renew(client, "again").await {
            200 => return,
            code => assert!(begun.elapsed() < PATIENCE, "{code}"),
        }
        tokio::time::sleep(std::time::Duration::from_millis(200)).await;
    }
}

#[test]
fn a_node_without_an_uplink_goes_through_a_neighbour() {
    network::in_own_network("behaviour::relays::a_neighbour_relays");
}

#[tokio::test]
#[ignore = "makes interfaces: `a_node_without_an_uplink_goes_through_a_neighbour` runs it in a network namespace"]
async fn a_neighbour_relays() {
    network::expect_own_network();
    let uplinks = Uplinks::new(3).await;
    let (first, second) = (uplinks.start(0).await, uplinks.start(1).await);
    let network = &uplinks.site.networks[0];
    let client = first.client("kubelet");
    first.client("kube-proxy").json(&format!("{SERVICES}?resourceVersion=0")).await;
    first.settled(&uplinks.server).await;
    let list = first.client("kube-proxy").json(&format!("{SERVICES}?resourceVersion=0")).await;
    let version = list["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
    let watch = format!("{SERVICES}?watch=true&resourceVersion={version}");
    let mut events = first.client("kube-proxy").watch(&watch).await;
    uplinks.all_pass(&client, "direct").await;
    assert_eq!(relayed(&second).await, 0.0);

    let begun = Instant::now();
    network.cut_uplink();
    renewed(&client).await;
    println!("relayed {:.1} s after the cut", begun.elapsed().as_secs_f64());
    uplinks.all_pass(&client, "relayed").await;
    first.logged("no API server is reached directly: requests go through the peer").await;
    assert_eq!(first.metric("weir_relay_up{peer=\"edge-1\"}").await, 1.0);
    assert_eq!(first.admin().json("/caches").await["offlineSince"], Value::Null);
    assert!(relayed(&second).await > 10_000.0);
    assert!(second.metric("weir_relay_tunnels{peer=\"edge-0\"}").await >= 1.0);
    uplinks.server.store().put(service("second", "ClusterIP")).unwrap();
    assert_eq!(events.next_named().await, "ADDED second");

    // The neighbour dies, with watches open through it. That of a view goes on when it is back, a forwarded one ends.
    let mut forwarded = client.watch("/api/v1/configmaps?watch=true").await;
    let metadata = json!({"name": "late", "namespace": "default"});
    uplinks.server.store().put(json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})).unwrap();
    while forwarded.next_named().await != "ADDED late" {}
    let begun = Instant::now();
    second.kill().await;
    while matches!(forwarded.try_next().await, Ok(Some(_))) {}
    assert!(begun.elapsed() < PATIENCE / 2, "{:?}", begun.elapsed());
    first.logged("the peer does not relay to the API server").await;
    let begun = Instant::now();
    assert_eq!(renew(&client, "nobody").await, 503);
    assert!(begun.elapsed() < PATIENCE / 10, "{:?}", begun.elapsed());
    uplinks.server.store().put(service("third", "ClusterIP")).unwrap();
    let third = uplinks.start(2).await;
    renewed(&client).await;
    assert_eq!(events.next_named().await, "ADDED third");
    assert_eq!(first.metric("weir_relay_up{peer=\"edge-2\"}").await, 1.0);

    // One neighbour is used at a time, each time the first that works.
    let second = uplinks.start(1).await;
    first.logged("requests go through another peer").await;
    assert_eq!(first.metric("weir_relay_up{peer=\"edge-1\"}").await, 1.0);
    assert_eq!(first.metric("weir_relay_up{peer=\"edge-2\"}").await, 0.0);
    uplinks.all_pass(&client, "again").await;

    // The way back is direct.
    network.mend_uplink();
    first.logged("an API server is reached directly again").await;
    assert_eq!(first.metric("weir_relay_up{peer=\"edge-1\"}").await, 0.0);
    let (uplink, neighbour) = (network.uplink_bytes(), uplinks.site.networks[1].uplink_bytes());
    uplinks.all_pass(&client, "mended").await;
    let (uplink, neighbour) = (network.uplink_bytes() - uplink, uplinks.site.networks[1].uplink_bytes() - neighbour);
    assert!(neighbour < uplink / 4, "{neighbour} bytes still go through the neighbour, {uplink} directly");

    // A neighbour without an uplink of its own does not relay: there are no chains.
    for network in &uplinks.site.networks {
        network.cut_uplink();
    }
    for weir in [&first, &second, &third] {
        assert!(renew(&weir.client("kubelet"), "nobody").await >= 500);
    }
    first.logged("it answers 503 Service Unavailable").await;
}

/// The bytes that a Weir has relayed for the first node.
async fn relayed(weir: &Daemon) -> f64 {
    let metrics = weir.admin().get("/metrics").await.text();
    let lines = metrics.lines().filter(|line| line.starts_with("weir_relay_bytes_total{peer=\"edge-0\""));
    lines.map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap()).sum()
}

/// One Weir of a pool, and an API server with TLS behind a link.
struct Relay {
    pool: Pool,
    server: ApiServer,
    link: Link,
    weir: Daemon,
}

impl Relay {
    async fn new(number: u32, more: impl FnOnce(Setup) -> Setup) -> Self {
        let pool = Pool::new(number);
        let pair = pool.ca().server();
        let server = api_server().tls(pair.certificate, pair.key).start().await.unwrap();
        let link = Link::to(&server).await;
        let url = link.url();
        let setup =
            pool.setup(&url, 0).filters("filters: []").file("--certificate-authority", "ca.crt", pool.ca().pem());
        let weir = more(setup).start_ready().await;
        Self { pool, server, link, weir }
    }

    /// The API server, as the Weir's configuration names it.
    fn target(&self) -> String {
        self.link.url().replace("https://", "")
    }

    fn peer(&self) -> Client {
        self.pool.node_http1(0, "edge-b")
    }
}

#[tokio::test]
async fn only_peers_get_connections_and_only_to_the_api_server() {
    let mut relay = Relay::new(50, |setup| setup).await;
    let target = relay.target();
    let refused = |client: Client, target: String| async move { client.connect(&target).await.err() };
    assert_eq!(refused(relay.peer(), target.clone()).await, None);
    let admin = relay.weir.admin_url().replace("http://", "");
    let (server, plain) = (relay.server.address().to_string(), relay.weir.url().to_owned());
    let forbidden = Some(StatusCode::FORBIDDEN);
    for target in [admin.as_str(), server.as_str(), "127.0.0.1:1", "example.com:443", "[::1]:6443"] {
        assert_eq!(refused(relay.peer(), target.to_owned()).await, forbidden, "{target}");
    }
    for client in [
        relay.pool.node_http1(0, "edge-x"),
        relay.pool.anonymous_http1(0),
        Client::new(&plain, "weir"),
        relay.pool.node_http1(0, "edge-a"),
    ] {
        assert_eq!(refused(client, target.clone()).await, forbidden);
    }
    relay.link.down().await;
    relay.weir.client("kubectl").get(SERVICES).await;
    relay.weir.logged("the API server is down").await;
    assert_eq!(refused(relay.peer(), target).await, Some(StatusCode::SERVICE_UNAVAILABLE));
}

#[tokio::test]
async fn a_relay_rate_of_0_turns_relays_off() {
    let relay = Relay::new(51, |setup| setup.flag("--relay-rate", "0")).await;
    let answer = relay.peer().connect(&relay.target()).await;
    assert_eq!(answer.err(), Some(StatusCode::METHOD_NOT_ALLOWED));
}

#[tokio::test]
async fn the_connections_of_a_peer_are_bounded_and_a_silent_one_ends() {
    let relay = Relay::new(52, |setup| setup).await;
    let (peer, target) = (relay.peer(), relay.target());
    let mut tunnels = Vec::new();
    let refusal = loop {
        match peer.connect(&target).await {
            Ok(tunnel) => tunnels.push(tunnel),
            Err(status) => break status,
        }
    };
    assert_eq!((refusal, tunnels.len()), (StatusCode::SERVICE_UNAVAILABLE, 64));
    // Nothing was sent through them. They end, and others may open.
    for mut tunnel in tunnels {
        let ended = tokio::time::timeout(PATIENCE, tunnel.read(&mut [0; 16])).await;
        assert!(matches!(ended, Ok(Ok(0) | Err(_))), "{ended:?}");
    }
    assert_eq!(peer.connect(&target).await.err(), None);
}
