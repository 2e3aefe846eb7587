//! The results of successful lookups, with their arguments.

use std::sync::Arc;

use weir_spec::{CachedObject, LookupSpec, Selection};

/// A successful lookup of one object.
#[derive(Debug, Clone)]
pub(super) struct LookupHit {
    pub(super) object: Arc<CachedObject>,
    pub(super) lookup: Arc<LookupSpec>,
    /// It may be the object as it was last known.
    pub(super) last_known: bool,
    /// The selection that it is of, if that may be the one that was last known.
    pub(super) of: Option<Arc<SelectionHit>>,
}

/// A selection, and the lookup that made it.
#[derive(Debug, Clone)]
pub(super) struct SelectionHit {
    pub(super) selection: Arc<Selection>,
    pub(super) lookup: Arc<LookupSpec>,
    pub(super) namespace: Option<Box<str>>,
    pub(super) label_selector: Box<str>,
    /// It may be the selection as it was last known.
    pub(super) last_known: bool,
}
