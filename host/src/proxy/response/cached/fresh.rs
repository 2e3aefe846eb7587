//! How new a view is: reads that ask for more than the view has.

use std::time::Duration;

use tokio::time::timeout;

use crate::view::View;

/// How long a read waits for a version that the view has not reached; as kube-apiserver.
pub(super) const FRESH: Duration = Duration::from_secs(3);

/// Waits until a view is as new as the API server is now. `None`: it does not get there in time, or the API server does not say:
/// then its own answer is the best.
pub(super) async fn is_as_new_as_now(view: &View) -> Option<()> {
    let reached = async {
        let version = view.newest_version().await?;
        if view.snapshot().version < version && !view.can_reach() {
            return None;
        }
        reaches(view, version).await
    };
    timeout(FRESH, reached).await.ok().flatten()
}

/// Whether a version that a view has not reached is not of this cluster: the API server itself has not reached it.
pub(super) async fn is_of_another_cluster(view: &View, version: u64) -> bool {
    view.snapshot().version < version
        && matches!(timeout(FRESH, view.newest_version()).await, Ok(Some(newest)) if newest < version)
}

/// Waits until a view has reached a version; `None` if it is closed meanwhile. Cancel safe.
pub(super) async fn reaches(view: &View, version: u64) -> Option<()> {
    view.subscribe().wait_for(|_| view.has_reached(version)).await.ok().map(drop)
}
