//! What a client of a filtered watch is told: a pure state machine over (event, object, outcome).
//!
//! The client must end up with what a fresh list through the same filters would show it, and only the set of objects
//! known hidden from it is remembered. So a visible object that becomes hidden, of which the last state shown is not
//! known, makes the client list again.

use std::sync::Arc;

use weir_document::json::EventType;

use crate::proxy::resume::Hidden;
use weir_runtime::{Failure, Outcome};

/// The state of one watch.
#[derive(Debug, Default)]
pub(super) struct Transitions {
    hidden: Arc<Hidden>,
}

/// What to do about one event.
#[derive(Debug, Clone)]
pub(super) enum Step {
    /// Send the object as the chain left it, as this type of event.
    Filtered(EventType),
    /// Send the event as it came.
    Original,
    /// Send nothing.
    Silence,
    /// End the watch with 410: the client may hold an object that it must not see any more.
    Relist,
    /// End the watch with the filter's failure.
    Fail(Failure),
}

impl Transitions {
    /// For a client from which these objects are hidden.
    pub(super) fn new(hidden: Arc<Hidden>) -> Self {
        Self { hidden }
    }

    /// Whether the object's key makes a difference: reading it is saved for most events of most watches.
    pub(super) fn needs_key(&self, outcome: &Outcome) -> bool {
        matches!(outcome, Outcome::Hidden) || !self.hidden.is_empty()
    }

    /// Takes one event of type ADDED, MODIFIED or DELETED; others pass as they are.
    pub(super) fn step(&mut self, event: EventType, key: u64, outcome: &Outcome) -> Step {
        let known = self.hidden.contains(key);
        match (event, outcome) {
            (EventType::Bookmark | EventType::Error, _) => Step::Original,
            // The tombstone's outcome does not decide: what the client holds does, and it may hold any object that is
            // not known hidden. A failing chain does not swallow it either.
            (EventType::Deleted, _) if known => {
                self.forget(key);
                Step::Silence
            }
            (EventType::Deleted, Outcome::Hidden | Outcome::Failed(_)) => Step::Original,
            (EventType::Deleted, _) => Step::Filtered(EventType::Deleted),
            (_, Outcome::Failed(failure)) => Step::Fail(failure.clone()),
            (EventType::Modified, Outcome::Hidden) if !known => Step::Relist,
            (_, Outcome::Hidden) => {
                if !known {
                    Arc::make_mut(&mut self.hidden).insert(key);
                }
                Step::Silence
            }
            (_, Outcome::Unchanged | Outcome::Edited(_)) if known => {
                self.forget(key);
                Step::Filtered(EventType::Added)
            }
            (event, Outcome::Unchanged | Outcome::Edited(_)) => Step::Filtered(event),
        }
    }

    /// What is hidden from the client now.
    pub(super) fn hidden(&self) -> &Arc<Hidden> {
        &self.hidden
    }

    fn forget(&mut self, key: u64) {
        Arc::make_mut(&mut self.hidden).remove(key);
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use weir_runtime::FailureClass;

    const KEY: u64 = 7;
    use EventType::{Added, Deleted, Modified};

    fn failed() -> Outcome {
        Outcome::Failed(Failure { filter: "f".into(), class: FailureClass::Trap, message: "m".into() })
    }

    fn told(transitions: &mut Transitions, event: EventType, outcome: &Outcome) -> String {
        match transitions.step(event, KEY, outcome) {
            Step::Filtered(event) => event.to_string(),
            Step::Original => "original".into(),
            Step::Silence => "silence".into(),
            Step::Relist => "relist".into(),
            Step::Fail(_) => "fail".into(),
        }
    }

    fn with_hidden() -> Transitions {
        let mut hidden = Hidden::default();
        hidden.insert(KEY);
        Transitions::new(Arc::new(hidden))
    }

    #[test]
    fn every_event_meets_every_state_as_the_rules_say() {
        let edited = Outcome::Edited(Bytes::new());
        for (event, outcome, when_unknown, when_known_hidden) in [
            (Added, Outcome::Unchanged, "ADDED", "ADDED"),
            (Added, edited.clone(), "ADDED", "ADDED"),
            (Added, Outcome::Hidden, "silence", "silence"),
            (Added, failed(), "fail", "fail"),
            (Modified, Outcome::Unchanged, "MODIFIED", "ADDED"),
            (Modified, edited.clone(), "MODIFIED", "ADDED"),
            (Modified, Outcome::Hidden, "relist", "silence"),
            (Modified, failed(), "fail", "fail"),
            (Deleted, Outcome::Unchanged, "DELETED", "silence"),
            (Deleted, edited, "DELETED", "silence"),
            (Deleted, Outcome::Hidden, "original", "silence"),
            (Deleted, failed(), "original", "silence"),
        ] {
            assert_eq!(told(&mut Transitions::default(), event, &outcome), when_unknown, "{event} {outcome:?}");
            assert_eq!(
                told(&mut with_hidden(), event, &outcome),
                when_known_hidden,
                "{event} {outcome:?}, known hidden"
            );
        }
    }

    #[test]
    fn an_object_goes_through_its_life() {
        let mut transitions = Transitions::default();
        let mut told = |event, outcome| told(&mut transitions, event, &outcome);
        assert_eq!(told(Added, Outcome::Hidden), "silence");
        assert_eq!(told(Modified, Outcome::Hidden), "silence");
        assert_eq!(told(Modified, Outcome::Unchanged), "ADDED");
        assert_eq!(told(Modified, Outcome::Unchanged), "MODIFIED");
        assert_eq!(told(Deleted, Outcome::Unchanged), "DELETED");
        assert_eq!(told(Added, Outcome::Hidden), "silence");
        assert_eq!(told(Deleted, Outcome::Hidden), "silence");
        assert_eq!(told(Added, Outcome::Unchanged), "ADDED");
        assert_eq!(told(Modified, Outcome::Hidden), "relist");
    }
}
