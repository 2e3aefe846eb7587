//! Checks what clients recorded of lists and watches against the history of all writes: what kube-apiserver's watch cache
//! promises, as etcd's robustness tests check it.
//!
//! A viewer is shown the objects that its selector matches and that no filter hides. From the history follows which event each
//! write is to this viewer. Each difference is reported under the promise that it breaks.
//!
//! A cache that lists again, because its source no longer has its version, jumps: its watches get the difference of two
//! states in place of the single events. A watch that begins within a jump gets no such difference.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde_json::{Value, json};

use self::expected::{Expected, expected};

mod expected;
#[cfg(test)]
mod tests;

/// All writes of a resource, as their source numbered them.
#[derive(Debug, Default)]
pub struct History {
    writes: Vec<Write>,
    jumps: Vec<(u64, u64)>,
}

#[derive(Debug)]
struct Write {
    version: u64,
    key: String,
    /// `None`: the object was deleted.
    object: Option<Value>,
}

/// Who reads.
pub struct Viewer {
    /// The name in reports.
    pub name: String,
    /// Whether the viewer is shown this state of an object: its selector matches, and no filter hides it.
    pub shows: Box<dyn Fn(&Value) -> bool + Send + Sync>,
    /// The part of an object that the viewer's encoding has and that is compared.
    pub form: fn(&Value) -> Value,
}

/// What a viewer did, in its order.
#[derive(Debug, Default)]
pub struct Session {
    /// The lists and watches.
    pub steps: Vec<Step>,
}

/// A list or a watch.
#[derive(Debug)]
pub enum Step {
    /// A complete list.
    List {
        /// The version of the list.
        version: u64,
        /// Its items.
        items: Vec<Value>,
    },
    /// A watch, until it ended or was cut off.
    Watch {
        /// The version that it continues from; `None`: it begins with the state.
        after: Option<u64>,
        /// Its events in order, without an ERROR.
        events: Vec<Event>,
    },
}

/// An event of a watch.
#[derive(Debug, Clone)]
pub struct Event {
    /// ADDED, MODIFIED, DELETED or BOOKMARK.
    pub event_type: String,
    /// The object.
    pub object: Value,
}

/// A promise of a watch cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Promise {
    /// The versions of a watch never go down.
    Ordered,
    /// No version occurs twice on a watch.
    Unique,
    /// No event is missing between the first and the last version of a watch.
    Reliable,
    /// A list, and the initial state of a watch, is the state of one version.
    Atomic,
    /// A watch that continues from a version gets what follows it, and nothing else.
    Resumable,
    /// A BOOKMARK follows all events up to its version and precedes all later ones.
    Bookmarkable,
    /// ADDED is sent for what the client does not hold; MODIFIED and DELETED for what it holds.
    Typed,
    /// An event carries the object as it was at its version; DELETED carries the last state that was shown.
    Exact,
    /// At its end, the client holds the state of its version.
    Converged,
}

/// A broken promise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// The promise.
    pub promise: Promise,
    /// Who observed it, and what.
    pub report: String,
}

/// Returns the key of an object.
#[must_use]
pub fn key(object: &Value) -> String {
    let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
    format!("{}/{}", text("namespace"), text("name"))
}

/// Returns the version of an object or a list; 0 if it has none.
#[must_use]
pub fn version(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"].as_str().and_then(|version| version.parse().ok()).unwrap_or_default()
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.promise, self.report)
    }
}

impl fmt::Debug for Viewer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Viewer").field(&self.name).finish()
    }
}

impl Event {
    fn is_bookmark(&self) -> bool {
        self.event_type == "BOOKMARK"
    }

    /// Whether it marks the end of the initial state.
    fn ends_state(&self) -> bool {
        self.is_bookmark() && self.object["metadata"]["annotations"]["k8s.io/initial-events-end"] == "true"
    }
}

impl History {
    /// Adds a write of an object. Its metadata has the version.
    pub fn put(&mut self, object: Value) {
        self.writes.push(Write { version: version(&object), key: key(&object), object: Some(object) });
    }

    /// Adds a deletion.
    pub fn delete(&mut self, version: u64, key: &str) {
        self.writes.push(Write { version, key: key.to_owned(), object: None });
    }

    /// Notes that the cache jumped from the state of one version to that of another one.
    pub fn jump(&mut self, from: u64, to: u64) {
        self.jumps.push((from, to));
    }

