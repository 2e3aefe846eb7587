//! One change of a store.

use std::sync::Arc;

use super::object::Object;
use crate::StoreKey;

/// One change of one object, or of the store's version alone.
#[derive(Debug, Clone)]
pub struct StoreEvent {
    /// The resourceVersion that the store has reached with this event.
    pub version: u64,
    /// The object before the event; `None` if it did not exist.
    pub(crate) old: Option<Arc<Object>>,
    /// The object after the event; `None` if it does not exist.
    pub new: Option<Arc<Object>>,
    /// Whether a list has said that the objects are the same at this version: what came and went since the version before is not
    /// known.
    pub is_list: bool,
}

impl StoreEvent {
    /// The changed object's key; `None` if only the version moved.
    #[must_use]
    pub fn key(&self) -> Option<&StoreKey> {
        self.new.as_ref().or(self.old.as_ref()).map(|object| &object.key)
    }

    /// The bytes that the event keeps alive.
    pub(super) fn len(&self) -> usize {
        [&self.old, &self.new].into_iter().flatten().map(|object| object.bytes.len()).sum()
    }
}
