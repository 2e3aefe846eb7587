//! A small edge cluster for tests, and filters of it.

use serde_json::{Value, json};
use weir_apiserver::ApiServer;

/// Hides LoadBalancer Services from every client.
pub const NO_LOAD_BALANCERS: &str = "\
filters:
  - name: discardcloudservice
    module: discardcloudservice.wasm
    match: [\"*/services\"]
";

/// The demo's cluster: two node pools, services, EndpointSlices, kube-proxy's configuration.
pub async fn edge() -> ApiServer {
    let server = ApiServer::builder().start().await.unwrap();
    server.store().load(include_str!("../demo/cluster.yaml")).unwrap();
    server
}

/// The requests of clients that an API server got, as `METHOD target`: those of the daemon itself may arrive at any time, its
/// reviews with the credential of a client among them.
#[must_use]
pub fn of_clients(server: &ApiServer) -> Vec<String> {
    let requests = server.requests();
    let of_clients = requests.iter().filter(|request| !request.header("user-agent").starts_with("weir/"));
    of_clients.map(|request| format!("{} {}", request.method, request.target())).collect()
}

/// A Service.
#[must_use]
pub fn service(name: &str, kind: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"type": kind, "clusterIP": "10.96.1.1", "ports": [{"name": "http", "port": 80}]},
    })
}

/// The configuration of one filter with its module's own match rules.
#[must_use]
pub fn only(name: &str, more: &str) -> String {
    format!("filters:\n  - name: {name}\n    module: {name}.wasm\n{more}")
}
