//! Several API servers: the choice of a server, requests in progress when a server dies, and the choice after that.

use std::time::{Duration, Instant};

use http::Method;
use weir_apiserver::{Action, ApiServer};
use weir_tests::client::{Client, PATIENCE, whole};
use weir_tests::daemon::{Daemon, Setup};
use weir_tests::edge::api_server;

use super::{NO_LOAD_BALANCERS, edge, service};

const SERVICES: &str = "/api/v1/services";

async fn before(servers: [&ApiServer; 2], mode: &str) -> Daemon {
    let urls = servers.map(ApiServer::url).join(",");
    let weir = Setup::new(&urls)
        .flag("--server-mode", mode)
        .filters(NO_LOAD_BALANCERS)
        .bundled("discardcloudservice")
        .start_ready()
        .await;
    for server in servers {
        server.clear_requests();
    }
    weir
}

fn served(server: &ApiServer) -> usize {
    server.requests().iter().filter(|request| request.header("user-agent").starts_with("tool")).count()
}

/// Gets the paths in turn and returns how long each took.
async fn times<const N: usize>(paths: [&str; N], client: &Client, status: u16) -> [Duration; N] {
    let mut times = [Duration::ZERO; N];
    for (path, time) in paths.into_iter().zip(&mut times) {
        let began = Instant::now();
        assert_eq!(client.get(path).await.status, status, "{path}");
        *time = began.elapsed();
    }
    times
}

fn up(server: &ApiServer) -> String {
    format!("weir_server_up{{server=\"{}\"}}", server.address())
}

