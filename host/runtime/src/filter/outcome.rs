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
