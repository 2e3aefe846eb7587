//! The whole state of a view, as a watch sends it to a client that holds nothing, or of which it is not known what it holds.
//!
//! It is in the order of versions, and the events of the history follow. Clients continue from the version of the last event
//! that they got, also when they were cut off amid the state: in this order they have got everything up to that version.
//! Handlers of an informer learn of each change, because a deletion carries the state before it.
//!
//! Memory: the objects are those of the view, and [`NEXT`] of them are in order. All watches may start at once, so that none
//! keeps an order of all objects.

use std::collections::{BinaryHeap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use rpds::RedBlackTreeMapSync;
use weir_store::StoreKey;

use super::object::ViewObject;
use super::state::{ViewLog, ViewSnapshot};

/// So many objects are put in order at a time. Each time costs a look at all of them.
const NEXT: usize = 1024;

/// All objects of a view at one position of its history, and events of before.
#[derive(Debug)]
pub(crate) struct WholeState {
    /// The version.
    pub(crate) version: u64,
    /// The position. The events of the history from here on change the state.
    pub(crate) position: u64,
    objects: RedBlackTreeMapSync<StoreKey, Arc<ViewObject>>,
    /// The next objects, in order.
    next: VecDeque<Arc<ViewObject>>,
    /// The version and the key of the last of them so far.
    last: Option<(u64, StoreKey)>,
    /// The number of objects after that.
    left: usize,
    /// In order.
    earlier: VecDeque<EarlierEvent>,
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
        Self::of(version, position, objects)
    }

    fn of(version: u64, position: u64, objects: RedBlackTreeMapSync<StoreKey, Arc<ViewObject>>) -> Self {
        let (left, next, earlier) = (objects.size(), VecDeque::new(), VecDeque::new());
        Self { version, position, objects, next, last: None, left, earlier }
    }

    /// Adds events of before the history.
    pub(crate) fn add(&mut self, mut events: Vec<EarlierEvent>) {
        events.sort_by_key(|event| event.version);
        self.earlier.extend(events);
    }

    /// Takes the next part. An object comes after the event that made it: what its event showed may be out of date.
    pub(crate) fn next(&mut self) -> Option<StateItem> {
        if self.next.is_empty() && self.left > 0 {
            self.sort_next();
        }
        let version = self.next.front().map_or(u64::MAX, |object| object.source.version);
        match self.earlier.front().is_some_and(|event| event.version <= version) {
            true => self.earlier.pop_front().map(StateItem::Earlier),
            false => self.next.pop_front().map(StateItem::Object),
        }
    }

    /// Whether all parts were taken.
    pub(crate) fn is_empty(&self) -> bool {
        self.left == 0 && self.next.is_empty() && self.earlier.is_empty()
    }

    fn sort_next(&mut self) {
        let last = self.last.as_ref().map(|(version, key)| (*version, key));
        let mut next = BinaryHeap::with_capacity(NEXT + 1);
        for (key, object) in &self.objects {
            let place = (object.source.version, key);
            if Some(place) <= last || (next.len() == NEXT && next.peek().is_some_and(|most| place > *most)) {
                continue;
            }
            next.push(place);
            if next.len() > NEXT {
                next.pop();
            }
        }
        let sorted = next.into_sorted_vec();
        let objects = sorted.iter().filter_map(|(_, key)| self.objects.get(*key).cloned());
        self.next = objects.collect();
        self.left = self.left.saturating_sub(sorted.len());
        let last = sorted.last().map(|(version, key)| (*version, StoreKey::clone(key)));
        self.last = last;
    }
}

#[cfg(test)]
mod tests {
    use weir_store::cache::Object;

    use super::*;
    use crate::view::object::ViewOutcome;

    fn state(objects: usize) -> WholeState {
        let mut map = RedBlackTreeMapSync::new_sync();
        for n in 0..objects {
            let key = StoreKey::new("default", &n.to_string());
            // Two objects at each version, in another order than that of their names.
            let version = (n * 7919 % objects) as u64 / 2;
            let source = Arc::new(Object { key: key.clone(), version, bytes: Bytes::new() });
            map.insert_mut(key, Arc::new(ViewObject { source, outcome: ViewOutcome::Unchanged }));
        }
        WholeState::of(0, 0, map)
    }

    fn versions(mut state: WholeState) -> Vec<(u64, bool)> {
        let mut versions = Vec::new();
        while !state.is_empty() {
            versions.push(match state.next().unwrap() {
                StateItem::Object(object) => (object.source.version, true),
                StateItem::Earlier(event) => (event.version, false),
            });
            assert!(state.next.len() < NEXT);
        }
        assert!(state.next().is_none());
        versions
    }

    #[test]
    fn each_object_comes_once_in_the_order_of_versions() {
        for objects in [0, 1, NEXT - 1, NEXT, NEXT + 1, 3 * NEXT + 10] {
            let expected: Vec<_> = (0..objects).map(|n| (n as u64 / 2, true)).collect();
            assert_eq!(versions(state(objects)), expected, "{objects}");
        }
    }

    #[test]
    fn an_earlier_event_comes_before_the_object_that_it_made() {
        let mut state = state(4);
        let event = |version| EarlierEvent { version, encoded: Bytes::new() };
        state.add(vec![event(9), event(1)]);
        let expected = [(0, true), (0, true), (1, false), (1, true), (1, true), (9, false)];
        assert_eq!(versions(state), expected);
    }
}
