//! Connections to the API server at the edge: dead connections, servers that disconnect clients or stop in the middle
//! of a response, outages, and slow clients.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use http::Method;
use tokio::io::{copy, copy_bidirectional, sink};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use weir_apiserver::{Action, ApiServer, Recorded};
use weir_tests::client::{Events, PATIENCE, streamed, whole};
use weir_tests::daemon::{Daemon, Setup};
use weir_tests::edge::api_server;
use weir_tests::pki::Authority;

use super::{NO_LOAD_BALANCERS, edge, service};

const SERVICES: &str = "/api/v1/services";

/// Filters with and without lookups.
const FILTERS: &str = "\
filters:
  - {name: discardcloudservice, module: discardcloudservice.wasm, match: ['*/services']}
  - {name: nodeportisolation, module: nodeportisolation.wasm, match: ['*/services']}
";

/// A TCP proxy that can drop all traffic of its open connections without closing them.
struct Link {
    address: SocketAddr,
    swallowed: watch::Sender<u64>,
}

impl Link {
    async fn start(target: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (swallowed, seen) = watch::channel(0);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(carry(client, target, seen.clone()));
            }
        });
        Self { address, swallowed }
    }

    fn swallow(&self) {
        self.swallowed.send_modify(|times| *times += 1);
    }
}

async fn carry(mut client: TcpStream, target: SocketAddr, mut swallowed: watch::Receiver<u64>) {
    swallowed.mark_unchanged();
    let mut server = TcpStream::connect(target).await.unwrap();
    tokio::select! {
        _ = copy_bidirectional(&mut client, &mut server) => return,
        _ = swallowed.changed() => {}
    }
    // It reads the bytes, so that the sender's kernel sees them acknowledged.
    let (mut nowhere, mut elsewhere) = (sink(), sink());
    let _ = tokio::join!(copy(&mut client, &mut nowhere), copy(&mut server, &mut elsewhere));
}

/// The demo's cluster behind TLS and HTTP/2, as real API servers are.
async fn secure_edge() -> (ApiServer, Authority) {
    let ca = Authority::new("cluster");
    let pair = ca.server();
    let server = api_server().tls(pair.certificate.as_bytes(), pair.key.as_bytes()).start().await.unwrap();
    server.store().load(include_str!("../demo/cluster.yaml")).unwrap();
    (server, ca)
}

async fn before(address: SocketAddr, ca: &Authority) -> Daemon {
    Setup::new(&format!("https://{address}"))
        .filters(FILTERS)
        .bundled("discardcloudservice")
        .bundled("nodeportisolation")
        .file("--certificate-authority", "ca.crt", ca.pem())
        // The tests are about what goes to the API server, watches too.
        .uncached()
        .start_ready()
        .await
}

/// Reads a watch until it ends or fails.
async fn ended(mut events: Events) {
    let end = async { while matches!(events.try_next().await, Ok(Some(_))) {} };
    tokio::time::timeout(PATIENCE, end).await.expect("the watch ends");
}

async fn wait_for_request(server: &ApiServer, what: impl Fn(&Recorded) -> bool) {
    let mut count = server.request_count();
    let found = async {
        while !server.requests().iter().any(&what) {
            count.changed().await.unwrap();
        }
    };
    tokio::time::timeout(PATIENCE, found).await.expect("such a request in time");
}

fn by_daemon(request: &Recorded) -> bool {
    request.header("user-agent").starts_with("weir/")
}

#[tokio::test]
async fn pings_detect_dead_connections_and_clients_recover() {
    let (server, ca) = secure_edge().await;
    let link = Link::start(server.address()).await;
    let weir = before(link.address, &ca).await;
    let client = weir.client("tool");
    let (mut filtered, forwarded) =
        (client.watch(&format!("{SERVICES}?watch=true")).await, client.watch("/api/v1/nodes?watch=true").await);
    assert_eq!(client.names(SERVICES).await.len(), 3);
    server.clear_requests();
    link.swallow();
    let began = Instant::now();
    let looked_up = wait_for_request(&server, |request| by_daemon(request) && request.path.ends_with("/nodes"));
    // The list is sent into the dead connection, and again over a new one. A forwarded watch ends, so that its client reconnects.
    let (names, (), ()) = tokio::join!(client.names(SERVICES), ended(forwarded), looked_up);
    assert_eq!(names, ["dashboard", "kubernetes", "web"]);
    eprintln!("a dead connection was found after {:?}", began.elapsed());
    // The view of the filtered one reads over a new connection, too.
    server.store().put(service("later", "ClusterIP")).unwrap();
    while filtered.next_named().await != "ADDED later" {}
}

