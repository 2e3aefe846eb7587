//! The daemon's log. The host adds the filter's name and limits the number and length of lines. It never replays a call
//! that wrote a line of `info` or above. `weir explain` shows the lines of a call.

use std::fmt::Display;

use crate::backend;

/// The severity of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// The single steps of a call.
    Trace,
    /// The reason for an outcome.
    Debug,
    /// A rare event.
    Info,
    /// The filter ignores something that an operator should correct.
    Warn,
    /// A failure.
    Error,
}

/// Writes one line at a level.
pub fn write(level: Level, message: impl Display) {
    backend::log_write(level, &message.to_string());
}

/// Logs the reason for an outcome.
pub fn debug(message: impl Display) {
    write(Level::Debug, message);
}

/// Logs a rare event.
pub fn info(message: impl Display) {
    write(Level::Info, message);
}

/// Logs that the filter ignores something that an operator should correct.
pub fn warn(message: impl Display) {
    write(Level::Warn, message);
}
