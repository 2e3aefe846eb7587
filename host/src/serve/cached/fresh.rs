//! How new a view is: reads that ask for more than the view has.

use std::time::Duration;

use tokio::time::timeout;

use super::Unserved;
use super::start::Start;
use crate::serve::respond::StatusError;
use weir_view::ComponentView;

/// How long a read waits for a version that the view has not reached; as kube-apiserver.
pub(super) const FRESH: Duration = Duration::from_secs(3);

/// Waits until a view is as new as the API server is now. `None`: it does not get there in time, or the API server does not say:
/// then its own answer is the best.
pub(super) async fn is_as_new_as_now(view: &mut ComponentView) -> Option<()> {
    let reached = async {
        let version = view.newest_version().await?;
        if view.snapshot().version < version && !view.can_reach() {
            return None;
        }
        view.reaches(version).await
    };
    timeout(FRESH, reached).await.ok().flatten()
}

/// Refuses a read of a version that neither the view nor the API server itself has reached: it is of another cluster, or of none.
///
/// # Errors
/// A watch that continues there has expired. Other reads get what an API server says that is behind.
pub(super) async fn is_of_this_cluster(start: Start, view: &mut ComponentView) -> Result<(), StatusError> {
    let (Start::NotOlderThan(version) | Start::After(version)) = start else { return Ok(()) };
    if view.snapshot().version >= version {
        return Ok(());
    }
    match (timeout(FRESH, view.newest_version()).await, start) {
        (Ok(Some(newest)), Start::After(_)) if newest < version => {
            Err(StatusError::Expired("the API server has not reached this version"))
        }
        (Ok(Some(current)), _) if current < version => Err(StatusError::TooLargeVersion { version, current }),
        _ => Ok(()),
    }
}

/// Waits until a view has the version that a list asks for.
///
/// # Errors
/// It is in the future, or the view was closed meanwhile.
pub(crate) async fn is_not_older(start: Start, view: &mut ComponentView) -> Result<(), Unserved> {
    let Start::NotOlderThan(version) = start else { return Ok(()) };
    match timeout(FRESH, view.reaches(version)).await {
        Ok(reached) => reached.ok_or(Unserved::AskUpstream),
        Err(_) => Err(StatusError::TooLargeVersion { version, current: view.snapshot().version }.into()),
    }
}
