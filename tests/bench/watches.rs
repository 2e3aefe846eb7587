//! Measures watches from watch caches: many clients of one resource, large objects, a fixed rate of changes. Checks that
//! each client gets every event once and in order.
//!
//! Clients, the API server and this program share the machine with the daemon, so the rate may not be reached with many
//! clients. The CPU time of the daemon does not depend on that.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use memchr::memmem;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use weir_apiserver::ApiServer;
use weir_tests::daemon::{Daemon, Setup};

use crate::data;
use crate::list::{Encoding, Kind};
use crate::table::{Goal, Table, percentile};
use crate::usage::{peak, processor, resident};

/// The longest time for all events. Only a hang reaches it, also on a machine with other load.
const PATIENCE: Duration = Duration::from_secs(900);
/// Marks an event, followed by its number.
const MARK: &[u8] = b"tick-";
const DIGITS: usize = 6;
/// The User-Agent of all clients: that of [`Daemon::client`] for kube-proxy.
const CLIENT: &str = "kube-proxy/v1.34.0 (linux/amd64) kubernetes/test";

/// One measurement.
pub(crate) struct Load {
    pub(crate) watches: usize,
    /// Objects of each kind.
    pub(crate) objects: usize,
    pub(crate) per_second: u32,
    pub(crate) changes: usize,
}

/// The arrival times of all events of one watch.
type Arrivals = Vec<Instant>;

/// Measures latency, CPU time and memory.
pub(crate) async fn watches(table: &mut Table) {
    for load in [
        Load { watches: 100, objects: 10_000, per_second: 500, changes: 2500 },
        Load { watches: 200, objects: 1000, per_second: 200, changes: 1000 },
        Load { watches: 1000, objects: 1000, per_second: 200, changes: 1000 },
    ] {
        measure(table, &load).await;
    }
}

async fn measure(table: &mut Table, load: &Load) {
    let Load { watches, objects, per_second, changes } = *load;
    table.heading(&format!(
        "{watches} watches from watch caches: {objects} Services and {objects} slices of 100 endpoints, {changes} changes at {per_second} a second"
    ));
    let server = ApiServer::builder().start().await.unwrap();
    for object in data::cluster() {
        server.store().put(object).unwrap();
    }
    let mut raw = 0;
    for n in 0..objects {
        for object in [data::service(n), data::slice(n, 100)] {
            raw += object.to_string().len();
            server.store().put(object).unwrap();
        }
    }
    let setup = Setup::new(server.url())
        .flag("--node-name", data::NODE)
        .filters("filters:\n  - {name: nodeportisolation, module: nodeportisolation.wasm}\n")
        .bundled("nodeportisolation");
    let cache = tempfile::tempdir().unwrap();
    let daemon = setup.flag("--cache-dir", cache.path().to_str().unwrap()).start_ready().await;
    // As informers do, the clients continue from a list.
    let client = daemon.client("kube-proxy");
    let mut version = 0;
    for kind in Kind::BOTH {
        let all = kind.path().replace("/namespaces/team", "");
        let list = client.json(&format!("{all}?resourceVersion=0")).await;
        version = list["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap();
    }
    let before = resident(daemon.id());
    let opening = Instant::now();
    let through = open(daemon.url(), watches, version, changes).await;
    let opened = opening.elapsed();
    let direct = open(server.url(), 1, version, changes).await;
    let used = processor(daemon.id());
    let began = Instant::now();
    change(&server, load, &Mutex::default()).await;
    let mut all = Vec::new();
    for arrivals in through {
        all.push(tokio::time::timeout(PATIENCE, arrivals).await.expect("every event arrives").unwrap());
    }
    let took = began.elapsed();
    let used = processor(daemon.id()) - used;
    let direct = direct.into_iter().next().unwrap().await.unwrap();
    let mut added: Vec<f64> = all.iter().flat_map(|arrivals| later(arrivals, &direct)).collect();
    let name = format!("{watches} watches");
    table.row("opening all watches, one after another", opened.as_secs_f64() * 1e3, "ms");
    table.row("duration", took.as_secs_f64(), "s");
    table.row("added latency, median", percentile(&mut added, 0.5), "ms");
    let p99 = percentile(&mut added, 0.99);
    let delivered = (watches * changes) as f64;
    table.row("CPU per delivered event", used * 1e6 / delivered, "µs");
    let cores = used / took.as_secs_f64();
    let (most, raw) = (peak(daemon.id()), raw as f64 / 1e6);
    table.row("resident before the changes", before, "MB");
    if watches == 100 {
        table.goal(&format!("{name}: added latency, p99"), p99, "ms", Goal::Under(5.0));
        table.goal(&format!("{name}: CPU"), cores, "cores", Goal::Under(1.0));
        table.goal(&format!("{name}: peak memory ({raw:.0} MB of objects)"), most, "MB", Goal::Under(2.5 * raw + 60.0));
    } else {
        table.row("added latency, p99", p99, "ms");
        table.row("CPU", cores, "cores");
        table.goal(&format!("{name}: peak memory ({raw:.0} MB of objects)"), most, "MB", Goal::Under(480.0));
    }
    let upstream = received(&daemon).await;
    table.row("upstream, lists included", upstream, "MB");
}

/// What the API server sent for the watch caches, in MB.
async fn received(daemon: &Daemon) -> f64 {
    let caches = daemon.admin().json("/caches").await;
    let bytes = |store: &Value| store["receivedBytes"].as_f64().unwrap();
    caches["stores"].as_array().unwrap().iter().map(bytes).sum::<f64>() / 1e6
}

fn later(arrivals: &[Instant], direct: &[Instant]) -> Vec<f64> {
    let pairs = arrivals.iter().zip(direct);
    pairs.map(|(late, early)| late.saturating_duration_since(*early).as_secs_f64() * 1e3).collect()
}

/// Changes slices at a fixed rate. Adds to `made` when each change was made, and its version.
pub(crate) async fn change(server: &ApiServer, load: &Load, made: &Mutex<Vec<(Instant, u64)>>) {
    let mut objects: HashMap<usize, Value> = HashMap::new();
    let mut ticks = tokio::time::interval(Duration::from_secs(1) / load.per_second);
    for n in 0..load.changes {
        let which = n % load.objects.min(500);
        let object = objects.entry(which).or_insert_with(|| data::slice(which, 100));
        let mark = String::from_utf8_lossy(MARK);
        object["metadata"]["annotations"] = json!({ "mark": format!("{mark}{n:0width$}", width = DIGITS) });
        ticks.tick().await;
        let (object, now) = (object.clone(), Instant::now());
        let version = server.store().put(object).unwrap();
        made.lock().unwrap().push((now, version));
    }
}

/// Opens watches of slices in protobuf. Each task ends after so many events, and returns when they arrived.
async fn open(url: &str, watches: usize, from: u64, changes: usize) -> Vec<tokio::task::JoinHandle<Arrivals>> {
    let address = url.trim_start_matches("http://").to_owned();
    let mut all = Vec::new();
    for _ in 0..watches {
        // The changes begin when all watches are open.
        let stream = connect(&address, from).await.unwrap_or_else(|head| panic!("{head}"));
        all.push(tokio::spawn(async move { read(stream, changes).await.unwrap_or_else(|reason| panic!("{reason}")) }));
    }
    all
}

/// Opens a watch of slices in protobuf, and waits for its response head. Returns the head instead if it is an error. The server closes
/// the connection with the watch, so that its end shows.
pub(crate) async fn connect(address: &str, from: u64) -> Result<TcpStream, String> {
    let mut stream = TcpStream::connect(address).await.map_err(|error| error.to_string())?;
    let path = "/apis/discovery.k8s.io/v1/endpointslices";
    let request = format!(
        "GET {path}?watch=true&allowWatchBookmarks=true&resourceVersion={from} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nUser-Agent: {CLIENT}\r\nAccept: {}\r\n\r\n",
        Encoding::Protobuf.watch_media()
    );
    stream.write_all(request.as_bytes()).await.map_err(|error| error.to_string())?;
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.map_err(|error| error.to_string())?);
    }
    match head.starts_with(b"HTTP/1.1 200") {
        true => Ok(stream),
        false => Err(String::from_utf8_lossy(&head).into_owned()),
    }
}

