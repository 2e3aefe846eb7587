//! Several Weirs of one pool: who reads over the uplink, and what peers give each other.

use std::net::Ipv4Addr;

use http::Method;
use weir_apiserver::{ApiServer, Recorded};
use weir_tests::client::{Client, names, whole};
use weir_tests::daemon::{Daemon, Setup};
use weir_tests::link::Link;
use weir_tests::pki::{Authority, certificate_user, kubeconfig};

use super::{NO_LOAD_BALANCERS, edge, service};

const SERVICES: &str = "/api/v1/services";
const NODES: [&str; 3] = ["edge-a", "edge-b", "edge-c"];
const PORT: u16 = 10_268;

/// The Weirs of a pool, each with its own address.
pub(super) struct Pool {
    ca: Authority,
    clients: Authority,
    /// The first of the three addresses.
    first: Ipv4Addr,
}

impl Pool {
    /// The process and `number` select the addresses, so that parallel tests do not collide.
    pub(super) fn new(number: u32) -> Self {
        let first = Ipv4Addr::from_bits(0x7f80_0000 | ((1 + std::process::id() % 0x3ffe) << 8) | (number << 2));
        Self { ca: Authority::new("cluster"), clients: Authority::new("clients"), first }
    }

    fn address(&self, index: usize) -> String {
        Ipv4Addr::from_bits(self.first.to_bits() + index as u32).to_string()
    }

    pub(super) fn url(&self, index: usize) -> String {
        format!("https://{}:{PORT}", self.address(index))
    }

    async fn start(&self, server: &str, index: usize) -> Daemon {
        let setup = self.setup(server, index).filters(NO_LOAD_BALANCERS).bundled("discardcloudservice");
        // The daemon would write to the API server by itself.
        let setup = setup.flag("--node-condition", "off");
        setup.flag("--cache-resources", "services").start_ready().await
    }

    /// The Weir of a node, which knows the others.
    pub(super) fn setup(&self, server: &str, index: usize) -> Setup {
        let node = self.clients.client(&format!("system:node:{}", NODES[index]), "system:nodes");
        let credential = certificate_user(&node);
        let peers: Vec<_> = (0..3).map(|index| format!("{}={}", NODES[index], self.url(index))).collect();
        let pair = self.ca.server_at([self.address(index)]);
        Setup::new(server)
            .flag("--node-name", NODES[index])
            .flag("--secure-bind-address", &self.address(index))
            .flag("--secure-port", &PORT.to_string())
            .file("--tls-cert-file", "tls.crt", &pair.certificate)
            .file("--tls-private-key-file", "tls.key", &pair.key)
            .file("--client-ca-file", "clients.crt", self.clients.pem())
            .file("--node-kubeconfig", "node.yaml", &kubeconfig(server, self.ca.pem(), &credential))
            .flag("--peer", &peers.join(","))
    }

    /// The certificate of the cluster's authority.
    pub(super) fn ca(&self) -> &Authority {
        &self.ca
    }

    /// A client of one Weir with a node's certificate, over HTTP/1.1.
    pub(super) fn node_http1(&self, index: usize, node: &str) -> Client {
        let pair = self.clients.client(&format!("system:node:{node}"), "system:nodes");
        Client::http1_showing(&self.url(index), "weir", self.ca.pem(), &pair)
    }

    /// A client of one Weir without a certificate, over HTTP/1.1.
    pub(super) fn anonymous_http1(&self, index: usize) -> Client {
        Client::http1(&self.url(index), "weir", self.ca.pem())
    }

    /// A client of one Weir with a certificate of this user and group.
    fn client(&self, index: usize, user: &str, group: &str) -> Client {
        self.component(index, "weir", user, group)
    }

    /// The same for another component.
    pub(super) fn component(&self, index: usize, component: &str, user: &str, group: &str) -> Client {
        Client::trusting(&self.url(index), component, Some(self.ca.pem()), Some(&self.clients.client(user, group)))
    }
}

/// The daemons' own reads of Services that the API server got.
fn reads(server: &ApiServer, watch: bool) -> usize {
    let own = |request: &&Recorded| {
        request.path == SERVICES
            && request.header("user-agent").starts_with("weir")
            && request.query.contains("watch=") == watch
            // The newest version of a history that goes on, or a comparison.
            && !request.query.ends_with("limit=1")
            && !request.query.contains("NotOlderThan")
            && !request.header("accept").contains("PartialObjectMetadataList")
    };
    server.requests().iter().filter(own).count()
}

