//! A TLS API server and credentials for it, shared by the tests of TLS, credentials and identity.

use weir_apiserver::ApiServer;
use weir_tests::client::PATIENCE;
use weir_tests::daemon::Daemon;
use weir_tests::edge::api_server;
use weir_tests::pki::{Authority, Pair};

pub(super) async fn secure_edge(pair: &Pair, clients: Option<&Authority>) -> ApiServer {
    let mut server = api_server().tls(pair.certificate.as_bytes(), pair.key.as_bytes());
    if let Some(clients) = clients {
        server = server.client_ca(clients.pem());
    }
    let server = server.start().await.unwrap();
    server.store().load(include_str!("../demo/cluster.yaml")).unwrap();
    server
}

/// Waits for a request, by the daemon or through it, that meets a condition.
pub(super) async fn wait_for_request(server: &ApiServer, condition: impl Fn(&weir_apiserver::Recorded) -> bool) {
    let mut count = server.request_count();
    let found = async {
        while !server.requests().iter().any(&condition) {
            count.changed().await.unwrap();
        }
    };
    tokio::time::timeout(PATIENCE, found).await.expect("such a request in time");
}

pub(super) fn der(pair: &Pair) -> Vec<u8> {
    use rustls::pki_types::pem::PemObject as _;
    rustls::pki_types::CertificateDer::from_pem_slice(pair.certificate.as_bytes()).unwrap().to_vec()
}

/// Makes the daemon list its ConfigMap again by ending its watches.
pub(super) async fn request_after_reload(
    weir: &Daemon,
    server: &ApiServer,
    condition: impl Fn(&weir_apiserver::Recorded) -> bool,
) {
    let mut count = server.request_count();
    let found = async {
        while !server.requests().iter().any(&condition) {
            server.close_watches(weir_apiserver::End::Clean);
            let _ = tokio::time::timeout(std::time::Duration::from_millis(200), count.changed()).await;
        }
    };
    tokio::time::timeout(PATIENCE, found).await.unwrap_or_else(|_| panic!("{}", weir.log_text()));
}
