//! Requests that no filter matches pass byte for byte: all verbs, sub-resources, upgrades, endless bodies, headers.

use bytes::Bytes;
use futures_util::StreamExt;
use http::Method;
use http_body_util::BodyExt;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use weir_apiserver::{Action, ApiServer};
use weir_tests::client::{Client, PATIENCE};
use weir_tests::daemon::{Daemon, Setup};

use super::{NO_LOAD_BALANCERS, edge, service};

async fn forwarding() -> (ApiServer, Daemon, Client) {
    let server = edge().await;
    let weir = Setup::new(server.url()).filters(NO_LOAD_BALANCERS).bundled("discardcloudservice").start_ready().await;
    let client = weir.client("tool");
    (server, weir, client)
}

#[tokio::test]
async fn writes_pass() {
    let (server, _weir, client) = forwarding().await;
    let client = client.with("content-type", "application/json");
    let path = "/api/v1/namespaces/default/services";
    let created = client.send(Method::POST, path, service("new", "ClusterIP").to_string()).await;
    assert_eq!(created.status(), 201);
    let conflict = client.send(Method::POST, path, service("new", "ClusterIP").to_string()).await;
    assert_eq!(conflict.status(), 409, "upstream's errors pass");
    let one = format!("{path}/new");
    let mut object = client.json(&one).await;
    object["spec"]["ports"][0]["port"] = json!(81);
    assert_eq!(client.send(Method::PUT, &one, object.to_string()).await.status(), 200);
    let patch = client.clone().with("content-type", "application/merge-patch+json");
    let patched = patch.send(Method::PATCH, &one, r#"{"metadata":{"labels":{"a":"b"}}}"#).await;
    assert_eq!(patched.status(), 200);
    assert_eq!(server.store().get("v1", "Service", "default", "new").unwrap()["metadata"]["labels"]["a"], "b");
    assert_eq!(client.send(Method::DELETE, &one, "").await.status(), 200);
    assert!(server.store().get("v1", "Service", "default", "new").is_none());
    assert_eq!(client.send(Method::DELETE, "/api/v1/namespaces/default/configmaps", "").await.status(), 200);
}

#[tokio::test]
async fn other_paths_pass() {
    let (_server, _weir, client) = forwarding().await;
    for path in ["/version", "/healthz", "/livez", "/readyz", "/api", "/apis", "/api/v1", "/apis/apps/v1"] {
        assert_eq!(client.get(path).await.status, 200, "{path}");
    }
    assert_eq!(client.get("/no/such/path").await.status, 404);
}

#[tokio::test]
async fn end_to_end_headers_pass_and_hop_by_hop_headers_do_not() {
    let (server, _weir, client) = forwarding().await;
    server.on_request(|request| {
        assert!(request.header("x-secret-hop").is_empty() && request.header("keep-alive").is_empty());
        let mut answer = http::Response::new(Bytes::from_static(b"{}"));
        for (name, value) in [
            ("audit-id", "1"),
            ("warning", "299 - \"old\""),
            ("retry-after", "3"),
            ("x-kubernetes-pf-flowschema-uid", "u"),
            ("x-hop", "gone"),
            ("connection", "x-hop"),
        ] {
            answer.headers_mut().append(name, value.parse().unwrap());
        }
        *answer.status_mut() = http::StatusCode::TOO_MANY_REQUESTS;
        Action::Answer(answer)
    });
    let client = client.with("connection", "x-secret-hop").with("x-secret-hop", "1").with("keep-alive", "timeout=5");
    let answer = client.get("/api/v1/nodes").await;
    assert_eq!(answer.status, 429);
    for (name, value) in
        [("audit-id", "1"), ("warning", "299 - \"old\""), ("retry-after", "3"), ("x-kubernetes-pf-flowschema-uid", "u")]
    {
        assert_eq!(answer.headers[name], value);
    }
    assert!(answer.headers.get("x-hop").is_none());
}

#[tokio::test]
async fn a_clients_own_credential_is_forwarded_and_no_other_is_attached() {
    let (server, _weir, client) = forwarding().await;
    server.clear_requests();
    client.clone().with("authorization", "Bearer abc").with("impersonate-user", "jane").get("/api/v1/nodes").await;
    client.with("x-remote-user", "root").get("/api/v1/nodes").await;
    // Reviews of the credential are with it, too.
    let mut requests = server.requests();
    requests.retain(|request| request.path == "/api/v1/nodes");
    assert_eq!((requests[0].header("authorization"), requests[0].header("impersonate-user")), ("Bearer abc", "jane"));
    assert_eq!(requests[1].header("authorization"), "");
}

#[tokio::test]
async fn a_followed_log_streams_and_its_end_reaches_upstream() {
    let (server, _weir, client) = forwarding().await;
    server
        .store()
        .put(json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "default"}}))
        .unwrap();
    let log = server.pod_log("default", "p");
    let answer = client.send(Method::GET, "/api/v1/namespaces/default/pods/p/log?follow=true", "").await;
    assert_eq!(answer.status(), 200);
    let mut body = answer.into_body();
    for line in ["one\n", "two\n"] {
        log.write(line);
        let frame = tokio::time::timeout(PATIENCE, body.frame()).await.unwrap().unwrap().unwrap();
        assert_eq!(frame.into_data().unwrap(), line);
    }
    let mut open = server.open_streams();
    drop(body);
    tokio::time::timeout(PATIENCE, open.wait_for(|open| *open == 0)).await.unwrap().unwrap();
}

