//! Formats errors for logs, command output and `Status` messages.

use std::error::Error;

/// Formats an error and its chain of sources as `error: source: source`.
///
/// Skips a source whose text the report already ends with, because some libraries repeat their source in `Display`. Removes
/// the prefix of `kube::Error::Service`, which names a type of that library.
#[must_use]
pub fn error_report(error: &dyn Error) -> String {
    let mut report = error.to_string();
    let mut source = error.source();
    while let Some(inner) = source {
        let reason = inner.to_string();
        if !report.ends_with(&reason) {
            report = format!("{report}: {reason}");
        }
        source = inner.source();
    }
    report.replace("ServiceError: ", "")
}
