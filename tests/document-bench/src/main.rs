//! Compares weir-document with simd-json, sonic-rs, and serde_json with k8s-openapi: `make bench-document`. Prints the table
//! of `host/document/README.md`.
//!
//! Each engine gets the bytes of a list in memory of its own and (1) splits it into its objects, (2) reads three fields of
//! each, (3) edits one field of each, and (4) encodes the list as one buffer. Each figure includes the steps before it.
//! Engines take turns, so that a slower minute of the machine is one of all of them. Before the rounds, all must have found
//! the same objects and the same fields, and their lists must be equal.

mod engines;
mod lists;

use std::{error::Error, time::Duration};

use k8s_openapi::api::{
    core::v1::{Pod, Service},
    discovery::v1::EndpointSlice,
};
use rustix::time::{ClockId, clock_gettime};
use serde_json::Value;

use engines::{Engine, Fields, Found, Step, Typed};
use lists::List;

const ROUNDS: usize = 21;

const STEPS: [(Step, &str); 4] = [
    (Step::Split, "split"),
    (Step::Read, "+ read three fields"),
    (Step::Edit, "+ edit one"),
    (Step::Encode, "+ encode the list"),
];

fn main() -> Result<(), Box<dyn Error>> {
    compare::<Service>(&lists::services())?;
    compare::<EndpointSlice>(&lists::slices())?;
    compare::<Pod>(&lists::pods())
}

fn compare<T: Typed>(list: &List) -> Result<(), Box<dyn Error>> {
    let engines = engines::all::<T>();
    check(list, &engines)?;
    let mut times = vec![[const { Vec::new() }; STEPS.len()]; engines.len()];
    for _ in 0..ROUNDS {
        for (engine, times) in engines.iter().zip(&mut times) {
            for ((step, _), times) in STEPS.iter().zip(times).filter(|((step, _), _)| *step <= engine.last) {
                let body = list.json.clone();
                let start = processor_time();
                let found = (engine.run)(list, body, *step)?;
                times.push(processor_time() - start);
                assert_eq!(found.objects, list.objects, "{}", engine.name);
            }
        }
    }
    let megabytes = list.json.len() as f64 / 1e6;
    println!("| {} {}s, {megabytes:.1} MB | {} |", list.objects, list.kind, STEPS.map(|(_, name)| name).join(" | "));
    println!("|---|{}", "---:|".repeat(STEPS.len()));
    for (engine, times) in engines.iter().zip(times) {
        let figures = times.map(|times| match median(times) {
            Some(time) => format!("{:.0}", megabytes / time.as_secs_f64()),
            None => "–".to_owned(),
        });
        println!("| {} | {} |", engine.name, figures.join(" | "));
    }
    println!();
    Ok(())
}

/// Asserts that all engines understand the list alike, and that the edit is in it.
fn check(list: &List, engines: &[Engine]) -> Result<(), Box<dyn Error>> {
    let mut expected: Value = serde_json::from_slice(&list.json)?;
    let mut fields = Fields::new();
    for item in expected["items"].as_array_mut().ok_or("no items")? {
        let texts = ["/metadata/name", "/metadata/namespace", &list.read_pointer()]
            .map(|pointer| item.pointer(pointer).and_then(Value::as_str));
        assert!(texts.iter().all(Option::is_some), "an object without a field that is read: {texts:?}");
        fields.add(texts);
        let field = item.pointer_mut(&format!("/{}", list.edit.join("/"))).ok_or("no field to edit")?;
        assert_ne!(*field, list.value, "the edit changes the field");
        *field = list.value.into();
    }
    for engine in engines {
        for (step, _) in STEPS.iter().filter(|(step, _)| *step <= engine.last) {
            let found: Found = (engine.run)(list, list.json.clone(), *step)?;
            assert_eq!(found.objects, list.objects, "{}", engine.name);
            if *step >= Step::Read {
                assert_eq!(found.fields, fields.sum(), "{} reads other fields", engine.name);
            }
            if *step == Step::Encode {
                let mut edited: Value = serde_json::from_slice(&found.list)?;
                // k8s-openapi writes the type of each item, which API servers leave out.
                for item in edited["items"].as_array_mut().ok_or("no items")? {
                    *item = lists::untyped(item.take());
                }
                assert!(edited == expected, "{} makes another list", engine.name);
            }
        }
    }
    Ok(())
}

/// The time of this thread, so that other processes do not count.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or_default())
}

fn median(mut times: Vec<Duration>) -> Option<Duration> {
    times.sort();
    times.get(times.len() / 2).copied()
}
