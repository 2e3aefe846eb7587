//! Follows changes of looked-up objects: when a value changes that a filter read, the filter's watches end, so that their
//! clients list again and see the new outcomes.

use std::sync::Arc;
use std::time::Duration;

use weir_runtime::{ChangeSet, ClusterView, Serving, ServingReceiver};
use weir_store::{Change, Reflectors};

/// How long changes are collected before they are validated together: a NodePool controller that walks its nodes must
/// not end every watch with each step.
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
                tracing::info!(filter = %filter.name(), "a looked-up value has changed: watches of the filter re-list");
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
