//! Measures the daemon as a process: start, memory, reload, watch latency. The in-memory API server runs in the bench's
//! own process, so both share the machine's cores.

use std::time::{Duration, Instant};

use http::Method;
use http_body_util::BodyExt;
use serde_json::json;
use weir_apiserver::ApiServer;
use weir_tests::built;
use weir_tests::client::Client;
use weir_tests::daemon::{Daemon, Setup};

use crate::data;
use crate::list::{Encoding, Kind};
use crate::table::{Goal, Table, median, percentile};
use crate::usage::{peak, processor, resident, written};

const SERVICES: &str = "/api/v1/services";
const FILTERS: &str = "\
filters:
  - {name: servicetopology, module: servicetopology.wasm}
  - {name: nodeportisolation, module: nodeportisolation.wasm}
  - {name: discardcloudservice, module: discardcloudservice.wasm}
";

async fn cluster() -> ApiServer {
    let server = ApiServer::builder().start().await.unwrap();
    for object in data::cluster() {
        server.store().put(object).unwrap();
    }
    server
}

fn setup(server: &ApiServer) -> Setup {
    let setup = Setup::new(server.url()).flag("--node-name", data::NODE).filters(FILTERS);
    ["servicetopology", "nodeportisolation", "discardcloudservice"].into_iter().fold(setup, Setup::bundled)
}

/// Measures the time from start to ready, with a cold and a warm code cache.
pub(crate) async fn start(table: &mut Table) {
    table.heading("Start: from process start until /readyz succeeds, three filters");
    let server = cluster().await;
    let mut cold = Vec::new();
    for _ in 0..3 {
        let cache = tempfile::tempdir().unwrap();
        cold.push(started(setup(&server).flag("--cache-dir", cache.path().to_str().unwrap())).await.1);
    }
    table.row("cold code cache", median(cold), "ms");
    let mut warm = Vec::new();
    for _ in 0..7 {
        warm.push(started(setup(&server)).await.1);
    }
    table.goal("warm code cache", median(warm), "ms", Goal::Under(300.0));
}

async fn started(setup: Setup) -> (Daemon, f64) {
    let began = Instant::now();
    let daemon = setup.start_ready().await;
    (daemon, began.elapsed().as_secs_f64() * 1e3)
}

/// Measures resident memory, idle and at its peak during a list. Each list gets a new daemon.
pub(crate) async fn memory(table: &mut Table) {
    table.heading("Resident memory of the daemon, three filters");
    let server = cluster().await;
    for (kind, encoding, count) in [
        (Kind::Slices, Encoding::Json, 1200),
        (Kind::Services, Encoding::Json, 15_000),
        (Kind::Slices, Encoding::Protobuf, 3000),
        (Kind::Services, Encoding::Protobuf, 15_000),
    ] {
        let daemon = setup(&server).start_ready().await;
        let client = daemon.client("kube-proxy").with("accept", encoding.media());
        for _ in 0..50 {
            let response = client.get("/api/v1/namespaces/default/services").await;
            assert_eq!(response.status, 200);
        }
        let idle = resident(daemon.id());
        let list = kind.list(encoding, count);
        server.fix(kind.path(), encoding.media().parse().unwrap(), list.whole());
        let mut sent = 0;
        for _ in 0..3 {
            sent = drain(&client, kind.path()).await;
        }
        let name = format!("{} ({:.1} MB, {:.1} MB are left)", list.name(), list.megabytes(), sent as f64 / 1e6);
        let above = peak(daemon.id()) - idle;
        match encoding {
            Encoding::Json => {
                table.goal("idle, after 50 small lists", idle, "MB", Goal::Under(40.0));
                table.goal(&format!("peak above idle: {name}"), above, "MB", Goal::Under(20.0));
            }
            Encoding::Protobuf => {
                let times = above / list.megabytes();
                table.goal(&format!("peak above idle: {name}"), times, "times the body", Goal::Under(1.2));
            }
        }
        table.row("resident afterwards", resident(daemon.id()), "MB");
    }
}