#[tokio::test]
async fn goaway_moves_requests_to_new_connections_without_errors() {
    let (server, ca) = secure_edge().await;
    let weir = before(server.address(), &ca).await;
    let client = weir.client("tool").with("content-type", "application/json");
    let (release, held) = watch::channel(false);
    server.on_request(move |request| match request.query.contains("limit=7") {
        true => {
            let mut held = held.clone();
            let released = async move { drop(held.wait_for(|released| *released).await) };
            Action::After(Box::pin(released), Box::new(Action::Serve))
        }
        false => Action::Serve,
    });
    let mut watch = client.watch(&format!("{SERVICES}?watch=true&resourceVersion=0")).await;
    for _ in 0..3 {
        assert!(watch.next_named().await.starts_with("ADDED"));
    }
    server.clear_requests();
    let slow = tokio::spawn({
        let client = client.clone();
        async move { client.names(&format!("{SERVICES}?limit=7")).await }
    });
    wait_for_request(&server, |request| request.query.contains("limit=7")).await;
    let old = server.requests()[0].connection;
    // Repeatedly, during reads and writes.
    let lists = async {
        for _ in 0..100 {
            assert!(client.names(SERVICES).await.len() >= 3);
        }
    };
    let writes = async {
        for n in 0..100 {
            let body = service(&format!("new-{n}"), "ClusterIP").to_string();
            let created = client.send(Method::POST, "/api/v1/namespaces/default/services", body).await;
            assert_eq!(created.status(), 201, "{:?}", whole(created).await.unwrap().text());
        }
    };
    let work = async { tokio::join!(lists, writes) };
    tokio::pin!(work);
    loop {
        server.drain_connections();
        tokio::select! {
            _ = &mut work => break,
            () = tokio::time::sleep(Duration::from_millis(5)) => {}
        }
    }
    let mut connections: Vec<_> = server.requests().iter().map(|request| request.connection).collect();
    connections.sort_unstable();
    connections.dedup();
    assert!(connections.len() > 2, "{connections:?}");
    // Requests in progress finish on their connection.
    release.send_replace(true);
    assert!(slow.await.unwrap().len() >= 3);
    assert!(server.requests().iter().filter(|request| request.connection == old).count() >= 1);
    for n in 0..100 {
        assert_eq!(watch.next_named().await, format!("ADDED new-{n}"));
    }
}

#[tokio::test]
async fn leases_and_status_do_not_wait_for_lists_or_watches() {
    let (server, ca) = secure_edge().await;
    let weir = before(server.address(), &ca).await;
    let client = weir.client("kubelet").with("content-type", "application/json");
    server.clear_requests();
    let _watch = client.watch("/api/v1/nodes?watch=true").await;
    for path in [SERVICES, "/api/v1/nodes", "/version"] {
        assert_eq!(client.get(path).await.status, 200);
    }
    let lease = r#"{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{"name":"edge-a"},"spec":{}}"#;
    let leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";
    assert_eq!(client.send(Method::POST, leases, lease).await.status(), 201);
    assert_eq!(client.get(&format!("{leases}/edge-a")).await.status, 200);
    let patch = client.clone().with("content-type", "application/merge-patch+json");
    let status = r#"{"status":{"phase":"Running"}}"#;
    assert_eq!(patch.send(Method::PATCH, "/api/v1/nodes/edge-a/status", status).await.status(), 200);
    let by = |what: &dyn Fn(&Recorded) -> bool| {
        let requests = server.requests().into_iter().filter(|request| !by_daemon(request) && what(request));
        requests.map(|request| request.connection).collect::<std::collections::BTreeSet<_>>()
    };
    let alive = |request: &Recorded| request.path.ends_with("/leases/edge-a") || request.path.ends_with("/status");
    let watches = |request: &Recorded| request.query.contains("watch=true");
    // Reviews of the client's credential wait for no request, nor the other way round.
    let others = by(&|request| !alive(request) && !watches(request) && !request.path.ends_with("reviews"));
    let (alive, watches) = (by(&alive), by(&watches));
    // Each daemon thread has its own connections. The client's single connection is served by one thread.
    assert_eq!((alive.len(), watches.len(), others.len()), (1, 1, 1));
    assert!(alive.is_disjoint(&watches) && alive.is_disjoint(&others) && watches.is_disjoint(&others));
}

