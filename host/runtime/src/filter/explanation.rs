//! Why a chain shows an object as it does: each filter's decision, with what it read and edited.

use std::sync::Arc;

use weir_document::Document;

use super::outcome::{Failure, Filtered};
use crate::Steps;
use weir_spec::{Digest, FailurePolicy, Mode};

/// What one filter of a chain makes of an object, and why.
#[derive(Debug)]
pub struct FilterExplanation {
    /// The name of the filter.
    pub filter: Arc<str>,
    /// The digest of its module; none for what the daemon itself lays over objects.
    pub digest: Option<Digest>,
    /// Whether its decision counts.
    pub mode: Mode,
    /// What the module decided.
    pub decision: Decision,
    /// The policy that replaces the decision: the filter failed, or its circuit breaker is open.
    pub failure_policy: Option<FailurePolicy>,
    /// Whether its circuit breaker is open, so that clients get what the policy says, whatever the decision is.
    pub is_suspended: bool,
    /// What it read and edited, in order.
    pub steps: Steps,
    /// The object as the later filters and the client see it; none if they do not.
    pub after: Option<Document>,
}

/// The decision of a filter on an object.
#[derive(Debug)]
pub enum Decision {
    /// The object passes as it is.
    Keep,
    /// The object passes with these edits.
    Edit(Document),
    /// The object is hidden.
    Hide,
    /// The filter failed.
    Fail(Failure),
}

impl Decision {
    /// Returns the word for it: `kept`, `edited`, `hidden` or `failed`.
    #[must_use]
    pub fn label(&self) -> &'static str {
        match self {
            Self::Keep => "kept",
            Self::Edit(_) => "edited",
            Self::Hide => "hidden",
            Self::Fail(_) => "failed",
        }
    }
}

impl FilterExplanation {
    /// Explains what is no module: only its outcome is known.
    pub(super) fn of_outcome(filter: Arc<str>, before: &Document, made: Filtered) -> Self {
        let (decision, after) = match made {
            Filtered::Kept(document) if document.bytes() == before.bytes() => (Decision::Keep, Some(document)),
            Filtered::Kept(document) => (Decision::Edit(document.clone()), Some(document)),
            Filtered::Hidden => (Decision::Hide, None),
            Filtered::Failed(failure) => (Decision::Fail(failure), None),
        };
        Self {
            filter,
            digest: None,
            mode: Mode::Enforce,
            decision,
            failure_policy: None,
            is_suspended: false,
            steps: Steps::default(),
            after,
        }
    }
}