/// A node as the table of `deploy/before-you-sign.md` has it.
struct Size {
    /// Services, each with a slice of ten endpoints.
    services: usize,
    /// Open watches, half of them of Services, half of slices.
    watches: usize,
    modules: &'static [&'static str],
}

/// Measures what the daemon takes of memory, by objects, watches and modules.
pub(crate) async fn sizing(table: &mut Table) {
    const MODULES: &[&str] =
        &["servicetopology", "nodeportisolation", "discardcloudservice", "endpoints", "nodeportaddresses"];
    let size = |services, watches, modules| Size { services, watches, modules: &MODULES[..modules] };
    for size in [
        size(100, 4, 5),
        size(1000, 4, 1),
        size(1000, 4, 5),
        size(1000, 200, 5),
        size(5000, 4, 5),
        size(5000, 200, 5),
        size(15_000, 4, 5),
    ] {
        sized(table, &size).await;
    }
}

async fn sized(table: &mut Table, Size { services, watches, modules }: &Size) {
    let server = cluster().await;
    let mut bytes = 0;
    for n in 0..*services {
        for object in [data::service(n), data::slice(n, 10)] {
            bytes += object.to_string().len();
            server.store().put(object).unwrap();
        }
    }
    let modules_of = modules.len();
    let bytes = bytes as f64 / 1e6;
    table.heading(&format!(
        "Size: {services} Services with a slice each ({bytes:.1} MB), {watches} watches, modules: {modules_of}"
    ));
    let filters = modules.iter().map(|name| format!("  - {{name: {name}, module: {name}.wasm}}\n")).collect::<String>();
    let cache = tempfile::tempdir().unwrap();
    let setup = Setup::new(server.url()).flag("--node-name", data::NODE).filters(&format!("filters:\n{filters}"));
    let setup = setup.flag("--cache-dir", cache.path().to_str().unwrap()).flag("--cache-size", "512Mi");
    let daemon = modules.iter().copied().fold(setup, Setup::bundled).start_ready().await;
    let client = daemon.client("kube-proxy");
    let mut open = Vec::new();
    for path in [SERVICES, "/apis/discovery.k8s.io/v1/endpointslices"] {
        let list = client.json(&format!("{path}?resourceVersion=0")).await;
        let version = list["metadata"]["resourceVersion"].as_str().unwrap();
        for _ in 0..watches / 2 {
            open.push(client.watch(&format!("{path}?watch=true&resourceVersion={version}")).await);
        }
    }
    // Each watch gets an event, so it is served.
    server.store().put(data::service(0)).unwrap();
    server.store().put(data::slice(0, 9)).unwrap();
    for events in &mut open {
        while !events.next_named().await.starts_with("MODIFIED ") {}
    }
    table.row("resident", resident(daemon.id()), "MB");
    table.row("peak", peak(daemon.id()), "MB");
    let rates: &[usize] = if (*watches, modules_of) == (4, 5) { &[0, 1, 10] } else { &[] };
    for &rate in rates {
        changing(table, &server, &daemon, *services, rate).await;
    }
}

/// Measures what the daemon takes of a processor and writes to the disk while `rate` slices a second change.
async fn changing(table: &mut Table, server: &ApiServer, daemon: &Daemon, services: usize, rate: usize) {
    const TIME: Duration = Duration::from_secs(20);
    let (ran, wrote) = (processor(daemon.id()), written(daemon.id()));
    let mut seconds = tokio::time::interval(Duration::from_secs(1));
    for second in 0..TIME.as_secs() as usize {
        seconds.tick().await;
        for n in 0..rate {
            server.store().put(data::slice((second * rate + n) % services, 8 + second % 2)).unwrap();
        }
    }
    seconds.tick().await;
    let time = TIME.as_secs_f64();
    table.row(&format!("{rate} changes a second: of a processor"), 100.0 * (processor(daemon.id()) - ran) / time, "%");
    table.row(&format!("{rate} changes a second: written"), 3.6 * (written(daemon.id()) - wrote) / time / 1e3, "MB/h");
}

