//! What a watch sends.

use std::sync::Arc;

use crate::machine::event::{Event, Object};

/// An event as a client gets it. An event of the view, where there is one, has what all its watches share.
#[derive(Debug)]
pub(crate) enum Frame<O: Object> {
    /// The client sees the object for the first time.
    Added {
        /// The object.
        object: Arc<O>,
        /// The event of the view.
        event: Option<Arc<Event<O>>>,
    },
    /// It sees another state of it, or the same one again.
    Modified {
        /// The object.
        object: Arc<O>,
        /// Whether the client may hold this resourceVersion of it.
        is_again: bool,
        /// The event of the view.
        event: Option<Arc<Event<O>>>,
    },
    /// It does not see the object any more.
    Deleted {
        /// The last state that clients saw, or, where there is none, the object.
        object: Arc<O>,
        /// The event of the view.
        event: Option<Arc<Event<O>>>,
        /// The resourceVersion of the deletion; `None`: that of the object.
        version: Option<u64>,
    },
    /// The client has everything up to this version.
    Bookmark(u64),
    /// The client has everything up to this version, and all objects of a watch that began with them.
    InitialEnd(u64),
    /// There is no outcome, and the client cannot go on without.
    Failed(Arc<O>),
    /// There was no outcome, and the object is not shown now. A client that has it from a list of the API server has to list again.
    Uncertain,
}
