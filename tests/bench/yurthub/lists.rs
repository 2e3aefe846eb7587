//! Filtered lists: from the API server, and from memory.

use std::time::Instant;

use memchr::memmem;
use serde_json::json;
use weir_tests::client::Client;

use super::process::YurtHub;
use super::{Proxy, Scene, program, service, start};
use crate::beside::{Way, measured};
use crate::data;
use crate::list::{Encoding, Kind};
use crate::process::drain;
use crate::table::{Table, median};
use crate::usage::{processor_at_rest, resident};

const SERVICES: usize = 5000;
const SLICES: usize = 1000;
const ENDPOINTS: usize = 100;
const ROUNDS: usize = 7;
const STARTS: usize = 3;

/// Measures CPU time, wall time, and the time and memory of the start.
pub(crate) async fn lists(table: &mut Table) {
    let Some(yurthub) = program() else { return };
    let services = (0..SERVICES).map(service);
    let scene = Scene::new(services.chain((0..SLICES).map(|n| data::slice(n, ENDPOINTS)))).await;
    table.heading(&format!(
        "Start with {SERVICES} Services and {SLICES} slices of {ENDPOINTS} endpoints, until both are served"
    ));
    table.columns("", &["ms", "resident MB"]);
    let mut running = Vec::new();
    for hub in [None, Some(yurthub.as_path())] {
        let (mut times, mut memory) = (Vec::new(), Vec::new());
        for _ in 0..STARTS {
            let began = Instant::now();
            let proxy = start(&scene, hub).await;
            let client = Client::new(&proxy.url(), "kube-proxy");
            for kind in Kind::BOTH {
                drain(&client, &format!("{}?resourceVersion=0", path(kind))).await;
            }
            times.push(began.elapsed().as_secs_f64() * 1e3);
            let id = proxy.id();
            tokio::task::spawn_blocking(move || processor_at_rest(id)).await.unwrap();
            memory.push(resident(id));
            running.push(proxy);
        }
        let name = running.last().map_or("", Proxy::name);
        table.cells(name, &[Some(median(times)), Some(median(memory))]);
        running.drain(running.len() - STARTS..running.len() - 1);
    }
    let ways: Vec<_> = running.iter().map(|proxy| (proxy.name(), proxy.address(), proxy.id())).collect();
    for kind in Kind::BOTH {
        compare(table, &scene, ("memory", "?resourceVersion=0"), kind, &ways).await;
    }
    drop(running);
    // Without Services and slices in it, YurtHub passes their lists through its filters instead of serving them from memory.
    let pool = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "leader-hub-pool-1", "namespace": "kube-system", "labels": {"openyurt.io/configmap-name": "leader-hub-pool-1"}},
        "data": {"pool-scoped-metadata": "coordination.k8s.io/v1/leases"}
    });
    scene.server.store().put(pool).unwrap();
    let weir = scene.weir().uncached().start_ready().await;
    let edge = YurtHub::start(&yurthub, &scene, &[]).await;
    let cloud = YurtHub::start(&yurthub, &scene, &["--working-mode=cloud"]).await;
    let ways = [
        ("Weir, two filters", weir.url().to_owned(), weir.id()),
        ("YurtHub, two filters", edge.url(), edge.id()),
        ("YurtHub, cloud mode: one filter, no disk", cloud.url(), cloud.id()),
    ];
    let ways = ways.map(|(name, url, id)| (name, url.trim_start_matches("http://").to_owned(), id));
    for kind in Kind::BOTH {
        compare(table, &scene, ("the API server", ""), kind, &ways).await;
    }
}

fn path(kind: Kind) -> &'static str {
    match kind {
        Kind::Services => "/api/v1/services",
        Kind::Slices => "/apis/discovery.k8s.io/v1/endpointslices",
    }
}

/// Compares lists of a kind in both encodings.
async fn compare(
    table: &mut Table,
    scene: &Scene,
    (source, query): (&str, &str),
    kind: Kind,
    ways: &[(&'static str, String, u32)],
) {
    let path = format!("{}{query}", path(kind));
    for encoding in Encoding::BOTH {
        let direct = Client::trusting(scene.server.url(), "kube-proxy", Some(scene.ca.pem()), None);
        let megabytes = drain(&direct.with("accept", encoding.media()), &path).await as f64 / 1e6;
        table.heading(&format!(
            "List of {} in {} ({megabytes:.1} MB) from {source}, filtered",
            what(kind),
            encoding.name()
        ));
        table.columns("", &["CPU ms", "MB per CPU s", "wall ms", left(kind)]);
        let of = |(name, address, id): &(&'static str, String, u32)| {
            Way::new(name, address.clone(), (path.as_str(), encoding), Some(*id))
        };
        let ways: Vec<_> = ways.iter().map(of).collect();
        let measuring = tokio::task::spawn_blocking(move || {
            let ways = measured(ways, ROUNDS, processor_at_rest);
            let bodies = ways.iter().map(Way::body).collect::<Vec<_>>();
            (ways, bodies)
        });
        let (ways, bodies) = measuring.await.unwrap();
        for (way, body) in ways.iter().zip(&bodies) {
            let found = memmem::find_iter(body, mark(kind)).count() as f64;
            let each = way.each();
            table.cells(way.what, &[Some(each * 1e3), Some(megabytes / each), Some(way.all()), Some(found)]);
        }
    }
}

fn what(kind: Kind) -> String {
    match kind {
        Kind::Services => format!("{SERVICES} Services"),
        Kind::Slices => format!("{SLICES} slices of {ENDPOINTS} endpoints"),
    }
}

/// What is counted in a response: objects, or endpoints.
fn left(kind: Kind) -> &'static str {
    match kind {
        Kind::Services => "Services left",
        Kind::Slices => "endpoints left",
    }
}

/// A part of the uid of each.
fn mark(kind: Kind) -> &'static [u8] {
    match kind {
        Kind::Services => b"-4000-8000-",
        Kind::Slices => b"-4000-9000-",
    }
}
