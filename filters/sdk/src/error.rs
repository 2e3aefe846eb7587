//! The one error of the SDK: what a filter hands back when it cannot judge an object or will not take its settings. It
//! carries a message only, since that is all that the contract carries; `?` turns any error into one.

use std::fmt::{self, Debug, Display, Formatter};

/// Why a filter failed, in words for the operator's log.
///
/// Every [`std::error::Error`] becomes one with `?`. For that to be possible this type does not implement the trait.
pub struct Error {
    message: String,
}

impl Error {
    /// An error with this message.
    pub fn new(message: impl Display) -> Self {
        Self { message: message.to_string() }
    }

    /// A refusal of one setting. The message begins with the key, as operators need it: `Error::setting("addresses",
    /// "…")`.
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
