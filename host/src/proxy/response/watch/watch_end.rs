//! The reasons for which Weir ends an open watch.

use std::sync::Arc;

use weir_kube::VerbClass;
use weir_runtime::Serving;

use crate::proxy::Proxy;
use crate::proxy::response::read::ReadRequest;

/// A reason to end an open watch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WatchEnd {
    /// The filters or the values that they look up have changed.
    FiltersChanged,
    /// Failure policies have decided on what it showed. The next one shows it again, perhaps with verdicts.
    Degraded,
    /// The daemon stops.
    Stopping,
}

/// Resolves when the watch must end: the filters have changed since they were taken, or the daemon stops. A Table goes on with
/// other filters.
pub(super) fn watch_end(proxy: Arc<Proxy>, read: &ReadRequest) -> impl Future<Output = WatchEnd> + Send + 'static {
    let (filtering, resource) = (read.filtering.clone(), read.resource.resource.clone());
    let (component, is_table) = (read.component.clone(), read.is_table());
    async move {
        let mut serving = proxy.serving.clone();
        let changed = async {
            if is_table {
                return std::future::pending().await;
            }
            loop {
                if let Serving::Live(set) = &*serving.borrow_and_update() {
                    let chain = set.chain(&component, &resource, VerbClass::Read);
                    if !filtering.are_those(chain.as_ref()) {
                        return WatchEnd::FiltersChanged;
                    }
                }
                if serving.changed().await.is_err() {
                    return WatchEnd::Stopping;
                }
            }
        };
        tokio::select! {
            end = changed => end,
            () = proxy.tasks.stopping() => WatchEnd::Stopping,
        }
    }
}

/// Resolves when a value has changed that the filters have looked up since they were taken; never for a Table.
pub(super) fn looked_up(read: &ReadRequest) -> impl Future<Output = ()> + Send + 'static {
    let (filtering, is_table) = (read.filtering.clone(), read.is_table());
    async move {
        match filtering.chain().filter(|_| !is_table) {
            Some(chain) => chain.changed_since(filtering.version()).await,
            None => std::future::pending().await,
        }
    }
}
