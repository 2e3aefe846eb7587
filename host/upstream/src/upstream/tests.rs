//! Requests to a server that accepts connections and sends nothing.

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpListener;

use super::*;
use crate::Tasks;

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
        };
        let body = Full::new(Bytes::from_static(b"{}")).map_err(|never| match never {}).boxed_unsync();
        upstream.send(Identity::Daemon, Purpose::Short, head, body).await.map(drop)
    };
    assert!(matches!(write().await, Err(UpstreamError::Lost { .. })));
    assert!(upstream.offline_since().is_some() && !upstream.is_reachable());
    assert!(matches!(write().await, Err(UpstreamError::Unresponsive { .. })));
}
