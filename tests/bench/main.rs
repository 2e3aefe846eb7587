//! `make bench`: figures with units, with baselines in the same run.
//!
//! Each figure is the median of several rounds. Compare ratios within a run, not figures of different machines: the
//! baselines (a byte copy, decoders, nginx, the API server without Weir) run within the same minutes. Arguments select
//! parts: engine, lists, events, caches, watches, changes, memory, sizing, tls, process, yurthub. `yurthub` compares with a
//! YurtHub whose program the variable `YURTHUB` names; its own parts are yurthub-lists, yurthub-watches, yurthub-changes and
//! yurthub-behaviour.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "an interactive program: a panic is its error report"
)]

mod baseline;
mod beside;
mod cached;
mod changes;
mod data;
mod engine;
mod events;
mod fetch;
mod list;
mod nginx;
mod process;
mod table;
mod tls;
mod usage;
mod watches;
mod yurthub;

use self::table::Table;

fn main() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let mut table = Table::default();
    println!("Weir on this machine: {}", machine());
    let wanted: Vec<_> = std::env::args().skip(1).collect();
    let wants = |part: &str| wanted.is_empty() || wanted.iter().any(|wanted| wanted == part);
    if wants("engine") {
        runtime.block_on(engine::throughput(&mut table));
        runtime.block_on(engine::call(&mut table));
    }
    if wants("lists") {
        runtime.block_on(beside::lists(&mut table));
    }
    if wants("events") {
        runtime.block_on(events::cost(&mut table));
    }
    if wants("caches") {
        runtime.block_on(cached::lists(&mut table));
    }
    if wants("watches") {
        runtime.block_on(watches::watches(&mut table));
    }
    if wants("changes") {
        runtime.block_on(changes::changes(&mut table));
    }
    if wants("memory") {
        runtime.block_on(process::memory(&mut table));
    }
    if wants("sizing") {
        runtime.block_on(process::sizing(&mut table));
    }
    if wants("tls") {
        runtime.block_on(tls::lists(&mut table));
        runtime.block_on(tls::watches(&mut table));
    }
    if wants("process") {
        runtime.block_on(process::start(&mut table));
        runtime.block_on(process::reload(&mut table));
        runtime.block_on(process::watch(&mut table));
    }
    let compares = |part: &str| wants("yurthub") || wants(&format!("yurthub-{part}"));
    if compares("lists") {
        runtime.block_on(yurthub::lists(&mut table));
    }
    if compares("watches") {
        runtime.block_on(yurthub::watches(&mut table));
    }
    if compares("changes") {
        runtime.block_on(yurthub::changes(&mut table));
    }
    if compares("behaviour") {
        runtime.block_on(yurthub::behaviour(&mut table));
    }
    table.summary();
}

fn machine() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = text
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(": ").map(|(_, name)| name.to_owned()));
    let cores = std::thread::available_parallelism().map_or(0, std::num::NonZero::get);
    format!("{cores} cores, {}", model.unwrap_or_else(|| "unknown processor".to_owned()))
}
