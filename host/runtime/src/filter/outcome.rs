//! Outcomes of one document: of a complete chain, and of the filters that have run so far.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use weir_document::Document;

use crate::FailureClass;

/// The outcome of a chain for one document.
#[derive(Debug, Clone)]
pub enum Outcome {
    /// No filter changed it. The caller sends the original bytes.
    Unchanged,
    /// The caller sends these bytes.
    Edited(Bytes),
    /// The client does not see the object.
    Hidden,
    /// A filter with the policy `Fail` returned no verdict. The caller must not send the object, and the whole response
    /// fails: with 500 before the first byte of the body, later by an aborted body or an ERROR event.
    Failed(Failure),
}

/// The outcomes of a chain for a batch of documents, in order.
#[derive(Debug)]
pub struct Outcomes(Vec<Slot>);

/// A document on its way through a chain.
#[derive(Debug)]
pub struct Slot {
    /// What the filters that have run so far have made of it.
    pub filtered: Filtered,
    /// Whether the failure policy of a filter took the place of a verdict: a later outcome of the same document, with the same
    /// filters and lookups, may be another one.
    pub is_degraded: bool,
    /// Whether it was counted as a failure before, and is filtered again for that: it counts as one once.
    pub(super) is_repeated: bool,
}

/// The outcome of the filters that have run so far for one document.
#[derive(Debug)]
pub enum Filtered {
    /// The client sees the document, edited or not.
    Kept(Document),
    /// The client and the later filters do not see the document.
    Hidden,
    /// A filter failed on the document. Later filters do not see it.
    Failed(Failure),
}

/// The failure of a filter on an object.
#[derive(Debug, Clone)]
pub struct Failure {
    /// The name of the filter in the configuration.
    pub filter: Arc<str>,
    /// The class, which is a metric label.
    pub class: FailureClass,
    /// One bounded line with escaped control characters.
    pub message: Arc<str>,
}

impl Outcomes {
    pub(super) fn of(batch: Vec<Slot>) -> Self {
        Self(batch)
    }

    /// Whether a failure policy shows or hides one of them.
    #[must_use]
    pub fn are_degraded(&self) -> bool {
        self.0.iter().any(|slot| slot.is_degraded && !matches!(slot.filtered, Filtered::Failed(_)))
    }

    /// Each one, and whether it is degraded.
    pub fn with_degraded(self) -> impl Iterator<Item = (Outcome, bool)> {
        self.0.into_iter().map(|slot| (slot.filtered.into(), slot.is_degraded))
    }
}

impl IntoIterator for Outcomes {
    type Item = Outcome;
    type IntoIter = std::iter::Map<std::vec::IntoIter<Slot>, fn(Slot) -> Outcome>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter().map(|slot| slot.filtered.into())
    }
}

impl Slot {
    /// Whether later filters see the document.
    #[must_use]
    pub(crate) fn is_kept(&self) -> bool {
        matches!(self.filtered, Filtered::Kept(_))
    }
}

impl From<Document> for Slot {
    fn from(document: Document) -> Self {
        Self { filtered: Filtered::Kept(document), is_degraded: false, is_repeated: false }
    }
}

impl From<Filtered> for Outcome {
    fn from(filtered: Filtered) -> Self {
        match filtered {
            Filtered::Kept(document) if document.is_edited() => Self::Edited(document.bytes().clone()),
            Filtered::Kept(_) => Self::Unchanged,
            Filtered::Hidden => Self::Hidden,
            Filtered::Failed(failure) => Self::Failed(failure),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "filter {:?} failed ({}): {}", self.filter, self.class.label(), self.message)
    }
}
