//! Watches whose clients read slowly or not at all: what they cost, and that nobody else notices.

use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpSocket, TcpStream};

use super::*;

const WATCH: &str = "/api/v1/services?watch=1&allowWatchBookmarks=true&resourceVersion=";
/// The size of the objects.
const LARGE: usize = 30_000;
/// The memory of all watches.
const MEMORY: usize = 1 << 20;

/// Asks for the watch over a WebSocket.
const WEBSOCKET: &str =
    "connection: Upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\nsec-websocket-key: a\r\n";

async fn cached() -> ProxyFixture {
    let fixture = fixture_with(|setup| {
        setup.cached = vec!["services".parse().unwrap()];
        setup.watch_memory = MEMORY;
    })
    .await;
    change(&fixture, 0);
    fixture
}

/// Changes one large object.
fn change(fixture: &ProxyFixture, n: usize) {
    put(fixture, "a", n);
}

fn put(fixture: &ProxyFixture, name: &str, n: usize) {
    let text = format!("{n} {}", "x".repeat(LARGE));
    let metadata = json!({"name": name, "namespace": "default", "labels": {"n": n.to_string(), "odd": (n % 2 == 1).to_string()}, "annotations": {"text": text}});
    let service =
        json!({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": {"ports": [{"port": 80}]}});
    fixture.server.store().put(service).unwrap();
}

/// Sends a watch request and reads nothing, not even the head.
async fn silent_watch(fixture: &ProxyFixture, from: &str, headers: &str) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    let address = fixture.url.strip_prefix("http://").unwrap();
    let mut stream = socket.connect(address.parse().unwrap()).await.unwrap();
    let request =
        format!("GET {WATCH}{from} HTTP/1.1\r\nhost: {address}\r\nuser-agent: kube-proxy/v1.34.0\r\n{headers}\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    stream
}

fn view(fixture: &ProxyFixture) -> Value {
    fixture.caches.to_json()["stores"][0]["views"][0].clone()
}

#[tokio::test]
async fn clients_that_read_nothing_are_ended_alone_and_their_memory_is_bounded() {
    let fixture = cached().await;
    let (_, list) = fixture.json("/api/v1/services?resourceVersion=0").await;
    let mut events = fixture.watch(&format!("{WATCH}{}", version(&list))).await;
    let _silent = silent_watch(&fixture, version(&list), "").await;
    let _silent_socket = silent_watch(&fixture, version(&list), WEBSOCKET).await;
    let mut n = 0;
    let end = tokio::time::Instant::now() + Duration::from_secs(60);
    // The system takes some megabytes for each silent client. Then they fall behind the history.
    while view(&fixture)["clients"] != 1 || n < 200 {
        assert!(tokio::time::Instant::now() < end, "{:#}", view(&fixture));
        n += 1;
        change(&fixture, n);
        let event = events.next().await.expect("the other client gets every event");
        assert_eq!(
            (&event["type"], &event["object"]["metadata"]["labels"]["n"]),
            (&json!("MODIFIED"), &json!(n.to_string()))
        );
        // The newest event is kept in any case.
        let kept = view(&fixture)["history"]["bytes"].as_u64().unwrap() as usize;
        assert!(kept <= MEMORY + 4 * LARGE, "{kept} after {n} events");
    }
    let mut registry = prometheus_client::registry::Registry::default();
    fixture.caches.metrics.register(&mut registry);
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
    assert!(text.contains("weir_cache_slow_watches_total{resource=\"services\"} 2\n"), "{text}");
}

#[tokio::test]
async fn of_the_whole_state_little_is_encoded_for_clients_that_read_nothing_and_it_counts() {
    const CLIENTS: usize = 8;
    let fixture = cached().await;
    // More than the buffers of the system take.
    for n in 0..400 {
        put(&fixture, &format!("s{n}"), n);
    }
    fixture.json("/api/v1/services?resourceVersion=0").await;
    let mut silent = Vec::new();
    for headers in ["", WEBSOCKET].into_iter().cycle().take(CLIENTS) {
        silent.push(silent_watch(&fixture, "0", headers).await);
    }
    let end = tokio::time::Instant::now() + Duration::from_secs(60);
    let (mut counted, mut most) = (0, 0);
    while view(&fixture)["clients"] != CLIENTS || counted == 0 {
        assert!(tokio::time::Instant::now() < end, "{:#}", view(&fixture));
        counted = view(&fixture)["history"]["bytes"].as_u64().unwrap() as usize;
        most = most.max(counted);
        tokio::task::yield_now().await;
    }
    assert!(most < CLIENTS * 20 * LARGE, "{most}");
}

#[tokio::test]
async fn a_client_that_leaves_is_not_counted_any_more() {
    let fixture = cached().await;
    let (_, list) = fixture.json("/api/v1/services?resourceVersion=0").await;
    let mut all = Vec::new();
    for _ in 0..4 {
        all.push(fixture.watch(&format!("{WATCH}{}", version(&list))).await);
    }
    assert_eq!(view(&fixture)["clients"], 4);
    all.truncate(1);
    let mut n = 0;
    while view(&fixture)["clients"] != 1 {
        n += 1;
        change(&fixture, n);
        assert_eq!(all[0].next_summary().await, "MODIFIED a");
    }
}

#[tokio::test]
async fn watches_with_equal_and_different_selectors_see_objects_enter_and_leave_them() {
    let fixture = cached().await;
    let informer = async |selector: &str| {
        let (_, list) = fixture.json(&format!("/api/v1/services?resourceVersion=0&labelSelector={selector}")).await;
        fixture.watch(&format!("{WATCH}{}&labelSelector={selector}", version(&list))).await
    };
    let mut odd = [informer("odd%3Dtrue").await, informer("odd%3Dtrue").await];
    let mut even = informer("odd%3Dfalse").await;
    // More selectors than events remember.
    let mut further = Vec::new();
    for n in 0..12 {
        further.push(informer(&format!("n%3D{n}")).await);
    }
    for n in [1, 3, 2] {
        change(&fixture, n);
    }
    for events in &mut odd {
        let seen = [events.next_summary().await, events.next_summary().await, events.next_summary().await];
        assert_eq!(seen, ["ADDED a", "MODIFIED a", "DELETED a"]);
    }
    assert_eq!([even.next_summary().await, even.next_summary().await], ["DELETED a", "ADDED a"]);
    for (n, events) in further.iter_mut().enumerate().filter(|(n, _)| [1, 3].contains(n)) {
        let seen = [events.next_summary().await, events.next_summary().await];
        assert_eq!(seen, ["ADDED a", "DELETED a"], "{n}");
    }
}

#[tokio::test]
async fn every_event_reaches_every_watch_once_and_in_order() {
    let fixture = fixture_with(|setup| setup.cached = vec!["services".parse().unwrap()]).await;
    change(&fixture, 0);
    let (_, list) = fixture.json("/api/v1/services?resourceVersion=0").await;
    let mut all = Vec::new();
    for _ in 0..50 {
        all.push(fixture.watch(&format!("{WATCH}{}", version(&list))).await);
    }
    let reads = all.into_iter().map(|mut events| async move {
        for n in 1..=100 {
            let event = events.next().await.expect("an event");
            assert_eq!(event["object"]["metadata"]["labels"]["n"], n.to_string());
        }
    });
    let changes = async {
        for n in 1..=100 {
            change(&fixture, n);
            tokio::task::yield_now().await;
        }
    };
    tokio::join!(futures_util::future::join_all(reads), changes);
    // Encoded once for all of them.
    let encoded = view(&fixture)["history"]["bytes"].as_u64().unwrap() as usize;
    assert!(encoded < 100 * 3 * LARGE, "{encoded}");
}
