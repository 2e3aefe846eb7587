//! What a chain made of one document.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;

/// What a chain made of one document.
#[derive(Debug, Clone)]
pub enum Outcome {
    /// No filter changed it: send the bytes that came in.
    Unchanged,
    /// Send these bytes instead.
    Edited(Bytes),
    /// The client does not see this object.
    Hidden,
    /// A filter with policy `Fail` could not decide: the answer as a whole fails (500 before the first body byte, an
    /// aborted body or an ERROR event after it). Never send the object.
    Failed(Failure),
}

/// Which filter failed on an object, and how.
#[derive(Debug, Clone)]
pub struct Failure {
    /// Name of the filter as configured.
    pub filter: Arc<str>,
    /// The class, a metric label.
    pub class: FailureClass,
    /// For people: one line, bounded, control characters escaped.
    pub message: Arc<str>,
}

/// Why a filter failed on an object; a closed set, used as a metric label.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FailureClass {
    /// The module returned an error for this object.
    Refused,
    /// The module trapped: a panic, a bad handle, an undeclared lookup.
    Trap,
    /// The module used up its time.
    Time,
    /// The module wanted more memory than its limit.
    Memory,
    /// The module overflowed its stack.
    Stack,
    /// The module ended itself with `exit`.
    Exit,
    /// The object's own bytes could not be read, or are ambiguous (a key twice).
    Document,
    /// The breaker is open: the module was not called.
    BreakerOpen,
    /// The host could not run the module (no instance could be made).
    Host,
}

impl FailureClass {
    /// The metric label.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::Refused => "refused",
            Self::Trap => "trap",
            Self::Time => "time",
            Self::Memory => "memory",
            Self::Stack => "stack",
            Self::Exit => "exit",
            Self::Document => "document",
            Self::BreakerOpen => "breaker-open",
            Self::Host => "host",
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "filter {:?} failed ({}): {}", self.filter, self.class.label(), self.message)
    }
}
