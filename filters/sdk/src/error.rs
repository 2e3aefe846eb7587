//! The error type of the SDK. A filter returns it if its settings are invalid or if it cannot filter an object. It
//! holds a message only, because the contract carries a string. `?` converts any error.

use std::fmt::{self, Debug, Display, Formatter};

/// The reason why a filter failed, for the operator's log.
///
/// `?` converts every [`std::error::Error`]. This type itself does not implement the trait, because the conversion
/// would then be ambiguous.
pub struct Error {
    message: String,
}

impl Error {
    /// Creates an error with this message.
    pub fn new(message: impl Display) -> Self {
        Self { message: message.to_string() }
    }

    /// Creates an error about one setting. The message begins with the key: `Error::setting("addresses", "…")`.
    pub fn setting(key: &str, reason: impl Display) -> Self {
        Self { message: format!("{key}: {reason}") }
    }
}

impl<E: std::error::Error> From<E> for Error {
    fn from(error: E) -> Self {
        Self::new(error)
    }
}

impl Display for Error {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl Debug for Error {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        Debug::fmt(&self.message, f)
    }
}
