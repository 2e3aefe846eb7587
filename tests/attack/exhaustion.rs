//! Clients that take memory, connections or file descriptors before, or without, being authenticated.

use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use http::{HeaderName, HeaderValue, Method, Request};
use http_body_util::{BodyExt as _, Empty};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use weir_apiserver::{Action, ApiServer};
use weir_tests::client::{Client, PATIENCE};
use weir_tests::daemon::{Daemon, Setup, own_uid};
use weir_tests::edge::{NO_LOAD_BALANCERS, api_server, edge, grant_impersonation, service};
use weir_tests::node_reads::NodeReads;
use weir_tests::pki::Authority;

const SERVICES: &str = "/api/v1/services";
/// The start of an HTTP/2 connection: the preface, and an empty SETTINGS frame.
const HTTP2: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

async fn filtering() -> (ApiServer, Daemon) {
    let server = api_server().record(16).start().await.unwrap();
    server.store().load(include_str!("../demo/cluster.yaml")).unwrap();
    let weir = Setup::new(server.url()).filters(NO_LOAD_BALANCERS).bundled("discardcloudservice").start_ready().await;
    assert_eq!(weir.client("warm").get(SERVICES).await.status, 200);
    (server, weir)
}

/// Reads of the node, until they are ended.
async fn reads(weir: &Daemon) -> NodeReads {
    NodeReads::start(weir.client("kubelet"), weir.client("kube-proxy")).await
}

