//! Malicious and broken clients: smuggled requests, unusual paths, too many connections, bodies that nobody reads.

use std::time::Duration;

use bytes::Bytes;
use http::Method;
use http_body_util::BodyExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use weir_apiserver::{Action, ApiServer};
use weir_tests::client::{Client, PATIENCE};
use weir_tests::daemon::{Daemon, Setup};
use weir_tests::edge::{NO_LOAD_BALANCERS, api_server, edge, of_clients, service};
use weir_tests::pki::Authority;

const SERVICES: &str = "/api/v1/services";

async fn filtering() -> (ApiServer, Daemon) {
    let server = edge().await;
    let weir = Setup::new(server.url()).filters(NO_LOAD_BALANCERS).bundled("discardcloudservice").start_ready().await;
    server.clear_requests();
    (server, weir)
}

/// Sends bytes and reads until the daemon closes the connection.
async fn raw(weir: &Daemon, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(weir.url().strip_prefix("http://").unwrap()).await.unwrap();
    // The daemon may refuse before it has read everything.
    let _ = stream.write_all(bytes).await;
    let mut answer = Vec::new();
    let _ = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut answer)).await.expect("the connection is closed");
    String::from_utf8_lossy(&answer).into_owned()
}

#[tokio::test]
async fn an_ambiguous_request_is_refused_and_nothing_is_smuggled() {
    let (server, weir) = filtering().await;
    let inner = "GET /api/v1/secrets HTTP/1.1\r\nHost: weir\r\n\r\n";
    let length = inner.len();
    for head in [
        format!("Content-Length: {length}\r\nContent-Length: 0\r\n\r\n{inner}"),
        format!("Content-Length: 0, {length}\r\n\r\n{inner}"),
        format!("Content-Length: +{length}\r\n\r\n{inner}"),
        format!("Content-Length: -1\r\n\r\n{inner}"),
        format!("Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n{inner}"),
        format!("Transfer-Encoding: xchunked\r\n\r\n{inner}"),
        format!("Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n{inner}"),
        format!("X: a\r\n b: folded\r\nTransfer-Encoding:\x0bchunked\r\n\r\n0\r\n\r\n{inner}"),
        format!("X: a\x00b\r\n\r\n{inner}"),
    ] {
        let request = format!("POST /api/v1/namespaces/default/configmaps HTTP/1.1\r\nHost: weir\r\n{head}");
        let answer = raw(&weir, request.as_bytes()).await;
        assert!(answer.starts_with("HTTP/1.1 400"), "{head:?}: {answer:?}");
        assert_eq!(answer.matches("HTTP/1.1").count(), 1, "{head:?}: {answer:?}");
    }
    // With both lengths the chunked encoding counts, and the connection ends after it. The rest is not sent upstream
    // as a request.
    let both = format!(
        "POST /api/v1/namespaces/default/configmaps HTTP/1.1\r\nHost: weir\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n0\r\n\r\n{inner}"
    );
    let answer = raw(&weir, both.as_bytes()).await;
    assert_eq!(answer.matches("HTTP/1.1 ").count(), 1, "{answer}");
    assert!(server.requests().iter().all(|request| !request.path.contains("secrets")), "smuggled");
}

#[tokio::test]
async fn an_endless_or_oversized_request_head_is_refused() {
    let (server, weir) = filtering().await;
    let big = format!("GET {SERVICES} HTTP/1.1\r\nHost: weir\r\nX: {}\r\n\r\n", "a".repeat(1 << 20));
    let many: String = (0..5000).map(|n| format!("X-{n}: a\r\n")).collect();
    for head in [big, format!("GET {SERVICES} HTTP/1.1\r\nHost: weir\r\n{many}\r\n")] {
        let answer = raw(&weir, head.as_bytes()).await;
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 431"), "{:.200}", answer);
    }
    for head in ["GET / HTTP/9.9\r\n\r\n", "\r\n\r\n\x16\x03\x01", "GET  /api HTTP/1.1\r\n\r\n", "G\nET / HTTP/1.1\n\n"]
    {
        let answer = raw(&weir, head.as_bytes()).await;
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 4"), "{head:?}: {answer}");
    }
    assert_eq!(of_clients(&server), [""; 0]);
    assert_eq!(weir.client("tool").names(SERVICES).await.len(), 3, "it goes on");
}

