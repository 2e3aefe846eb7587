//! Behaviour tests: the built daemon in front of an in-memory API server, one file per feature.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "tests and their helpers: a panic is the report"
)]

mod behaviour {
    mod bad_input;
    mod bundled;
    mod clocks;
    mod connections;
    mod credentials;
    mod deploy;
    mod documents;
    mod drain;
    mod faults;
    mod forms;
    mod forward;
    mod get;
    mod hostile_clients;
    mod identity;
    mod kills;
    mod kubectl;
    mod kubelet_offline;
    mod list;
    mod local_status;
    mod lookups;
    mod node;
    mod offline;
    mod own_credentials;
    mod peers;
    mod pods;
    mod relays;
    mod reload;
    mod secure;
    mod servers;
    mod soak;
    mod start;
    mod start_traffic;
    mod streams;
    mod tls;
    mod uplinks;
    mod watch;
    mod writes;

    use serde_json::{Value, json};
    use weir_apiserver::ApiServer;

    /// The demo's cluster: two node pools, services, EndpointSlices, kube-proxy's configuration.
    pub(crate) async fn edge() -> ApiServer {
        let server = ApiServer::builder().start().await.unwrap();
        server.store().load(include_str!("demo/cluster.yaml")).unwrap();
        server
    }

    /// A Service.
    pub(crate) fn service(name: &str, kind: &str) -> Value {
        json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"type": kind, "clusterIP": "10.96.1.1", "ports": [{"name": "http", "port": 80}]},
        })
    }

    /// The configuration of one filter with its module's own match rules.
    pub(crate) fn only(name: &str, more: &str) -> String {
        format!("filters:\n  - name: {name}\n    module: {name}.wasm\n{more}")
    }

    /// Hides LoadBalancer Services from every client.
    pub(crate) const NO_LOAD_BALANCERS: &str = "\
filters:
  - name: discardcloudservice
    module: discardcloudservice.wasm
    match: [\"*/services\"]
";
}
