//! One object of a view: the object of the store, and what the chain made of it.

use std::sync::Arc;

use bytes::Bytes;
use weir_runtime::{Failure, Outcome};
use weir_store::cache::Object;

use super::memo::EventMemo;

/// An object and its outcome.
#[derive(Debug, Clone)]
pub struct ViewObject {
    /// The object as the API server sent it. Selectors are evaluated on it.
    pub source: Arc<Object>,
    /// What clients see of it.
    pub outcome: ViewOutcome,
    /// Whether that is the last good outcome, of an earlier state: a filter fails.
    pub(crate) stands_in: bool,
}

/// What clients see of an object.
#[derive(Debug, Clone)]
pub enum ViewOutcome {
    /// The object as it is.
    Unchanged,
    /// These bytes, in the format of the store.
    Edited(Bytes),
    /// Nothing.
    Hidden,
    /// No verdict: a filter with failurePolicy `Fail` failed, and there is no earlier outcome to keep.
    Failed(Failure),
}

impl ViewObject {
    /// The bytes that clients see, in the format of the store; `None` if they do not see the object.
    pub fn shown(&self) -> Option<&Bytes> {
        match &self.outcome {
            ViewOutcome::Unchanged => Some(&self.source.bytes),
            ViewOutcome::Edited(bytes) => Some(bytes),
            ViewOutcome::Hidden | ViewOutcome::Failed(_) => None,
        }
    }

    /// The same outcome for a newer state of the object, of which there is none.
    pub(super) fn standing_in(&self, source: Arc<Object>) -> Self {
        let outcome = match &self.outcome {
            ViewOutcome::Unchanged => ViewOutcome::Edited(self.source.bytes.clone()),
            outcome => outcome.clone(),
        };
        Self { source, outcome, stands_in: true }
    }

    /// The failure that replaces the object.
    pub fn failure(&self) -> Option<&Failure> {
        match &self.outcome {
            ViewOutcome::Failed(failure) => Some(failure),
            _ => None,
        }
    }
}

impl crate::machine::Object for ViewObject {
    type Memo = EventMemo;

    fn version(&self) -> u64 {
        self.source.version
    }

    fn is_shown(&self) -> bool {
        self.shown().is_some()
    }

    fn has_failed(&self) -> bool {
        self.failure().is_some()
    }

    fn stands_in(&self) -> bool {
        self.stands_in
    }

    fn shows_the_same(&self, other: &Self) -> bool {
        match (&self.outcome, &other.outcome) {
            (ViewOutcome::Unchanged, ViewOutcome::Unchanged) => Arc::ptr_eq(&self.source, &other.source),
            (ViewOutcome::Hidden, ViewOutcome::Hidden) => true,
            (ViewOutcome::Failed(one), ViewOutcome::Failed(two)) => one.filter == two.filter,
            _ => self.shown().is_some() && self.shown() == other.shown(),
        }
    }

    fn size(&self) -> usize {
        let edited = if let ViewOutcome::Edited(bytes) = &self.outcome { bytes.len() } else { 0 };
        self.source.bytes.len() + edited
    }
}

impl From<Outcome> for ViewOutcome {
    fn from(outcome: Outcome) -> Self {
        match outcome {
            Outcome::Unchanged => Self::Unchanged,
            Outcome::Edited(bytes) => Self::Edited(bytes),
            Outcome::Hidden => Self::Hidden,
            Outcome::Failed(failure) => Self::Failed(failure),
        }
    }
}