/// Measures the time from a module's rename until it is in force.
pub(crate) async fn reload(table: &mut Table) {
    table.heading("Reload: a module is renamed into place, without other load");
    let server = cluster().await;
    server.store().put(data::service(1)).unwrap();
    let modules = ["discardcloudservice", "nodeportisolation"].map(|name| std::fs::read(built::module(name)).unwrap());
    let filters = "filters:\n  - {name: services, module: services.wasm, match: ['*/services']}\n";
    let daemon = Setup::new(server.url()).filters(filters).module("services", &modules[0]).start_ready().await;
    let mut times = Vec::new();
    for n in 1..=30 {
        let from = daemon.log_length();
        let began = Instant::now();
        daemon.put_module("services", &modules[n % 2]);
        daemon.logged_after(from, "filter set activated").await;
        times.push(began.elapsed().as_secs_f64() * 1e3);
    }
    table.row("in force, median", median(times.clone()), "ms");
    table.goal("in force, p99 (known modules)", percentile(&mut times, 0.99), "ms", Goal::Under(200.0));
    // A module without cached code: the same code with a new custom section.
    let mut fresh = Vec::new();
    for n in 0..5u8 {
        let mut module = modules[0].clone();
        let stamp: u64 = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos() as u64
            ^ u64::from(n);
        module.extend([0, 10, 1, b'n']);
        module.extend(stamp.to_le_bytes());
        let from = daemon.log_length();
        let began = Instant::now();
        daemon.put_module("services", &module);
        daemon.logged_after(from, "filter set activated").await;
        fresh.push(began.elapsed().as_secs_f64() * 1e3);
    }
    table.goal("in force, a module that must be compiled", median(fresh), "ms", Goal::Under(200.0));
}

/// Measures the latency that Weir adds to watch events, at 1,000 events a second.
pub(crate) async fn watch(table: &mut Table) {
    table.heading("Watch: 10,000 events at 1,000 a second, the same event directly and through Weir");
    let server = cluster().await;
    let mut object = data::service(3);
    object["metadata"]["name"] = json!("ticking");
    server.store().put(object.clone()).unwrap();
    let daemon = setup(&server).start_ready().await;
    let path = format!("{SERVICES}?watch=true");
    let direct = stamps(Client::new(server.url(), "kube-proxy"), &path).await;
    let through = stamps(daemon.client("kube-proxy"), &path).await;
    let mut ticks = tokio::time::interval(Duration::from_millis(1));
    for n in 0..10_000u32 {
        ticks.tick().await;
        object["metadata"]["annotations"]["tick"] = json!(n.to_string());
        server.store().put(object.clone()).unwrap();
    }
    let (direct, through) = (direct.await.unwrap(), through.await.unwrap());
    let mut added: Vec<_> = through
        .iter()
        .zip(&direct)
        .map(|(late, early)| late.saturating_duration_since(*early).as_secs_f64() * 1e3)
        .collect();
    table.row("added, median", percentile(&mut added, 0.5), "ms");
    table.goal("added, p99", percentile(&mut added, 0.99), "ms", Goal::Under(2.0));
}

/// Returns the arrival times of 10,000 MODIFIED events.
async fn stamps(client: Client, path: &str) -> tokio::task::JoinHandle<Vec<Instant>> {
    let mut events = client.watch(path).await;
    let first = events.next().await;
    assert_eq!(first["type"], "ADDED");
    tokio::spawn(async move {
        let mut stamps = Vec::with_capacity(10_000);
        while stamps.len() < 10_000 {
            events.skip_line().await;
            stamps.push(Instant::now());
        }
        stamps
    })
}

/// Reads and discards a body.
pub(crate) async fn drain(client: &Client, path: &str) -> usize {
    let response = client.send(Method::GET, path, "").await;
    assert_eq!(response.status(), 200);
    let (mut body, mut bytes) = (response.into_body(), 0);
    while let Some(frame) = body.frame().await {
        bytes += frame.unwrap().into_data().map_or(0, |data| data.len());
    }
    bytes
}