async fn until_up(weir: &Daemon, series: &str, value: f64) {
    let changed = async {
        while weir.metric(series).await != value {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, changed).await.unwrap_or_else(|_| panic!("{}", weir.log_text()));
}

#[tokio::test]
async fn all_servers_get_requests_in_turn() {
    let (a, b) = (edge().await, edge().await);
    let weir = before([&a, &b], "round-robin").await;
    for _ in 0..10 {
        assert_eq!(weir.client("tool").names(SERVICES).await.len(), 3);
    }
    // The daemon's own requests take their turns between those of the clients: the turns are even over both.
    let answered = async |server: &ApiServer| {
        weir.metric(&format!("weir_server_requests_total{{server=\"{}\",result=\"answered\"}}", server.address())).await
    };
    let (of_a, of_b) = (answered(&a).await, answered(&b).await);
    assert!(of_a + of_b >= 10.0, "{of_a} and {of_b}");
    assert!((of_a - of_b).abs() <= 2.0, "{of_a} and {of_b}");
}

#[tokio::test]
async fn requests_leave_the_preferred_server_when_it_dies_and_return_when_it_recovers() {
    let (a, b) = (edge().await, edge().await);
    let weir = before([&a, &b], "priority").await;
    let client = weir.client("tool");
    for _ in 0..5 {
        assert_eq!(client.names(SERVICES).await.len(), 3);
    }
    assert_eq!((served(&a), served(&b)), (5, 0));
    // Nothing of Events is cached: it goes through. A watch of Services may be that of a view, which outlives a server.
    let mut open = client.watch("/api/v1/events?watch=true").await;
    let (address, series) = (a.address(), up(&a));
    assert_eq!(weir.metric(&series).await, 1.0);
    a.stop().await;
    for path in [SERVICES, "/api/v1/nodes", "/api/v1/namespaces/default/services/web", "/version"] {
        assert_eq!(client.get(path).await.status, 200, "{path}");
    }
    // Its watches end, so that their clients reconnect to the other server.
    let ended = async { while matches!(open.try_next().await, Ok(Some(_))) {} };
    tokio::time::timeout(PATIENCE, ended).await.unwrap();
    assert!(client.watch(&format!("{SERVICES}?watch=true")).await.next_named().await.starts_with("ADDED"));
    assert_eq!(weir.metric(&series).await, 0.0);
    weir.logged("the API server is down").await;

    let a = api_server().address(address).start().await.unwrap();
    a.store().load(include_str!("../demo/cluster.yaml")).unwrap();
    until_up(&weir, &series, 1.0).await;
    let others = served(&b);
    assert_eq!(client.names(SERVICES).await.len(), 3);
    assert_eq!((served(&a), served(&b)), (1, others));
}

#[tokio::test]
async fn a_silent_server_is_detected_while_a_list_waits() {
    let (a, b) = (edge().await, edge().await);
    let weir = before([&a, &b], "priority").await;
    let client = weir.client("tool");
    assert_eq!(client.get(SERVICES).await.status, 200);
    a.on_request(|_| Action::Hang);
    let [first, second] = times([SERVICES, "/api/v1/nodes"], &client, 200).await;
    assert!(second < first / 2, "the second one does not wait for a probe: {first:?}, {second:?}");
    assert_eq!(weir.metric(&up(&a)).await, 0.0);
    a.clear_hook();
    until_up(&weir, &up(&a), 1.0).await;
}

#[tokio::test]
async fn a_slow_response_of_a_working_server_is_awaited() {
    let (a, b) = (edge().await, edge().await);
    let weir = before([&a, &b], "priority").await;
    a.on_request(|request| match request.path == SERVICES {
        true => Action::delay(Duration::from_secs(3)),
        false => Action::Serve,
    });
    assert_eq!(weir.client("tool").names(SERVICES).await.len(), 3);
    assert_eq!((served(&a), served(&b)), (1, 0));
}

#[tokio::test]
async fn a_server_that_is_not_ready_is_the_last_choice() {
    let (a, b) = (edge().await, edge().await);
    let weir = before([&a, &b], "priority").await;
    let client = weir.client("tool");
    // The daemon notices when a request makes it probe the server.
    a.on_request(|request| match request.path.as_str() {
        "/readyz" => Action::json(500, "{}"),
        SERVICES => Action::delay(Duration::from_secs(30)),
        _ => Action::Serve,
    });
    assert_eq!(client.get(SERVICES).await.status, 200);
    assert_eq!(served(&b), 1);
    // If it is the only one left, it still gets requests.
    drop(b);
    assert_eq!(client.get("/api/v1/nodes").await.status, 200);
}

#[tokio::test]
async fn a_write_goes_to_another_server_only_if_none_of_it_was_sent() {
    let (a, b) = (edge().await, edge().await);
    let weir = before([&a, &b], "priority").await;
    let client = weir.client("tool").with("content-type", "application/json");
    let path = "/api/v1/namespaces/default/services";
    a.on_request(|request| match request.method == Method::POST {
        true => Action::Reset,
        false => Action::Serve,
    });
    let broken = whole(client.send(Method::POST, path, service("one", "ClusterIP").to_string()).await).await.unwrap();
    assert_eq!((broken.status.as_u16(), broken.json()["kind"].as_str()), (502, Some("Status")));
    assert!(b.requests().iter().all(|request| request.method != Method::POST), "it may have been carried out");
    a.stop().await;
    let created = whole(client.send(Method::POST, path, service("two", "ClusterIP").to_string()).await).await.unwrap();
    assert_eq!(created.status, 201, "{}", created.text());
    assert!(b.store().get("v1", "Service", "default", "two").is_some(), "with its body");
}

/// A link that drops packets: no connection is refused, and no request gets a response.
#[tokio::test]
async fn while_no_server_answers_reads_fail_at_once_until_one_does() {
    let server = edge().await;
    let weir = Setup::new(server.url()).filters("filters: []").start_ready().await;
    let client = weir.client("tool");
    assert_eq!(client.get(SERVICES).await.status, 200);
    server.on_request(|_| Action::Hang);
    let began = Instant::now();
    let first = client.get(SERVICES).await;
    let waited = began.elapsed();
    assert_eq!((first.status.as_u16(), first.json()["kind"].as_str()), (503, Some("Status")), "{}", first.text());
    weir.logged("the API server is down").await;
    server.clear_requests();
    let began = Instant::now();
    for path in [SERVICES, "/api/v1/nodes", "/version", "/api/v1/nodes?watch=true"] {
        let answer = client.get(path).await;
        assert_eq!(answer.status, 503, "{path}");
        assert!(answer.text().contains(&server.address().to_string()), "{}", answer.text());
        assert!(!answer.headers.contains_key("retry-after"), "client-go would sleep it out");
    }
    assert!(began.elapsed() < waited / 2, "none waits for a probe: {waited:?}, then {:?}", began.elapsed());
    assert_eq!(served(&server), 0, "no client's request is sent on");
    assert_eq!(weir.metric(&up(&server)).await, 0.0);

    // A probe notices the recovery, even without requests.
    server.clear_hook();
    until_up(&weir, &up(&server), 1.0).await;
    assert_eq!(client.get(SERVICES).await.status, 200);
}

#[tokio::test]
async fn a_server_that_never_responded_is_detected_too() {
    // The kernel accepts the connections, but nobody reads them.
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let weir = Setup::new(&format!("http://{}", nobody.local_addr().unwrap())).filters("filters: []").start().await;
    let [first, second] = times(["/version", "/version"], &weir.client("tool"), 503).await;
    assert!(second < first / 2, "the second one does not wait for a probe: {first:?}, {second:?}");
}

#[tokio::test]
async fn a_server_with_hanging_probes_stays_in_use_while_it_sends_anything() {
    let server = edge().await;
    let weir = Setup::new(server.url()).filters("filters: []").start_ready().await;
    let client = weir.client("tool");
    let mut events = client.watch(&format!("{SERVICES}?watch=true")).await;
    server.on_request(|request| match request.path.as_str() {
        "/readyz" => Action::Hang,
        "/api/v1/nodes" => Action::delay(Duration::from_secs(8)),
        _ => Action::Serve,
    });
    let slow = client.get("/api/v1/nodes");
    tokio::pin!(slow);
    let mut changes = tokio::time::interval(Duration::from_millis(500));
    let (mut number, mut seen) = (0, 0);
    let answer = loop {
        tokio::select! {
            answer = &mut slow => break answer,
            _ = changes.tick() => {
                number += 1;
                server.store().put(service(&format!("s-{number}"), "ClusterIP")).unwrap();
            }
            _ = events.next_named() => seen += 1,
        }
    };
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert!(seen > 5, "{seen}");
}

#[tokio::test]
async fn every_request_of_the_daemon_has_its_user_agent() {
    let (a, b) = (edge().await, edge().await);
    for server in [&a, &b] {
        server.on_request(|request| match request.path == "/version" {
            true => Action::delay(Duration::from_secs(1)),
            false => Action::Serve,
        });
    }
    let urls = format!("{},{}", a.url(), b.url());
    let weir = Setup::new(&urls).filters(NO_LOAD_BALANCERS).bundled("discardcloudservice").start_ready().await;
    assert_eq!(weir.client("tool").get("/version").await.status, 200);
    let own: Vec<_> =
        a.requests().into_iter().chain(b.requests()).filter(|request| request.path != "/version").collect();
    assert!(own.iter().any(|request| request.path == "/readyz"), "a probe is among them");
    for request in own {
        assert!(request.header("user-agent").starts_with("weir/"), "{} {:?}", request.path, request.headers);
    }
}

#[tokio::test]
async fn when_all_servers_fail_the_status_names_the_last_error() {
    let (a, b) = (edge().await, edge().await);
    let weir = before([&a, &b], "priority").await;
    let last = b.address().to_string();
    a.stop().await;
    b.stop().await;
    let answer = weir.client("tool").get("/api/v1/nodes").await;
    assert_eq!(answer.status, 503);
    assert!(answer.text().contains(&last), "{}", answer.text());
}
