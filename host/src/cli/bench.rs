//! `weir run --bench`: what a module costs on given objects.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use serde_json::Value;

use super::CommandError;
use super::run::{RunSummary, chain_for, document};
use weir_runtime::{Engine, Filter, FilterSet, Outcome};

/// How long each figure is measured.
const TIME: Duration = Duration::from_secs(1);
/// The batch of a list, in objects.
const BATCH: usize = 64;

/// Measures a filter on objects, and returns the figures as text.
pub(super) async fn bench(
    module: &Bytes,
    filter: Filter,
    objects: &[Value],
) -> Result<(String, RunSummary), CommandError> {
    if objects.is_empty() {
        return Err(CommandError::invalid("--bench", "there is no object to filter"));
    }
    // An engine without a cache compiles again.
    let (engine, began) = (Engine::new(None)?, Instant::now());
    // It has become a filter, so that it compiles.
    let _ = engine.compile(module);
    let compiled = began.elapsed();
    let (name, filter) = (filter.name().clone(), Arc::new(filter));
    let set = FilterSet::new(vec![filter.clone()]);
    let replayed = per_object(&set, objects).await;
    filter.disable_replay();
    let called = per_object(&set, objects).await;
    let mut text = String::new();
    // Writing to a String cannot fail.
    let _ = writeln!(text, "{name} on {} objects, one core", objects.len());
    let _ = writeln!(text, "compile             {compiled:>10.1?}");
    let _ = writeln!(text, "an object, replayed {:>10.2?}", replayed.time);
    let _ = writeln!(text, "an object, called   {:>10.2?}", called.time);
    let _ = writeln!(
        text,
        "linear memory       {:>7.1} MiB an instance",
        filter.largest_instance() as f64 / (1 << 20) as f64
    );
    Ok((text, RunSummary { objects: objects.len(), failed: called.failed }))
}

struct Measured {
    time: Duration,
    failed: usize,
}

/// The mean time of an object, after one round that is not counted.
async fn per_object(set: &FilterSet, objects: &[Value]) -> Measured {
    let documents: Vec<_> =
        objects.iter().filter_map(|object| Some((chain_for(set, object)?, document(object)))).collect();
    let (mut time, mut count, mut failed) = (Duration::ZERO, 0_u32, 0);
    let mut warm = false;
    while time < TIME {
        failed = 0;
        for (chain, document) in &documents {
            let batch = vec![document.clone(); BATCH];
            let began = Instant::now();
            let outcomes: Vec<_> = chain.run(batch).await.into_iter().collect();
            if warm {
                time += began.elapsed();
                count += u32::try_from(outcomes.len()).unwrap_or(u32::MAX);
            }
            failed += usize::from(outcomes.iter().any(|outcome| matches!(outcome, Outcome::Failed(_))));
        }
        if documents.is_empty() || failed > 0 {
            break;
        }
        warm = true;
    }
    Measured { time: time.checked_div(count).unwrap_or_default(), failed }
}
