//! Upgraded connections (WebSocket and SPDY) with the node credential.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use weir_apiserver::{ApiServer, Recorded};
use weir_tests::client::PATIENCE;
use weir_tests::daemon::{Daemon, Setup, own_uid};
use weir_tests::edge::{edge, of_clients};
use weir_tests::pki::kubeconfig;

const EXEC: &str = "/api/v1/namespaces/default/pods/web/exec?command=sh&stdin=true";
/// `SPDY/3.1` and `websocket`, as kubectl asks for them.
const PROTOCOLS: [(&str, &str); 2] = [
    ("SPDY/3.1", "X-Stream-Protocol-Version: v4.channel.k8s.io\r\n"),
    (
        "websocket",
        "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: v5.channel.k8s.io\r\n",
    ),
];

async fn with_node_credential() -> (ApiServer, Daemon) {
    let server = edge().await;
    let config = kubeconfig(server.url(), "", "token: nodes");
    let weir = Setup::new(server.url())
        .filters("filters: []")
        .file("--node-kubeconfig", "node.yaml", &config)
        .start_ready()
        .await;
    server.clear_requests();
    (server, weir)
}

fn request(protocol: &str, headers: &str, more: &str) -> String {
    format!("GET {EXEC} HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: {protocol}\r\n{headers}{more}\r\n")
}

/// What the API server got of it: the daemon may ask something of its own at any time.
fn execs(server: &ApiServer) -> impl Iterator<Item = Recorded> {
    server.requests().into_iter().filter(|request| request.target() == EXEC)
}

/// The status line of the answer.
async fn status(weir: &Daemon, request: &str) -> String {
    let mut stream = TcpStream::connect(weir.url().strip_prefix("http://").unwrap()).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = [0; 64];
    let read = tokio::time::timeout(PATIENCE, stream.read(&mut answer)).await.expect("an answer").unwrap();
    String::from_utf8_lossy(&answer[..read]).lines().next().unwrap_or_default().to_owned()
}

#[tokio::test]
async fn no_web_page_and_no_other_user_gets_a_shell_by_the_node_credential() {
    let (server, weir) = with_node_credential().await;
    for (protocol, headers) in PROTOCOLS {
        for more in [
            "Host: localhost\r\nOrigin: http://evil.example\r\n",
            "Host: localhost\r\nOrigin: null\r\n",
            "Host: localhost\r\nSec-Fetch-Site: cross-site\r\n",
            "Host: evil.example\r\n",
        ] {
            let answer = status(&weir, &request(protocol, headers, more)).await;
            assert!(answer.starts_with("HTTP/1.1 403"), "{protocol} {more:?}: {answer}");
        }
        if own_uid() == 0 {
            let answer = weir.as_nobody(&request(protocol, headers, "Host: localhost\r\n"), "head -c 12 <&3").await;
            assert_eq!(answer, "HTTP/1.1 403", "{protocol}");
        }
    }
    assert_eq!(of_clients(&server), [""; 0], "nothing was sent with the credential");
}

#[tokio::test]
async fn an_upgrade_has_the_credential_of_its_request_and_no_other() {
    let (server, weir) = with_node_credential().await;
    for (protocol, headers) in PROTOCOLS {
        server.clear_requests();
        status(&weir, &request(protocol, headers, "Host: localhost\r\n")).await;
        let own = format!("{}Authorization: Bearer mine\r\n", "Host: evil.example\r\n");
        status(&weir, &request(protocol, headers, &own)).await;
        let tokens: Vec<_> = execs(&server).map(|request| request.header("authorization").to_owned()).collect();
        assert_eq!(tokens, ["Bearer nodes", "Bearer mine"], "{protocol}");
    }
    // A browser cannot set Authorization. Its token is one of the protocols, and counts as a credential.
    server.clear_requests();
    let token = "Host: localhost\r\nSec-WebSocket-Protocol: base64url.bearer.authorization.k8s.io.bWluZQ\r\n";
    status(&weir, &request("websocket", PROTOCOLS[1].1, token)).await;
    let sent: Vec<_> = execs(&server).collect();
    assert!(!sent.is_empty() && sent.iter().all(|request| request.header("authorization").is_empty()), "{sent:?}");
}
