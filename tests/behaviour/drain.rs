//! Graceful shutdown, and the next daemon on the same sockets: no request is lost in between.

use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, StatusCode};
use http_body_util::Empty;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use weir_apiserver::Action;
use weir_tests::client::{Client, Events, PATIENCE, whole};
use weir_tests::daemon::Setup;
use weir_tests::edge::api_server;

use super::{NO_LOAD_BALANCERS, edge, service};

const SERVICES: &str = "/api/v1/services";
const CREATE: &str = "/api/v1/namespaces/default/services";

#[tokio::test]
async fn requests_in_progress_finish_and_new_connections_are_refused() {
    let server = edge().await;
    let weir = Setup::new(server.url()).filters(NO_LOAD_BALANCERS).bundled("discardcloudservice").start_ready().await;
    let go = Arc::new(Notify::new());
    let gate = go.clone();
    server.on_request(move |request| {
        let gate = gate.clone();
        match request.header("user-agent").starts_with("tool") {
            true => Action::After(Box::pin(async move { gate.notified().await }), Box::new(Action::Serve)),
            false => Action::Serve,
        }
    });
    server.clear_requests();
    let mut requests = server.request_count();
    let clients =
        [(Method::GET, SERVICES), (Method::GET, "/api/v1/nodes"), (Method::POST, CREATE)].map(|(method, path)| {
            let client = weir.client("tool").with("content-type", "application/json");
            tokio::spawn(async move {
                whole(client.send(method, path, service("late", "ClusterIP").to_string()).await).await.unwrap().status
            })
        });
    let all = async {
        while server.requests().iter().filter(|request| request.header("user-agent").starts_with("tool")).count() < 3 {
            requests.changed().await.unwrap();
        }
    };
    tokio::time::timeout(PATIENCE, all).await.unwrap();
    let fresh = weir.client("probe");
    let stopped = tokio::spawn(weir.stop());
    let refused = async { while fresh.try_get("/version").await.is_ok() {} };
    tokio::time::timeout(PATIENCE, refused).await.expect("new connections are refused");
    assert!(clients.iter().all(|client| !client.is_finished()));
    go.notify_waiters();
    for client in clients {
        let status = client.await.unwrap();
        assert!(status.is_success(), "{status}");
    }
    assert_eq!(stopped.await.unwrap(), Some(0));
}

