//! An upstream with TLS: HTTP/2 by ALPN over several connections, and HTTP/1.1 for upgrades.

use http::Version;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::*;

const CERTIFICATE: &[u8] = include_bytes!("../../../../tests/apiserver/tests/data/tls.crt");
const KEY: &[u8] = include_bytes!("../../../../tests/apiserver/tests/data/tls.key");

async fn secure() -> ProxyFixture {
    let server = ApiServer::builder().tls(CERTIFICATE, KEY).max_streams(100).start().await.unwrap();
    let url: http::Uri = server.url().parse().unwrap();
    let mut fixture = fixture_with(|setup| {
        let config = &mut setup.upstream;
        config.upstream = kube::Config::new(url);
        config.upstream.root_cert = Some(vec![CertificateDer::from_pem_slice(CERTIFICATE).unwrap().to_vec()]);
    })
    .await;
    fixture.server = server;
    fixture
}

#[tokio::test]
async fn more_watches_than_streams_of_a_connection_stay_open_beside_reads() {
    let fixture = secure().await;
    let mut open = Vec::new();
    for _ in 0..150 {
        open.push(fixture.watch("/api/v1/services?watch=1").await);
    }
    fixture.server.open_watches().wait_for(|open| *open == 150).await.unwrap();
    assert_eq!(fixture.json("/api/v1/services").await.0, StatusCode::OK);
    assert!(fixture.server.requests().iter().all(|request| request.version == Version::HTTP_2));
    drop(open);
    fixture.server.open_watches().wait_for(|open| *open == 0).await.unwrap();
}

#[tokio::test]
async fn an_upgrade_uses_http_1_1() {
    let fixture = secure().await;
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "default"},
        "spec": {"containers": [{"name": "c", "image": "i"}]}
    });
    fixture.server.store().put(pod).unwrap();
    let request = Request::post(format!("{}/api/v1/namespaces/default/pods/p/exec?command=a&command=b", fixture.url))
        .header("connection", "Upgrade")
        .header("upgrade", "SPDY/3.1")
        .body(Empty::new())
        .unwrap();
    let mut response = fixture.client.request(request).await.unwrap();
    assert_eq!(response.status(), StatusCode::SWITCHING_PROTOCOLS);
    let mut stream = hyper_util::rt::TokioIo::new(hyper::upgrade::on(&mut response).await.unwrap());
    stream.write_all(b"ping").await.unwrap();
    let mut echo = [0; 4];
    stream.read_exact(&mut echo).await.unwrap();
    assert_eq!(&echo, b"ping");
    stream.shutdown().await.unwrap();
    assert_eq!(stream.read(&mut echo).await.unwrap(), 0, "the other side closes a half-closed stream");
}