    /// The objects at a version.
    fn state(&self, at: u64) -> BTreeMap<&str, &Value> {
        let mut state = BTreeMap::new();
        for write in self.writes.iter().take_while(|write| write.version <= at) {
            match &write.object {
                Some(object) => state.insert(write.key.as_str(), object),
                None => state.remove(write.key.as_str()),
            };
        }
        state
    }

    /// What a viewer is shown of the state at a version.
    fn shown(&self, viewer: &Viewer, at: u64) -> BTreeMap<String, Value> {
        let state = self.state(at).into_iter().filter(|(_, object)| (viewer.shows)(object));
        state.map(|(key, object)| (key.to_owned(), (viewer.form)(object))).collect()
    }

    /// Checks everything that a viewer recorded.
    #[must_use]
    pub fn check(&self, viewer: &Viewer, session: &Session) -> Vec<Violation> {
        let mut check = Check { history: self, viewer, violations: Vec::new(), held: BTreeMap::new(), reached: 0 };
        for step in &session.steps {
            match step {
                Step::List { version, items } => check.state("the list", *version, items),
                Step::Watch { after: Some(after), events } => check.watch(*after, events),
                Step::Watch { after: None, events } => check.initial(events),
            }
        }
        check.converged();
        check.violations
    }
}

/// The check of one session.
struct Check<'a> {
    history: &'a History,
    viewer: &'a Viewer,
    violations: Vec<Violation>,
    /// What the client holds.
    held: BTreeMap<String, Value>,
    /// The version of what it holds.
    reached: u64,
}

impl Check<'_> {
    fn report(&mut self, promise: Promise, text: impl fmt::Display) {
        self.violations.push(Violation { promise, report: format!("{}: {text}", self.viewer.name) });
    }

    /// Checks that objects are the state of a version.
    fn state(&mut self, what: &str, at: u64, objects: &[Value]) {
        let form = self.viewer.form;
        let got: BTreeMap<_, _> = objects.iter().map(|object| (key(object), form(object))).collect();
        if got.len() < objects.len() {
            self.report(Promise::Unique, format!("{what} at {at} has an object twice"));
        }
        for difference in differences(&self.history.shown(self.viewer, at), &got) {
            self.report(Promise::Atomic, format!("{what} at {at}: {difference}"));
        }
        (self.held, self.reached) = (got, at);
    }

    /// Checks a watch that begins with the state.
    fn initial(&mut self, events: &[Event]) {
        let end = events.iter().position(Event::ends_state);
        let (state, rest) = events.split_at(end.unwrap_or(events.len()));
        for event in state.iter().filter(|event| event.event_type != "ADDED") {
            self.report(Promise::Typed, format!("{} {} in the initial state", event.event_type, key(&event.object)));
        }
        // A client that is cut off before the end begins again.
        let Some((bookmark, rest)) = rest.split_first() else { return };
        let objects: Vec<_> = state.iter().map(|event| event.object.clone()).collect();
        let at = version(&bookmark.object);
        self.state("the initial state", at, &objects);
        self.watch(at, rest);
    }

    /// Checks a watch that continues from a version.
    fn watch(&mut self, after: u64, events: &[Event]) {
        // The events of a jump come one by one from where its source has them.
        let ways =
            [false, true].map(|jumps| self.compared(after, events, &expected(self.history, self.viewer, after, jumps)));
        let best = ways.into_iter().min_by_key(Vec::len).unwrap_or_default();
        self.violations.extend(best);
        for event in events {
            let (key, object) = (key(&event.object), (self.viewer.form)(&event.object));
            match event.event_type.as_str() {
                "BOOKMARK" => {}
                "DELETED" => drop(self.held.remove(&key)),
                _ => drop(self.held.insert(key, object)),
            }
            self.reached = version(&event.object);
        }
    }

    fn compared(&self, after: u64, events: &[Event], expected: &[Expected]) -> Vec<Violation> {
        let nothing = Check { violations: Vec::new(), held: BTreeMap::new(), ..*self };
        let mut watch = Watch {
            check: nothing,
            after,
            expected,
            got: BTreeSet::new(),
            reported: BTreeSet::new(),
            last: after,
            bookmark: after,
        };
        events.iter().for_each(|event| watch.event(event));
        watch.missing(Promise::Reliable, watch.last.max(watch.bookmark), "although later events were sent");
        watch.check.violations
    }

    /// Checks that the client holds the state of its version.
    fn converged(&mut self) {
        for difference in differences(&self.history.shown(self.viewer, self.reached), &self.held) {
            self.report(Promise::Converged, format!("at {}: {difference}", self.reached));
        }
    }
}

