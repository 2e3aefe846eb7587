//! Random lives of one cache directory: starts and stops, kills, wrong names, keys, users, mounts, releases and clocks, full and
//! broken disks, replaced files, clusters that are put back or exchanged. A start that fits serves everything that was committed
//! and not replaced since; nothing of another history is served as fresh; and no content of the disk ends the process.
//!
//! `WEIR_LIVES` sets how many, `WEIR_SEED` the seed of the first one; `make lives` sets both. A life that fails is printed with its
//! seed, and made as short as it still fails, by at most `WEIR_SHRINK` further lives.

mod checks;
mod files;
mod history;
mod model;
mod moves;
mod play;
pub(super) mod random;
mod run;
mod shrink;
mod site;

use std::hash::{BuildHasher as _, RandomState};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::OnceCell;
use tokio::task::JoinSet;

use self::files::Donor;
use self::moves::Move;
use self::play::{Life, Report};

/// How many without a number, from this seed on, and so many at a time: they wait most of the time.
const LIVES: u64 = 12;
const FIRST: u64 = 3000;
const AT_A_TIME: usize = 4;
/// The most lives that it takes to make one shorter.
const SHRINK: u64 = 80;

static DONOR: OnceCell<Donor> = OnceCell::const_new();

pub(super) fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().filter(|text| !text.is_empty()).map(|text| text.parse().unwrap())
}

/// Plays a life. Returns how it fails.
async fn failure(moves: Vec<Move>, report: Arc<Mutex<Report>>) -> Option<String> {
    let donor = DONOR.get_or_init(Donor::new).await;
    let life = async move { Life::new(donor, report).await.play(&moves).await };
    let error = tokio::spawn(life).await.err()?;
    let panic = error.into_panic();
    let text = panic.downcast_ref::<String>().cloned();
    Some(text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap_or_default())
}

fn printed(moves: &[Move]) -> String {
    moves.iter().map(|found| format!("    {found:?}\n")).collect()
}

async fn fail(seed: u64, failed: String) -> ! {
    let moves = moves::life(seed);
    println!("the life of WEIR_SEED={seed} fails: {failed}\n{}", printed(&moves));
    let again = async |moves| failure(moves, Arc::default()).await;
    let most = number("WEIR_SHRINK").unwrap_or(SHRINK);
    let (moves, failed) = shrink::shrunk(moves, failed, most, again).await;
    panic!("the life of WEIR_SEED={seed} fails also with these moves alone:\n{}{failed}", printed(&moves));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_start_that_fits_serves_what_was_committed_whatever_happened_since() {
    let lives = number("WEIR_LIVES").unwrap_or(LIVES);
    let first = number("WEIR_SEED").unwrap_or_else(|| match number("WEIR_LIVES") {
        Some(_) => RandomState::new().hash_one(0) >> 16,
        // The short form is the same each time.
        None => FIRST,
    });
    println!("lives of the seeds {first} to {}", first + lives - 1);
    let report: Arc<Mutex<Report>> = Arc::default();
    let (mut seeds, mut running) = (first..first + lives, JoinSet::new());
    loop {
        while running.len() < AT_A_TIME
            && let Some(seed) = seeds.next()
        {
            let report = report.clone();
            running.spawn(async move { (seed, failure(moves::life(seed), report).await) });
        }
        match running.join_next().await {
            Some(ended) => {
                if let (seed, Some(failed)) = ended.unwrap() {
                    running.shutdown().await;
                    fail(seed, failed).await;
                }
            }
            None => break,
        }
    }
    print(lives, &report.lock().unwrap());
}

fn print(lives: u64, report: &Report) {
    let served: usize = report.served.values().map(Vec::len).sum();
    println!(
        "{lives} lives, {} starts; without the API server {served} served what was on disk, {} had nothing, {} either",
        report.starts, report.unserved, report.unsure
    );
    println!("from the start of the process to the first list, without the API server: min, median, max");
    for (case, times) in &report.served {
        let mut times = times.clone();
        times.sort();
        let shown = |time: Option<&Duration>| format!("{:.3} s", time.map_or(0.0, Duration::as_secs_f64));
        let (least, median, most) = (times.first(), times.get(times.len() / 2), times.last());
        println!("  {:5} × {case}: {}, {}, {}", times.len(), shown(least), shown(median), shown(most));
    }
}
