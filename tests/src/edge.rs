//! A small edge cluster for tests, and filters of it.

use serde_json::{Value, json};
use weir_apiserver::{ApiServer, Builder};

use crate::pki;
use crate::rights::{ACCOUNT, GROUPS, Rights, TOKEN};

/// The users of the kubelets of the tests.
const KUBELETS: [&str; 3] = ["system:node:edge-a", "system:node:edge-b", "system:node:edge-c"];

/// Hides LoadBalancer Services from every client.
pub const NO_LOAD_BALANCERS: &str = "\
filters:
  - name: discardcloudservice
    module: discardcloudservice.wasm
    match: [\"*/services\"]
";

/// An API server as an installed daemon finds it: HTTPS, with a certificate of [`pki::shared`], and the daemon's account may do
/// what `deploy/rbac.yaml` says, and nothing else. A [`crate::daemon::Setup`] trusts that certificate and has that account.
#[must_use]
pub fn api_server() -> Builder {
    let shared = pki::shared();
    let builder = ApiServer::builder().tls(&*shared.server.certificate, &*shared.server.key);
    builder.token(TOKEN, ACCOUNT, &GROUPS).rights(ACCOUNT, of_account(Rights::shipped()))
}

/// Gives the daemon's account these rights in place of those of `deploy/rbac.yaml`.
pub fn grant(server: &ApiServer, rights: Rights) {
    server.set_rights(ACCOUNT, of_account(rights));
}

/// Lets the daemon's account impersonate these users of certificates, who are of this group.
pub fn grant_impersonation(server: &ApiServer, users: &[&str], group: &str) {
    grant(server, Rights::shipped().impersonating(users, &[group, "system:authenticated"]));
}

/// Lets the daemon's account impersonate kubelets, by their certificates.
pub fn grant_kubelets(server: &ApiServer) {
    grant_impersonation(server, &KUBELETS, "system:nodes");
}

fn of_account(rights: Rights) -> impl Fn(&weir_apiserver::Attributes) -> bool + Send + Sync + 'static {
    move |asked| rights.allow(asked)
}

/// The demo's cluster: two node pools, services, EndpointSlices, kube-proxy's configuration.
pub async fn edge() -> ApiServer {
    let server = api_server().start().await.unwrap();
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
