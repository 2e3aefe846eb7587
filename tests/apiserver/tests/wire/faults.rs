//! Fault injection and its observable effects.

use std::sync::Arc;

use http::{Method, StatusCode};
use tokio::sync::Notify;
use weir_apiserver::{Action, ApiServer, End};

use crate::client::{Client, services, soon, start};

const SERVICES: &str = "/api/v1/services";

#[tokio::test]
async fn requests_are_recorded_as_they_arrived() {
    let (server, client) = start().await;
    let mut count = server.request_count();
    client.header("user-agent", "kube-proxy/v1").get("/api/v1/services?limit=1&a=%2F").await;
    soon(count.wait_for(|count| *count == 1)).await.unwrap();
    let requests = server.requests();
    assert_eq!((&requests[0].method, requests[0].target().as_str()), (&Method::GET, "/api/v1/services?limit=1&a=%2F"));
    assert_eq!(requests[0].header("user-agent"), "kube-proxy/v1");
    server.clear_requests();
    assert!(server.requests().is_empty());
}

#[tokio::test]
async fn a_hook_can_return_a_response() {
    let (server, client) = start().await;
    server.on_request(|request| match request.path.as_str() {
        "/api/v1/services" => Action::json(200, "{\"kind\":\"ServiceList\",\"items\":[{\"met"),
        "/api/v1/pods" => Action::answer(200, "text/html", "<html>"),
        _ => Action::Serve,
    });
    assert_eq!(client.get(SERVICES).await.bytes, "{\"kind\":\"ServiceList\",\"items\":[{\"met");
    assert_eq!(client.get("/api/v1/pods").await.headers["content-type"], "text/html");
    assert_eq!(client.get("/api/v1/nodes").await.status, StatusCode::OK);
    server.clear_hook();
    assert_eq!(client.get("/api/v1/pods").await.headers["content-type"], "application/json");
}

#[tokio::test]
async fn a_body_can_be_truncated_or_aborted() {
    let server = ApiServer::builder().start().await.unwrap();
    services(&server, 500);
    for client in [Client::of(&server), Client::http2(&server)] {
        server.on_request(|_| Action::Cut { after: 70_000, end: End::Clean });
        assert_eq!(client.get(SERVICES).await.bytes.len(), 70_000);
        server.on_request(|_| Action::Cut { after: 70_000, end: End::Abort });
        let mut body = client.stream(SERVICES).await;
        assert!(body.line().await.unwrap().is_err());
    }
}

#[tokio::test]
async fn a_fixed_body_is_served_for_its_path_only() {
    let server = ApiServer::builder().start().await.unwrap();
    let media = http::HeaderValue::from_static("application/vnd.kubernetes.protobuf");
    for length in [0, 1, 3 << 20, (3 << 20) + 17] {
        let body: Vec<u8> = (0..length).map(|n: usize| (n % 251) as u8).collect();
        server.fix(SERVICES, media.clone(), body.clone());
        for client in [Client::of(&server), Client::http2(&server)] {
            let answer = client.get("/api/v1/services?limit=500").await;
            assert_eq!(answer.text("content-type"), media);
            assert_eq!(answer.text("content-length"), length.to_string());
            assert!(answer.bytes == body, "{length}");
        }
    }
    assert_eq!(Client::of(&server).get("/api/v1/nodes").await.json()["kind"], "NodeList");
    assert_eq!(server.requests().len(), 9);
}

#[tokio::test]
async fn a_request_can_be_reset_or_held() {
    let server = ApiServer::builder().start().await.unwrap();
    for client in [Client::of(&server), Client::http2(&server)] {
        server.on_request(|_| Action::Reset);
        assert!(client.try_send(Method::GET, SERVICES, "", "").await.is_err());

        let go = Arc::new(Notify::new());
        let gate = Arc::clone(&go);
        server.on_request(move |_| {
            let gate = Arc::clone(&gate);
            Action::After(Box::pin(async move { gate.notified().await }), Box::new(Action::Serve))
        });
        let request = client.get(SERVICES);
        let release = async {
            let mut count = server.request_count();
            soon(count.changed()).await.unwrap();
            go.notify_one();
        };
        let (answer, ()) = tokio::join!(request, release);
        assert_eq!(answer.status, StatusCode::OK);
    }
}

#[tokio::test]
async fn broken_connections_end_their_streams_and_new_ones_work() {
    let server = ApiServer::builder().start().await.unwrap();
    for client in [Client::of(&server), Client::http2(&server)] {
        let mut watch = client.stream("/api/v1/services?watch=1").await;
        let mut open = server.open_watches();
        soon(open.wait_for(|open| *open == 1)).await.unwrap();
        server.break_connections();
        assert!(!matches!(watch.line().await, Some(Ok(_))));
        soon(open.wait_for(|open| *open == 0)).await.unwrap();
    }
    assert_eq!(Client::of(&server).get(SERVICES).await.status, StatusCode::OK);
}

#[tokio::test]
async fn a_stopped_server_frees_its_port_for_the_next() {
    let server = ApiServer::builder().start().await.unwrap();
    let address = server.address();
    let mut watch = Client::of(&server).stream("/api/v1/services?watch=1").await;
    server.stop().await;
    assert!(!matches!(watch.line().await, Some(Ok(_))));
    let server = ApiServer::builder().address(address).start().await.unwrap();
    assert_eq!(Client::of(&server).get("/livez").await.bytes, "ok");
}
