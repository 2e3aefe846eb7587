//! What the start of a node takes from the API server: kubelet, kube-proxy, CoreDNS and an ingress controller, directly and
//! through Weir, whose configuration and lookups are included. The requests are those of Kubernetes 1.34.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use http_body_util::BodyExt as _;
use hyper::Method;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use weir_apiserver::ApiServer;
use weir_tests::client::Client;
use weir_tests::daemon::Setup;

use super::{edge, service};

/// The Services, and the slices.
const OBJECTS: u64 = 300;
const ENDPOINTS: u64 = 20;
/// Direct traffic is at least so many times Weir's.
const FEWER: u64 = 3;

const PROTOBUF: &str = "application/vnd.kubernetes.protobuf,application/json";
const PROXIED: &str =
    "labelSelector=%21service.kubernetes.io%2Fheadless%2C%21service.kubernetes.io%2Fservice-proxy-name";
const NODE: &str = "/api/v1/nodes?fieldSelector=metadata.name%3Dedge-a1";
const SLICES: &str = "/apis/discovery.k8s.io/v1/endpointslices";

/// Lists that a watch follows, by component.
fn reads() -> Vec<(&'static str, Vec<String>)> {
    let plain = |paths: &[&str]| paths.iter().map(|path| format!("{path}?")).collect::<Vec<_>>();
    vec![
        (
            "kubelet",
            vec![
                format!("{NODE}&"),
                "/api/v1/pods?fieldSelector=spec.nodeName%3Dedge-a1&".to_owned(),
                "/api/v1/services?fieldSelector=spec.clusterIP%21%3DNone&".to_owned(),
            ],
        ),
        (
            "kube-proxy",
            vec![
                format!("{NODE}&"),
                format!("/api/v1/services?fieldSelector=spec.clusterIP%21%3DNone&{PROXIED}&"),
                format!("{SLICES}?{PROXIED}&"),
            ],
        ),
        ("coredns", plain(&["/api/v1/services", SLICES, "/api/v1/namespaces"])),
        ("nginx-ingress-controller", plain(&["/api/v1/services", SLICES, "/apis/networking.k8s.io/v1/ingresses"])),
    ]
}

/// Starts all informers one after another. The watches are open until the result is dropped.
async fn start(url: &str, version: u64) -> Vec<hyper::Response<hyper::body::Incoming>> {
    let mut watches = Vec::new();
    for (component, paths) in reads() {
        let client = Client::new(url, component).with("accept", PROTOBUF).with("accept-encoding", "gzip");
        for path in paths {
            let list = client.send(Method::GET, &format!("{path}limit=500&resourceVersion=0"), "").await;
            assert_eq!(list.status(), 200, "{component} {path}");
            list.into_body().collect().await.unwrap();
            let watch = format!("{path}watch=true&allowWatchBookmarks=true&resourceVersion={version}");
            let watch = client.send(Method::GET, &watch, "").await;
            assert_eq!(watch.status(), 200, "{component} {path}");
            watches.push(watch);
        }
    }
    watches
}

/// A link that counts the bytes of both directions.
struct CountedLink {
    address: SocketAddr,
    bytes: Arc<AtomicU64>,
}

impl CountedLink {
    async fn to(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let link = Self { address: listener.local_addr().unwrap(), bytes: Arc::default() };
        let bytes = link.bytes.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let Ok(server) = TcpStream::connect(server).await else { return };
                let ((from_client, to_client), (from_server, to_server)) = (client.into_split(), server.into_split());
                tokio::spawn(carry(from_client, to_server, bytes.clone()));
                tokio::spawn(carry(from_server, to_client, bytes.clone()));
            }
        });
        link
    }

    fn url(&self) -> String {
        format!("https://{}", self.address)
    }

    fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }
}

async fn carry(mut from: impl AsyncRead + Unpin, mut to: impl AsyncWrite + Unpin, bytes: Arc<AtomicU64>) {
    let mut buffer = vec![0; 64 << 10];
    while let Ok(count @ 1..) = from.read(&mut buffer).await {
        bytes.fetch_add(count as u64, Ordering::Relaxed);
        if to.write_all(&buffer[..count]).await.is_err() {
            return;
        }
    }
}

/// Compresses about as well as real objects do.
fn noise(of: u64, words: u64) -> String {
    (0..words).map(|at| format!("{:016x}", super::kills::random(of << 16 | at))).collect()
}

async fn cluster() -> ApiServer {
    let server = edge().await;
    for number in 0..OBJECTS {
        let name = format!("app-{number}");
        let mut service = service(&name, "ClusterIP");
        service["metadata"]["annotations"] = json!({ "checksum": noise(number, 32) });
        server.store().put(service).unwrap();
        let endpoint = |at: u64| {
            let pod = json!({"kind": "Pod", "name": noise(number << 8 | at, 1), "namespace": "default"});
            json!({
                "addresses": [format!("10.{}.{}.{}", number / 256, number % 256, at)], "nodeName": "edge-a1",
                "conditions": {"ready": true}, "targetRef": pod,
            })
        };
        let endpoints: Vec<Value> = (0..ENDPOINTS).map(endpoint).collect();
        let slice = json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
            "metadata": {
                "name": format!("{name}-x"), "namespace": "default", "labels": {"kubernetes.io/service-name": name},
            },
            "addressType": "IPv4", "ports": [{"name": "http", "port": 80}], "endpoints": endpoints,
        });
        server.store().put(slice).unwrap();
    }
    server
}

#[tokio::test]
async fn the_start_of_a_node_takes_at_most_a_third_of_the_direct_traffic() {
    let server = cluster().await;
    let link = CountedLink::to(server.address()).await;
    let direct = {
        let _watches = start(&link.url(), server.store().revision()).await;
        link.bytes()
    };
    let link = CountedLink::to(server.address()).await;
    let filters = "\
filters:
  - {name: servicetopology, module: servicetopology.wasm}
  - {name: nodeportisolation, module: nodeportisolation.wasm}
";
    let weir = Setup::new(&link.url())
        .flag("--node-name", "edge-a1")
        .filters(filters)
        .bundled("servicetopology")
        .bundled("nodeportisolation")
        .start_ready()
        .await;
    let _watches = start(weir.url(), server.store().revision()).await;
    let through = link.bytes();
    println!(
        "start-up traffic: {direct} bytes directly, {through} through Weir, {:.2} of it",
        through as f64 / direct as f64
    );
    assert!(through * FEWER <= direct, "{through} bytes instead of {direct}");

    // The stamps of the start are read by then.
    weir.settled(&server).await;
    let before = link.bytes();
    weir.put_filters(&filters.replace("servicetopology, module", "topology, module"));
    weir.logged("filters\":\"topology").await;
    let reloaded = link.bytes() - before;
    println!("a reload: {reloaded} bytes");
    assert!(reloaded < direct / 1000, "a reload took {reloaded} bytes");
}
