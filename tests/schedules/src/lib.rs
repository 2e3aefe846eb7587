//! The daemon's code that locks and publishes, in many orders of threads.
//!
//! Its files are compiled here with the locks and atomics of shuttle, which switches threads at each of them. So what is tested is
//! the code of the daemon, and no copy that grows old. A patch in `patches/` puts a race back; a test that does not find it, or a
//! patch that does not apply any more, fails.

#![cfg(test)]
#![allow(dead_code, reason = "each file has more than its schedules use")]

// The files name these crates.
extern crate self as weir_kube;
extern crate self as weir_process;
extern crate self as weir_runtime;
extern crate self as weir_store;
extern crate self as weir_upstream;

mod stand_ins;
mod sync;

use std::panic::{AssertUnwindSafe, catch_unwind};

use shuttle::scheduler::{PctScheduler, RandomScheduler, Scheduler};
use shuttle::{Config, Runner};

use stand_ins::{
    FilterSet, GroupResource, ReflectorError, StoreHandle, StoreReader, cache, clock, disk, error, outage, state,
};
use version::{ChainPeriod, ChainVersion};

include!(concat!(env!("OUT_DIR"), "/modules.rs"));

/// What must hold in each order of threads, by name.
type Schedules = &'static [(&'static str, fn())];
/// A file.
type Present = (&'static str, Schedules);
/// A file with a race, and the assertion that finds it.
type PutBack = (&'static str, &'static str, Schedules);

/// The orders that are tried of each, by each of two schedulers.
const ORDERS: usize = 5000;

fn run(scheduler: impl Scheduler + 'static, check: fn()) {
    let mut config = Config::new();
    // The futures of moka are large.
    config.stack_size = 1 << 20;
    Runner::new(scheduler, config).run(check);
}

/// Runs with a clock of tokio, for timeouts that never end.
fn try_orders(check: fn()) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    let _entered = runtime.enter();
    // The one switches anywhere, the other seldom and at chosen places.
    run(RandomScheduler::new_from_seed(1, ORDERS), check);
    run(PctScheduler::new_from_seed(1, 3, ORDERS), check);
}

/// Waits until threads have ended.
fn join<T, const N: usize>(threads: [shuttle::thread::JoinHandle<T>; N]) -> Vec<T> {
    threads.into_iter().map(|thread| thread.join().unwrap()).collect()
}

fn message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap_or_default()
}

#[test]
fn what_is_locked_and_published_is_right_in_each_order_of_threads() {
    for (file, schedules) in PRESENT {
        for (name, check) in *schedules {
            let began = std::time::Instant::now();
            try_orders(*check);
            println!("{file}: {name}: {} orders, {:?}", 2 * ORDERS, began.elapsed());
        }
    }
}

#[test]
fn each_race_that_is_put_back_is_found() {
    for (race, found_by, schedules) in PUT_BACK {
        let failures =
            schedules.iter().filter_map(|(_, check)| catch_unwind(AssertUnwindSafe(|| try_orders(*check))).err());
        let failures: Vec<_> = failures.map(|panic| message(&*panic)).collect();
        assert!(
            failures.iter().any(|found| found.contains(found_by)),
            "{race}: nothing fails with {found_by:?}: {failures:?}"
        );
    }
}
