//! Faults of module calls, classified by the type of the error and never by its text.

use wasmtime::Trap;
use wasmtime::component::ResourceTableError;
use weir_process::one_line;

/// The maximum length of a fault's message in bytes.
const MESSAGE: usize = 1024;

/// The class of a filter's failure on an object. It is a metric label from a closed set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FailureClass {
    /// The module returned an error for this object.
    Refused,
    /// The module trapped: a panic, a stale handle, an undeclared lookup.
    Trap,
    /// The module used up its time.
    Time,
    /// The module exceeded its memory limit.
    Memory,
    /// The module overflowed its stack.
    Stack,
    /// The module called `exit`.
    Exit,
    /// The bytes of the object are malformed or ambiguous, for example by a repeated key.
    Document,
    /// The circuit breaker is open, and the module was not called.
    BreakerOpen,
    /// The module failed on this object again and again, and was not called.
    SetAside,
    /// The host could not start an instance.
    Host,
}

/// A call of a module that returned no verdict. Its instance is discarded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Fault {
    /// The class.
    pub(crate) class: FailureClass,
    /// One bounded line with escaped control characters. It may contain text from the module.
    pub(crate) message: String,
}

/// The error of a host function. It ends the call with a trap, whose error [`Fault::of`] classifies.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(super) enum Refusal {
    #[error("lookup of {0:?}, which the module's plan does not declare{1}")]
    Undeclared(String, &'static str),
    #[error("lookup of {0:?} during configure: only filter may look up")]
    LookupInConfigure(String),
    #[error("read of the node's addresses during configure: they change, so only filter may read them")]
    AddressesInConfigure,
    #[error("path {0:?} has [*], but the function reads a single value: use column")]
    WildcardRead(String),
    #[error("handle {0} is stale or unknown")]
    BadHandle(u32),
    #[error("more than {0} {1} at once")]
    TooMany(usize, &'static str),
    #[error("{0} is longer than {1} bytes")]
    TooLong(&'static str, usize),
    #[error("label selector {0:?}: {1}")]
    Selector(String, String),
}

impl FailureClass {
    /// Returns the metric label.
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
            Self::SetAside => "set-aside",
            Self::Host => "host",
        }
    }

    /// Returns whether the module was called.
    #[must_use]
    pub(crate) fn is_of_call(self) -> bool {
        !matches!(self, Self::BreakerOpen | Self::SetAside)
    }

    /// Returns whether another call on the same object with the same snapshot fails too, because the fault does not
    /// depend on the state of the instance or of the machine.
    #[must_use]
    pub(crate) fn is_repeatable(self) -> bool {
        matches!(self, Self::Refused | Self::Trap | Self::Exit | Self::Document)
    }
}

impl Fault {
    /// Creates a fault. The message may contain any text.
    #[must_use]
    pub(crate) fn new(class: FailureClass, message: &str) -> Self {
        Self { class, message: one_line(message, MESSAGE) }
    }

    /// Classifies the error of a call. `memory_refused`: the host refused memory to the module during the call. `stderr`:
    /// the last lines of standard error, which contain the message of a panic.
    pub(super) fn of(error: &wasmtime::Error, memory_refused: bool, stderr: &str) -> Self {
        if let Some(error) = error.downcast_ref::<weir_document::Error>() {
            return Self::new(FailureClass::Document, &error.to_string());
        }
        if let Some(refusal) = error.downcast_ref::<Refusal>() {
            let class = if memory_refused { FailureClass::Memory } else { FailureClass::Trap };
            return Self::new(class, &refusal.to_string());
        }
        if error.is::<wasmtime_wasi::I32Exit>() {
            return Self::new(FailureClass::Exit, &with_stderr("the module called exit", stderr));
        }
        if matches!(error.downcast_ref(), Some(ResourceTableError::Full)) {
            return Self::new(FailureClass::Memory, &with_stderr("held too many handles of WASI", stderr));
        }
        let trap = error.downcast_ref::<Trap>().copied();
        let class = match trap {
            Some(Trap::Interrupt) => FailureClass::Time,
            Some(Trap::StackOverflow) => FailureClass::Stack,
            _ if memory_refused => FailureClass::Memory,
            // An error other than a trap means that the module violated the component model: an unknown handle, a text
            // that is not UTF-8, or a result that is too large.
            Some(_) | None => FailureClass::Trap,
        };
        let what = match class {
            FailureClass::Time => "used up its time".to_owned(),
            FailureClass::Memory => "exceeded its memory limit".to_owned(),
            FailureClass::Stack => "overflowed its stack".to_owned(),
            _ => match trap {
                Some(Trap::UnreachableCodeReached) if !stderr.is_empty() => "panicked".to_owned(),
                Some(trap) => trap.to_string(),
                // Without the backtrace in its context.
                None => error.root_cause().to_string(),
            },
        };
        Self::new(class, &with_stderr(&what, stderr))
    }
}

fn with_stderr(what: &str, stderr: &str) -> String {
    let stderr = stderr.trim();
    if stderr.is_empty() { what.to_owned() } else { format!("{what}: {stderr}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_classified_by_type() {
        let of = |error: wasmtime::Error, memory| Fault::of(&error, memory, "").class;
        assert_eq!(of(Trap::Interrupt.into(), false), FailureClass::Time);
        assert_eq!(of(Trap::StackOverflow.into(), false), FailureClass::Stack);
        assert_eq!(of(Trap::UnreachableCodeReached.into(), true), FailureClass::Memory);
        assert_eq!(of(Trap::UnreachableCodeReached.into(), false), FailureClass::Trap);
        assert_eq!(of(wasmtime_wasi::I32Exit(1).into(), false), FailureClass::Exit);
        assert_eq!(of(ResourceTableError::Full.into(), false), FailureClass::Memory);
        assert_eq!(of(ResourceTableError::NotPresent.into(), false), FailureClass::Trap);
        assert_eq!(of(Refusal::BadHandle(1).into(), false), FailureClass::Trap);
        assert_eq!(of(wasmtime::Error::msg("unknown handle"), false), FailureClass::Trap);
    }
}
