//! Followed logs and upgraded connections.

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use weir_apiserver::ApiServer;

use crate::client::{soon, start};

const POD: &str = "/api/v1/namespaces/default/pods/p";

#[tokio::test]
async fn a_followed_log_streams_what_the_test_writes() {
    let (server, client) = start().await;
    let log = server.pod_log("default", "p");
    log.write("one\n");
    let mut lines = client.stream(&format!("{POD}/log?follow=true")).await;
    assert_eq!(lines.line().await.unwrap().unwrap(), "one");
    log.write("two\n");
    assert_eq!(lines.line().await.unwrap().unwrap(), "two");
    assert_eq!(client.get(&format!("{POD}/log")).await.bytes, "one\ntwo\n");
    log.close();
    assert!(lines.ends().await);
}

#[tokio::test]
async fn a_client_that_disconnects_frees_its_log() {
    let (server, client) = start().await;
    let mut open = server.open_streams();
    let lines = client.stream(&format!("{POD}/log?follow=true")).await;
    soon(open.wait_for(|open| *open == 1)).await.unwrap();
    drop(lines);
    soon(open.wait_for(|open| *open == 0)).await.unwrap();
}

#[tokio::test]
async fn an_upgraded_connection_echoes_until_it_ends() {
    let server = ApiServer::builder().start().await.unwrap();
    let mut open = server.open_streams();
    for (subresource, protocol) in [("exec", "SPDY/3.1"), ("attach", "websocket"), ("portforward", "websocket")] {
        let mut stream = TcpStream::connect(server.address()).await.unwrap();
        let request = format!(
            "POST {POD}/{subresource} HTTP/1.1\r\nhost: x\r\nconnection: Upgrade\r\nupgrade: {protocol}\r\nx-stream-protocol-version: v4.channel.k8s.io, v1\r\ncontent-length: 0\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(soon(stream.read_u8()).await.unwrap());
        }
        let head = String::from_utf8(head).unwrap().to_lowercase();
        assert!(head.starts_with("http/1.1 101"), "{head}");
        assert!(head.contains(&format!("upgrade: {}", protocol.to_lowercase())));
        assert!(head.contains("x-stream-protocol-version: v4.channel.k8s.io"));
        for sent in ["hello", "\u{0}\u{1}again"] {
            stream.write_all(sent.as_bytes()).await.unwrap();
            let mut back = vec![0; sent.len()];
            soon(stream.read_exact(&mut back)).await.unwrap();
            assert_eq!(back, sent.as_bytes());
        }
        soon(open.wait_for(|open| *open == 1)).await.unwrap();
        drop(stream);
        soon(open.wait_for(|open| *open == 0)).await.unwrap();
    }
}

#[tokio::test]
async fn without_an_upgrade_exec_is_a_bad_request_and_proxy_echoes_the_request_line() {
    let (_server, client) = start().await;
    assert_eq!(client.post(&format!("{POD}/exec"), &json!({})).await.status, 400);
    let answer = client.get("/api/v1/namespaces/default/services/s/proxy/a/b?c=d").await;
    assert_eq!(answer.bytes, "GET /api/v1/namespaces/default/services/s/proxy/a/b?c=d\n");
}