#[tokio::test]
async fn a_read_of_the_node_that_is_not_served_meanwhile_is_seen() {
    let server = api_server().record(16).start().await.unwrap();
    server.store().load(include_str!("../demo/cluster.yaml")).unwrap();
    // Each of its reads goes to the API server.
    let weir = Setup::new(server.url()).filters("filters: []").uncached().start_ready().await;
    let served = reads(&weir).await;
    assert_eq!(weir.client("tool").get(SERVICES).await.status, 200);
    served.end().await;
    for path in ["/api/v1/nodes/edge-a", "/api/v1/pods", "/api/v1/services", "/apis/discovery.k8s.io/v1/endpointslices"]
    {
        server.clear_hook();
        let refused = reads(&weir).await;
        server.on_request(move |request| match request.path == path {
            true => Action::json(429, r#"{"kind":"Status","apiVersion":"v1","code":429}"#),
            false => Action::Serve,
        });
        let from = server.requests().last().map_or(0, |request| request.number);
        let mut count = server.request_count();
        while !server.requests().iter().any(|request| request.number > from && request.path == path) {
            count.changed().await.unwrap();
        }
        let error = refused.ended().await.expect_err(path);
        assert!(error.starts_with(path) && error.contains("429"), "{error}");
    }
}

async fn connect(url: &str) -> TcpStream {
    TcpStream::connect(url.strip_prefix("http://").unwrap()).await.unwrap()
}

#[tokio::test]
async fn long_user_agents_are_not_kept() {
    let (_server, weir) = filtering().await;
    let node = reads(&weir).await;
    let before = weir.resident();
    for n in 0..1100 {
        let client = weir.client(&format!("{n}-{}", "a".repeat(60 << 10)));
        assert_eq!(client.get(SERVICES).await.status, 200);
    }
    node.end().await;
    weir.settles_at(before).await;
}

#[tokio::test]
async fn unfinished_heads_take_little_and_are_given_back() {
    let (_server, weir) = filtering().await;
    let node = reads(&weir).await;
    let before = weir.resident();
    let mut open = Vec::new();
    let head = format!("GET {SERVICES} HTTP/1.1\r\nHost: weir\r\nX: {}", "a".repeat(60 << 10));
    for _ in 0..1000 {
        let mut stream = connect(weir.url()).await;
        stream.write_all(head.as_bytes()).await.unwrap();
        open.push(stream);
    }
    assert_eq!(weir.client("other").names(SERVICES).await.len(), 3);
    let during = weir.resident();
    eprintln!("1000 heads of 60 KiB: {before:.1} MiB before, {during:.1} MiB with them");
    assert!(during < before + 130.0, "{before:.1} MiB before, {during:.1} MiB with them");
    // More than 64 KiB is refused, not kept.
    let mut long = connect(weir.url()).await;
    long.write_all(format!("{head}{}", "a".repeat(10 << 10)).as_bytes()).await.unwrap();
    let mut answer = String::new();
    let _ = tokio::time::timeout(PATIENCE, long.read_to_string(&mut answer)).await.expect("it is closed");
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 431"), "{answer}");
    drop(open);
    node.end().await;
    weir.settles_at(before).await;
}

/// A small field of HTTP/2 is a byte on the wire, and more than a hundred in memory.
#[tokio::test]
async fn requests_with_a_thousand_fields_take_the_share_of_their_client() {
    let (server, weir) = filtering().await;
    server.on_request(|request| if request.path == "/api/v1/secrets" { Action::Hang } else { Action::Serve });
    let url = format!("{}/api/v1/secrets?watch=1", weir.url());
    let before = weir.resident();
    weir.forget_peak();
    let (mut connections, mut answers) = (Vec::new(), FuturesUnordered::new());
    for _ in 0..10 {
        let stream = TokioIo::new(connect(weir.url()).await);
        let (mut sender, connection) = http2::handshake(TokioExecutor::new(), stream).await.unwrap();
        connections.push(tokio::spawn(connection));
        for _ in 0..200 {
            let mut request = Request::get(&url).body(Empty::<Bytes>::new()).unwrap();
            for n in 0..1000 {
                let name = HeaderName::try_from(format!("z{n}")).unwrap();
                request.headers_mut().insert(name, HeaderValue::from_static(""));
            }
            answers.push(sender.send_request(request));
        }
    }
    // Each of the others takes some 260 KiB.
    for n in 0..1700 {
        let answer = tokio::time::timeout(PATIENCE, answers.next()).await.expect("more are refused").unwrap().unwrap();
        assert_eq!((answer.status().as_u16(), answer.headers()["retry-after"].to_str().unwrap()), (429, "1"), "{n}");
    }
    let peak = weir.peak();
    eprintln!("2000 requests with 1000 fields: {before:.1} MiB before, {peak:.1} MiB at most");
    assert!(peak < before + 200.0, "{before:.1} MiB before, {peak:.1} MiB at most");
    drop(answers);
    connections.iter().for_each(tokio::task::JoinHandle::abort);
    assert_eq!(weir.client("other").names(SERVICES).await.len(), 3);
    weir.settles_at(before).await;
}

#[tokio::test]
async fn idle_connections_of_one_user_shut_nobody_out() {
    let (_server, weir) = filtering().await;
    let node = reads(&weir).await;
    let before = weir.resident();
    let mut idle = Vec::new();
    for _ in 0..5000 {
        let mut stream = connect(weir.url()).await;
        // The daemon may have closed it already, for a newer one.
        let _ = stream.write_all(HTTP2).await;
        idle.push(stream);
    }
    assert_eq!(weir.client("other").names(SERVICES).await.len(), 3, "the newest is served");
    if own_uid() == 0 {
        let get = "GET /version HTTP/1.0\r\nHost: localhost\r\n\r\n";
        let answer = weir.as_nobody(get, "cat <&3").await;
        assert!(answer.starts_with("HTTP/1.0 200"), "{answer}");
    }
    // The oldest ones were closed: half of 4,096 connections are the share of a user.
    let closed = async {
        for stream in idle.iter_mut().take(5000 - 2048) {
            let _ = stream.read_to_end(&mut Vec::new()).await;
        }
    };
    tokio::time::timeout(PATIENCE, closed).await.expect("the oldest are closed");
    drop(idle);
    node.end().await;
    weir.settles_at(before).await;
}

#[tokio::test]
async fn a_request_outlasts_idle_connections_of_its_own_user() {
    let (_server, weir) = filtering().await;
    let node = reads(&weir).await;
    let mut watch = weir.client("kube-proxy").watch("/api/v1/services?watch=true").await;
    let mut idle = Vec::new();
    for _ in 0..2100 {
        idle.push(connect(weir.url()).await);
    }
    assert_eq!(weir.client("other").names(SERVICES).await.len(), 3);
    while watch.next_named().await != "ADDED web" {}
    node.end().await;
}

#[tokio::test]
async fn the_limit_of_open_files_is_raised_and_leaves_room_for_the_daemon() {
    for (soft, hard) in [(1024, 8192), (512, 512)] {
        let server = edge().await;
        let weir = Setup::new(server.url())
            .filters(NO_LOAD_BALANCERS)
            .bundled("discardcloudservice")
            .open_files(soft, hard)
            .start_ready()
            .await;
        let mut idle = Vec::new();
        for _ in 0..1100 {
            idle.push(connect(weir.url()).await);
        }
        assert_eq!(weir.admin().get("/readyz").await.status, 200);
        assert_eq!(weir.client("other").names(SERVICES).await.len(), 3);
        assert!(!weir.log_text().contains("cannot accept"), "{}", weir.log_text());
        weir.logged("the limit of open files allows each port fewer connections").await;
    }
}

#[tokio::test]
async fn long_selectors_are_not_kept_by_reviews() {
    let (ca, clients) = (Authority::new("weir"), Authority::new("clients"));
    let server = api_server().record(16).start().await.unwrap();
    server.store().load(include_str!("../demo/cluster.yaml")).unwrap();
    grant_impersonation(&server, &["tenant"], "tenants");
    let weir = Setup::new(server.url())
        .filters("filters: []")
        .tls(&ca.server())
        .file("--client-ca-file", "clients.crt", clients.pem())
        .start_ready()
        .await;
    let shown = clients.client("tenant", "tenants");
    let client = Client::trusting(&weir.secure_url().await, "tool", Some(ca.pem()), Some(&shown));
    assert_eq!(client.get(SERVICES).await.status, 200);
    let node = reads(&weir).await;
    let before = weir.resident();
    for n in 0..1000 {
        let selector = format!("a{n}%3D{}", "b".repeat(50_000));
        let answer = client.send(Method::GET, &format!("{SERVICES}?labelSelector={selector}"), "").await;
        answer.into_body().collect().await.unwrap();
    }
    node.end().await;
    weir.settles_at(before).await;
}

#[tokio::test]
async fn unread_objects_stay_within_the_memory_for_responses_and_give_way() {
    let server = api_server().record(16).start().await.unwrap();
    let mut big = service("big", "ClusterIP");
    big["metadata"]["annotations"] = json!({"large": "x".repeat(8 << 20)});
    server.store().put(big).unwrap();
    let setup = Setup::new(server.url()).filters(NO_LOAD_BALANCERS).bundled("discardcloudservice");
    // A quarter of it is for responses, and half of that for other clients than node components.
    let weir = setup.uncached().flag("--memory", "128Mi").start_ready().await;
    let big = "/api/v1/namespaces/default/services/big";
    assert_eq!(weir.client("kube-proxy").get(big).await.status, 200);
    let before = weir.resident();
    let mut unread = Vec::new();
    // The system takes up to 4 MiB of each.
    for _ in 0..60 {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(4096).unwrap();
        let address = weir.url().strip_prefix("http://").unwrap().parse().unwrap();
        let mut stream = socket.connect(address).await.unwrap();
        let get = format!("GET {big} HTTP/1.1\r\nHost: weir\r\nUser-Agent: kube-proxy/v1\r\n\r\n");
        stream.write_all(get.as_bytes()).await.unwrap();
        unread.push(stream);
    }
    let (mut most, client) = (weir.resident(), weir.client("kube-proxy"));
    let answered = async {
        // One that waits for longer than 10 s gets 429, and tries again.
        while client.get(big).await.status != 200 {}
    };
    tokio::pin!(answered);
    loop {
        tokio::select! {
            () = &mut answered => break,
            () = tokio::time::sleep(Duration::from_millis(20)) => most = most.max(weir.resident()),
        }
    }
    weir.logged("response given up").await;
    eprintln!("60 objects of 8 MiB that nobody reads: {before:.1} MiB before, {most:.1} MiB at most");
    assert!(most < before + 100.0, "{before:.1} MiB before, {most:.1} MiB at most");
    drop(unread);
    weir.settles_at(before).await;
}

#[tokio::test]
async fn the_admin_port_answers_probes_whatever_is_open() {
    let (_server, weir) = filtering().await;
    let mut open = Vec::new();
    for n in 0..200 {
        let mut stream = connect(weir.admin_url()).await;
        let head = if n % 2 == 0 { "GET /livez HTTP/1.1\r\nHost: a\r\n" } else { "" };
        let _ = stream.write_all(head.as_bytes()).await;
        open.push(stream);
    }
    for path in ["/livez", "/readyz", "/filters", "/metrics"] {
        assert_eq!(weir.admin().get(path).await.status, 200, "{path}");
    }
    for path in ["/filters", "/caches", "/metrics"] {
        let foreign = weir.admin().with("host", "evil.example:10267").get(path).await;
        assert_eq!(foreign.status, 403, "{path}: a web page may read nothing");
    }
}
