//! The last events of one collection, in order.
//!
//! Memory: at most `limit` events. It also keeps the version before which events are missing.

use std::collections::VecDeque;
use std::sync::Arc;

use super::object::{Key, StoredObject};

/// A change of one object.
#[derive(Clone, Debug)]
pub(crate) enum ObjectChange {
    /// It was created.
    Added(Arc<StoredObject>),
    /// It was updated.
    Modified {
        /// The previous state.
        old: Arc<StoredObject>,
        /// The new state.
        new: Arc<StoredObject>,
    },
    /// It was deleted.
    Deleted {
        /// The last state.
        old: Arc<StoredObject>,
        /// The same, with the version of the deletion.
        last: Arc<StoredObject>,
    },
}

/// A change and its version.
#[derive(Clone, Debug)]
pub(crate) struct Event {
    pub(crate) revision: u64,
    pub(crate) change: ObjectChange,
}

/// The ring.
#[derive(Debug, Clone, Default)]
pub(super) struct History {
    events: VecDeque<Event>,
    lost: u64,
}

// === impl ObjectChange ===

impl ObjectChange {
    /// The object after the change, or its last state.
    pub(crate) fn object(&self) -> &Arc<StoredObject> {
        match self {
            Self::Added(object) | Self::Modified { new: object, .. } | Self::Deleted { last: object, .. } => object,
        }
    }

    pub(super) fn key(&self) -> &Key {
        &self.object().key
    }

    pub(super) fn before(&self) -> Option<&Arc<StoredObject>> {
        match self {
            Self::Added(_) => None,
            Self::Modified { old, .. } | Self::Deleted { old, .. } => Some(old),
        }
    }
}

// === impl History ===

impl History {
    pub(super) fn push(&mut self, change: ObjectChange, limit: usize) {
        self.events.push_back(Event { revision: change.object().revision, change });
        while self.events.len() > limit {
            if let Some(event) = self.events.pop_front() {
                self.lost = event.revision;
            }
        }
    }

    /// The newest version whose event is no longer in the ring.
    pub(super) fn lost(&self) -> u64 {
        self.lost
    }

    pub(super) fn since(&self, revision: u64) -> impl DoubleEndedIterator<Item = &Event> {
        let from = self.events.partition_point(|event| event.revision <= revision);
        self.events.range(from..)
    }
}
