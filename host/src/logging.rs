//! The log: to stderr, as text or JSON, with levels by `-v`.

use std::io::IsTerminal as _;

use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::config::{LogConfig, LogFormat};

/// Sends the log of this process to stderr.
pub(crate) fn log_to_stderr(config: LogConfig) {
    let (others, ours) = match config.verbosity {
        0 => (LevelFilter::WARN, LevelFilter::INFO),
        1 => (LevelFilter::INFO, LevelFilter::DEBUG),
        _ => (LevelFilter::DEBUG, LevelFilter::TRACE),
    };
    // A target is a prefix: `weir` is all crates of Weir.
    let levels = Targets::new().with_default(others).with_target("weir", ours);
    let lines = tracing_subscriber::fmt().with_max_level(LevelFilter::TRACE).with_writer(std::io::stderr);
    match config.format {
        LogFormat::Json => lines.json().with_current_span(false).finish().with(levels).init(),
        LogFormat::Text => {
            let colours = std::io::stderr().is_terminal();
            lines.with_ansi(colours).finish().with(levels).init();
        }
    }
}
