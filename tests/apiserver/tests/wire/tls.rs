//! HTTPS, with HTTP/2 by ALPN.

use std::sync::Arc;

use bytes::Bytes;
use http_body_util::{BodyExt, Empty};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};
use weir_apiserver::ApiServer;

use crate::client::soon;

/// Self-signed for 127.0.0.1, valid for a hundred years.
const CERTIFICATE: &[u8] = include_bytes!("../data/tls.crt");
const KEY: &[u8] = include_bytes!("../data/tls.key");

#[tokio::test]
async fn http2_is_chosen_by_alpn() {
    let server = ApiServer::builder().tls(CERTIFICATE, KEY).start().await.unwrap();
    assert!(server.url().starts_with("https://"));
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(CERTIFICATE).unwrap()).unwrap();
    let mut config = ClientConfig::builder_with_provider(ring::default_provider().into())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let stream = TcpStream::connect(server.address()).await.unwrap();
    let name = server.address().ip().into();
    let stream = soon(TlsConnector::from(Arc::new(config)).connect(name, stream)).await.unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(b"h2".as_slice()));
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    let request = http::Request::get(format!("{}/livez", server.url())).body(Empty::<Bytes>::new()).unwrap();
    let answer = async {
        let response = sender.send_request(request).await.unwrap();
        response.into_body().collect().await.unwrap().to_bytes()
    };
    let answer = tokio::select! {
        answer = soon(answer) => answer,
        ended = connection => panic!("the connection ended first: {ended:?}"),
    };
    assert_eq!(answer, "ok");
}

#[tokio::test]
async fn an_invalid_key_is_refused_at_the_start() {
    assert!(ApiServer::builder().tls(CERTIFICATE, "nothing").start().await.is_err());
    assert!(ApiServer::builder().tls("nothing", KEY).start().await.is_err());
}