/// The socket stays open, and nobody but this daemon accepts from it until the next one.
#[tokio::test]
async fn clients_that_come_to_an_inherited_socket_during_the_drain_are_served_and_do_not_prolong_it() {
    let server = edge().await;
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let setup = Setup::new(server.url()).filters("filters: []").flag("--drain-timeout", "1h");
    let weir = setup.socket(socket.try_clone().unwrap()).start_ready().await;
    let go = Arc::new(Notify::new());
    let gate = go.clone();
    server.on_request(move |request| {
        let gate = gate.clone();
        match request.header("user-agent").starts_with("slow") {
            true => Action::After(Box::pin(async move { gate.notified().await }), Box::new(Action::Serve)),
            false => Action::Serve,
        }
    });
    let url = weir.url().to_owned();
    let mut requests = server.request_count();
    let (slow, open) = (weir.client("slow"), weir.client("tool"));
    let slow = tokio::spawn(async move { slow.try_get(SERVICES).await });
    let reached = async {
        while !server.requests().iter().any(|request| request.header("user-agent").starts_with("slow")) {
            requests.changed().await.unwrap();
        }
    };
    tokio::time::timeout(PATIENCE, reached).await.unwrap();
    // Its end says that the stop has begun.
    let watch = open.watch(&format!("{SERVICES}?watch=true")).await;
    let stopped = tokio::spawn(weir.stop());
    watch.rest().await.unwrap();

    let fresh = Client::new(&url, "tool").get(SERVICES).await;
    assert_eq!((fresh.status, fresh.headers["connection"].to_str().unwrap()), (StatusCode::OK, "close"));
    let fresh = Client::new(&url, "tool").get(&format!("{SERVICES}?watch=true")).await;
    assert_eq!(
        (fresh.status, &fresh.headers["retry-after"]),
        (StatusCode::TOO_MANY_REQUESTS, &http::HeaderValue::from(1))
    );
    // HTTP/2: one request, then GOAWAY ends the connection.
    let stream = tokio::net::TcpStream::connect(url.trim_start_matches("http://")).await.unwrap();
    let (mut sender, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    let request = http::Request::get(format!("{url}{SERVICES}")).body(Empty::<Bytes>::new()).unwrap();
    let (answer, ended) = tokio::join!(sender.send_request(request), tokio::time::timeout(PATIENCE, connection));
    assert_eq!(answer.unwrap().status(), StatusCode::OK);
    ended.expect("it ends").unwrap();
    assert!(!slow.is_finished() && !stopped.is_finished(), "the first request is still open");
    let crowd: Vec<_> = (0..4).map(|_| tokio::spawn(requests_without_end(url.clone()))).collect();
    let before = *requests.borrow_and_update();
    tokio::time::timeout(PATIENCE, requests.wait_for(|count| *count > before + 20)).await.unwrap().unwrap();
    go.notify_waiters();
    assert_eq!(slow.await.unwrap().unwrap().status, StatusCode::OK);
    assert_eq!(stopped.await.unwrap(), Some(0));
    crowd.iter().for_each(tokio::task::JoinHandle::abort);
}

/// Sends requests, each on a connection of its own.
async fn requests_without_end(url: String) {
    loop {
        // The last one waits for the next daemon.
        let _ = Client::new(&url, "crowd").try_get("/api/v1/nodes").await;
    }
}

#[tokio::test]
async fn watches_end_cleanly_filtered_or_not_in_json_and_protobuf() {
    for caches in [|setup: Setup| setup, Setup::uncached] {
        let server = edge().await;
        // A watch that held the stop would hold it for longer than the test waits.
        let setup = Setup::new(server.url()).filters(NO_LOAD_BALANCERS).flag("--drain-timeout", "1h");
        let weir = caches(setup).bundled("discardcloudservice").start_ready().await;
        let mut open = Vec::new();
        for path in [SERVICES, "/api/v1/nodes"] {
            for accept in ["application/json", "application/vnd.kubernetes.protobuf"] {
                let events = weir.client("tool").with("accept", accept).watch(&format!("{path}?watch=true")).await;
                open.push((path, accept, events));
            }
        }
        assert_eq!(weir.stop().await, Some(0));
        for (path, accept, events) in open {
            let rest = events.rest().await;
            assert!(rest.is_ok(), "{path} {accept}: {rest:?}");
        }
    }
}

#[tokio::test]
async fn endless_responses_are_cut_at_the_deadline() {
    let server = edge().await;
    let weir = Setup::new(server.url()).filters("filters: []").flag("--drain-timeout", "300ms").start_ready().await;
    server.on_request(|request| match request.path == SERVICES {
        true => Action::Hang,
        false => Action::Serve,
    });
    let client = weir.client("tool");
    let waiting = tokio::spawn(async move { client.try_get(SERVICES).await });
    let mut requests = server.request_count();
    let reached = async {
        while !server.requests().iter().any(|request| request.path == SERVICES) {
            requests.changed().await.unwrap();
        }
    };
    tokio::time::timeout(PATIENCE, reached).await.unwrap();
    assert_eq!(weir.stop().await, Some(0));
    assert!(waiting.await.unwrap().is_err());
}

/// The results of 50 clients.
#[derive(Debug, Default)]
struct Seen {
    answered: AtomicUsize,
    watches: AtomicUsize,
}

async fn client(number: usize, url: String, seen: Arc<Seen>, end: CancellationToken) -> Result<(), String> {
    let client = Client::new(&url, "kube-proxy").with("content-type", "application/json");
    let mut round = 0;
    while !end.is_cancelled() {
        round += 1;
        match number % 5 {
            0 => {
                let path = format!("{SERVICES}?watch=true");
                let answer = client.try_send(Method::GET, &path, Bytes::new()).await?;
                // client-go tries again by itself after a response like this one.
                let retries = answer.headers().contains_key("retry-after");
                if retries && answer.status() == StatusCode::TOO_MANY_REQUESTS {
                    continue;
                }
                let mut events = Events::of(&path, answer)?;
                seen.watches.fetch_add(1, Ordering::Relaxed);
                loop {
                    tokio::select! {
                        event = events.try_next() => if event?.is_none() { break },
                        () = end.cancelled() => return Ok(()),
                    }
                }
            }
            1 => {
                let object = service(&format!("s-{number}-{round}"), "ClusterIP").to_string();
                let answer = whole(client.try_send(Method::POST, CREATE, object).await?).await?;
                if answer.status != 201 {
                    return Err(format!("created: {} {}", answer.status, answer.text()));
                }
                seen.answered.fetch_add(1, Ordering::Relaxed);
            }
            _ => {
                let path = if number.is_multiple_of(2) { SERVICES } else { "/api/v1/nodes" };
                let answer = client.try_get(path).await?;
                if answer.status != 200 {
                    return Err(format!("{path}: {} {}", answer.status, answer.text()));
                }
                seen.answered.fetch_add(1, Ordering::Relaxed);
            }
        }
        tokio::time::sleep(Duration::from_millis(5 + (number as u64 * 7) % 40)).await;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fifty_clients_without_watch_caches_lose_no_request_over_rolling_restarts() {
    rolling_restarts(Setup::uncached).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fifty_clients_lose_no_request_over_rolling_restarts() {
    rolling_restarts(|setup| setup).await;
}

async fn rolling_restarts(caches: impl Fn(Setup) -> Setup) {
    let server = api_server().record(100).start().await.unwrap();
    server.store().load(include_str!("../demo/cluster.yaml")).unwrap();
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", socket.local_addr().unwrap());
    let start = || {
        let setup = Setup::new(server.url()).filters(NO_LOAD_BALANCERS).bundled("discardcloudservice");
        caches(setup).socket(socket.try_clone().unwrap()).start_ready()
    };
    let mut weir = start().await;
    assert_eq!(weir.url(), url);
    let (seen, end) = (Arc::new(Seen::default()), CancellationToken::new());
    let clients: Vec<_> =
        (0..50).map(|number| tokio::spawn(client(number, url.clone(), seen.clone(), end.clone()))).collect();
    let mut before = 0;
    for _ in 0..3 {
        // The next restart follows under real load.
        let busy = async {
            while seen.answered.load(Ordering::Relaxed) < before + 500 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(PATIENCE, busy).await.expect("requests continue");
        assert_eq!(weir.stop().await, Some(0));
        weir = start().await;
        before = seen.answered.load(Ordering::Relaxed);
    }
    let busy = async {
        while seen.answered.load(Ordering::Relaxed) < before + 500 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, busy).await.expect("requests continue");
    end.cancel();
    for client in clients {
        client.await.unwrap().unwrap();
    }
    let (answered, watches) = (seen.answered.load(Ordering::Relaxed), seen.watches.load(Ordering::Relaxed));
    assert!(answered >= 2000 && watches >= 40, "{answered} responses, {watches} watches");
    eprintln!("{answered} requests and {watches} watches over three restarts, none lost");
}

#[tokio::test]
async fn half_a_head_or_half_a_handshake_does_not_hold_the_stop() {
    let server = edge().await;
    let authority = weir_tests::pki::Authority::new("drain");
    let setup = Setup::new(server.url()).filters("filters: []").tls(&authority.server()).flag("--drain-timeout", "1h");
    let weir = setup.start_ready().await;
    let secure = weir.secure_url().await;
    let mut open = Vec::new();
    for (url, bytes) in
        [(weir.url(), &b"GET /api/v1/services HTTP/1.1\r\nHost: loc"[..]), (&secure, &[22, 3, 1, 2, 0, 1][..])]
    {
        let address = url.split("//").nth(1).unwrap();
        let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
        tokio::io::AsyncWriteExt::write_all(&mut stream, bytes).await.unwrap();
        open.push(stream);
    }
    assert_eq!(weir.stop().await, Some(0));
}
