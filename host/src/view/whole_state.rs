//! The whole state of a view, as a watch sends it to a client that holds nothing, or of which it is not known what it holds.
//!
//! It is in the order of versions, and the events of the history follow. Clients continue from the version of the last event
//! that they got, also when they were cut off amid the state: in this order they have got everything up to that version.
//! Handlers of an informer learn of each change, because a deletion carries the state before it.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;

use super::object::ViewObject;
use super::state::{ViewLog, ViewSnapshot};

/// All objects of a view at one position of its history, and events of before.
#[derive(Debug)]
pub(crate) struct WholeState {
    /// The version.
    pub(crate) version: u64,
    /// The position. The events of the history from here on change the state.
    pub(crate) position: u64,
    items: VecDeque<StateItem>,
}

/// A part of the state.
#[derive(Debug)]
pub(crate) enum StateItem {
    /// An object, hidden ones included.
    Object(Arc<ViewObject>),
    /// An event of before the history.
    Earlier(EarlierEvent),
}

/// An event of before a view's history.
#[derive(Debug)]
pub(crate) struct EarlierEvent {
    /// The version of the event.
    pub(crate) version: u64,
    /// The event as the client gets it.
    pub(crate) encoded: Bytes,
}

impl WholeState {
    /// The objects at this version and position.
    pub(super) fn at(version: u64, position: u64, snapshot: &ViewSnapshot, log: &ViewLog) -> Self {
        let mut objects = snapshot.objects.clone();
        for (_, event) in log.history.iter().rev().take_while(|(at, _)| *at >= position) {
            match (event.key(), &event.old) {
                (Some(key), Some(old)) => objects.insert_mut(key.clone(), old.clone()),
                (Some(key), None) => drop(objects.remove_mut(key)),
                (None, _) => {}
            }
        }
        let items = objects.values().cloned().map(StateItem::Object).collect();
        let mut state = Self { version, position, items };
        state.sort();
        state
    }

    /// Adds events of before the history.
    pub(crate) fn add(&mut self, events: Vec<EarlierEvent>) {
        if !events.is_empty() {
            self.items.extend(events.into_iter().map(StateItem::Earlier));
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

    /// An object comes after the event that made it: what its event showed may be out of date.
    fn sort(&mut self) {
        self.items.make_contiguous().sort_by_key(|item| match item {
            StateItem::Object(object) => (object.source.version, 1),
            StateItem::Earlier(event) => (event.version, 0),
        });
    }
}
