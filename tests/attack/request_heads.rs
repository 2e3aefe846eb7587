//! Request heads that the HTTP parser refuses, and ones with many fields that it must not refuse.

use std::fmt::Write as _;

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt as _, Empty};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use weir_apiserver::ApiServer;
use weir_tests::client::PATIENCE;
use weir_tests::daemon::{Daemon, Setup};
use weir_tests::edge::{edge, of_clients};

const SERVICES: &str = "/api/v1/services";
const EXEC: &str = "/api/v1/namespaces/default/pods/web/exec?command=sh&stdin=true";

async fn forwarding() -> (ApiServer, Daemon) {
    let server = edge().await;
    let weir = Setup::new(server.url()).filters("filters: []").start_ready().await;
    server.clear_requests();
    (server, weir)
}

async fn connect(weir: &Daemon) -> TcpStream {
    TcpStream::connect(weir.url().strip_prefix("http://").unwrap()).await.unwrap()
}

/// The answer to these bytes, until the daemon closes the connection: head and body.
async fn answer(weir: &Daemon, bytes: &str) -> (String, String) {
    let mut stream = connect(weir).await;
    stream.write_all(bytes.as_bytes()).await.expect("the daemon reads on until it has answered");
    let mut text = String::new();
    let read = tokio::time::timeout(PATIENCE, stream.read_to_string(&mut text)).await.expect("it is closed");
    read.expect("the connection is not reset before the answer is read");
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    (head.to_owned(), body.to_owned())
}

fn assert_status(head: &str, body: &str, code: u16, word: &str) {
    assert!(head.starts_with(&format!("HTTP/1.1 {code} ")), "{head}");
    assert!(head.contains("content-type: application/json"), "{head}");
    let status: Value = serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {head}\n{body:?}"));
    assert_eq!((status["kind"].as_str(), status["code"].as_u64()), (Some("Status"), Some(code.into())), "{status}");
    assert!(status["message"].as_str().unwrap().contains(word), "{status}");
}

#[tokio::test]
async fn ninety_impersonated_groups_reach_the_api_server_also_on_exec() {
    let (server, weir) = forwarding().await;
    let mut fields =
        "Host: weir\r\nUser-Agent: kubectl/1\r\nAuthorization: Bearer alice\r\nImpersonate-User: bob\r\n".to_owned();
    for n in 0..90 {
        let _ = write!(fields, "Impersonate-Group: group-{n}\r\n");
    }
    for n in 0..20 {
        let _ = write!(fields, "X-Stream-Protocol-Version: v{n}.channel.k8s.io\r\n");
    }
    let upgrade = "Connection: Upgrade\r\nUpgrade: SPDY/3.1\r\n";
    for (path, more) in [(SERVICES, "Connection: close\r\n"), (EXEC, upgrade)] {
        let mut stream = connect(&weir).await;
        stream.write_all(format!("GET {path} HTTP/1.1\r\n{fields}{more}\r\n").as_bytes()).await.unwrap();
        let mut head = [0; 12];
        tokio::time::timeout(PATIENCE, stream.read_exact(&mut head)).await.expect("an answer").unwrap();
        let expected = if path == EXEC { "HTTP/1.1 101" } else { "HTTP/1.1 200" };
        assert_eq!(String::from_utf8_lossy(&head), expected, "{path}");
    }
    let sent = server.requests();
    for path in [SERVICES, EXEC.split('?').next().unwrap()] {
        let request = sent.iter().find(|request| request.path == path).unwrap();
        assert_eq!(request.headers.get_all("impersonate-group").iter().count(), 90, "{path}");
    }
}

