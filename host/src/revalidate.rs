//! Follows what filters look up: when a value that one of them read has changed, its watches end, so that their clients
//! list again and see the new outcome.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use weir_kube::Lookup;
use weir_runtime::{Read, Serving, ServingReceiver, World};
use weir_store::{Change, ObjectKey, Reflectors};

/// How long changes are gathered: a NodePool controller that walks its nodes must not end every watch each time.
const GATHER: Duration = Duration::from_millis(100);

/// Changes gathered into one question: does a recorded read concern any of them?
#[derive(Debug, Default)]
struct Gathered {
    everything: bool,
    addresses: bool,
    whole: HashSet<Arc<Lookup>>,
    objects: HashSet<(Arc<Lookup>, ObjectKey)>,
    touched: HashSet<Arc<Lookup>>,
}

/// Runs until the reflectors are gone.
pub(crate) async fn validate_reads(reflectors: Reflectors, world: Arc<dyn World>, serving: ServingReceiver) {
    let mut changes = reflectors.changes();
    while let Some(first) = changes.next().await {
        let mut gathered = Gathered::default();
        gathered.add(&first);
        tokio::time::sleep(GATHER).await;
        while let Some(more) = changes.try_next() {
            gathered.add(&more);
        }
        let Serving::Live(set) = serving.borrow().clone() else { continue };
        let snapshot = world.snapshot();
        for filter in set.filters() {
            if filter.validate_reads(&*snapshot, |read| gathered.concerns(read)) {
                tracing::info!(filter = %filter.name(), "what the filter looked up has changed: its watches list again");
            }
        }
    }
}

impl Gathered {
    fn add(&mut self, change: &Change) {
        match change {
            Change::Lagged => self.everything = true,
            Change::Addresses => self.addresses = true,
            Change::AllObjects { lookup } => {
                self.touched.insert(lookup.clone());
                self.whole.insert(lookup.clone());
            }
            Change::Objects { lookup, keys } => {
                self.touched.insert(lookup.clone());
                self.objects.extend(keys.iter().map(|key| (lookup.clone(), key.clone())));
            }
        }
    }

    fn concerns(&self, read: &Read) -> bool {
        self.everything
            || match read {
                Read::Addresses => self.addresses,
                Read::Selection { lookup, .. } => self.touched.contains(lookup),
                Read::Object { lookup, namespace, name, .. } => {
                    let namespace = namespace.clone().unwrap_or_default();
                    self.whole.contains(lookup)
                        || self.objects.contains(&(lookup.clone(), ObjectKey { namespace, name: name.clone() }))
                }
            }
    }
}
