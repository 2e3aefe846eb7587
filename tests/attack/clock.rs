//! Clients that can choose response headers, and a server with a wrong clock: neither sets the clock of the daemon.

use std::path::Path;
use std::time::{Duration, SystemTime};

use http::header::DATE;
use jiff::Timestamp;
use jiff::fmt::rfc2822::DateTimePrinter;
use tokio::io::AsyncReadExt as _;
use tokio::io::AsyncWriteExt as _;
use weir_apiserver::{Action, ApiServer};
use weir_tests::client::Client;
use weir_tests::daemon::{Daemon, Setup};
use weir_tests::edge::{api_server, grant_kubelets};
use weir_tests::link::Link;
use weir_tests::machine::Machine;
use weir_tests::pki::{Authority, Pair};
use weir_tests::until;

const SERVICES: &str = "/api/v1/services?resourceVersion=0";
const NODES: &str = "/api/v1/nodes";
const PROXY: &str = "/api/v1/namespaces/default/pods/web/proxy/";
const LOG: &str = "/api/v1/namespaces/default/pods/web/log";
const AGGREGATED: &str = "/apis/metrics.k8s.io/v1beta1/nodes";
const HOUR: Duration = Duration::from_secs(3600);
const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);
/// How long a response is delayed: longer than the daemon trusts the time of its last probe.
const LATER: Duration = Duration::from_secs(11);

async fn cluster(pair: &Pair) -> ApiServer {
    let server = api_server().tls(pair.certificate.as_bytes(), pair.key.as_bytes()).start().await.unwrap();
    server.store().load(include_str!("../demo/cluster.yaml")).unwrap();
    grant_kubelets(&server);
    server
}

/// A daemon as it is shipped: with caches, in memory and on disk.
fn shipped(servers: &str, ca: &Authority, cache: &Path) -> Setup {
    let setup = Setup::new(servers).on_disk(cache).filters("filters: []");
    setup.file("--certificate-authority", "ca.crt", ca.pem())
}

/// An answer of this time.
fn dated(time: SystemTime) -> Action {
    let Action::Answer(mut answer) = Action::answer(200, "text/plain", "ok") else { unreachable!() };
    let text = DateTimePrinter::new().timestamp_to_rfc9110_string(&Timestamp::try_from(time).unwrap()).unwrap();
    answer.headers_mut().insert(DATE, text.parse().unwrap());
    Action::Answer(answer)
}

/// Sets the time that the server's own probes return.
fn reports(server: &ApiServer, time: SystemTime) {
    server.on_request(move |request| if request.path == "/readyz" { dated(time) } else { Action::Serve });
}

/// By how much the daemon's clock is ahead.
async fn is_ahead(weir: &Daemon) -> Duration {
    let status = weir.admin().get("/status").await.json();
    let time: Timestamp = status["time"].as_str().unwrap().parse().unwrap();
    SystemTime::from(time).duration_since(SystemTime::now()).unwrap_or_default()
}

fn to_1970() -> i64 {
    -i64::try_from(SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs()).unwrap()
}

#[tokio::test]
async fn no_answer_of_a_pod_or_of_an_aggregated_api_sets_the_clock() {
    let (ca, cache) = (Authority::new("cluster"), tempfile::tempdir().unwrap());
    let server = cluster(&ca.server_for(24 * HOUR)).await;
    let (pod, aggregated) = (SystemTime::now() + 73 * YEAR, SystemTime::now() + YEAR);
    server.on_request(move |request| match request.path.as_str() {
        PROXY | LOG => Action::After(Box::pin(tokio::time::sleep(LATER)), Box::new(dated(pod))),
        AGGREGATED => Action::After(Box::pin(tokio::time::sleep(LATER)), Box::new(dated(aggregated))),
        _ => Action::Serve,
    });
    let weir = shipped(server.url(), &ca, cache.path()).start_ready().await;
    let client = weir.client("tenant");
    assert_eq!(client.get(NODES).await.status, 200);
    let answers = tokio::join!(client.get(PROXY), client.get(LOG), client.get(AGGREGATED));
    for answer in [answers.0, answers.1, answers.2] {
        assert_eq!((answer.status.as_u16(), answer.text().as_str()), (200, "ok"));
        assert!(answer.headers.contains_key(DATE), "it is passed on");
    }
    assert!(is_ahead(&weir).await < HOUR);
    // New connections verify the API server's certificate.
    server.break_connections();
    assert_eq!(client.get(NODES).await.status, 200);
    // A restart changes nothing.
    assert_eq!(weir.stop().await, Some(0));
    let weir = shipped(server.url(), &ca, cache.path()).start_ready().await;
    assert!(is_ahead(&weir).await < HOUR);
    assert_eq!(weir.client("tenant").get(NODES).await.status, 200);
}

