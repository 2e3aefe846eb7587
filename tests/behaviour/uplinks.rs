//! Three Weirs of a pool in network namespaces, each with an uplink of its own to one API server. The interfaces count what
//! the uplinks carry.

use std::net::Ipv4Addr;

use serde_json::{Value, json};
use weir_apiserver::ApiServer;
use weir_tests::daemon::{Daemon, Setup};
use weir_tests::edge::api_server;
use weir_tests::network::{self, NodeNetwork};
use weir_tests::pki::{Authority, certificate_user, kubeconfig};
use weir_tests::until;

use super::{NO_LOAD_BALANCERS, service};

const SERVICES: &str = "/api/v1/services";
const PORT: u16 = 10_268;
const OBJECTS: u64 = 1000;
const CHANGES: u64 = 1000;
const BURST: u64 = 50;
/// How much more than one Weir alone takes the three may take: two of them ask whether the API server lives.
const MORE: f64 = 1.1;

/// The nodes of a pool, each in a network namespace.
pub(super) struct Site {
    pub(super) networks: Vec<NodeNetwork>,
    pub(super) ca: Authority,
    clients: Authority,
}

impl Site {
    pub(super) fn new(count: u8) -> Self {
        let (ca, clients) = (Authority::new("cluster"), Authority::new("clients"));
        Self { networks: NodeNetwork::nodes(count), ca, clients }
    }

    /// The Weir of a node, which knows the others.
    pub(super) fn setup(&self, index: usize, server: &str) -> Setup {
        let network = &self.networks[index];
        let (address, name) = (network.address().to_string(), format!("edge-{index}"));
        let node = self.clients.client(&format!("system:node:{name}"), "system:nodes");
        let credential = certificate_user(&node);
        let peer =
            |(index, network): (usize, &NodeNetwork)| format!("edge-{index}=https://{}:{PORT}", network.address());
        let peers: Vec<_> = self.networks.iter().enumerate().map(peer).collect();
        let pair = self.ca.server_at([address.clone()]);
        Setup::new(server)
            .network(network.name())
            .filters(NO_LOAD_BALANCERS)
            .bundled("discardcloudservice")
            .flag("--node-name", &name)
            .flag("--bind-address", &address)
            .switch("--allow-remote-plaintext")
            .flag("--admin-address", &address)
            .flag("--secure-bind-address", &address)
            .flag("--secure-port", &PORT.to_string())
            .file("--tls-cert-file", "tls.crt", &pair.certificate)
            .file("--tls-private-key-file", "tls.key", &pair.key)
            .file("--client-ca-file", "clients.crt", self.clients.pem())
            .file("--node-kubeconfig", "node.yaml", &kubeconfig(server, self.ca.pem(), &credential))
            .flag("--peer", &peers.join(","))
    }
}

struct Nodes {
    site: Site,
    server: ApiServer,
}

impl Nodes {
    async fn new() -> Self {
        let site = Site::new(3);
        let addresses = site.networks.iter().map(|network| network.server().to_string());
        let pair = site.ca.server_at(addresses);
        let builder = api_server().address((Ipv4Addr::UNSPECIFIED, 0).into()).tls(pair.certificate, pair.key);
        let server = builder.start().await.unwrap();
        for number in 0..OBJECTS {
            server.store().put(object(number, 0)).unwrap();
        }
        Self { site, server }
    }

    async fn start(&self, index: usize) -> Daemon {
        let server = format!("https://{}:{}", self.site.networks[index].server(), self.server.address().port());
        let setup = self.site.setup(index, &server).flag("--cache-resources", "services");
        setup.file("--certificate-authority", "ca.crt", self.site.ca.pem()).start_ready().await
    }

    /// Runs Weirs on the first nodes, each with an informer, while objects change. Returns what each uplink carried.
    async fn measure(&self, count: usize) -> Vec<u64> {
        let networks = &self.site.networks;
        let before: Vec<_> = networks.iter().map(NodeNetwork::uplink_bytes).collect();
        let mut daemons = Vec::new();
        let mut watches = Vec::new();
        for index in 0..count {
            daemons.push(self.start(index).await);
        }
        for weir in &daemons {
            // One that does not know yet that its peers have come asks the API server: no node waits for another.
            until!(weir.metric_sum("weir_server_up").await == count as f64);
            let client = weir.client("kube-proxy");
            let list = client.json(&format!("{SERVICES}?resourceVersion=0")).await;
            assert_eq!(list["items"].as_array().unwrap().len() as u64, OBJECTS);
            let version = list["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
            watches.push(client.watch(&format!("{SERVICES}?watch=true&resourceVersion={version}")).await);
        }
        // Each burst has arrived before the next one: where a watch is behind its server's history, a list takes its place, which is
        // compressed.
        for burst in 0..CHANGES / BURST {
            for step in burst * BURST..(burst + 1) * BURST {
                self.server.store().put(object(step % OBJECTS, step + 1)).unwrap();
            }
            for watch in &mut watches {
                for _ in 0..BURST {
                    watch.next_named().await;
                }
            }
        }
        for weir in daemons {
            assert_eq!(weir.stop().await, Some(0));
        }
        networks.iter().zip(before).map(|(network, before)| network.uplink_bytes() - before).collect()
    }
}

/// About a kilobyte that hardly compresses.
fn object(number: u64, step: u64) -> Value {
    let noise = (0..64).map(|at| format!("{:016x}", super::kills::random(number << 32 | step << 8 | at)));
    let noise: String = noise.collect();
    let mut object = service(&format!("object-{number}"), "ClusterIP");
    object["metadata"]["annotations"] = json!({ "noise": noise });
    object
}

#[test]
fn three_weirs_take_from_the_api_server_what_one_takes_alone() {
    network::in_own_network("behaviour::uplinks::uplinks_are_counted");
}

#[tokio::test]
#[ignore = "makes interfaces: `three_weirs_take_from_the_api_server_what_one_takes_alone` runs it in a network namespace"]
async fn uplinks_are_counted() {
    network::expect_own_network();
    let nodes = Nodes::new().await;
    let alone: u64 = nodes.measure(1).await.iter().sum();
    let together = nodes.measure(3).await;
    let sum: u64 = together.iter().sum();
    println!("bytes of the uplinks: {alone} of one Weir alone, {sum} of three: {together:?}");
    assert!(sum as f64 <= alone as f64 * MORE, "{sum} bytes instead of {alone}: {together:?}");
}