#[tokio::test]
async fn no_spelling_of_a_path_bypasses_a_filter() {
    let (server, weir) = filtering().await;
    let hidden = "shop";
    let mut seen = 0;
    for path in [
        "/api/v1/services/",
        "/api/v1/services?",
        "/api/v1/services?watch=",
        "/api/v1//services",
        "//api/v1/services",
        "/api/v1/./services",
        "/api/v1/../v1/services",
        "/api/v1/%2e%2e/v1/services",
        "/api/v1/%73ervices",
        "/api/v1/services%2f",
        "/api/v1/services%00",
        "/api/v1/services;x=1",
        "/api/v1/services#x",
        "/api/v1/SERVICES",
        "/API/v1/services",
        "/api/v1/namespaces/default/services/shop",
        "/api/v1/namespaces/default/services/%73hop",
        "/api/v1/namespaces/default/services/shop/",
        "/api/v1/namespaces/default/services//shop",
        "/api/v1/namespaces/default/services/shop/status",
        "/api/v1/namespaces/default%2fservices/shop",
        "/api/v1/watch/services",
        "/api/v1/watch/namespaces/default/services/shop",
        "http://weir/api/v1/services",
        "\\api\\v1\\services",
        "/api/v1\\services",
    ] {
        for version in ["HTTP/1.1", "HTTP/1.0"] {
            let stream = async {
                let mut stream = TcpStream::connect(weir.url().strip_prefix("http://").unwrap()).await.unwrap();
                let head =
                    format!("GET {path} {version}\r\nHost: weir\r\nUser-Agent: tool/v1\r\nConnection: close\r\n\r\n");
                stream.write_all(head.as_bytes()).await.unwrap();
                let mut answer = Vec::new();
                // A watch does not end by itself. Its first bytes are enough.
                let _ = tokio::time::timeout(Duration::from_millis(300), stream.read_to_end(&mut answer)).await;
                String::from_utf8_lossy(&answer).into_owned()
            };
            let answer = stream.await;
            let leaks = answer.contains(&format!("\"name\":\"{hidden}\"")) && answer.contains("\"spec\"");
            assert!(!leaks, "{path}: {answer}");
            seen += usize::from(answer.contains("\"web\""));
        }
    }
    assert!(seen >= 4, "some of them are the list, filtered: {seen}");
    assert!(server.requests().iter().all(|request| !request.path.contains("..") && !request.path.contains("//")));
}

#[tokio::test]
async fn invalid_upstream_responses_give_a_status_and_are_never_taken_for_objects() {
    let (server, weir) = filtering().await;
    let client = weir.client("tool");
    let html = || Action::answer(200, "text/html", "<html>proxy login</html>");
    let redirect = || {
        let mut answer = http::Response::new(Bytes::new());
        *answer.status_mut() = http::StatusCode::FOUND;
        answer.headers_mut().insert("location", "http://elsewhere/".parse().unwrap());
        Action::Answer(answer)
    };
    server.on_request(move |_| html());
    for path in [SERVICES, "/api/v1/namespaces/default/services/web", "/api/v1/services?watch=true"] {
        let answer = client.get(path).await;
        assert_eq!((answer.status.as_u16(), answer.json()["kind"].as_str()), (502, Some("Status")), "{path}");
    }
    server.on_request(move |_| redirect());
    let answer = client.get(SERVICES).await;
    assert_eq!(answer.status, 302, "passed on as it is, never followed");
    // A body that stops after the head: only the client's timeout ends it. Then the upstream request ends too.
    server.on_request(|_| Action::Cut { after: 30, end: weir_apiserver::End::Abort });
    assert!(client.try_get(SERVICES).await.is_err() || client.get(SERVICES).await.status == 502);
}

