//! Many clients for a while: they list, watch, go and come back, and the filters are reloaded. Memory stays flat.
//!
//! `WEIR_TEST_SOAK_SECONDS` sets how long; `make soak` sets it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;
use tokio::task::JoinSet;
use weir_apiserver::ApiServer;
use weir_tests::client::Client;
use weir_tests::daemon::{Daemon, Setup};

use super::{NO_LOAD_BALANCERS, edge, service};

const CLIENTS: u64 = 100;
const OBJECTS: u64 = 500;
/// The changes of objects in a second.
const RATE: u32 = 100;
/// How much of the resident memory after the warm-up the daemon may have at the end.
const FLAT: f64 = 1.15;
/// Memory that is in use by chance at the moment of a measurement: responses in flight, instances of filters.
const NOISE: f64 = 8.0;

/// What the clients did.
#[derive(Default)]
struct Counts {
    lists: AtomicU64,
    watches: AtomicU64,
    events: AtomicU64,
}

/// A client that lists and watches for a while, again and again, each time over a new connection.
async fn client(url: String, number: u64, counts: Arc<Counts>) {
    let encodings = [
        "application/json",
        "application/vnd.kubernetes.protobuf",
        "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
    ];
    let resource = ["/api/v1/services", "/apis/discovery.k8s.io/v1/endpointslices"][number as usize % 2];
    for turn in number.. {
        // Ten components: ten views of each resource.
        let client = Client::new(&url, &format!("component-{}", number % 10));
        let list = client.json(&format!("{resource}?resourceVersion=0")).await;
        counts.lists.fetch_add(1, Ordering::Relaxed);
        let version = list["metadata"]["resourceVersion"].as_str().unwrap();
        let client = client.with("accept", encodings[turn as usize % 3]);
        let path = format!("{resource}?watch=true&allowWatchBookmarks=true&resourceVersion={version}");
        let mut watch = client.watch(&path).await;
        counts.watches.fetch_add(1, Ordering::Relaxed);
        let life = Duration::from_millis(1000 + (number * 379 + turn * 613) % 5000);
        let _ = tokio::time::timeout(life, async {
            // A client that is too slow for the history is ended, and lists again.
            while watch.has_piece().await {
                counts.events.fetch_add(1, Ordering::Relaxed);
            }
        })
        .await;
    }
}

/// Changes objects at a steady rate.
async fn mutate(server: Arc<ApiServer>) {
    let mut tick = tokio::time::interval(Duration::from_secs(1) / RATE);
    for step in 0u64.. {
        tick.tick().await;
        server.store().put(object(step * 7919 % OBJECTS, step)).unwrap();
    }
}

fn object(number: u64, step: u64) -> serde_json::Value {
    let kind = if (number + step).is_multiple_of(9) { "LoadBalancer" } else { "ClusterIP" };
    let mut object = service(&format!("object-{number}"), kind);
    object["metadata"]["annotations"] = json!({"step": step.to_string(), "filler": "x".repeat(800)});
    object
}

/// Reloads the filters: every other time with other outcomes.
async fn reload(weir: &Daemon, turn: u64) {
    let from = weir.log_length();
    let settings = if turn.is_multiple_of(2) { "keep" } else { "discard" };
    weir.put_filters(&format!("{NO_LOAD_BALANCERS}    settings: {{loadBalancers: {settings}}}\n"));
    weir.logged_after(from, "filter set activated").await;
}

/// The least resident memory of some seconds, with reloads all the while.
async fn least_resident(weir: &Daemon, seconds: u64, turn: &mut u64) -> f64 {
    let (started, mut least) = (Instant::now(), f64::MAX);
    while started.elapsed() < Duration::from_secs(seconds) {
        *turn += 1;
        reload(weir, *turn).await;
        tokio::time::sleep(Duration::from_millis(500)).await;
        least = least.min(weir.resident());
    }
    least
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory_is_flat_while_a_hundred_clients_come_and_go() {
    let seconds = std::env::var("WEIR_TEST_SOAK_SECONDS").map_or(16, |seconds| seconds.parse().unwrap());
    let (server, cache) = (Arc::new(edge().await), tempfile::tempdir().unwrap());
    for number in 0..OBJECTS {
        server.store().put(object(number, 0)).unwrap();
    }
    let weir = Setup::new(server.url())
        .bundled("discardcloudservice")
        .filters(NO_LOAD_BALANCERS)
        .flag("--cache-dir", &cache.path().display().to_string())
        .flag("--cache-size", "64Mi")
        // The histories of all views fill it before the first measurement.
        .flag("--watch-memory", "8Mi")
        .start_ready()
        .await;
    let (counts, mut tasks, mut turn) = (Arc::new(Counts::default()), JoinSet::new(), 0);
    tasks.spawn(mutate(server.clone()));
    for number in 0..CLIENTS {
        tasks.spawn(client(weir.url().to_owned(), number, counts.clone()));
    }
    // A tenth to warm up, and the same time to measure at both ends.
    let part = (seconds / 10).max(3);
    least_resident(&weir, part * 2, &mut turn).await;
    let first = least_resident(&weir, part, &mut turn).await;
    least_resident(&weir, seconds.saturating_sub(4 * part), &mut turn).await;
    let last = least_resident(&weir, part, &mut turn).await;
    if let Some(ended) = tasks.try_join_next() {
        panic!("a client has ended: {ended:?}");
    }
    let [lists, watches, events] =
        [&counts.lists, &counts.watches, &counts.events].map(|count| count.load(Ordering::Relaxed));
    println!(
        "{CLIENTS} clients for {seconds} s: {lists} lists, {watches} watches, {events} pieces of watches, {turn} reloads; \
         resident {first:.1} MiB after the warm-up, {last:.1} MiB at the end"
    );
    assert!(watches > CLIENTS && events > 0, "the clients worked");
    assert!(last < first * FLAT + NOISE, "{first:.1} MiB after the warm-up, {last:.1} MiB at the end");
    tasks.shutdown().await;
}
