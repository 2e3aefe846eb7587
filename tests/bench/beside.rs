//! Compares the whole daemon with a plain reverse proxy. Both serve the same lists, from the same in-memory server to a
//! client that discards the bytes. nginx passes the bytes on, and Weir runs two filters on them.

use weir_apiserver::ApiServer;
use weir_tests::daemon::{Daemon, Setup};

use crate::data;
use crate::fetch::{Fetched, fetch, fetch_body};
use crate::list::{Encoding, Kind, List};
use crate::nginx::Nginx;
use crate::table::{Goal, Table, median};
use crate::usage::processor;

/// The rounds of each measurement. Each round measures every path once, so that other load on the machine affects all
/// alike.
pub(crate) const ROUNDS: usize = 25;

/// A path from the client to the server.
pub(crate) struct Way {
    pub(crate) what: &'static str,
    address: String,
    /// The path of the request.
    path: String,
    encoding: Encoding,
    /// The process on the path.
    pub(crate) pid: Option<u32>,
    pub(crate) rounds: Vec<Fetched>,
    /// The CPU seconds of all rounds.
    pub(crate) processor: f64,
}

/// Returns a list of about 30 MB in JSON, or the same list in protobuf.
fn list(kind: Kind, encoding: Encoding) -> List {
    kind.list(
        encoding,
        match kind {
            Kind::Services => 15_000,
            Kind::Slices => 1000,
        },
    )
}

/// Starts a daemon with the two filters of each kind.
pub(crate) async fn daemon(server: &ApiServer) -> Daemon {
    let filters: Vec<_> = Kind::BOTH.iter().flat_map(|kind| kind.filters()).collect();
    let text: String = filters.iter().map(|name| format!("  - {{name: {name}, module: {name}.wasm}}\n")).collect();
    let setup = Setup::new(server.url()).flag("--node-name", data::NODE).filters(&format!("filters:\n{text}"));
    filters.into_iter().fold(setup, Setup::bundled).start_ready().await
}

/// Starts an API server with the objects that the filters look up.
pub(crate) async fn server() -> ApiServer {
    let server = ApiServer::builder().start().await.unwrap();
    for object in data::lookups() {
        server.store().put(object).unwrap();
    }
    server
}

/// Measures CPU time per GB, wall time, and time to the first byte.
pub(crate) async fn lists(table: &mut Table) {
    let server = server().await;
    let daemon = daemon(&server).await;
    let upstream = server.address().to_string();
    let plain = Nginx::start(&upstream, false);
    let tuned = Nginx::start(&upstream, true);
    if plain.is_none() {
        println!("\nThere is no nginx on this machine to compare with (make nginx)");
    }
    for kind in Kind::BOTH {
        for encoding in Encoding::BOTH {
            let list = list(kind, encoding);
            server.fix(kind.path(), encoding.media().parse().unwrap(), list.whole());
            let way = |what, address, pid| Way::new(what, address, (kind.path(), encoding), pid);
            let mut ways = vec![way("directly from the server", upstream.clone(), None)];
            for (what, nginx) in [("nginx, default settings", &plain), ("nginx, tuned", &tuned)] {
                ways.extend(nginx.as_ref().map(|nginx| way(what, nginx.address(), Some(nginx.id()))));
            }
            let address = daemon.url().trim_start_matches("http://").to_owned();
            ways.push(way("Weir, two filters", address, Some(daemon.id())));
            let ways = tokio::task::spawn_blocking(move || measured(ways, ROUNDS, processor)).await.unwrap();
            report(table, &list, &ways);
        }
    }
}

/// Fetches over each way in turn. `used` returns the CPU seconds of a process when a request is over. Blocks.
pub(crate) fn measured(mut ways: Vec<Way>, rounds: usize, used: fn(u32) -> f64) -> Vec<Way> {
    for way in &mut ways {
        way.fetch(used);
        way.rounds.clear();
        way.processor = 0.0;
    }
    for _ in 0..rounds {
        for way in &mut ways {
            way.fetch(used);
        }
    }
    ways
}

impl Way {
    pub(crate) fn new(
        what: &'static str,
        address: String,
        (path, encoding): (&str, Encoding),
        pid: Option<u32>,
    ) -> Self {
        Self { what, address, path: path.to_owned(), encoding, pid, rounds: Vec::new(), processor: 0.0 }
    }

    fn fetch(&mut self, used: fn(u32) -> f64) {
        let before = self.pid.map_or(0.0, processor);
        self.rounds.push(fetch(&self.address, &self.path, self.encoding));
        self.processor += self.pid.map_or(0.0, used) - before;
    }

    /// Returns the body of a response. Blocks.
    pub(crate) fn body(&self) -> Vec<u8> {
        fetch_body(&self.address, &self.path, self.encoding)
    }

    /// Returns the CPU seconds of a request.
    pub(crate) fn each(&self) -> f64 {
        self.processor / self.rounds.len() as f64
    }

    /// Returns the CPU seconds per GB from the server.
    fn per_gigabyte(&self, list: &List) -> f64 {
        self.each() / (list.bytes() as f64 / 1e9)
    }

    fn first(&self) -> f64 {
        median(self.rounds.iter().map(|round| round.first.as_secs_f64() * 1e3).collect())
    }

    pub(crate) fn all(&self) -> f64 {
        median(self.rounds.iter().map(|round| round.all.as_secs_f64() * 1e3).collect())
    }
}

fn report(table: &mut Table, list: &List, ways: &[Way]) {
    table.heading(&format!("{} ({:.1} MB) through a proxy, over loopback", list.name(), list.megabytes()));
    table.columns("", &["CPU s per GB", "wall ms", "first byte ms", "MB received"]);
    for way in ways {
        let processor = way.pid.map(|_| way.per_gigabyte(list));
        let received = way.rounds.last().map(|round| round.bytes as f64 / 1e6);
        table.cells(way.what, &[processor, Some(way.all()), Some(way.first()), received]);
    }
    let (Some(straight), Some(weir)) = (ways.first(), ways.last()) else { return };
    let name = list.name();
    table.goal(&format!("{name}: Weir's CPU per GB"), weir.per_gigabyte(list), "s/GB", Goal::Under(1.0));
    if let [_, plain, tuned, _] = ways {
        let ratio = |nginx: &Way| weir.each() / nginx.each();
        table.goal(&format!("{name}: Weir's CPU over nginx's"), ratio(plain), "times", Goal::Under(1.5));
        table.row(&format!("{name}: Weir's CPU over tuned nginx's"), ratio(tuned), "times");
    }
    let later = weir.first() - straight.first();
    match list.encoding {
        Encoding::Json => table.goal(&format!("{name}: first byte later by"), later, "ms", Goal::Under(5.0)),
        Encoding::Protobuf => {
            table.row("added time to first byte (a protobuf list starts with its length)", later, "ms")
        }
    }
}
