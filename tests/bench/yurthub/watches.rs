//! Many watches of slices, while slices change at a fixed rate. Counts the events that arrive.
//!
//! A client continues as an informer does: when its watch ends, it opens a new one at the last version that it has seen.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::time::{sleep, timeout};
use weir_tests::client::Client;

use super::{Scene, program, service, start};
use crate::data;
use crate::table::{Table, median, percentile};
use crate::usage::{peak, processor, resident};
use crate::watches::{Load, Marks, change, connect};

const ROUNDS: usize = 3;
/// After the last change, the measurement ends with the last event, at the latest after this time.
const WINDOW: Duration = Duration::from_secs(15);

/// What one client saw.
#[derive(Default)]
struct Seen {
    /// The number and arrival of each event.
    events: Vec<(usize, Instant)>,
    /// The events before its first watch ended.
    on_first_watch: usize,
    ended_watches: usize,
    refused_watches: usize,
}

/// The changes made so far, with their versions.
type Made = Arc<Mutex<Vec<(Instant, u64)>>>;

/// The rows of the table, in this order.
const ROWS: [&str; 11] = [
    "events that arrive in order, %",
    "events that arrive before the client's first watch ends, %",
    "watches that the proxy ends",
    "watches that the proxy refuses",
    "CPU per delivered event, µs",
    "CPU, cores",
    "latency, median, ms",
    "latency, p99, ms",
    "resident before, MB",
    "peak resident, MB",
    "open watches of the API server",
];

/// Measures both with 200 and 1,000 watches.
pub(crate) async fn watches(table: &mut Table) {
    let Some(yurthub) = program() else { return };
    for load in [
        Load { watches: 200, objects: 1000, per_second: 200, changes: 1000 },
        Load { watches: 1000, objects: 1000, per_second: 200, changes: 1000 },
    ] {
        table.heading(&format!(
            "{} watches of slices: {} Services and slices of 100 endpoints, {} changes at {} a second, {ROUNDS} rounds",
            load.watches, load.objects, load.changes, load.per_second
        ));
        table.columns("", &["Weir", "YurtHub"]);
        let mut columns = [[const { Vec::new() }; ROWS.len()], [const { Vec::new() }; ROWS.len()]];
        for _ in 0..ROUNDS {
            for (column, program) in columns.iter_mut().zip([None, Some(yurthub.as_path())]) {
                let figures = measure(&load, program).await;
                column.iter_mut().zip(figures).for_each(|(figures, figure)| figures.push(figure));
            }
        }
        for (n, row) in ROWS.iter().enumerate() {
            table.cells(row, &[0, 1].map(|column| Some(median(columns[column][n].clone()))));
        }
    }
}

/// Measures one round: the figures of [`ROWS`].
async fn measure(load: &Load, yurthub: Option<&Path>) -> [f64; ROWS.len()] {
    let objects = (0..load.objects).flat_map(|n| [service(n), data::slice(n, 100)]);
    let scene = Scene::new(objects).await;
    let proxy = start(&scene, yurthub).await;
    let client = Client::new(&proxy.url(), "kube-proxy");
    let mut version = 0;
    for path in ["/api/v1/services", "/apis/discovery.k8s.io/v1/endpointslices"] {
        let list = client.json(&format!("{path}?resourceVersion=0")).await;
        version = list["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap();
    }
    let before = resident(proxy.id());
    let (made, mut clients) = (Made::default(), Vec::new());
    for _ in 0..load.watches {
        let stream = connect(&proxy.address(), version).await.unwrap_or_else(|head| panic!("{head}"));
        let seen = Arc::new(Mutex::new(Seen::default()));
        let task = follow(stream, proxy.address(), version, load.changes, made.clone(), seen.clone());
        clients.push((tokio::spawn(task), seen));
    }
    let used = processor(proxy.id());
    let began = Instant::now();
    change(&scene.server, load, &made).await;
    let end = Instant::now() + WINDOW;
    let mut all = Vec::new();
    for (mut task, seen) in clients {
        if timeout(end.saturating_duration_since(Instant::now()), &mut task).await.is_err() {
            task.abort();
        }
        all.push(seen);
    }
    let took = began.elapsed().as_secs_f64();
    let used = processor(proxy.id()) - used;
    let upstream = *scene.server.open_watches().borrow() as f64;
    let made = made.lock().unwrap();
    let all: Vec<_> = all.iter().map(|seen| seen.lock().unwrap()).collect();
    let mut latency = Vec::new();
    for (number, arrival) in all.iter().flat_map(|seen| &seen.events) {
        latency.push(arrival.saturating_duration_since(made[*number].0).as_secs_f64() * 1e3);
    }
    let sum = |of: fn(&Seen) -> usize| all.iter().map(|seen| of(seen)).sum::<usize>() as f64;
    let (delivered, expected) = (latency.len() as f64, (load.watches * load.changes) as f64);
    [
        delivered / expected * 100.0,
        sum(|seen| seen.on_first_watch) / expected * 100.0,
        sum(|seen| seen.ended_watches),
        sum(|seen| seen.refused_watches),
        used * 1e6 / delivered,
        used / took,
        percentile(&mut latency, 0.5),
        percentile(&mut latency, 0.99),
        before,
        peak(proxy.id()),
        upstream,
    ]
}

/// Reads a watch, and further ones when it ends, until the last event arrives.
async fn follow(
    first: tokio::net::TcpStream,
    address: String,
    from: u64,
    changes: usize,
    made: Made,
    seen: Arc<Mutex<Seen>>,
) {
    let (mut stream, mut marks, mut next) = (first, Marks::new(), 0);
    while next < changes {
        let numbers = marks.next(&mut stream).await.ok().flatten();
        let now = Instant::now();
        if let Some(numbers) = numbers {
            let mut locked = seen.lock().unwrap();
            // An event that arrives a second time, or after a later one, does not count.
            for number in numbers {
                if number < next {
                    continue;
                }
                locked.events.push((number, now));
                locked.on_first_watch += usize::from(locked.ended_watches == 0);
                next = number + 1;
            }
            continue;
        }
        seen.lock().unwrap().ended_watches += 1;
        marks = Marks::new();
        // The event of a change may arrive before the change returns.
        let version = match next {
            0 => from,
            _ => loop {
                let made = made.lock().unwrap().get(next - 1).map(|(_, version)| *version);
                if let Some(version) = made {
                    break version;
                }
                sleep(Duration::from_millis(1)).await;
            },
        };
        stream = loop {
            match connect(&address, version).await {
                Ok(stream) => break stream,
                Err(_) => seen.lock().unwrap().refused_watches += 1,
            }
            // What an informer waits after a refusal.
            sleep(Duration::from_secs(1)).await;
        };
    }
}