#[tokio::test]
async fn a_client_that_does_not_read_uses_little_memory_and_blocks_nobody() {
    let (server, weir) = filtering().await;
    let body = Bytes::from(vec![b'x'; 64 << 20]);
    server.fix("/api/v1/nodes", "application/json".parse().unwrap(), body);
    let items: Vec<_> = (0..40_000).map(|n| service(&format!("s-{n}"), "ClusterIP").to_string()).collect();
    let list =
        format!("{{\"kind\":\"ServiceList\",\"apiVersion\":\"v1\",\"metadata\":{{}},\"items\":[{}]}}", items.join(","));
    server.fix("/api/v1/namespaces/a/services", "application/json".parse().unwrap(), list);
    let before = weir.resident();
    let mut held = Vec::new();
    for path in ["/api/v1/nodes", "/api/v1/namespaces/a/services"] {
        for _ in 0..8 {
            let mut body = weir.client("tool").send(Method::GET, path, "").await.into_body();
            // The daemon has read the first bytes, but not the rest.
            assert!(tokio::time::timeout(PATIENCE, body.frame()).await.unwrap().is_some());
            held.push(body);
        }
    }
    for _ in 0..20 {
        assert_eq!(weir.client("other").get("/version").await.status, 200);
    }
    let after = weir.resident();
    eprintln!("16 clients that do not read 64 and 8 MB: {before:.1} MiB before, {after:.1} MiB with them");
    assert!(after - before < 60.0, "{before} MiB before, {after} MiB after");
    drop(held);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_thousand_watches_share_the_connections_that_their_streams_need() {
    let ca = Authority::new("cluster");
    let pair = ca.server();
    let server =
        api_server().tls(pair.certificate.as_bytes(), pair.key.as_bytes()).max_streams(100).start().await.unwrap();
    // Shared views would serve those of Nodes.
    let weir = Setup::new(server.url())
        .filters(NO_LOAD_BALANCERS)
        .bundled("discardcloudservice")
        .file("--certificate-authority", "ca.crt", ca.pem())
        .uncached()
        .start_ready()
        .await;
    server.clear_requests();
    let before = weir.resident();
    let clients: Vec<_> = (0..50).map(|_| Client::new(weir.url(), "kube-proxy")).collect();
    let mut open = Vec::new();
    for n in 0..2000 {
        // Filtered Tables, and what no filter matches.
        let path = if n % 2 == 0 { "/api/v1/services?watch=true" } else { "/api/v1/nodes?watch=true" };
        let client = clients[n % clients.len()].clone();
        open.push(client.with("accept", "application/json;as=Table;v=v1;g=meta.k8s.io").watch(path).await);
    }
    let mut watches = server.open_watches();
    let all = watches.wait_for(|open| *open >= 2000);
    tokio::time::timeout(PATIENCE, all).await.expect("all watches are open upstream").unwrap();
    let after = weir.resident();
    let mut connections: Vec<_> = server
        .requests()
        .iter()
        .filter(|request| {
            request.query.contains("watch=true") && request.header("user-agent").starts_with("kube-proxy")
        })
        .map(|request| request.connection)
        .collect();
    connections.sort_unstable();
    connections.dedup();
    eprintln!("2000 watches over {} connections: {before:.1} MiB before, {after:.1} MiB with them", connections.len());
    // 100 streams each, and one connection that is not full on each daemon thread.
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    assert!((20..=20 + threads).contains(&connections.len()), "{}", connections.len());
    assert!(after < before + 100.0, "{before} MiB before, {after} MiB after");
    // A list does not wait for one of these streams, and each watch gets the event.
    assert_eq!(clients[0].get(SERVICES).await.status, 200);
    assert!(server.requests().last().is_some_and(|request| !connections.contains(&request.connection)));
    drop(open);
    let mut watches = server.open_watches();
    tokio::time::timeout(PATIENCE, watches.wait_for(|open| *open < 100)).await.expect("they end").unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_connections_are_limited_and_served_in_turn() {
    let (_server, weir) = filtering().await;
    let address = weir.url().strip_prefix("http://").unwrap().to_owned();
    let mut idle = Vec::new();
    for _ in 0..10_000 {
        let connected = tokio::time::timeout(Duration::from_secs(5), TcpStream::connect(&address)).await;
        match connected {
            Ok(Ok(stream)) => idle.push(stream),
            // The accept queue is full, so the other connections wait outside.
            Ok(Err(_)) | Err(_) => break,
        }
    }
    let with = weir.resident();
    eprintln!("{} connections: {with:.1} MiB", idle.len());
    assert!(idle.len() > 4096, "{}", idle.len());
    assert!(with < 150.0, "{with} MiB");
    assert_eq!(weir.admin().get("/livez").await.status, 200, "the admin port has its own");
    drop(idle);
    assert_eq!(weir.client("tool").names(SERVICES).await.len(), 3, "there is room again");
}
