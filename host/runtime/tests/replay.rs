//! Replay and call are indistinguishable. A filter with replay and the same filter with a call for each object return
//! the same verdicts, bytes and faults, and have the same dependencies. The cases are generated programs and the
//! bundled filters, with generated objects in both encodings and a changing cluster.
//!
//! `WEIR_REPLAYS` sets the number of cases (see `make replay`), and `WEIR_SEED` the first seed.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "test support: a panic is the report"
)]

#[path = "replay/cluster.rs"]
mod cluster;
#[path = "replay/faults.rs"]
mod faults;
#[path = "replay/objects.rs"]
mod objects;
#[path = "replay/pair.rs"]
mod pair;
#[path = "replay/programs.rs"]
mod programs;
#[path = "replay/rng.rs"]
mod rng;

use std::time::Duration;

use self::cluster::Cluster;
use self::pair::{Pair, Parts};
use self::rng::Rng;

/// The number of cases of a normal run.
const CASES: u64 = 300;
/// The number of batches of one case.
const ROUNDS: usize = 14;

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// The bundled filters, with settings that apply to the generated objects and clusters.
const BUNDLED: &[(&str, &str)] = &[
    ("discardcloudservice", "{}"),
    ("discardcloudservice", r#"{"loadBalancers": "keep"}"#),
    ("endpoints", "{}"),
    ("endpoints", r#"{"poolSource": "nodelabels"}"#),
    ("forwardkubesvctraffic", r#"{"host": "10.0.0.9", "port": 9443}"#),
    ("inclusterconfig", "{}"),
    ("masterservice", r#"{"host": "10.0.0.9", "port": 9443}"#),
    ("nodeportaddresses", r#"{"addresses": ["10.0.0.0/8"]}"#),
    ("nodeportisolation", "{}"),
    ("nodeportisolation", r#"{"whenClosed": "drop"}"#),
    ("serviceenvupdater", r#"{"host": "10.0.0.9", "port": 9443}"#),
    ("servicetopology", "{}"),
    ("servicetopology", r#"{"poolSource": "nodelabels"}"#),
];

/// Runs one case: the same batches through both filters, while the cluster changes. Returns the number of replayed
/// objects.
async fn case(parts: &Parts, seed: u64, filter: &str, settings: &str) -> u64 {
    let mut rng = Rng::new(seed);
    let cluster = Cluster::new(&mut rng);
    let pair = Pair::load(parts, &cluster, filter, settings).await;
    for round in 0..ROUNDS {
        if rng.one_in(3) {
            let changed = cluster.change(&mut rng);
            // A change may come, and be filtered with, before it is validated.
            if rng.one_in(4) {
                pair.compare(objects::batch(&mut rng), seed, round).await;
            }
            pair.validate(&changed, seed, round).await;
        }
        pair.compare(objects::batch(&mut rng), seed, round).await;
        // The breakers permit calls again.
        tokio::time::advance(Duration::from_secs(61)).await;
    }
    pair.replayed()
}

#[tokio::test(start_paused = true)]
async fn replays_of_generated_filters_equal_calls() {
    let parts = Parts::new();
    let (first, cases) = (number("WEIR_SEED", 1), number("WEIR_REPLAYS", CASES));
    let mut replayed = 0;
    for seed in first..first + cases {
        let program = programs::program(&mut Rng::new(seed.rotate_left(32)));
        replayed += case(&parts, seed, "guest", &program).await;
    }
    println!("{cases} programs, {replayed} objects replayed");
    assert!(cases < CASES || replayed > cases * 20, "only {replayed} objects were replayed");
}

#[tokio::test(start_paused = true)]
async fn replays_of_bundled_filters_equal_calls() {
    let parts = Parts::new();
    let (first, cases) = (number("WEIR_SEED", 1), number("WEIR_REPLAYS", CASES).div_ceil(30));
    for (filter, settings) in BUNDLED {
        let mut replayed = 0;
        for seed in first..first + cases {
            replayed += case(&parts, seed, filter, settings).await;
        }
        println!("{filter} {settings}: {replayed} objects replayed");
        assert!(replayed > 0, "{filter} {settings}: nothing was replayed");
    }
}
