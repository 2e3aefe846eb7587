//! What filters tell apart of a request's verb.

/// What filters tell apart of a request: get, list and watch are one class, so that a list and its watch never disagree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Class {
    /// get, list, watch (HEAD counts as get).
    Read,
    /// create.
    Create,
    /// update.
    Update,
    /// patch.
    Patch,
    /// delete and deletecollection.
    Delete,
}