async fn read(mut stream: TcpStream, changes: usize) -> Result<Arrivals, String> {
    let mut arrivals = Vec::with_capacity(changes);
    let mut marks = Marks::new();
    while arrivals.len() < changes {
        let numbers = marks.next(&mut stream).await.map_err(|error| error.to_string())?;
        let now = Instant::now();
        for number in numbers.ok_or_else(|| format!("the watch ended after {} events", arrivals.len()))? {
            if number != arrivals.len() {
                return Err(format!("event {number} instead of {}", arrivals.len()));
            }
            arrivals.push(now);
        }
    }
    Ok(arrivals)
}

/// Finds the marks of events in the bytes of a watch.
pub(crate) struct Marks {
    buffer: Vec<u8>,
    kept: usize,
    finder: memmem::Finder<'static>,
}

impl Marks {
    pub(crate) fn new() -> Self {
        Self { buffer: vec![0; 128 << 10], kept: 0, finder: memmem::Finder::new(MARK) }
    }

    /// Reads once and returns the numbers in it, or none at the end of the watch.
    pub(crate) async fn next(&mut self, stream: &mut TcpStream) -> std::io::Result<Option<Vec<usize>>> {
        let count = stream.read(&mut self.buffer[self.kept..]).await?;
        if count == 0 {
            return Ok(None);
        }
        let (mut numbers, mut at, end) = (Vec::new(), 0, self.kept + count);
        // A mark may continue in the next read.
        while let Some(found) = self.finder.find(&self.buffer[at..end]).map(|found| at + found + MARK.len()) {
            if found + DIGITS > end {
                break;
            }
            numbers.push(std::str::from_utf8(&self.buffer[found..found + DIGITS]).unwrap().parse().unwrap());
            at = found + DIGITS;
        }
        let rest = at.max(end.saturating_sub(MARK.len() + DIGITS));
        self.buffer.copy_within(rest..end, 0);
        self.kept = end - rest;
        Ok(Some(numbers))
    }
}