/// A response that begins and then stops. The channel reports when its body is dropped.
fn stops(first: &'static str, gone: mpsc::UnboundedSender<()>) -> Action {
    /// Sends a message when the body is dropped.
    struct Guard(mpsc::UnboundedSender<()>);
    impl Drop for Guard {
        fn drop(&mut self) {
            let _ = self.0.send(());
        }
    }
    let guard = Guard(gone);
    streamed(stream::iter([Bytes::from_static(first.as_bytes())]).chain(stream::once(async move {
        let _guard = guard;
        std::future::pending().await
    })))
}

#[tokio::test]
async fn a_response_that_stalls_after_its_head_blocks_nobody_and_ends_with_its_client() {
    let (server, ca) = secure_edge().await;
    let weir = before(server.address(), &ca).await;
    let (sender, mut gone) = mpsc::unbounded_channel();
    server.on_request(move |request| match (by_daemon(request), request.query.contains("limit=7")) {
        (false, true) => stops(r#"{"kind":"ServiceList","apiVersion":"v1","metadata":{"#, sender.clone()),
        _ => Action::Serve,
    });
    // Filtered lists need more before their head is sent. The head of other responses is sent at once.
    for path in [SERVICES, "/api/v1/namespaces/default/services", "/api/v1/nodes", "/apis/apps/v1/deployments"] {
        server.clear_requests();
        let client = weir.client("tool");
        let path = format!("{path}?limit=7");
        let waiting = tokio::spawn(async move { client.try_get(&path).await });
        wait_for_request(&server, |request| request.query.contains("limit=7")).await;
        for _ in 0..10 {
            assert_eq!(weir.client("other").get(SERVICES).await.status, 200);
        }
        assert!(!waiting.is_finished() && gone.is_empty());
        // The client's timeout.
        waiting.abort();
        tokio::time::timeout(PATIENCE, gone.recv()).await.expect("the stream upstream is freed").unwrap();
    }
}

/// The start of a list that is too large for one part.
static LONG: LazyLock<String> = LazyLock::new(|| {
    let item = format!(r#"{{"metadata":{{"name":"a","annotations":{{"a":"{}"}}}}}},"#, "a".repeat(1000));
    format!(r#"{{"kind":"ServiceList","apiVersion":"v1","metadata":{{}},"items":[{}"#, item.repeat(1000))
});

/// Thirty seconds of silence, as the API server's own limit for a whole request is one minute.
#[tokio::test]
async fn a_stalled_response_times_out_unless_it_is_a_watch_or_unfiltered() {
    let (server, ca) = secure_edge().await;
    let weir = before(server.address(), &ca).await;
    let (sender, mut gone) = mpsc::unbounded_channel();
    server.on_request(move |request| {
        let begin = match (by_daemon(request), &*request.path, request.query.contains("watch")) {
            (true, ..) => return Action::Serve,
            // The stamp of the filters in force.
            (..) if request.query == "limit=1" => return Action::Serve,
            (_, SERVICES, true) => "",
            (_, SERVICES, false) if request.query.contains("limit=7") => {
                // More than the daemon holds back of a response with a known length.
                LONG.as_str()
            }
            (_, SERVICES, false) => r#"{"kind":"ServiceList","apiVersion":"v1","#,
            (_, path, _) if path.ends_with("/services/web") => r#"{"kind":"Service","#,
            _ => r#"{"kind":"NodeList","apiVersion":"v1","#,
        };
        stops(begin, sender.clone())
    });
    let client = weir.client("tool");
    let table = client.clone().with("accept", "application/json;as=Table;v=v1;g=meta.k8s.io");
    let watch = table.watch(&format!("{SERVICES}?watch=true")).await;
    let (list, begun, object) = {
        let passed_on = client.try_get("/api/v1/nodes");
        let all = async {
            tokio::join!(
                client.get(SERVICES),
                client.try_get("/api/v1/services?limit=7"),
                client.get("/api/v1/namespaces/default/services/web")
            )
        };
        tokio::pin!(passed_on);
        tokio::select! {
            _ = &mut passed_on => panic!("what is passed on is the client's to end"),
            all = all => all,
        }
    };
    for answer in [list, object] {
        assert_eq!((answer.status.as_u16(), &answer.json()["reason"]), (504, &"Timeout".into()));
        assert!(answer.text().contains("the response of the API server stalled for 30s"), "{}", answer.text());
    }
    begun.expect_err("it ends early");
    for _ in 0..4 {
        tokio::time::timeout(PATIENCE, gone.recv()).await.expect("the streams upstream are freed").unwrap();
    }
    assert!(gone.is_empty());
    drop(watch);
    tokio::time::timeout(PATIENCE, gone.recv()).await.expect("the watch went on until now").unwrap();
}

#[tokio::test]
async fn after_an_outage_lookups_resume_as_soon_as_any_client_request_succeeds() {
    let server = edge().await;
    let weir = Setup::new(server.url())
        .filters(FILTERS)
        .bundled("discardcloudservice")
        .bundled("nodeportisolation")
        .start_ready()
        .await;
    server.on_request(|_| Action::Reset);
    server.clear_requests();
    server.close_watches(weir_apiserver::End::Abort);
    // Each retry takes two requests. The pauses double: half a second, then up to one, two, four, eight.
    let tries = |server: &ApiServer| {
        let nodes = |request: &&Recorded| by_daemon(request) && request.path.ends_with("/nodes");
        server.requests().iter().filter(nodes).count() / 2
    };
    let mut count = server.request_count();
    let mut pause = Duration::ZERO;
    let patient = async {
        for wanted in 1..=5 {
            let began = Instant::now();
            while tries(&server) < wanted {
                count.changed().await.unwrap();
            }
            pause = began.elapsed();
        }
    };
    tokio::time::timeout(PATIENCE, patient).await.expect("they try again and again");
    server.clear_hook();
    server.clear_requests();
    assert_eq!(weir.client("tool").get("/version").await.status, 200);
    let began = Instant::now();
    wait_for_request(&server, |request| by_daemon(request) && request.path.ends_with("/nodes")).await;
    assert!(began.elapsed() < pause, "the next pause was to be longer than the last: {pause:?}, {:?}", began.elapsed());
}

#[tokio::test]
async fn an_unread_watch_stops_reading_upstream_and_uses_little_memory() {
    let (server, ca) = secure_edge().await;
    let weir = Setup::new(server.url())
        .filters(NO_LOAD_BALANCERS)
        .bundled("discardcloudservice")
        .file("--certificate-authority", "ca.crt", ca.pem())
        .uncached()
        .start_ready()
        .await;
    let before = weir.resident();
    let sent = Arc::new(AtomicUsize::new(0));
    let counter = sent.clone();
    server.on_request(move |request| match (by_daemon(request), request.query.contains("watch=true")) {
        (false, true) => {
            let sent = counter.clone();
            let mut object = service("big", "ClusterIP");
            object["metadata"]["annotations"] = serde_json::json!({"padding": "x".repeat(16 << 10)});
            let event = Bytes::from(format!("{}\n", serde_json::json!({"type": "MODIFIED", "object": object})));
            streamed(stream::repeat_with(move || {
                sent.fetch_add(event.len(), Ordering::Relaxed);
                event.clone()
            }))
        }
        _ => Action::Serve,
    });
    let mut held = Vec::new();
    for _ in 0..4 {
        for path in ["/api/v1/services?watch=true", "/api/v1/nodes?watch=true"] {
            // A view would read them all: see `slow_watches.rs`. A Table streams.
            let client =
                weir.client("tool").with("accept", "application/json;as=Table;v=v1;g=meta.k8s.io,application/json");
            let mut events = client.watch(path).await;
            // The daemon has read the first event, but not the rest.
            assert_eq!(events.next_named().await, "MODIFIED big");
            held.push(events);
        }
    }
    let stands_still = async {
        let mut last = 0;
        while std::mem::replace(&mut last, sent.load(Ordering::Relaxed)) != last {
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    };
    tokio::time::timeout(PATIENCE, stands_still).await.expect("the source stops");
    let (after, sent) = (weir.resident(), sent.load(Ordering::Relaxed) >> 20);
    eprintln!("8 watches that are not read: {sent} MiB sent, {before:.1} MiB before, {after:.1} MiB with them");
    assert!(after - before < 40.0, "{before} MiB before, {after} MiB after");
    assert_eq!(weir.client("other").get(SERVICES).await.status, 200);
    drop(held);
}
