//! Selects the event that the client of a filtered watch gets: a pure state machine over (event, object, outcome).
//!
//! The client must end up with the state that a fresh list through the same filters would return. The watch knows only
//! which objects the client does not have, not the last state of those that it has. So when a filter hides an object that
//! the client may have, there is no correct DELETED event, and the client must list again; on a screen any will do.

use weir_document::json::EventType;

use super::hidden_keys::HiddenKeys;
use weir_runtime::{Failure, Outcome};

/// The state of one watch.
#[derive(Debug, Default)]
pub(super) struct Transitions {
    /// The objects that the client does not have because filters hid them.
    hidden: HiddenKeys,
    /// Up to this version, an object that is hidden and that the client may have is deleted as it is now.
    deletes_until: u64,
}

/// The action for one event.
#[derive(Debug, Clone)]
pub(super) enum EventAction {
    /// Send the object as the chain left it, as an event of this type.
    Filtered(EventType),
    /// Send the received event unchanged.
    Original,
    /// Send nothing.
    Skip,
    /// End the watch with 410: the client may have an object that it must no longer see.
    Relist,
    /// End the watch with the filter's failure.
    Fail(Failure),
}

impl Transitions {
    /// Begins a watch of a Table: what is on a screen disappears, whatever its last state was.
    pub(super) fn of_table() -> Self {
        Self { deletes_until: u64::MAX, ..Self::default() }
    }

    /// Notes the version of the present state. What is hidden there and has changed since the client's version is not known to
    /// be held: another list would say no more.
    pub(super) fn present_at(&mut self, version: u64) {
        self.deletes_until = self.deletes_until.max(version);
    }

    /// Notes an object that the client does not have.
    pub(super) fn hide(&mut self, key: u64) {
        self.hidden.insert(key);
    }

    /// Whether the action depends on the object's key. For most events it does not, and callers need not read the key.
    pub(super) fn needs_key(&self, outcome: &Outcome) -> bool {
        matches!(outcome, Outcome::Hidden) || !self.hidden.is_empty()
    }

    /// Applies one event. BOOKMARK and ERROR pass unchanged.
    pub(super) fn apply(&mut self, event: EventType, key: u64, version: u64, outcome: &Outcome) -> EventAction {
        let known = self.hidden.contains(key);
        match (event, outcome) {
            (EventType::Bookmark | EventType::Error, _) => EventAction::Original,
            // The outcome of the deleted object does not matter: the client may have every object that is not known to
            // be hidden. A failing chain must not swallow the deletion either.
            (EventType::Deleted, _) if known => {
                self.hidden.remove(key);
                EventAction::Skip
            }
            (EventType::Deleted, Outcome::Hidden | Outcome::Failed(_)) => EventAction::Original,
            (EventType::Deleted, _) => EventAction::Filtered(EventType::Deleted),
            (_, Outcome::Failed(failure)) => EventAction::Fail(failure.clone()),
            (EventType::Modified, Outcome::Hidden) if !known && version <= self.deletes_until => {
                self.hidden.insert(key);
                EventAction::Filtered(EventType::Deleted)
            }
            (EventType::Modified, Outcome::Hidden) if !known => EventAction::Relist,
            (_, Outcome::Hidden) => {
                self.hidden.insert(key);
                EventAction::Skip
            }
            (_, Outcome::Unchanged | Outcome::Edited(_)) if known => {
                self.hidden.remove(key);
                EventAction::Filtered(EventType::Added)
            }
            (event, Outcome::Unchanged | Outcome::Edited(_)) => EventAction::Filtered(event),
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use weir_runtime::FailureClass;

    const KEY: u64 = 7;
    const VERSION: u64 = 9;
    use EventType::{Added, Deleted, Modified};

    fn failed() -> Outcome {
        Outcome::Failed(Failure { filter: "f".into(), class: FailureClass::Trap, message: "m".into() })
    }

    fn action(transitions: &mut Transitions, event: EventType, outcome: &Outcome) -> String {
        match transitions.apply(event, KEY, VERSION, outcome) {
            EventAction::Filtered(event) => event.to_string(),
            EventAction::Original => "original".into(),
            EventAction::Skip => "skip".into(),
            EventAction::Relist => "relist".into(),
            EventAction::Fail(_) => "fail".into(),
        }
    }

    fn with_hidden() -> Transitions {
        let mut transitions = Transitions::default();
        transitions.hide(KEY);
        transitions
    }

    #[test]
    fn every_event_in_every_state_gives_its_action() {
        let edited = Outcome::Edited(Bytes::new());
        for (event, outcome, when_unknown, when_known_hidden) in [
            (Added, Outcome::Unchanged, "ADDED", "ADDED"),
            (Added, edited.clone(), "ADDED", "ADDED"),
            (Added, Outcome::Hidden, "skip", "skip"),
            (Added, failed(), "fail", "fail"),
            (Modified, Outcome::Unchanged, "MODIFIED", "ADDED"),
            (Modified, edited.clone(), "MODIFIED", "ADDED"),
            (Modified, Outcome::Hidden, "relist", "skip"),
            (Modified, failed(), "fail", "fail"),
            (Deleted, Outcome::Unchanged, "DELETED", "skip"),
            (Deleted, edited, "DELETED", "skip"),
            (Deleted, Outcome::Hidden, "original", "skip"),
            (Deleted, failed(), "original", "skip"),
        ] {
            assert_eq!(action(&mut Transitions::default(), event, &outcome), when_unknown, "{event} {outcome:?}");
            assert_eq!(
                action(&mut with_hidden(), event, &outcome),
                when_known_hidden,
                "{event} {outcome:?}, known hidden"
            );
        }
    }

    #[test]
    fn on_a_screen_and_up_to_the_present_state_an_object_that_is_hidden_disappears_once() {
        let mut present = Transitions::default();
        present.present_at(VERSION);
        for mut transitions in [Transitions::of_table(), present] {
            assert_eq!(action(&mut transitions, Modified, &Outcome::Hidden), "DELETED");
            assert_eq!(action(&mut transitions, Modified, &Outcome::Hidden), "skip");
            assert_eq!(action(&mut transitions, Modified, &Outcome::Unchanged), "ADDED");
        }
        let mut later = Transitions::default();
        later.present_at(VERSION - 1);
        assert_eq!(action(&mut later, Modified, &Outcome::Hidden), "relist");
    }

    #[test]
    fn the_actions_over_the_life_of_an_object() {
        let mut transitions = Transitions::default();
        let mut sent = |event, outcome| action(&mut transitions, event, &outcome);
        assert_eq!(sent(Added, Outcome::Hidden), "skip");
        assert_eq!(sent(Modified, Outcome::Hidden), "skip");
        assert_eq!(sent(Modified, Outcome::Unchanged), "ADDED");
        assert_eq!(sent(Modified, Outcome::Unchanged), "MODIFIED");
        assert_eq!(sent(Deleted, Outcome::Unchanged), "DELETED");
        assert_eq!(sent(Added, Outcome::Hidden), "skip");
        assert_eq!(sent(Deleted, Outcome::Hidden), "skip");
        assert_eq!(sent(Added, Outcome::Unchanged), "ADDED");
        assert_eq!(sent(Modified, Outcome::Hidden), "relist");
    }
}