#[tokio::test]
async fn a_server_alone_sets_the_clock_forwards_only_within_its_certificate() {
    let (ca, cache) = (Authority::new("cluster"), tempfile::tempdir().unwrap());
    let server = cluster(&ca.server_for(24 * HOUR)).await;
    reports(&server, SystemTime::now() + 73 * YEAR);
    let weir = shipped(server.url(), &ca, cache.path()).start_ready().await;
    weir.logged("it counts once another server").await;
    assert!(is_ahead(&weir).await < HOUR);
    server.break_connections();
    assert_eq!(weir.client("tool").get(NODES).await.status, 200);
}

#[tokio::test]
async fn the_time_of_one_server_counts_while_the_daemon_runs_and_is_not_stored() {
    let (ca, cache) = (Authority::new("cluster"), tempfile::tempdir().unwrap());
    let server = cluster(&ca.server_for(YEAR)).await;
    reports(&server, SystemTime::now() + YEAR / 2);
    let weir = shipped(server.url(), &ca, cache.path()).start_ready().await;
    weir.logged("the API server reported the time").await;
    assert!(is_ahead(&weir).await > YEAR / 4, "its certificate is valid then");
    assert_eq!(weir.stop().await, Some(0));
    assert!(!cache.path().join("last-time").exists(), "nobody else has said so");
    server.clear_hook();
    let weir = shipped(server.url(), &ca, cache.path()).start_ready().await;
    assert!(is_ahead(&weir).await < HOUR);
}

#[tokio::test]
async fn two_servers_that_agree_set_the_clock() {
    let (ca, cache) = (Authority::new("cluster"), tempfile::tempdir().unwrap());
    let (one, other) = (cluster(&ca.server_for(24 * HOUR)).await, cluster(&ca.server_for(24 * HOUR)).await);
    let later = SystemTime::now() + 2 * YEAR;
    reports(&one, later);
    let weir = shipped(&format!("{},{}", one.url(), other.url()), &ca, cache.path()).start_ready().await;
    weir.logged("it counts once another server").await;
    assert!(is_ahead(&weir).await < HOUR, "the other one has the right time");
    let from = weir.log_length();
    reports(&other, later);
    weir.logged_after(from, "the API server reported the time").await;
    assert!(is_ahead(&weir).await > YEAR);
}

#[tokio::test]
async fn a_machine_in_1970_believes_its_server_and_never_what_is_before_its_last_time() {
    let Some(machine) = Machine::new() else { return };
    let (ca, cache) = (Authority::new("cluster"), tempfile::tempdir().unwrap());
    let server = cluster(&ca.server_for(24 * HOUR)).await;
    machine.put_clock_ahead(to_1970());
    let start = async || machine.run(shipped(server.url(), &ca, cache.path()), cache.path()).start_ready().await;
    // It has never known the time: the certificate is not valid yet, and its server says when it is now.
    let weir = start().await;
    weir.logged("the API server reported the time").await;
    weir.logged("the API server is up again").await;
    assert_eq!(weir.client("tool").get(NODES).await.status, 200);
    let status = weir.admin().get("/status").await.json();
    let time: Timestamp = status["time"].as_str().unwrap().parse().unwrap();
    assert!(SystemTime::from(time) + HOUR > SystemTime::now());
    assert_eq!(weir.stop().await, Some(0));
    // Backwards: the time of the file is later than that of the server.
    let known = Timestamp::try_from(SystemTime::now()).unwrap();
    std::fs::write(cache.path().join("last-time"), format!("{known}\n")).unwrap();
    reports(&server, SystemTime::now() - YEAR);
    let weir = start().await;
    assert_eq!(weir.client("tool").get(NODES).await.status, 200);
    weir.logged("it counts once another server").await;
    let status = weir.admin().get("/status").await.json();
    assert!(status["time"].as_str().unwrap().parse::<Timestamp>().unwrap() >= known, "{status}");
}

