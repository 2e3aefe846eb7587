//! The log: to stderr, as text or JSON, with levels by `-v`.

use std::io::IsTerminal as _;

use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::config::{LogConfig, LogFormat};

/// Sends the log of a command to stderr, for people: what filters log and print, without times.
pub(crate) fn log_for_people(verbosity: u8) {
    // A command says itself why it fails, also what libraries have told it.
    let others = if verbosity == 0 { LevelFilter::OFF } else { LevelFilter::WARN };
    let levels = Targets::new().with_default(others).with_target("weir", own_level(verbosity));
    let lines = tracing_subscriber::fmt().with_max_level(LevelFilter::TRACE).with_writer(std::io::stderr);
    let colours = std::io::stderr().is_terminal();
    // A process has one log. Tests run several commands.
    let _ = lines.with_ansi(colours).without_time().with_target(false).finish().with(levels).try_init();
}

/// Sends the log of this process to stderr.
pub(crate) fn log_to_stderr(config: LogConfig) {
    let others = match config.verbosity {
        0 => LevelFilter::WARN,
        1 => LevelFilter::INFO,
        _ => LevelFilter::DEBUG,
    };
    // A target is a prefix: `weir` is all crates of Weir.
    let levels = Targets::new().with_default(others).with_target("weir", own_level(config.verbosity));
    let lines = tracing_subscriber::fmt().with_max_level(LevelFilter::TRACE).with_writer(std::io::stderr);
    match config.format {
        LogFormat::Json => lines.json().with_current_span(false).finish().with(levels).init(),
        LogFormat::Text => {
            let colours = std::io::stderr().is_terminal();
            lines.with_ansi(colours).finish().with(levels).init();
        }
    }
}

/// The level of Weir's own lines by the number of `-v`.
fn own_level(verbosity: u8) -> LevelFilter {
    match verbosity {
        0 => LevelFilter::INFO,
        1 => LevelFilter::DEBUG,
        _ => LevelFilter::TRACE,
    }
}
