//! The whole state of a view, as a watch sends it to a client that holds nothing, or of which it is not known what it holds.
//!
//! It is in the order of versions. Clients continue from the version of the last event that they got, also when they were
//! cut off amid the state: in this order they have got everything up to that version.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;

use super::event::ViewEvent;
use super::object::ViewObject;
use super::state::{ViewLog, ViewSnapshot};

/// All objects of a view, and what was deleted since the version that its client continues from.
#[derive(Debug)]
pub(crate) struct WholeState {
    /// The version of the view.
    pub(crate) version: u64,
    /// Events from this position of the history on change the state.
    pub(crate) position: u64,
    items: VecDeque<StateItem>,
}

/// A part of the state.
#[derive(Debug)]
pub(crate) enum StateItem {
    /// An object, hidden ones included.
    Object(Arc<ViewObject>),
    /// The event of the history that deleted an object.
    Deleted(Arc<ViewEvent>),
    /// The deletion of an object before the history.
    EarlierDeletion(EarlierDeletion),
}

/// The deletion of an object before a view's history.
#[derive(Debug)]
pub(crate) struct EarlierDeletion {
    /// The version of the deletion.
    pub(crate) version: u64,
    /// The DELETED event as the client gets it.
    pub(crate) event: Bytes,
}

impl WholeState {
    /// The objects of a snapshot, and the deletions of its history from the position `since` on.
    pub(super) fn of(snapshot: &ViewSnapshot, log: &ViewLog, since: u64) -> Self {
        let objects = snapshot.objects.values().cloned().map(StateItem::Object);
        let events = log.history.iter().filter(|(at, _)| *at >= since).map(|(_, event)| event);
        let deleted = events.filter(|event| event.old.is_some() && event.new.is_none());
        let items = objects.chain(deleted.cloned().map(StateItem::Deleted)).collect();
        let mut state = Self { version: snapshot.version, position: log.history.end(), items };
        state.sort();
        state
    }

    /// Adds what was deleted before the history.
    pub(crate) fn add(&mut self, deletions: Vec<EarlierDeletion>) {
        if !deletions.is_empty() {
            self.items.extend(deletions.into_iter().map(StateItem::EarlierDeletion));
            self.sort();
        }
    }

    /// Takes the next parts, at most `limit`.
    pub(crate) fn take(&mut self, limit: usize) -> Vec<StateItem> {
        self.items.drain(..self.items.len().min(limit)).collect()
    }

    /// Whether all parts were taken.
    pub(crate) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    fn sort(&mut self) {
        self.items.make_contiguous().sort_by_key(StateItem::version);
    }
}

impl StateItem {
    fn version(&self) -> u64 {
        match self {
            Self::Object(object) => object.source.version,
            Self::Deleted(event) => event.version,
            Self::EarlierDeletion(deletion) => deletion.version,
        }
    }
}
