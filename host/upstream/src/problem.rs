//! How an error is told to people.

use std::error::Error;

/// An error with all its sources, each told once: where there is nobody to ask for them, on a line or on the wire.
#[must_use]
pub fn in_full(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(inner) = source {
        let reason = inner.to_string();
        if !text.ends_with(&reason) {
            text = format!("{text}: {reason}");
        }
        source = inner.source();
    }
    text
}