/// The check of one watch.
struct Watch<'a> {
    check: Check<'a>,
    after: u64,
    expected: &'a [Expected],
    /// Which of the expected events were sent.
    got: BTreeSet<usize>,
    /// Which were reported as missing.
    reported: BTreeSet<usize>,
    last: u64,
    bookmark: u64,
}

impl Watch<'_> {
    fn event(&mut self, event: &Event) {
        let at = version(&event.object);
        let text = format!("{} {} at {at}", event.event_type, key(&event.object));
        if event.is_bookmark() {
            if at < self.last.max(self.bookmark) {
                self.check.report(Promise::Bookmarkable, format!("{text} after {}", self.last.max(self.bookmark)));
            }
            self.missing(Promise::Bookmarkable, at, &format!("before the BOOKMARK at {at}"));
            self.bookmark = self.bookmark.max(at);
            return;
        }
        // A deletion by a jump may have the version of an event of the same object.
        let mut found = self.expected.iter().enumerate().filter(|(_, expected)| expected.is_of(event, at));
        let first = found.clone().next();
        let found = found.find(|(index, _)| !self.got.contains(index)).or(first).map(|(index, _)| index);
        let is_of_jump =
            found.is_some_and(|index| self.expected.get(index).is_some_and(|expected| expected.is_of_jump));
        if at <= self.after && !is_of_jump {
            return self.check.report(Promise::Resumable, format!("{text} although the watch is from {}", self.after));
        }
        if found.is_some_and(|index| self.got.contains(&index)) || (found.is_none() && at == self.last) {
            return self.check.report(Promise::Unique, format!("{text} again"));
        }
        if is_of_jump && at == self.last.max(self.bookmark) {
            // Where the watch is.
        } else if at < self.last {
            self.check.report(Promise::Ordered, format!("{text} after {}", self.last));
        } else if at <= self.bookmark && self.bookmark > self.after {
            self.check.report(Promise::Bookmarkable, format!("{text} after the BOOKMARK at {}", self.bookmark));
        } else if at == self.last {
            self.check.report(Promise::Unique, format!("{text} after another event of this version"));
        }
        match found {
            None => self.check.report(Promise::Exact, format!("{text} is none of its events")),
            Some(index) => {
                self.got.insert(index);
                let Expected { event_type, object, .. } = &self.expected[index];
                if event.event_type != *event_type {
                    self.check.report(Promise::Typed, format!("{text} instead of {event_type}"));
                } else if let form = (self.check.viewer.form)(&at_version(&event.object, 0))
                    && form != (self.check.viewer.form)(&at_version(object, 0))
                {
                    self.check.report(Promise::Exact, format!("{text}: {form} instead of {object}"));
                }
            }
        }
        self.last = self.last.max(at);
    }

    /// Reports the expected events up to a version that were not sent.
    fn missing(&mut self, promise: Promise, until: u64, text: &str) {
        let first = self.got.first().copied().unwrap_or(usize::MAX);
        for (index, expected) in self.expected.iter().enumerate().filter(|(_, expected)| expected.until <= until) {
            if !self.got.contains(&index) && self.reported.insert(index) {
                // Nothing before it was sent: it is the beginning that is missing.
                let is_start = promise == Promise::Reliable && index < first;
                let promise = if is_start { Promise::Resumable } else { promise };
                self.check.report(promise, format!("no {expected} {text}; the watch is from {}", self.after));
            }
        }
    }
}

/// The same object at another version.
fn at_version(object: &Value, version: u64) -> Value {
    let mut object = object.clone();
    object["metadata"]["resourceVersion"] = json!(version.to_string());
    object
}

fn differences(expected: &BTreeMap<String, Value>, got: &BTreeMap<String, Value>) -> Vec<String> {
    let keys: BTreeSet<_> = expected.keys().chain(got.keys()).collect();
    let text = |object: Option<&Value>| object.map_or("nothing".to_owned(), |object| object.to_string());
    let differ = keys.into_iter().filter(|key| expected.get(*key) != got.get(*key));
    differ.map(|key| format!("{key} is {} instead of {}", text(got.get(key)), text(expected.get(key)))).collect()
}
