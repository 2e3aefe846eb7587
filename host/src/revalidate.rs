//! Validates the outcomes of filters again when a looked-up object changes. If a value has changed that a filter read, the
//! watches of the filter end, so that their clients list again.

use std::sync::Arc;
use std::time::Duration;

use weir_runtime::{ChangeSet, ClusterView, Serving, ServingReceiver};
use weir_store::{Change, Reflectors};

/// How long changes are collected before they are validated together. A controller that updates one object after another
/// must not end the watches each time.
const COLLECT: Duration = Duration::from_millis(100);

/// Runs until the reflectors are gone.
pub(crate) async fn validate_dependencies(
    reflectors: Reflectors,
    view: Arc<dyn ClusterView>,
    serving: ServingReceiver,
) {
    let mut changes = reflectors.changes();
    while let Some(first) = changes.next().await {
        let mut collected = ChangeSet::default();
        add(&mut collected, &first);
        tokio::time::sleep(COLLECT).await;
        while let Some(more) = changes.try_next() {
            add(&mut collected, &more);
        }
        let Serving::Live(set) = serving.borrow().clone() else { continue };
        let snapshot = view.snapshot();
        for filter in set.filters() {
            if filter.validate_dependencies(&*snapshot, &collected).await {
                tracing::info!(filter = %filter.name(), "watches of the filter end with 410 so that clients list again: a looked-up value has changed");
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
                collected.add_object(lookup, &key.namespace, &key.name);
            }
        }
    }
}
