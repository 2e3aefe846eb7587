//! The log: to stderr, as text or JSON, with levels by `-v`.

use std::collections::BTreeSet;
use std::io::{self, IsTerminal as _};
use std::sync::{Arc, Mutex, PoisonError};

use tracing_appender::non_blocking::{NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::Layer as _;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::config::{LogConfig, LogFormat};
use crate::traces::{SPANS, Traces};

/// The most lines that wait to be written.
const MAX_WAITING: usize = 4096;

/// How to treat a line that was shown before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Repeated {
    /// It is shown again.
    Shown,
    /// It is left out: test cases run many times.
    LeftOut,
}

/// Standard error, each line once.
struct Once;

/// The lines that [`Once`] has shown.
static SHOWN: Mutex<BTreeSet<Vec<u8>>> = Mutex::new(BTreeSet::new());
/// The most lines that are remembered.
const MAX_LINES: usize = 10_000;

impl io::Write for Once {
    /// The log writes a line at once.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let mut shown = SHOWN.lock().unwrap_or_else(PoisonError::into_inner);
        if shown.len() >= MAX_LINES || shown.insert(line.to_vec()) {
            io::stderr().write_all(line)?;
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

/// Shows lines again that were shown before.
pub(crate) fn show_again() {
    SHOWN.lock().unwrap_or_else(PoisonError::into_inner).clear();
}

/// Conditions that the log has reported. Each is logged once until it is over, although each retry meets it again.
#[derive(Debug, Clone, Default)]
pub(crate) struct LoggedOnce(Arc<Mutex<BTreeSet<String>>>);

impl LoggedOnce {
    /// Records whether a condition holds. Returns whether to log it.
    pub(crate) fn is_news(&self, condition: &str, holds: bool) -> bool {
        let mut logged = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !holds {
            logged.remove(condition);
            return false;
        }
        if logged.len() >= MAX_LINES {
            logged.clear();
        }
        logged.insert(condition.to_owned())
    }
}

/// Sends the log of a command to stderr, for people: what filters log and print, without times.
pub(crate) fn log_for_people(verbosity: u8, repeated: Repeated) {
    // A command prints why it fails itself, with the errors of libraries.
    let others = if verbosity == 0 { LevelFilter::OFF } else { LevelFilter::WARN };
    let levels = Targets::new().with_default(others).with_target("weir", own_level(verbosity));
    let lines = tracing_subscriber::fmt().with_max_level(LevelFilter::TRACE);
    let lines = lines.with_ansi(io::stderr().is_terminal()).without_time().with_target(false);
    // A process has one log. Tests run several commands.
    let _ = match repeated {
        Repeated::Shown => lines.with_writer(io::stderr).finish().with(levels).try_init(),
        Repeated::LeftOut => lines.with_writer(|| Once).finish().with(levels).try_init(),
    };
}

/// Sends the log of this process to stderr, and its spans to where traces go. A thread writes the lines, so that no task waits
/// for a reader of the pipe that does not read. Lines beyond [`MAX_WAITING`] are lost then. Dropping the guard writes the
/// waiting lines, for at most a second.
pub(crate) fn log_to_stderr(config: LogConfig, traces: &Traces) -> WorkerGuard {
    let others = match config.verbosity {
        0 => LevelFilter::WARN,
        1 => LevelFilter::INFO,
        _ => LevelFilter::DEBUG,
    };
    // A target is a prefix: `weir` is all crates of Weir.
    let levels = Targets::new().with_default(others).with_target("weir", own_level(config.verbosity));
    let levels = levels.with_target(SPANS, LevelFilter::OFF);
    let writer = NonBlockingBuilder::default().lossy(true).buffered_lines_limit(MAX_WAITING).thread_name("weir-log");
    let (writer, guard) = writer.finish(io::stderr());
    let lines = tracing_subscriber::fmt::layer().with_writer(writer);
    let process = tracing_subscriber::registry().with(traces.layer());
    match config.format {
        LogFormat::Json => process.with(lines.json().with_current_span(false).with_filter(levels)).init(),
        LogFormat::Text => process.with(lines.with_ansi(io::stderr().is_terminal()).with_filter(levels)).init(),
    }
    guard
}

/// The level of Weir's own lines by the number of `-v`.
fn own_level(verbosity: u8) -> LevelFilter {
    match verbosity {
        0 => LevelFilter::INFO,
        1 => LevelFilter::DEBUG,
        _ => LevelFilter::TRACE,
    }
}
