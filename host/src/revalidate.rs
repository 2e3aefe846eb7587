//! Validates the outcomes of filters again when a looked-up object changes. If a value has changed that a filter read, its
//! views are filtered again, and its watches that do not come from a view end; their clients go on with another one.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use weir_runtime::{ChangeSet, ClusterView, Serving, ServingReceiver};
use weir_store::{Change, Reflectors};

/// How long changes are collected after a quiet time, before they are validated together.
const COLLECT_FIRST: Duration = Duration::from_millis(20);
/// How long changes are collected when others came shortly before. A controller that updates one object after another must
/// not end the watches each time.
const COLLECT_MORE: Duration = Duration::from_millis(100);
/// The quiet time.
const QUIET: Duration = Duration::from_secs(1);

/// Runs until the reflectors are gone.
pub(crate) async fn validate_dependencies(
    reflectors: Reflectors,
    view: Arc<dyn ClusterView>,
    serving: ServingReceiver,
) {
    let mut changes = reflectors.changes();
    let mut last: Option<Instant> = None;
    while let Some(first) = changes.next().await {
        let mut collected = ChangeSet::default();
        add(&mut collected, &first);
        let is_first = last.is_none_or(|last| last.elapsed() > QUIET);
        tokio::time::sleep(if is_first { COLLECT_FIRST } else { COLLECT_MORE }).await;
        last = Some(Instant::now());
        while let Some(more) = changes.try_next() {
            add(&mut collected, &more);
        }
        let Serving::Live(set) = serving.borrow().clone() else { continue };
        let snapshot = view.snapshot();
        for filter in set.filters() {
            if filter.validate_dependencies(&*snapshot, &collected).await {
                tracing::info!(filter = %filter.name(), "looked-up value has changed, filtering again");
            }
        }
    }
}

fn add(collected: &mut ChangeSet, change: &Change) {
    match change {
        Change::Lagged => collected.add_everything(),
        Change::Addresses => collected.add_addresses(),
        Change::AllObjects { lookup } => collected.add_lookup(lookup),
        Change::Objects { lookup, keys } => {
            for key in keys {
                collected.add_object(lookup, key.namespace(), key.name());
            }
        }
    }
}
