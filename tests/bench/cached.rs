//! Compares lists from watch caches with nginx, which serves the same bytes from a file.

use weir_apiserver::ApiServer;
use weir_tests::daemon::{Daemon, Setup};

use crate::beside::{ROUNDS, Way, measured};
use crate::data;
use crate::fetch::fetch_body;
use crate::list::{Encoding, Kind};
use crate::nginx::Nginx;
use crate::table::{Goal, Table};
use crate::usage::processor;

/// The number of objects in a list.
const OBJECTS: usize = 10_000;
const LIST: &str = "/api/v1/services?resourceVersion=0";

/// Starts a daemon with two filters, whose caches have all Services.
async fn daemon(server: &ApiServer) -> Daemon {
    let filters = Kind::Services.filters();
    let text: String = filters.iter().map(|name| format!("  - {{name: {name}, module: {name}.wasm}}\n")).collect();
    let setup = Setup::new(server.url()).flag("--node-name", data::NODE).filters(&format!("filters:\n{text}"));
    filters.into_iter().fold(setup, Setup::bundled).start_ready().await
}

/// Measures CPU time and wall time of a list.
pub(crate) async fn lists(table: &mut Table) {
    let server = ApiServer::builder().start().await.unwrap();
    for object in data::lookups().into_iter().chain((0..OBJECTS).map(data::service)) {
        server.store().put(object).unwrap();
    }
    let daemon = daemon(&server).await;
    let address = daemon.url().trim_start_matches("http://").to_owned();
    for encoding in Encoding::BOTH {
        let (folder, weir) = (tempfile::tempdir().unwrap(), address.clone());
        let body = tokio::task::spawn_blocking(move || fetch_body(&weir, LIST, encoding)).await.unwrap();
        std::fs::write(folder.path().join("list"), &body).unwrap();
        let mut ways = Vec::new();
        let files = [("nginx, default settings", false), ("nginx, sendfile", true)];
        let files = files.map(|(what, tuned)| (what, Nginx::serving(folder.path(), tuned)));
        for (what, nginx) in files.iter().filter_map(|(what, nginx)| Some((*what, nginx.as_ref()?))) {
            ways.push(Way::new(what, nginx.address(), ("/list", encoding), Some(nginx.id())));
        }
        ways.push(Way::new("Weir, from its cache", address.clone(), (LIST, encoding), Some(daemon.id())));
        let ways = tokio::task::spawn_blocking(move || measured(ways, ROUNDS, processor)).await.unwrap();
        report(table, encoding, &body, &ways);
    }
}

fn report(table: &mut Table, encoding: Encoding, body: &[u8], ways: &[Way]) {
    let (name, megabytes) = (encoding.name(), body.len() as f64 / 1e6);
    table.heading(&format!("{OBJECTS} Services in {name} ({megabytes:.1} MB) from a watch cache, and from a file"));
    table.columns("", &["CPU ms", "CPU s per GB", "wall ms"]);
    for way in ways {
        table.cells(way.what, &[Some(way.each() * 1e3), Some(way.each() * 1e3 / megabytes), Some(way.all())]);
    }
    let [plain, tuned, weir] = ways else {
        println!("There is no nginx on this machine to compare with (make nginx)");
        return;
    };
    let ratio = |nginx: &Way| weir.each() / nginx.each();
    table.goal(&format!("{name}: Weir's CPU over nginx's"), ratio(plain), "times", Goal::Under(1.0));
    table.goal(&format!("{name}: Weir's CPU over tuned nginx's"), ratio(tuned), "times", Goal::Under(3.0));
}
