//! A change of an object that a filter looks up, until kube-proxy's watch of slices has an event for it.

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::json;
use tokio::time::{sleep, timeout};
use weir_tests::client::{Client, Events};

use super::{Scene, program, service, start};
use crate::data;
use crate::table::{Table, median};

const OBJECTS: usize = 1000;
/// The changes of each kind, and the time between two of them.
const ROUNDS: usize = 7;
const BETWEEN: Duration = Duration::from_millis(1100);
/// No event arrives later.
const WINDOW: Duration = Duration::from_secs(5);
const SLICES: &str = "/apis/discovery.k8s.io/v1/endpointslices";

/// Measures both.
pub(crate) async fn changes(table: &mut Table) {
    let Some(yurthub) = program() else { return };
    table.heading(&format!(
        "Changes of looked-up objects, until kube-proxy's watch of {OBJECTS} slices has an event, at most {WINDOW:?}"
    ));
    table.columns("", &["events", "of", "median ms"]);
    for program in [None, Some(yurthub.as_path())] {
        measure(table, program).await;
    }
}

async fn measure(table: &mut Table, yurthub: Option<&Path>) {
    let objects = (0..OBJECTS).flat_map(|n| [service(n), data::slice(n, 100)]);
    let scene = Scene::new(objects).await;
    let proxy = start(&scene, yurthub).await;
    let client = Client::new(&proxy.url(), "kube-proxy");
    let list = client.json(&format!("{SLICES}?resourceVersion=0")).await;
    let version = list["metadata"]["resourceVersion"].as_str().unwrap();
    let mut events =
        client.watch(&format!("{SLICES}?watch=true&allowWatchBookmarks=true&resourceVersion={version}")).await;
    let store = scene.server.store();
    let times = timed(&mut events, |round| {
        let key = ["kubernetes.io/hostname", "openyurt.io/nodepool"][round % 2];
        let mut service = service(2);
        service["metadata"]["annotations"]["openyurt.io/topologyKeys"] = json!(key);
        store.put(service).unwrap();
    });
    report(table, proxy.name(), "a Service's topology", times.await);
    let times = timed(&mut events, |round| {
        let members: Vec<_> = (0..10 + (round + 1) % 2).map(|n| format!("node-{n:04}")).collect();
        store.edit("apps.openyurt.io/v1beta2", "NodePool", "", "pool-1", |pool| {
            pool["status"]["nodes"] = json!(members)
        });
    });
    report(table, proxy.name(), "a node of the pool", times.await);
    // Proof that the watch is alive: a change of a slice itself.
    let times = timed(&mut events, |round| {
        let mut slice = data::slice(2, 100);
        slice["metadata"]["annotations"]["round"] = json!(round.to_string());
        store.put(slice).unwrap();
    });
    report(table, proxy.name(), "a slice itself", times.await);
}

/// The times from each change until its first event, in milliseconds.
async fn timed(events: &mut Events, mut change: impl FnMut(usize)) -> Vec<f64> {
    let mut times = Vec::new();
    for round in 0..ROUNDS {
        // Further events of the change before.
        while timeout(BETWEEN, events.next_change()).await.is_ok() {}
        let began = Instant::now();
        change(round);
        if timeout(WINDOW, events.next_change()).await.is_ok() {
            times.push(began.elapsed().as_secs_f64() * 1e3);
        }
    }
    sleep(BETWEEN).await;
    times
}

fn report(table: &mut Table, proxy: &str, what: &str, times: Vec<f64>) {
    let count = times.len() as f64;
    let middle = (!times.is_empty()).then(|| median(times));
    table.cells(&format!("{proxy}: {what}"), &[Some(count), Some(ROUNDS as f64), middle]);
}
