//! Measures how soon kube-proxy, whose watches come from views, learns of a change that decides what filters show it: of a
//! looked-up Service, of the node pool, and of an object that a filter hides and shows.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::time::{interval, sleep};
use weir_apiserver::ApiServer;
use weir_tests::client::{Client, Events};
use weir_tests::daemon::{Daemon, Setup};

use crate::data;
use crate::table::{Goal, Table, percentile};

const SERVICES: &str = "/api/v1/services";
const SLICES: &str = "/apis/discovery.k8s.io/v1/endpointslices";
/// The objects of each kind.
const OBJECTS: usize = 1000;
const ROUNDS: usize = 20;
/// The time between two changes: a change that follows another one sooner is collected with further ones for 100 ms.
const BETWEEN: Duration = Duration::from_millis(1100);
/// How often one Service is hidden and shown in turn, and how many times.
const FLAP: Duration = Duration::from_secs(3);
const FLAPS: usize = 8;
/// The time between two changes of another Service meanwhile.
const TICK: Duration = Duration::from_millis(10);

/// Measures the three.
pub(crate) async fn changes(table: &mut Table) {
    let server = ApiServer::builder().start().await.unwrap();
    let slices = (0..OBJECTS).map(|n| data::slice(n, 100));
    for object in data::lookups().into_iter().chain(slices) {
        server.store().put(object).unwrap();
    }
    let daemon = daemon(&server).await;
    let client = daemon.client("kube-proxy");
    table.heading(&format!(
        "Changes that filters depend on, until kube-proxy's watch has the event: {OBJECTS} Services and slices in watch caches"
    ));
    let mut slices = informed(&client, SLICES).await;
    let times = timed(&mut slices, |round| {
        let key = ["kubernetes.io/hostname", "openyurt.io/nodepool"][round % 2];
        let mut service = data::service(2);
        service["metadata"]["annotations"]["openyurt.io/topologyKeys"] = json!(key);
        server.store().put(service).unwrap();
    });
    report(table, "a Service's topology annotation, on its slice", times.await, 50.0);
    let times = timed(&mut slices, |round| {
        let members: Vec<_> = (0..10 + (round + 1) % 2).map(|n| format!("node-{n:04}")).collect();
        let change = |pool: &mut Value| pool["status"]["nodes"] = json!(members);
        server.store().edit("apps.openyurt.io/v1beta2", "NodePool", "", "pool-1", change).unwrap();
    });
    report(table, "a node joins or leaves the pool, on the first slice", times.await, 200.0);
    flap(table, &server, &client).await;
}

async fn daemon(server: &ApiServer) -> Daemon {
    let filters = ["servicetopology", "discardcloudservice"];
    let text: String = filters.iter().map(|name| format!("  - {{name: {name}, module: {name}.wasm}}\n")).collect();
    let setup = Setup::new(server.url()).flag("--node-name", data::NODE).filters(&format!("filters:\n{text}"));
    filters.into_iter().fold(setup, Setup::bundled).start_ready().await
}

/// An informer's watch after its list.
async fn informed(client: &Client, path: &str) -> Events {
    let list = client.json(&format!("{path}?resourceVersion=0")).await;
    let version = list["metadata"]["resourceVersion"].as_str().unwrap();
    client.watch(&format!("{path}?watch=true&allowWatchBookmarks=true&resourceVersion={version}")).await
}

/// The times from each change until its first event, in milliseconds. The BOOKMARK is the last of its events.
async fn timed(events: &mut Events, mut change: impl FnMut(usize)) -> Vec<f64> {
    let mut times = Vec::new();
    for round in 0..ROUNDS {
        sleep(BETWEEN).await;
        let began = Instant::now();
        change(round);
        assert_eq!(events.next_change().await["type"], "MODIFIED");
        times.push(began.elapsed().as_secs_f64() * 1e3);
        while events.next().await["type"] != "BOOKMARK" {}
    }
    times
}

/// Hides and shows one Service in turn while another one changes all the time. Each event shows how old kube-proxy's view was.
async fn flap(table: &mut Table, server: &ApiServer, client: &Client) {
    let mut events = informed(client, SERVICES).await;
    let (mut ticks, mut flaps) = (Vec::new(), Vec::new());
    let reader = tokio::spawn(async move {
        let (mut ticks, mut flaps) = (Vec::new(), Vec::new());
        while flaps.len() < FLAPS {
            let event = events.next_change().await;
            match event["object"]["metadata"]["name"].as_str() {
                Some("service-00001") => flaps.push(Instant::now()),
                _ => ticks.push(Instant::now()),
            }
        }
        (ticks, flaps)
    });
    let (mut tick, started) = (interval(TICK), Instant::now());
    while flaps.len() < FLAPS {
        tick.tick().await;
        let mut ticking = data::service(3);
        ticking["metadata"]["annotations"]["tick"] = json!(ticks.len().to_string());
        ticks.push(Instant::now());
        server.store().put(ticking).unwrap();
        if started.elapsed() > FLAP * (flaps.len() as u32 + 1) {
            let mut service = data::service(1);
            if flaps.len().is_multiple_of(2) {
                service["metadata"]["annotations"]["openyurt.io/skip-discard"] = json!("true");
            }
            flaps.push(Instant::now());
            server.store().put(service).unwrap();
        }
    }
    let (seen_ticks, seen_flaps) = reader.await.unwrap();
    let ages = |written: &[Instant], seen: &[Instant]| -> Vec<f64> {
        written.iter().zip(seen).map(|(written, seen)| (*seen - *written).as_secs_f64() * 1e3).collect()
    };
    report(table, "one Service hidden and shown every 3 s, the event itself", ages(&flaps, &seen_flaps), 100.0);
    report(table, "the same, changes of another Service meanwhile", ages(&ticks, &seen_ticks), 100.0);
}

fn report(table: &mut Table, what: &str, mut times: Vec<f64>, goal: f64) {
    table.row(&format!("{what}: p50"), percentile(&mut times, 0.5), "ms");
    table.goal(&format!("{what}: max of {}", times.len()), percentile(&mut times, 1.0), "ms", Goal::Under(goal));
}
