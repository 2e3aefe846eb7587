//! The views that are open.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use weir_kube::GroupResource;
use weir_store::StoreReader;
use weir_store::cache::Collection;

use crate::view::state::View;

/// How long a view that no client reads is kept.
const IDLE: Duration = Duration::from_secs(600);
/// The most views.
///
/// A node with 110 pods has some hundred: one for each Secret and ConfigMap.
pub(super) const MAX_VIEWS: usize = 1024;

/// What distinguishes a view from others.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct ViewKey {
    /// The identity with which the objects are read upstream.
    pub(super) reader: StoreReader,
    pub(super) collection: Collection,
    /// The client component, in lower case; `None` for the unfiltered view that peers read.
    pub(super) component: Option<String>,
}

impl ViewKey {
    /// The component in logs and in `/caches`.
    pub(super) fn label(&self) -> &str {
        self.component.as_deref().unwrap_or("peers")
    }
}

/// The open views.
#[derive(Default)]
pub(super) struct OpenViews {
    pub(super) views: HashMap<ViewKey, OpenView>,
    /// The highest version that clients have got, by resource.
    handed_out: HashMap<GroupResource, Arc<AtomicU64>>,
}

/// One of them.
pub(super) struct OpenView {
    pub(super) view: Arc<View>,
    /// When a client has read it last.
    pub(super) used: Instant,
    /// Ends its task.
    pub(super) stop: CancellationToken,
}

impl OpenView {
    /// Whether a watch is open. The registry and the view's task hold the view, too.
    fn is_watched(&self) -> bool {
        Arc::strong_count(&self.view) > 2
    }
}

impl OpenViews {
    fn close(&mut self, key: &ViewKey, reason: &str) {
        if let Some(found) = self.views.remove(key) {
            found.stop.cancel();
            tracing::info!(collection = %key.collection, component = key.label(), reason, "view closed");
        }
    }

    /// Closes the views that no client has read for a while.
    pub(super) fn close_idle(&mut self) {
        let idle = |found: &OpenView| found.used.elapsed() > IDLE && !found.is_watched();
        let idle: Vec<_> = self.views.iter().filter(|(_, found)| idle(found)).map(|(key, _)| key.clone()).collect();
        idle.iter().for_each(|key| self.close(key, "no client reads it"));
    }

    /// Makes room for one more view: closes the one that clients have not read for the longest time, so that lists of one client
    /// do not take the place of another's watches. Returns false if all are watched.
    pub(super) fn make_room(&mut self) -> bool {
        if self.views.len() < MAX_VIEWS {
            return true;
        }
        let unread = self.views.iter().filter(|(_, found)| !found.is_watched());
        let longest = unread.min_by_key(|(_, found)| found.used).map(|(key, _)| key.clone());
        longest.inspect(|key| self.close(key, "there are too many views")).is_some()
    }

    /// The highest version of a resource that clients have got.
    pub(super) fn handed_out(&mut self, resource: &GroupResource) -> &Arc<AtomicU64> {
        self.handed_out.entry(resource.clone()).or_default()
    }
}