#[tokio::test]
async fn a_time_in_a_file_alone_ends_no_certificate() {
    let (ca, clients) = (Authority::new("cluster"), Authority::new("clients"));
    let cache = tempfile::tempdir().unwrap();
    let server = cluster(&ca.server_for(24 * HOUR)).await;
    std::fs::write(cache.path().join("last-time"), "2099-01-01T00:00:00Z\n").unwrap();
    let setup = shipped(server.url(), &ca, cache.path()).tls(&ca.server());
    let weir = setup.file("--client-ca-file", "clients.crt", clients.pem()).start_ready().await;
    assert_eq!(weir.client("tool").get(NODES).await.status, 200);
    let shown = clients.client_for("system:node:edge-a", "system:nodes", HOUR);
    let kubelet = Client::trusting(&weir.secure_url().await, "kubelet", Some(ca.pem()), Some(&shown));
    assert_eq!(kubelet.get(SERVICES).await.status, 200, "neither that of the server nor that of the client");
    // Its own server says otherwise, but that is before the time of the file.
    weir.logged("it counts once another server").await;
    server.break_connections();
    assert_eq!(weir.client("tool").get(NODES).await.status, 200);
}

#[tokio::test]
async fn a_client_that_breaks_off_its_request_is_no_outage() {
    let (ca, cache) = (Authority::new("cluster"), tempfile::tempdir().unwrap());
    let server = cluster(&ca.server()).await;
    let weir = shipped(server.url(), &ca, cache.path()).start_ready().await;
    let series = "weir_server_requests_total{server=\"";
    for _ in 0..5 {
        let mut stream = tokio::net::TcpStream::connect(weir.url().strip_prefix("http://").unwrap()).await.unwrap();
        let head = "POST /api/v1/namespaces/default/configmaps HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n";
        let body = "Transfer-Encoding: chunked\r\n\r\n5\r\nabcde\r\nno chunk\r\n";
        stream.write_all(format!("{head}{body}").as_bytes()).await.unwrap();
        let _ = stream.read_to_end(&mut Vec::new()).await;
    }
    let metrics = weir.admin().get("/metrics").await.text();
    let lines: Vec<_> = metrics.lines().filter(|line| line.starts_with(series)).collect();
    assert!(lines.iter().any(|line| line.contains("result=\"request-body\"")), "{lines:?}");
    assert!(!lines.iter().any(|line| line.contains("result=\"broken\"")), "{lines:?}");
    assert_eq!(weir.client("tool").get(NODES).await.status, 200);
}

#[tokio::test]
async fn permissions_and_objects_on_disk_survive_one_wrong_time() {
    const MAP: &str = "/api/v1/namespaces/default/configmaps/settings";
    let (ca, cache) = (Authority::new("cluster"), tempfile::tempdir().unwrap());
    let server = cluster(&ca.server_for(YEAR)).await;
    server.store().load("{apiVersion: v1, kind: ConfigMap, metadata: {name: settings, namespace: default}}").unwrap();
    let mut link = Link::to(&server).await;
    let url = link.url();
    let weir = shipped(&url, &ca, cache.path()).start_ready().await;
    let tool = |weir: &Daemon| weir.client("tool").with("authorization", "Bearer tool");
    for path in [SERVICES, MAP] {
        assert_eq!(tool(&weir).get(path).await.status, 200, "{path}");
    }
    assert_eq!(weir.stop().await, Some(0));
    // Half a year later all of it would have expired.
    reports(&server, SystemTime::now() + YEAR / 2);
    let weir = shipped(&url, &ca, cache.path()).start_ready().await;
    weir.logged("the API server reported the time").await;
    assert!(is_ahead(&weir).await > YEAR / 4, "the daemon believes it");
    // What is removed from the disk goes with a commit: another client makes one.
    let commits = weir.metric("weir_cache_commits_total").await;
    let other = weir.client("tool").with("authorization", "Bearer other");
    for path in [SERVICES, MAP] {
        assert_eq!(other.get(path).await.status, 200, "{path}");
    }
    until!(weir.metric("weir_cache_commits_total").await > commits);
    assert_eq!(weir.stop().await, Some(0));
    link.down().await;
    let weir = shipped(&url, &ca, cache.path()).start().await;
    weir.logged("the API server is down").await;
    assert!(is_ahead(&weir).await < HOUR);
    for path in [SERVICES, MAP] {
        let answer = tool(&weir).get(path).await;
        assert_eq!(answer.status, 200, "{path}: {}\n{}", answer.text(), weir.log_text());
        assert!(answer.headers.contains_key("warning"), "{path} is answered offline");
    }
    let stranger = weir.client("tool").with("authorization", "Bearer stranger");
    assert_eq!(stranger.get(MAP).await.status, 503, "there are permissions to lose");
}
