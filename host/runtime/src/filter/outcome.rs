//! Outcomes: what a chain, or the filters of it so far, made of one document.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use weir_document::Document;

use crate::FailureClass;

/// What a chain made of one document.
#[derive(Debug, Clone)]
pub enum Outcome {
    /// No filter changed it: send the bytes that came in.
    Unchanged,
    /// Send these bytes instead.
    Edited(Bytes),
    /// The client does not see this object.
    Hidden,
    /// A filter with policy `Fail` returned no verdict: the answer as a whole fails (500 before the first body byte, an
    /// aborted body or an ERROR event after it). Never send the object.
    Failed(Failure),
}

/// What the filters of a chain have made of one document so far.
#[derive(Debug)]
pub enum Filtered {
    /// The client sees it, edited or not.
    Kept(Document),
    /// The client does not see it; the filters that follow do not either.
    Hidden,
    /// A filter failed on it; the filters that follow do not see it.
    Failed(Failure),
}

/// Which filter failed on an object, and how.
#[derive(Debug, Clone)]
pub struct Failure {
    /// Name of the filter as configured.
    pub filter: Arc<str>,
    /// The class, a metric label.
    pub class: FailureClass,
    /// One line, bounded, control characters escaped.
    pub message: Arc<str>,
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
