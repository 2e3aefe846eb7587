//! Client certificates that have expired, or whose CA was replaced.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use http::Method;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, ClientConnection, HandshakeKind, RootCertStore, StreamOwned, SupportedProtocolVersion};
use weir_apiserver::ApiServer;
use weir_tests::client::Client;
use weir_tests::daemon::{Daemon, Setup, replace};
use weir_tests::edge::{edge, grant_impersonation, of_clients};
use weir_tests::machine::Machine;
use weir_tests::pki::{Authority, Pair};

const SERVICES: &str = "/api/v1/services";
const LIFE: Duration = Duration::from_secs(3600);

struct Node {
    server: ApiServer,
    ca: Authority,
    clients: Authority,
}

impl Node {
    async fn new() -> Self {
        let server = edge().await;
        grant_impersonation(&server, &["u", "v"], "g");
        Self { server, ca: Authority::new("weir"), clients: Authority::new("clients") }
    }

    fn setup(&self) -> Setup {
        Setup::new(self.server.url()).filters("filters: []").tls(&self.ca.server())
    }

    async fn client(&self, weir: &Daemon, shown: &Pair) -> Client {
        Client::trusting(&weir.secure_url().await, "kubelet", Some(self.ca.pem()), Some(shown))
    }
}

#[tokio::test]
async fn an_expired_certificate_ends_with_its_time_on_open_connections_too() {
    let Some(machine) = Machine::new() else { return };
    let node = Node::new().await;
    let setup = node.setup().file("--client-ca-file", "clients.crt", node.clients.pem());
    let folder = setup.path("");
    let weir = machine.run(setup, &folder).start_ready().await;
    let client = node.client(&weir, &node.clients.client_for("u", "g", LIFE)).await;
    assert_eq!(client.get(SERVICES).await.status, 200);
    machine.put_clock_ahead(i64::try_from(LIFE.as_secs()).unwrap() - 60);
    assert_eq!(client.get(SERVICES).await.status, 200);
    let reached = of_clients(&node.server);
    machine.put_clock_ahead(i64::try_from(LIFE.as_secs()).unwrap() + 60);
    let answer = client.get(SERVICES).await;
    assert_eq!((answer.status.as_u16(), answer.json()["reason"].as_str()), (401, Some("Unauthorized")));
    assert!(answer.text().contains("expired"), "{}", answer.text());
    assert_eq!(of_clients(&node.server), reached, "nothing was sent upstream");
    // Neither the tunnels nor the reads of peers are open to it.
    assert_eq!(client.get("/peer/readyz").await.status.as_u16() / 100, 4);
    let token = client.with("authorization", "Bearer mine");
    assert_eq!(token.get(SERVICES).await.status, 200, "a token does not need the certificate");
}

#[tokio::test]
async fn a_changed_ca_closes_the_connections_that_it_does_not_cover() {
    let node = Node::new().await;
    let other = Authority::new("others");
    let both = format!("{}{}", node.clients.pem(), other.pem());
    let weir = node.setup().file("--client-ca-file", "clients.crt", &both).start_ready().await;
    let removed = node.client(&weir, &node.clients.client("u", "g")).await;
    let kept = node.client(&weir, &other.client("v", "g")).await;
    let (mut cut, mut open) =
        (removed.watch("/api/v1/services?watch=1").await, kept.watch("/api/v1/services?watch=1").await);
    replace(&weir.path("clients.crt"), other.pem().as_bytes());
    weir.logged("its client certificate is not valid any more").await;
    while cut.has_piece().await {}
    assert!(removed.try_get(SERVICES).await.is_err(), "no new connection");
    assert_eq!(kept.get(SERVICES).await.status, 200);
    while open.next_named().await != "ADDED web" {}
}

/// A session that is resumed would skip the verification of the certificate.
#[tokio::test]
async fn no_session_is_resumed_where_clients_may_have_certificates() {
    let node = Node::new().await;
    let shown = node.clients.client("u", "g");
    let address = |url: String| url.strip_prefix("https://").unwrap().to_owned();
    let verifying = node.setup().file("--client-ca-file", "clients.crt", node.clients.pem()).start_ready().await;
    let open = node.setup().start_ready().await;
    for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
        for (weir, expected) in [(&verifying, HandshakeKind::Full), (&open, HandshakeKind::Resumed)] {
            let (config, address) = (config(&node.ca, &shown, version), address(weir.secure_url().await));
            let kinds =
                tokio::task::spawn_blocking(move || [handshake(&config, &address), handshake(&config, &address)]);
            assert_eq!(kinds.await.unwrap(), [HandshakeKind::Full, expected], "{version:?}");
        }
    }
}

fn config(ca: &Authority, shown: &Pair, version: &'static SupportedProtocolVersion) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(ca.pem().as_bytes()).unwrap()).unwrap();
    let certificate = CertificateDer::from_pem_slice(shown.certificate.as_bytes()).unwrap();
    let key = PrivateKeyDer::from_pem_slice(shown.key.as_bytes()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_protocol_versions(&[version]).unwrap();
    Arc::new(builder.with_root_certificates(roots).with_client_auth_cert(vec![certificate], key).unwrap())
}

/// One request over a connection of its own.
fn handshake(config: &Arc<ClientConfig>, address: &str) -> HandshakeKind {
    let tls = ClientConnection::new(config.clone(), "localhost".try_into().unwrap()).unwrap();
    let mut stream = StreamOwned::new(tls, TcpStream::connect(address).unwrap());
    let request = format!("{} /version HTTP/1.1\r\nHost: weir\r\nConnection: close\r\n\r\n", Method::GET);
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    // The daemon does not wait for the close_notify of its client.
    let _ = stream.read_to_string(&mut answer);
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    stream.conn.handshake_kind().unwrap()
}