#[tokio::test]
async fn a_refused_head_gets_a_status_and_a_log_line_with_address_and_reason() {
    let (server, weir) = forwarding().await;
    let head = |fields: &str| format!("GET {SERVICES} HTTP/1.1\r\nHost: weir\r\n{fields}\r\n");
    let fields = |count: usize| (0..count).map(|n| format!("X-{n}: a\r\n")).collect::<String>();
    let (ended, _) = answer(&weir, &head(&(fields(1022) + "Connection: close\r\n"))).await;
    assert!(ended.starts_with("HTTP/1.1 200 "), "1,024 fields are allowed: {ended}");
    server.clear_requests();
    for (bytes, code, word) in [
        (head(&fields(1024)), 431, "1024 header fields"),
        (head(&format!("X: {}\r\n", "a".repeat(80 << 10))), 431, "64 KiB"),
        // The daemon answers before the client has sent all of it.
        (head(&format!("X: {}\r\n", "a".repeat(900 << 10))), 431, "64 KiB"),
        (format!("GET {SERVICES}?labelSelector=a<b HTTP/1.1\r\nHost: weir\r\n\r\n"), 400, "percent-encoded"),
        (format!("GET {SERVICES}?x=> HTTP/1.1\r\nHost: weir\r\n\r\n"), 400, "percent-encoded"),
        (format!("GET {SERVICES}?x=\" HTTP/1.1\r\nHost: weir\r\n\r\n"), 400, "percent-encoded"),
        (head("X y\r\n"), 400, "not valid HTTP"),
        ("\x16\x03\x01 is TLS\r\n\r\n".to_owned(), 400, "not valid HTTP"),
    ] {
        let from = weir.log_length();
        let (head, body) = answer(&weir, &bytes).await;
        assert_status(&head, &body, code, word);
        let (_, line) = weir.logged_after(from, "its head is invalid or too large").await;
        let text = line.to_string();
        assert!(
            text.contains("127.0.0.1:") && !line["fields"]["error"].as_str().unwrap_or_default().is_empty(),
            "{text}"
        );
    }
    assert_eq!(of_clients(&server), [""; 0], "nothing was sent");
    // A client that causes many does not fill the log.
    let from = weir.log_length();
    for _ in 0..200 {
        let (head, body) = answer(&weir, "GET /< HTTP/1.1\r\n\r\n").await;
        assert_status(&head, &body, 400, "percent-encoded");
    }
    let text = weir.log_text();
    let lines = text.get(from..).unwrap_or_default().matches("its head is invalid or too large").count();
    assert!(lines <= 40, "{lines} lines for 200 requests");
}

#[tokio::test]
async fn a_request_before_a_refused_one_on_the_same_connection_keeps_its_answer() {
    let (_server, weir) = forwarding().await;
    let good = format!("GET {SERVICES} HTTP/1.1\r\nHost: weir\r\nAuthorization: Bearer a\r\n\r\n");
    let mut stream = connect(&weir).await;
    stream.write_all(good.as_bytes()).await.unwrap();
    let mut seen = String::new();
    while !seen.contains("\"web\"") || !seen.trim_end().ends_with(['}', '0']) {
        let mut piece = [0; 16 << 10];
        let read = tokio::time::timeout(PATIENCE, stream.read(&mut piece)).await.expect("an answer").unwrap();
        seen.push_str(&String::from_utf8_lossy(&piece[..read]));
    }
    assert!(seen.starts_with("HTTP/1.1 200 "), "{seen}");
    stream.write_all(b"GET /a?b=< HTTP/1.1\r\n\r\n").await.unwrap();
    let mut rest = String::new();
    tokio::time::timeout(PATIENCE, stream.read_to_string(&mut rest)).await.expect("it is closed").unwrap();
    let (_, refused) = rest.split_once("HTTP/1.1 400 ").expect("a refusal");
    let (head, body) = refused.split_once("\r\n\r\n").unwrap();
    assert_status(&format!("HTTP/1.1 400 {head}"), body, 400, "percent-encoded");
}

#[tokio::test]
async fn over_http2_a_large_head_gets_a_status_too() {
    let (server, weir) = forwarding().await;
    let stream = TokioIo::new(connect(&weir).await);
    let (mut sender, connection) = http2::handshake(TokioExecutor::new(), stream).await.unwrap();
    tokio::spawn(connection);
    for (fields, code) in [(1000, 200), (1400, 431)] {
        let mut request = Request::get(format!("{}{SERVICES}", weir.url())).header("authorization", "Bearer a");
        for n in 0..fields {
            request = request.header("impersonate-group", format!("group-{n}"));
        }
        let request = request.body(Empty::<Bytes>::new()).unwrap();
        let answer = sender.send_request(request).await.unwrap();
        assert_eq!(answer.status().as_u16(), code, "{fields} fields");
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        let body: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(body["kind"] == "Status", code == 431, "{body}");
    }
    weir.logged("its head is invalid or too large").await;
    let sent = of_clients(&server);
    assert_eq!(sent.iter().filter(|request| **request == format!("GET {SERVICES}")).count(), 1, "{sent:?}");
}
