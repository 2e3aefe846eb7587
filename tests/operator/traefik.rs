//! A real ingress controller, Traefik, as the operator deploys it, whose API server is Weir on a node of its pool.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Instant;

use http::Method;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::process::{Child, Command};
use weir_tests::built;
use weir_tests::client::Client;
use weir_tests::daemon::{Daemon, Setup};
use weir_tests::plane::skipped;

use super::cluster::{Cluster, DEPLOYMENTS, MAPS, POOLS, spec, until};
use super::process::Operator;

const SLICES: &str = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";
const FILTERS: &str = "
filters:
  - name: endpoints
    module: endpoints.wasm
    match: ['traefik/endpointslices']
    settings: {poolSource: nodepools}
";

/// A running Traefik. Dropping it kills the process.
struct Traefik {
    child: Child,
    client: Client,
}

/// A server that answers with its name, on a loopback address of its own: Traefik counts endpoints by address.
async fn backend(name: &'static str) -> SocketAddr {
    let number = name.as_bytes()[0];
    let listener = TcpListener::bind((Ipv4Addr::new(127, 0, 9, number), 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            tokio::spawn(async move {
                let mut head = [0; 4096];
                // Requests without a body: one read is one request, or its connection's end.
                while stream.read(&mut head).await.is_ok_and(|read| read > 0) {
                    let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{name}", name.len());
                    if stream.write_all(answer.as_bytes()).await.is_err() {
                        return;
                    }
                }
            });
        }
    });
    address
}

/// An EndpointSlice of the Service `web` with one endpoint, on a node. The API server refuses loopback addresses, but as names
/// (`FQDN`) it accepts them, and Traefik makes no difference.
async fn add_endpoint(cluster: &Cluster, name: &str, node: &str, at: SocketAddr) {
    let endpoint = json!({"addresses": [at.ip().to_string()], "nodeName": node, "conditions": {"ready": true}});
    let labels = json!({"kubernetes.io/service-name": "web"});
    let slice = json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "metadata": {"name": name, "labels": labels},
        "addressType": "FQDN", "endpoints": [endpoint], "ports": [{"name": "http", "port": at.port(), "protocol": "TCP"}]});
    cluster.create(SLICES, slice).await;
}

impl Traefik {
    /// Starts Traefik with the configuration of its ConfigMap, as its pod would, on a free port.
    async fn start(program: &Path, folder: &Path, kubeconfig: &Path, config: &str) -> Self {
        let free = || std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let web = free();
        let mut text = config.replace(":8000", &web.to_string());
        for port in [":8443", ":8080"] {
            text = text.replace(port, &free().to_string());
        }
        let file = folder.join("traefik.yaml");
        std::fs::write(&file, text).unwrap();
        let child = Command::new(program)
            .arg(format!("--configFile={}", file.display()))
            .env_clear()
            .env("KUBECONFIG", kubeconfig)
            .stdin(Stdio::null())
            .stdout(if std::env::var_os("WEIR_TEST_LOG").is_some() { Stdio::inherit() } else { Stdio::null() })
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        Self { child, client: Client::new(&format!("http://{web}"), "test") }
    }

    /// Who answers; `None` while Traefik has no route or no endpoint.
    async fn ask(&self) -> Option<String> {
        let answer = self.client.try_get("/").await.ok()?;
        (answer.status == 200).then(|| answer.text())
    }

    /// Who answers to some requests, each once.
    async fn all(&self) -> Vec<String> {
        let mut all = Vec::new();
        for _ in 0..40 {
            all.extend(self.ask().await);
        }
        assert_eq!(all.len(), 40, "each request is answered");
        all.sort();
        all.dedup();
        all
    }

    async fn kill(mut self) {
        self.child.kill().await.unwrap();
    }
}

/// The kubeconfig of the pool's ServiceAccount, with Weir as the API server.
async fn through_weir(cluster: &Cluster, folder: &Path, weir: &Daemon) -> PathBuf {
    let file = cluster.kubeconfig(folder, "ingress-nginx", "traefik-hangzhou").await;
    let mut config: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    config["clusters"][0]["cluster"]["server"] = weir.secure_url().await.into();
    std::fs::write(&file, config.to_string()).unwrap();
    file
}

