//! `make bench`: figures with units, baselines in the same run.
//!
//! Each figure is a median of several rounds. Compare ratios, not machines: the baselines (a byte copy, serde_json
//! decoding, the plain API server without Weir) are measured in the same process minutes.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "a program for people to watch: a panic is the report"
)]

mod data;
mod engine;
mod process;
mod table;

use self::table::Table;

fn main() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let mut table = Table::default();
    println!("Weir's figures on this machine: {}", machine());
    runtime.block_on(engine::throughput(&mut table));
    runtime.block_on(engine::call(&mut table));
    runtime.block_on(process::start(&mut table));
    runtime.block_on(process::memory(&mut table));
    runtime.block_on(process::lists(&mut table));
    runtime.block_on(process::reload(&mut table));
    runtime.block_on(process::watch(&mut table));
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
