//! The state of a reflector, as its readers see it.

use super::error::ReflectorError;

/// The state of a reflector.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ReflectorState {
    /// Whether the objects are complete. While there is an error, they may be stale.
    pub synced: bool,
    /// The last error, until a list or watch succeeds.
    pub error: Option<ReflectorError>,
}
