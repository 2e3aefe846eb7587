//! Requests to servers that send nothing, and to servers that close connections on requests.

use std::net::SocketAddr;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use tokio::io::AsyncReadExt as _;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::*;
use crate::connection::tests::{Http2Server, NO_ERROR};
use crate::{AnsweredBy, Tasks};

/// A server that reads and never answers.
async fn silent_server() -> http::Uri {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
    let tasks = Tasks::default();
    tasks.clone().spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tasks.spawn(async move {
                let mut buffer = [0; 1024];
                while stream.read(&mut buffer).await.is_ok_and(|length| length > 0) {}
            });
        }
    });
    url
}

#[tokio::test]
async fn a_write_fails_once_no_server_responds_and_later_ones_fail_at_once() {
    let upstream = Upstream::new(&UpstreamConfig::new(kube::Config::new(silent_server().await)), Arc::default());
    let upstream = upstream.unwrap();
    let write = async || {
        let head = RequestHead {
            method: Method::POST,
            path: "/api/v1/namespaces/a/serviceaccounts/b/token".parse().unwrap(),
            headers: http::HeaderMap::new(),
            answered_by: AnsweredBy::Server,
        };
        let body = Full::new(Bytes::from_static(b"{}")).map_err(|never| match never {}).boxed_unsync();
        upstream.send(Identity::Daemon, Purpose::Short, head, body).await.map(drop)
    };
    assert!(matches!(write().await, Err(UpstreamError::Lost { .. })));
    assert!(upstream.offline_since().is_some() && !upstream.is_reachable());
    assert!(matches!(write().await, Err(UpstreamError::Unresponsive { .. })));
}

/// A server whose HTTP/2 connections a test serves by hand.
struct TlsServer {
    listener: TcpListener,
    acceptor: TlsAcceptor,
    certificate: Vec<u8>,
}

impl TlsServer {
    async fn start() -> Self {
        let rcgen::CertifiedKey { cert, signing_key } =
            rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let key = rustls::pki_types::PrivateKeyDer::try_from(signing_key.serialize_der()).unwrap();
        let mut config = rustls::ServerConfig::builder()
            .with_no_client_auth()
            .with_single_cert(vec![cert.der().clone()], key)
            .unwrap();
        config.alpn_protocols = vec![b"h2".to_vec()];
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        Self { listener, acceptor: TlsAcceptor::from(Arc::new(config)), certificate: cert.der().to_vec() }
    }

    fn upstream(&self) -> Upstream {
        let address: SocketAddr = self.listener.local_addr().unwrap();
        let mut config = kube::Config::new(format!("https://localhost:{}", address.port()).parse().unwrap());
        config.root_cert = Some(vec![self.certificate.clone()]);
        Upstream::new(&UpstreamConfig::new(config), Arc::default()).unwrap()
    }

    async fn accept(&self) -> Http2Server<TlsStream<TcpStream>> {
        let stream = self.listener.accept().await.unwrap().0;
        let mut server = Http2Server::accept(self.acceptor.accept(stream).await.unwrap()).await;
        server.write_settings(Some(100)).await;
        server
    }
}

async fn delete(upstream: &Upstream, body: Bytes) -> Result<Response<UpstreamBody>, UpstreamError> {
    let head = RequestHead {
        method: Method::DELETE,
        path: "/api/v1/namespaces/a/services/b".parse().unwrap(),
        headers: http::HeaderMap::new(),
        answered_by: AnsweredBy::Server,
    };
    let body = Full::new(body).map_err(|never| match never {}).boxed_unsync();
    upstream.send(Identity::Client, Purpose::Short, head, body).await
}

#[tokio::test]
async fn a_write_that_the_server_did_not_process_is_sent_again_with_its_body() {
    let server = TlsServer::start().await;
    let upstream = server.upstream();
    let (response, ()) = tokio::join!(delete(&upstream, Bytes::from_static(b"{\"kind\":\"DeleteOptions\"}")), async {
        let mut first = server.accept().await;
        first.read_body().await;
        first.send_last(0, NO_ERROR).await;
        let mut second = server.accept().await;
        assert_eq!(second.read_body().await, b"{\"kind\":\"DeleteOptions\"}");
        second.respond_first().await;
    });
    assert_eq!(response.unwrap().status(), 200);
}

#[tokio::test]
async fn a_write_that_the_server_may_have_processed_is_sent_once() {
    let server = TlsServer::start().await;
    let upstream = server.upstream();
    let (response, ()) = tokio::join!(delete(&upstream, Bytes::from_static(b"{}")), async {
        let mut first = server.accept().await;
        first.read_body().await;
        first.send_last(1, NO_ERROR).await;
    });
    assert!(matches!(response, Err(UpstreamError::Broken { .. })), "{response:?}");
}

#[tokio::test]
async fn a_server_that_never_processes_a_request_does_not_get_it_for_ever() {
    let server = TlsServer::start().await;
    let upstream = server.upstream();
    let (response, ()) = tokio::join!(delete(&upstream, Bytes::from_static(b"{}")), async {
        for _ in 0..=MAX_REPEATS {
            let mut next = server.accept().await;
            next.read_body().await;
            next.send_last(0, NO_ERROR).await;
        }
    });
    assert!(matches!(response, Err(UpstreamError::Unprocessed { .. })), "{response:?}");
}

/// A server that reads what it gets and closes the connection without an answer.
async fn closing_server() -> http::Uri {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
    Tasks::default().spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let _ = stream.read(&mut [0; 4096]).await;
        }
    });
    url
}

#[tokio::test]
async fn a_backend_that_breaks_off_its_answer_is_no_outage() {
    for answered_by in [AnsweredBy::Backend, AnsweredBy::Server] {
        let config = UpstreamConfig::new(kube::Config::new(closing_server().await));
        let upstream = Upstream::new(&config, Arc::default()).unwrap();
        let path = "/api/v1/namespaces/a/pods/b/proxy/".parse().unwrap();
        let head = RequestHead { method: Method::POST, path, headers: http::HeaderMap::new(), answered_by };
        let sent = upstream.send(Identity::Client, Purpose::Stream, head, no_request_body()).await;
        assert!(matches!(sent, Err(UpstreamError::Broken { .. })), "{sent:?}");
        assert_eq!(upstream.connectivity().is_failing(), answered_by == AnsweredBy::Server);
    }
}

#[tokio::test]
async fn a_client_that_breaks_off_its_body_is_no_outage() {
    let upstream = Upstream::new(&UpstreamConfig::new(kube::Config::new(silent_server().await)), Arc::default());
    let upstream = upstream.unwrap();
    let path = "/api/v1/namespaces/a/configmaps".parse().unwrap();
    let (headers, answered_by) = (http::HeaderMap::new(), AnsweredBy::Server);
    let head = RequestHead { method: Method::POST, path, headers, answered_by };
    let frames = [Ok(http_body::Frame::data(Bytes::from_static(b"{"))), Err("broken off".into())];
    let body = http_body_util::StreamBody::new(futures_util::stream::iter(frames)).boxed_unsync();
    let sent = upstream.send(Identity::Client, Purpose::Short, head, body).await;
    assert!(matches!(sent, Err(UpstreamError::RequestBody)), "{sent:?}");
    assert!(!upstream.is_failing());
}