#[tokio::test]
async fn exec_attach_and_port_forward_upgrade_and_carry_bytes_both_ways() {
    let (server, weir, _client) = forwarding().await;
    server
        .store()
        .put(json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "default"}}))
        .unwrap();
    let address = weir.url().strip_prefix("http://").unwrap().to_owned();
    for (sub, protocol) in [("exec", "websocket"), ("attach", "websocket"), ("portforward", "SPDY/3.1")] {
        let mut stream = tokio::net::TcpStream::connect(&address).await.unwrap();
        let head = format!(
            "GET /api/v1/namespaces/default/pods/p/{sub}?command=sh HTTP/1.1\r\nHost: weir\r\nUser-Agent: kubectl/v1\r\nConnection: Upgrade\r\nUpgrade: {protocol}\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        while !answer.ends_with(b"\r\n\r\n") {
            let byte = tokio::time::timeout(PATIENCE, stream.read_u8()).await.unwrap().unwrap();
            answer.push(byte);
        }
        let answer = String::from_utf8(answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 101"), "{sub}: {answer}");
        assert!(answer.to_lowercase().contains(&format!("upgrade: {}", protocol.to_lowercase())), "{answer}");
        stream.write_all(b"\x00\x01\xffhello").await.unwrap();
        let mut echo = [0; 8];
        tokio::time::timeout(PATIENCE, stream.read_exact(&mut echo)).await.unwrap().unwrap();
        assert_eq!(&echo, b"\x00\x01\xffhello");
        drop(stream);
        let mut open = server.open_streams();
        tokio::time::timeout(PATIENCE, open.wait_for(|open| *open == 0)).await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn a_request_body_streams() {
    let (server, _weir, client) = forwarding().await;
    let big = "x".repeat(1 << 20);
    server.on_request(|_| Action::Serve);
    let mut object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "big"}, "data": {"a": big}});
    let client = client.with("content-type", "application/json");
    let answer = client.send(Method::POST, "/api/v1/namespaces/default/configmaps", object.to_string()).await;
    assert_eq!(answer.status(), 201);
    object["metadata"] = json!(null);
    assert_eq!(server.store().get("v1", "ConfigMap", "default", "big").unwrap()["data"], object["data"]);
}

#[tokio::test]
async fn a_missing_upstream_gives_a_status() {
    let (server, weir, client) = forwarding().await;
    drop(server);
    for path in ["/api/v1/nodes", "/api/v1/services"] {
        let answer = client.get(path).await;
        assert_eq!(answer.status, 503, "{path}");
        assert_eq!(answer.json()["reason"], "ServiceUnavailable");
        assert!(answer.headers.get("retry-after").is_none(), "client-go would sleep it out inside the call");
    }
    let _ = weir;
}

#[tokio::test]
async fn malformed_paths_are_400() {
    let (_server, weir, _client) = forwarding().await;
    let address = weir.url().strip_prefix("http://").unwrap().to_owned();
    for path in ["/api/v1/namespaces/default/../services", "/api/v1/nodes/a%2fb", "/api/v1/%zz"] {
        let mut stream = tokio::net::TcpStream::connect(&address).await.unwrap();
        let head = format!("GET {path} HTTP/1.1\r\nHost: weir\r\nConnection: close\r\n\r\n");
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut answer = String::new();
        tokio::time::timeout(PATIENCE, stream.read_to_string(&mut answer)).await.unwrap().unwrap();
        assert!(answer.starts_with("HTTP/1.1 400") && answer.contains("\"Status\""), "{path}: {answer}");
    }
}

#[tokio::test]
async fn http_1_0_clients_get_whole_answers() {
    let (_server, weir, _client) = forwarding().await;
    let address = weir.url().strip_prefix("http://").unwrap().to_owned();
    let mut stream = tokio::net::TcpStream::connect(&address).await.unwrap();
    stream.write_all(b"GET /api/v1/services HTTP/1.0\r\nHost: weir\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    tokio::time::timeout(PATIENCE, stream.read_to_string(&mut answer)).await.unwrap().unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.contains("200 OK") && !head.to_lowercase().contains("chunked"), "{head}");
    assert_eq!(weir_tests::client::names(&serde_json::from_str(body).unwrap()), ["dashboard", "kubernetes", "web"]);
}

#[tokio::test]
async fn many_requests_share_upstream_connections() {
    let (_server, weir, _client) = forwarding().await;
    let answers = futures_util::stream::iter(0..200).map(|_| {
        let client = weir.client("tool");
        async move { client.get("/api/v1/nodes").await.status }
    });
    let answers: Vec<_> = answers.buffer_unordered(50).collect().await;
    assert!(answers.iter().all(|status| *status == 200));
}
