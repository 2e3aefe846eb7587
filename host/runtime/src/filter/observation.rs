//! The log of a filter that only observes: one line a second at most, and none without something that it would do.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use weir_document::Document;

use crate::metrics::BatchCounts;

/// How long outcomes are gathered for one line.
const GATHER: Duration = Duration::from_secs(1);

/// What a filter would have done since the last line.
#[derive(Debug, Default)]
pub(super) struct Observation(Mutex<Observed>);

#[derive(Debug, Default)]
struct Observed {
    counts: BatchCounts,
    /// One of the objects, as an example.
    example: String,
    /// A line is on its way.
    is_scheduled: bool,
}

impl Observation {
    /// Notes a batch. `example` is an object that the filter would change, hide or fail on.
    pub(super) fn note(self: &Arc<Self>, filter: &Arc<str>, batch: BatchCounts, example: Option<&Document>) {
        let mut observed = self.lock();
        observed.counts.kept += batch.kept;
        observed.counts.edited += batch.edited;
        observed.counts.hidden += batch.hidden;
        observed.counts.failed += batch.failed;
        let Some(example) = example else { return };
        if !observed.is_scheduled {
            observed.is_scheduled = true;
            observed.example = name(example);
            let (observation, filter) = (self.clone(), filter.clone());
            #[expect(clippy::disallowed_methods, reason = "it ends within a second, and owns nothing but counts")]
            tokio::spawn(async move {
                tokio::time::sleep(GATHER).await;
                observation.log(&filter);
            });
        }
    }

    fn log(&self, filter: &str) {
        let Observed { counts, example, .. } = std::mem::take(&mut *self.lock());
        let BatchCounts { kept, edited, hidden, failed, .. } = counts;
        tracing::info!(filter, kept, edited, hidden, failed, example, "observed: what the filter would have done");
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Observed> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn name(object: &Document) -> String {
    let name = object.name().unwrap_or_default().into_owned();
    match object.namespace().ok().flatten() {
        Some(namespace) => format!("{namespace}/{name}"),
        None => name,
    }
}
