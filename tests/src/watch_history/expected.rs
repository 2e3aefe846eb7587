//! The events that a history is to a viewer.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::Value;

use super::{Event, History, Viewer, at_version, key, version};

/// An event that a watch has to send.
#[derive(Debug)]
pub(super) struct Expected {
    pub(super) event_type: &'static str,
    pub(super) key: String,
    /// The version that it carries.
    from: u64,
    /// The version of the event. That of a deletion by a jump is the first one that no event may have before it.
    pub(super) until: u64,
    /// Whether it is a deletion by a jump. All of these come first, and carry the version before the jump: a client that is cut off
    /// between two of them continues there.
    pub(super) is_of_jump: bool,
    pub(super) object: Value,
}

impl Expected {
    /// Whether an event at this version is this one.
    pub(super) fn is_of(&self, event: &Event, at: u64) -> bool {
        self.from == at && self.key == key(&event.object)
    }
}

impl fmt::Display for Expected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} at {}", self.event_type, self.key, self.until)
    }
}

/// The events after a version. `jumps`: those within a jump of the cache are the difference of its two states.
pub(super) fn expected(history: &History, viewer: &Viewer, after: u64, jumps: bool) -> Vec<Expected> {
    let mut state = history.state(after);
    let mut events = Vec::new();
    let mut writes = history.writes.iter().filter(|write| write.version > after).peekable();
    while let Some(first) = writes.peek() {
        let contains = |(from, to): &&(u64, u64)| *from >= after && (from + 1..=*to).contains(&first.version);
        let jump = history.jumps.iter().find(contains).filter(|_| jumps);
        let until = jump.map_or(first.version, |(_, to)| *to);
        let mut before: BTreeMap<&str, Option<&Value>> = BTreeMap::new();
        while let Some(write) = writes.next_if(|write| write.version <= until) {
            let key = write.key.as_str();
            let old = match &write.object {
                Some(object) => state.insert(key, object),
                None => state.remove(key),
            };
            before.entry(key).or_insert(old);
        }
        let changed = before.into_iter().filter_map(|(key, old)| {
            difference(viewer, key, (old, state.get(key).copied()), until, jump.map(|(from, _)| *from))
        });
        let mut changed: Vec<_> = changed.collect();
        changed.sort_by_key(|event| event.until);
        events.extend(changed);
    }
    events
}

/// The event that a change of an object up to a version is to a viewer. `jump`: the version before it.
fn difference(
    viewer: &Viewer,
    key: &str,
    (old, new): (Option<&Value>, Option<&Value>),
    until: u64,
    jump: Option<u64>,
) -> Option<Expected> {
    let shown = |object: Option<&Value>| object.filter(|object| (viewer.shows)(object)).cloned();
    let (event_type, object) = match (shown(old), shown(new)) {
        (None, None) => return None,
        (None, Some(new)) => ("ADDED", new),
        (Some(_), Some(new)) => ("MODIFIED", new),
        (Some(old), None) => ("DELETED", at_version(&old, until)),
    };
    let (from, until) = match jump.filter(|_| event_type == "DELETED") {
        Some(before) => (before, before + 1),
        // A write has its own version.
        None => new.map_or((until, until), |object| (version(object), version(object))),
    };
    let is_of_jump = jump.is_some() && event_type == "DELETED";
    Some(Expected { event_type, key: key.to_owned(), from, until, is_of_jump, object })
}
