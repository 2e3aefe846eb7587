//! Puts the local status in front of the configured filters: as the first filter of every chain over EndpointSlices, Endpoints
//! and pods, from the first report on. Before that, nothing is read for it.

use std::sync::{Arc, LazyLock};

use futures_util::future::BoxFuture;
use tokio::sync::watch;
use weir_kube::{GroupResource, KUBELET, VerbClass};
use weir_runtime::{ChainVersion, DocumentFilter, FilterSet, Filtered, Serving, ServingReceiver, Slot};
use weir_spec::Writes;
use weir_upstream::Tasks;

use super::state::{LocalStatus, Phase};

static NAME: LazyLock<Arc<str>> = LazyLock::new(|| "local-status".into());

/// The local status as a filter.
#[derive(Debug, Clone)]
struct StatusFilter {
    status: Arc<LocalStatus>,
    identity: u64,
}

impl DocumentFilter for StatusFilter {
    fn name(&self) -> &Arc<str> {
        &NAME
    }

    fn identity(&self) -> u64 {
        self.identity
    }

    fn matches(&self, component: &str, resource: &GroupResource, class: VerbClass) -> bool {
        let is_overlaid = match (&*resource.resource, &*resource.group) {
            ("endpointslices", "discovery.k8s.io") | ("endpoints", "") => true,
            ("pods", "") => !component.eq_ignore_ascii_case(KUBELET),
            _ => false,
        };
        is_overlaid && class == VerbClass::Read
    }

    /// Writes pass: the API server will soon have the status that clients see.
    fn writes(&self) -> Writes {
        Writes::Pass
    }

    fn generation(&self) -> u64 {
        *self.status.generation.borrow()
    }

    fn subscribe(&self) -> watch::Receiver<u64> {
        self.status.generation.subscribe()
    }

    fn filter<'a>(&'a self, batch: &'a mut [Slot], _guarded: bool) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            let overlay = self.status.overlay();
            if overlay.is_empty() {
                return;
            }
            let publishes = |namespace: &str, name: &str| self.status.pods.publishes_not_ready(namespace, name);
            for slot in batch {
                let Filtered::Kept(document) = &mut slot.filtered else { continue };
                if let Err(error) = overlay.apply(document, &publishes) {
                    tracing::debug!(%error, "object is shown without the local status");
                }
            }
        })
    }
}

/// Returns the filter sets that `base` names, from the first report on with the local status in front.
pub(crate) fn layer(status: Arc<LocalStatus>, base: ServingReceiver, tasks: &Tasks) -> ServingReceiver {
    let (sender, layered) = watch::channel(base.borrow().clone());
    let filter = StatusFilter { status, identity: ChainVersion::tick() };
    tasks.spawn_until_stop(run(filter, base, sender));
    layered
}

async fn run(filter: StatusFilter, mut base: ServingReceiver, layered: watch::Sender<Serving>) {
    let mut phase = filter.status.phase.subscribe();
    let mut before: Option<Arc<FilterSet>> = None;
    loop {
        let serving = base.borrow_and_update().clone();
        match (serving, *phase.borrow_and_update()) {
            // Nobody may see the addresses from before a restart of the node.
            (Serving::Live(_), Phase::Starting) => {}
            (Serving::Live(set), Phase::Active) => {
                let set = Arc::new(set.with_first(Arc::new(filter.clone()), before.as_deref()));
                before = Some(set.clone());
                layered.send_replace(Serving::Live(set));
            }
            (serving, _) => drop(layered.send_replace(serving)),
        }
        let changed = tokio::select! {
            changed = base.changed() => changed,
            changed = phase.changed() => changed,
        };
        if changed.is_err() {
            return;
        }
    }
}
