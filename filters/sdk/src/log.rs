//! Lines in the daemon's log, beside the filter's name. The host bounds their number and length. A line is no part of
//! an outcome: a call that the host can skip writes none.

use std::fmt::Display;

use crate::backend;

/// How much a line matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// Every step of one object.
    Trace,
    /// What explains an outcome.
    Debug,
    /// What happened, rarely.
    Info,
    /// Something is ignored that somebody should mend.
    Warn,
    /// Something failed.
    Error,
}

/// Writes one line at a level.
pub fn write(level: Level, message: impl Display) {
    backend::log_write(level, &message.to_string());
}

/// Says what explains an outcome.
pub fn debug(message: impl Display) {
    write(Level::Debug, message);
}

/// Says what happened.
pub fn info(message: impl Display) {
    write(Level::Info, message);
}

/// Says that something is ignored which somebody should mend.
pub fn warn(message: impl Display) {
    write(Level::Warn, message);
}
