//! The time, for objects that carry timestamps.

use jiff::Timestamp;

/// The present time.
#[expect(clippy::disallowed_methods, reason = "the operator runs on the cloud side, where clocks are right")]
pub(crate) fn now() -> Timestamp {
    Timestamp::now()
}
