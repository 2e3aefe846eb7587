//! The reasons for which Weir ends an open watch.

use std::sync::Arc;

use weir_kube::VerbClass;
use weir_runtime::Serving;

use crate::proxy::Proxy;
use crate::proxy::response::read::ReadRequest;

/// A reason to end an open watch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WatchEnd {
    /// The filters or the values that they look up have changed. The watch ends with 410, so that its client lists again.
    Relist {
        /// The message of the Status.
        message: &'static str,
        /// The label of the metric.
        reason: &'static str,
    },
    /// The daemon stops.
    Stopping,
}

/// Resolves when the watch must end: the filters or values that they looked up have changed since the chain version with
/// which it began, or the daemon stops.
pub(super) async fn watch_end(proxy: Arc<Proxy>, read: Arc<ReadRequest>) -> WatchEnd {
    let relist = |message, reason| WatchEnd::Relist { message, reason };
    let mut serving = proxy.serving.clone();
    let swapped = async {
        loop {
            if let Serving::Live(set) = &*serving.borrow_and_update() {
                match set.chain(&read.component, &read.resource.resource, VerbClass::Read) {
                    Some(chain) if chain.same_filters(&read.chain) => {}
                    Some(_) => return relist("the filters have changed", "swap"),
                    None => return relist("no filter matches this resource any more", "unmatched"),
                }
            }
            if serving.changed().await.is_err() {
                return WatchEnd::Stopping;
            }
        }
    };
    tokio::select! {
        end = swapped => end,
        () = read.chain.changed_since(read.chain_version) => relist("values that the filters look up have changed", "lookup"),
        () = proxy.tasks.stopping() => WatchEnd::Stopping,
    }
}