#[tokio::test]
async fn traefik_serves_the_endpoints_of_its_pool_only_and_offline_too() {
    let Some(cluster) = Cluster::start().await else { return };
    let program = built::target().join("traefik").join("traefik");
    if !program.exists() {
        skipped("Traefik was not built: `make traefik` does it, and needs Go");
        return;
    }
    for (pool, nodes) in [("hangzhou", json!(["edge-a", "edge-b"])), ("shanghai", json!(["edge-c"]))] {
        cluster.add_pool(pool).await;
        cluster.merge(&format!("{POOLS}/{pool}/status"), json!({"status": {"nodes": nodes}})).await;
    }
    cluster
        .merge("/api/v1/nodes/edge-a", json!({"metadata": {"labels": {"apps.openyurt.io/nodepool": "hangzhou"}}}))
        .await;
    let operator = Operator::start(&cluster, &[]).await;
    cluster.add_ingress("edge", spec(&["hangzhou"])).await;
    cluster.wait(DEPLOYMENTS, "traefik-hangzhou", |deployment| deployment.map(drop)).await;
    let map = cluster.get(&format!("{MAPS}/traefik-hangzhou")).await.unwrap();
    let config = map["data"]["traefik.yaml"].as_str().unwrap().to_owned();

    cluster
        .create(
            "/api/v1/namespaces/default/services",
            json!({"apiVersion": "v1", "kind": "Service",
        "metadata": {"name": "web"}, "spec": {"ports": [{"name": "http", "port": 80}]}}),
        )
        .await;
    let backend_of = json!({"service": {"name": "web", "port": {"number": 80}}});
    let rule = json!({"http": {"paths": [{"path": "/", "pathType": "Prefix", "backend": backend_of}]}});
    cluster
        .create(
            "/apis/networking.k8s.io/v1/namespaces/default/ingresses",
            json!({"apiVersion": "networking.k8s.io/v1", "kind": "Ingress",
        "metadata": {"name": "web"}, "spec": {"ingressClassName": "hangzhou", "rules": [rule]}}),
        )
        .await;
    add_endpoint(&cluster, "web-a", "edge-a", backend("a").await).await;
    add_endpoint(&cluster, "web-c", "edge-c", backend("c").await).await;

    let folder = tempfile::tempdir().unwrap();
    let cache = folder.path().join("cache");
    let setup = Setup::kubeconfig(&cluster.plane.kubeconfig("weir-cut")).on_disk(&cache);
    let setup = setup.filters(FILTERS).bundled("endpoints").flag("--cache-secrets-for", "traefik");
    let weir = cluster.plane.secured(setup).start_ready().await;
    let kubeconfig = through_weir(&cluster, folder.path(), &weir).await;
    let traefik = Traefik::start(&program, folder.path(), &kubeconfig, &config).await;
    until("Traefik serves", async || traefik.ask().await).await;
    assert_eq!(traefik.all().await, ["a"], "not the endpoint of the other pool");

    // An endpoint that is added elsewhere, then one in the pool: a client that sees the second has seen the first.
    add_endpoint(&cluster, "web-d", "edge-c", backend("d").await).await;
    let begun = Instant::now();
    add_endpoint(&cluster, "web-b", "edge-b", backend("b").await).await;
    until("the new endpoint serves", async || (traefik.ask().await? == "b").then_some(())).await;
    println!("from the EndpointSlice to the first request at the endpoint: {:?}", begun.elapsed());
    assert_eq!(traefik.all().await, ["a", "b"]);

    // A node leaves the pool and another one joins it: what Traefik is shown of the slices changes, their versions do not.
    for (nodes, expected) in [(["edge-a", "edge-c"], ["a", "c", "d"].as_slice()), (["edge-a", "edge-b"], &["a", "b"])] {
        let begun = Instant::now();
        cluster.merge(&format!("{POOLS}/hangzhou/status"), json!({"status": {"nodes": nodes}})).await;
        until("the pool's endpoints serve", async || (traefik.all().await == expected).then_some(())).await;
        println!("from the pool's status to requests at its endpoints only: {:?}", begun.elapsed());
    }

    // Without the API server.
    let control = Client::new(cluster.plane.control(), "test");
    assert_eq!(control.send(Method::POST, "/down", "").await.status(), 200);
    weir.logged("the API server is down").await;
    assert_eq!(traefik.all().await, ["a", "b"]);
    traefik.kill().await;
    let traefik = Traefik::start(&program, folder.path(), &kubeconfig, &config).await;
    until("a restarted Traefik serves", async || traefik.ask().await).await;
    until("it has both endpoints", async || (traefik.all().await == ["a", "b"]).then_some(())).await;
    assert_eq!(control.send(Method::POST, "/up", "").await.status(), 200);
    traefik.kill().await;
    operator.stop().await;
}