#[tokio::test]
async fn one_weir_of_a_pool_reads_over_the_uplink_and_the_others_read_from_it() {
    let (server, pool) = (edge().await, Pool::new(0));
    let mut daemons = Vec::new();
    for index in 0..3 {
        daemons.push(Some(pool.start(server.url(), index).await));
    }
    server.clear_requests();
    let mut watches = Vec::new();
    for weir in daemons.iter().flatten() {
        let client = weir.client("kube-proxy");
        client.json(&format!("{SERVICES}?resourceVersion=0")).await;
        weir.settled(&server).await;
        let list = client.json(&format!("{SERVICES}?resourceVersion=0")).await;
        assert!(!names(&list).is_empty());
        let version = list["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
        watches.push(client.watch(&format!("{SERVICES}?watch=true&resourceVersion={version}")).await);
    }
    assert_eq!((reads(&server, false), reads(&server, true)), (1, 1));
    server.store().put(service("first", "ClusterIP")).unwrap();
    for watch in &mut watches {
        assert_eq!(watch.next_named().await, "ADDED first");
    }

    // The reader is the one that reads from no peer. The others go on without a list.
    let reader = |weir: &Option<Daemon>| !weir.as_ref().unwrap().log_text().contains("reading from another source");
    let index = daemons.iter().position(reader).expect("one of them reads from the API server");
    server.clear_requests();
    drop(watches.remove(index));
    daemons.remove(index).unwrap().stop().await;
    server.store().put(service("second", "ClusterIP")).unwrap();
    for watch in &mut watches {
        assert_eq!(watch.next_named().await, "ADDED second");
    }
    assert_eq!(reads(&server, false), 0, "the store is where it was");
}

#[tokio::test]
async fn a_weir_without_an_uplink_reads_from_its_peers() {
    let (server, pool) = (edge().await, Pool::new(1));
    let mut link = Link::to(&server).await;
    let _near = pool.start(server.url(), 0).await;
    let cut_off = pool.start(&link.url(), 1).await;
    let client = cut_off.client("kube-proxy");
    client.json(&format!("{SERVICES}?resourceVersion=0")).await;
    cut_off.settled(&server).await;
    let list = client.json(&format!("{SERVICES}?resourceVersion=0")).await;
    let version = list["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
    let mut watch = client.watch(&format!("{SERVICES}?watch=true&resourceVersion={version}")).await;
    server.clear_requests();
    link.down().await;
    server.store().put(service("new", "ClusterIP")).unwrap();
    assert_eq!(watch.next_named().await, "ADDED new");
    let stores = cut_off.admin().json("/caches").await["stores"].clone();
    let services = stores.as_array().unwrap().iter().find(|store| store["resource"] == "services").unwrap();
    assert_eq!(services["peer"], "edge-a");
}

#[tokio::test]
async fn only_nodes_of_the_pool_get_shared_resources_and_nothing_else() {
    let (server, pool) = (edge().await, Pool::new(2));
    let _weir = pool.start(server.url(), 0).await;
    let peer = pool.client(0, "system:node:edge-b", "system:nodes");
    let list = peer.get("/peer/api/v1/services").await;
    assert_eq!(list.status, 200, "{}", list.text());
    let all = server.store();
    assert!(names(&list.json()).iter().any(|name| all.get("v1", "Service", "default", name).is_some()));
    assert_eq!(peer.get("/peer/readyz").await.text(), "ok");
    for (client, path) in [
        (&peer, "/peer/api/v1/secrets"),
        (&peer, "/peer/api/v1/pods"),
        (&peer, "/peer/api/v1/namespaces/default/services/web"),
        (&peer, "/peer/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"),
        (&peer, "/peer/version"),
        (&pool.client(0, "system:node:edge-x", "system:nodes"), "/peer/api/v1/services"),
        (&pool.client(0, "system:node:edge-b", "people"), "/peer/api/v1/services"),
        (&pool.client(0, "edge-b", "system:nodes"), "/peer/api/v1/services"),
        (&Client::trusting(&pool.url(0), "weir", Some(pool.ca.pem()), None), "/peer/api/v1/services"),
    ] {
        let answer = client.get(path).await;
        assert_eq!((answer.status.as_u16(), answer.json()["kind"].as_str()), (403, Some("Status")), "{path}");
    }
    server.clear_requests();
    for method in [Method::POST, Method::PUT, Method::PATCH, Method::DELETE] {
        let answer = whole(peer.send(method.clone(), "/peer/api/v1/services", "{}".to_owned()).await).await.unwrap();
        assert_eq!(answer.status, 403, "{method}");
    }
    assert!(server.requests().iter().all(|request| request.method == Method::GET), "nothing is passed on");
}
