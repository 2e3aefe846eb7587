//! One object of a view: the object of the store, and what the chain made of it.

use std::sync::Arc;

use bytes::Bytes;
use weir_runtime::{Failure, Outcome};
use weir_store::cache::Object;

/// An object and its outcome.
#[derive(Debug, Clone)]
pub(crate) struct ViewObject {
    /// The object as the API server sent it. Selectors are evaluated on it.
    pub(crate) source: Arc<Object>,
    /// What clients see of it.
    pub(crate) outcome: ViewOutcome,
}

/// What clients see of an object.
#[derive(Debug, Clone)]
pub(crate) enum ViewOutcome {
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
    pub(crate) fn shown(&self) -> Option<&Bytes> {
        match &self.outcome {
            ViewOutcome::Unchanged => Some(&self.source.bytes),
            ViewOutcome::Edited(bytes) => Some(bytes),
            ViewOutcome::Hidden | ViewOutcome::Failed(_) => None,
        }
    }

    /// The failure that replaces the object.
    pub(crate) fn failure(&self) -> Option<&Failure> {
        match &self.outcome {
            ViewOutcome::Failed(failure) => Some(failure),
            _ => None,
        }
    }

    /// Whether clients see the same bytes of both.
    pub(crate) fn shows_the_same(&self, other: &Self) -> bool {
        match (&self.outcome, &other.outcome) {
            (ViewOutcome::Unchanged, ViewOutcome::Unchanged) => Arc::ptr_eq(&self.source, &other.source),
            (ViewOutcome::Hidden, ViewOutcome::Hidden) => true,
            (ViewOutcome::Failed(one), ViewOutcome::Failed(two)) => one.filter == two.filter,
            _ => self.shown().is_some() && self.shown() == other.shown(),
        }
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
