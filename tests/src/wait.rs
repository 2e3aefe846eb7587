//! Waits of tests for a state that sends no event. Each has an end, and says what it has waited for.

use std::time::Duration;

use crate::client::PATIENCE;

/// How often a state is looked at.
const LOOK: Duration = Duration::from_millis(5);

/// Waits until a condition holds; [`until!`](crate::until) is shorter.
///
/// # Panics
/// If it does not within [`PATIENCE`].
pub async fn until(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    let held = async {
        while !condition().await {
            tokio::time::sleep(LOOK).await;
        }
    };
    assert!(tokio::time::timeout(PATIENCE, held).await.is_ok(), "this does not become true: {what}");
}

/// Waits until an expression, which may await, is true.
#[macro_export]
macro_rules! until {
    ($condition:expr) => {
        $crate::wait::until(stringify!($condition), async || $condition).await
    };
}
