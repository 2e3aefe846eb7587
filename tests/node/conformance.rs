//! Kubernetes' own conformance suite against the node: once with its client at the API server, once at Weir's HTTPS port
//! with a filter that reads and keeps every object. Any difference is then due to Weir.
//!
//! `make conformance` sets the variables: `FOCUS` selects SIGs, regular expressions of test names, or `short`, `RELOADS=1` changes
//! the filter set every 5 s while the tests run through Weir, `DIRECT=0` compares with the last direct run, `DIRECT=failed`
//! runs only those directly that fail through Weir, `CACHED=1` lets the daemon read every resource, so that views serve all
//! watches of the tests, and not only those that `deploy/` lets it read. `PROCS` is the number of tests at a time.

mod filters;
mod images;
mod report;
mod suite;

use std::path::PathBuf;

use self::report::{Results, compare};
use self::suite::{Suite, Target};
use crate::checks::{World, prepare};
use crate::cluster::deploy;
use crate::control_plane;
use crate::machine::Machine;
use crate::runner::Runner;

/// The SIGs whose tests run by default.
const SIGS: &[&str] = &["sig-api-machinery", "sig-auth", "sig-cli", "sig-instrumentation", "sig-network", "sig-apps"];

/// The tests of `FOCUS=short`: watches from all kinds of versions, custom resources, and forms of lists.
const SHORT: &[&str] = &[
    "Watchers should",
    "CustomResourceDefinition Watch",
    "CustomResourceFieldSelectors",
    "FieldValidation should",
    "AggregatedDiscovery should",
    "API chunking",
    "Table transformation",
    "CSR API operations",
    "ResourceQuota .*status",
    "lifecycle of an Endpoint",
    "IngressClass API",
    "service status lifecycle",
];

/// The folder of the suite's programs, and of the results of direct runs.
fn programs() -> PathBuf {
    control_plane("e2e")
}

/// A variable, unless it is empty.
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

pub(crate) fn run(machine: &Machine, runner: &mut Runner) {
    let Some(world) = prepare(machine, runner) else { return };
    let suite = runner.check("images_filter_and_credential_of_the_suite", || {
        images::import(machine);
        filters::install(&world.admin);
        if variable("CACHED").is_some_and(|value| value != "0") {
            filters::let_weir_read_everything(&world.admin);
        }
        Suite::prepare(&world, &focus())
    });
    let Some(suite) = suite else { return };
    let outcome = runner.check("suite_runs_directly_and_through_weir", || tests(&suite, &world));
    for fault in outcome.iter().flatten() {
        runner.fail(fault);
    }
}

/// The number of tests in the first row of deploy/README's table of Kubernetes versions: that of `FOCUS=short`.
fn claimed() -> usize {
    let readme = std::fs::read_to_string(deploy("README.md")).unwrap();
    let (_, table) = readme.split_once("| conformance tests |\n|---|---|---|---|\n").unwrap();
    let cell = table.lines().next().and_then(|row| row.trim_end_matches(" |").rsplit_once("| ")).unwrap().1;
    cell.split(' ').next().unwrap().parse().unwrap()
}

/// The regular expressions of the test names.
fn focus() -> Vec<String> {
    match variable("FOCUS").as_deref() {
        Some("short") => SHORT.iter().map(|words| format!(r"{words}.*\[Conformance\]")).collect(),
        None => SIGS.iter().map(|sig| format!(r"\[{sig}\].*\[Conformance\]")).collect(),
        Some(words) => words
            .split(',')
            .map(|word| match word.starts_with("sig-") {
                true => format!(r"\[{word}\].*\[Conformance\]"),
                false => word.to_owned(),
            })
            .collect(),
    }
}

/// Runs the tests both ways. Returns what is wrong with Weir, or with the run.
fn tests(suite: &Suite, world: &World<'_>) -> Vec<String> {
    let mut faults = Vec::new();
    let saved = programs().join("direct.json");
    let before = Results::load(&saved);
    let mut direct = match variable("DIRECT").as_deref() {
        Some("0") => before,
        Some("failed") => Results::default(),
        _ => {
            let direct = suite.run(Target::Direct, None);
            before.updated(&direct).save(&saved);
            direct
        }
    };
    let before = filters::Counted::now();
    let reloads = variable("RELOADS").is_some_and(|value| value != "0").then(|| filters::Reloads::start(&world.admin));
    let mut weir = suite.run(Target::Weir, None);
    let counted = filters::Counted::now();
    let changes = counted.reloads - before.reloads;
    println!(
        "the filter set was exchanged {changes} times, the filter has kept {} objects",
        counted.kept - before.kept
    );
    if counted.kept <= before.kept {
        faults.push("the suite's filter was not in force: it has seen no object".to_owned());
    }
    if reloads.is_some() && changes < 1.0 {
        faults.push("the filter set was never exchanged".to_owned());
    }
    // Some tests have deadlines that a busy machine misses: one difference that appears once is allowed, and reported.
    let suspects = report::suspects(&direct, &weir);
    if !suspects.is_empty() {
        println!("RETRIED: {} tests fail only through Weir; they run once more, both ways", suspects.len());
        suspects.iter().for_each(|name| println!("    {name}"));
        if suspects.len() > 1 {
            faults.push(format!("{} tests had to be retried, more than one", suspects.len()));
        }
        direct = direct.passed_in_any(&suite.run(Target::Direct, Some(&suspects)));
        weir = weir.passed_in_any(&suite.run(Target::Weir, Some(&suspects)));
    }
    if let Some(reloads) = reloads {
        reloads.stop();
    }
    report::print(&direct, &weir);
    if variable("FOCUS").as_deref() == Some("short") {
        faults.extend(SHORT.iter().filter(|words| !weir.has(words)).map(|words| format!("no test ran of {words:?}")));
        if weir.passed() < claimed() {
            faults.push(format!("{} tests have passed, deploy/README.md claims {}", weir.passed(), claimed()));
        }
    }
    let different = compare(&direct, &weir);
    faults.extend(different.iter().map(|name| format!("passes directly, but not through Weir: {name}")));
    faults
}
