//! The part of WASI that a filter may import: the imports of every Rust program with the standard library, and clocks.
//! Environment and arguments are empty, standard input is closed, random numbers are constant, and clocks stand still.
//! The daemon logs standard output and error line by line, up to a bound.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::io::AsyncWrite;
use wasmtime::component::{HasData, Linker, ResourceTable};
use wasmtime_wasi::cli::{IsTerminal, StdoutStream, WasiCli, WasiCliView};
use wasmtime_wasi::clocks::{HostMonotonicClock, HostWallClock, WasiClocks, WasiClocksView};
use wasmtime_wasi::p2::bindings::{cli, clocks, random};
use wasmtime_wasi::p2::{OutputStream, Pollable, StreamResult};
use wasmtime_wasi::random::{Deterministic, WasiRandom, WasiRandomView};
use wasmtime_wasi::{WasiCtx, WasiView};
use wasmtime_wasi_io::bindings::wasi::io;

use super::fault::one_line;
use super::state::GuestState;

/// The maximum length of a logged line in bytes. Longer lines are truncated.
pub(super) const LINE: usize = 1024;
/// The maximum number of logged lines per call. Further lines are dropped.
pub(super) const LINES: usize = 32;

/// The WASI interfaces that [`link`] provides, without versions.
pub(super) const INTERFACES: &[&str] = &[
    "wasi:io/poll",
    "wasi:io/error",
    "wasi:io/streams",
    "wasi:cli/environment",
    "wasi:cli/exit",
    "wasi:cli/stdin",
    "wasi:cli/stdout",
    "wasi:cli/stderr",
    "wasi:cli/terminal-input",
    "wasi:cli/terminal-output",
    "wasi:cli/terminal-stdin",
    "wasi:cli/terminal-stdout",
    "wasi:cli/terminal-stderr",
    "wasi:clocks/wall-clock",
    "wasi:clocks/monotonic-clock",
    "wasi:random/random",
    "wasi:random/insecure",
    "wasi:random/insecure-seed",
];

/// The standard output and error of a module. Complete lines are logged at once. The last lines are kept for the
/// message of a panic.
#[derive(Debug, Clone)]
pub(super) struct Output(Arc<Mutex<Lines>>);

#[derive(Debug)]
struct Lines {
    filter: Arc<str>,
    partial: Vec<u8>,
    last: String,
    logged: usize,
}

struct Table;

impl HasData for Table {
    type Data<'a> = &'a mut ResourceTable;
}

/// Links the interfaces of [`INTERFACES`].
pub(super) fn link(linker: &mut Linker<GuestState>) -> wasmtime::Result<()> {
    let l = linker;
    io::error::add_to_linker::<GuestState, Table>(l, |state| state.ctx().table)?;
    io::poll::add_to_linker::<GuestState, Table>(l, |state| state.ctx().table)?;
    io::streams::add_to_linker::<GuestState, Table>(l, |state| state.ctx().table)?;
    cli::environment::add_to_linker::<GuestState, WasiCli>(l, GuestState::cli)?;
    cli::exit::add_to_linker::<GuestState, WasiCli>(l, GuestState::cli)?;
    cli::stdin::add_to_linker::<GuestState, WasiCli>(l, GuestState::cli)?;
    cli::stdout::add_to_linker::<GuestState, WasiCli>(l, GuestState::cli)?;
    cli::stderr::add_to_linker::<GuestState, WasiCli>(l, GuestState::cli)?;
    cli::terminal_input::add_to_linker::<GuestState, WasiCli>(l, GuestState::cli)?;
    cli::terminal_output::add_to_linker::<GuestState, WasiCli>(l, GuestState::cli)?;
    cli::terminal_stdin::add_to_linker::<GuestState, WasiCli>(l, GuestState::cli)?;
    cli::terminal_stdout::add_to_linker::<GuestState, WasiCli>(l, GuestState::cli)?;
    cli::terminal_stderr::add_to_linker::<GuestState, WasiCli>(l, GuestState::cli)?;
    clocks::wall_clock::add_to_linker::<GuestState, WasiClocks>(l, GuestState::clocks)?;
    clocks::monotonic_clock::add_to_linker::<GuestState, WasiClocks>(l, GuestState::clocks)?;
    random::random::add_to_linker::<GuestState, WasiRandom>(l, GuestState::random)?;
    random::insecure::add_to_linker::<GuestState, WasiRandom>(l, GuestState::random)?;
    random::insecure_seed::add_to_linker::<GuestState, WasiRandom>(l, GuestState::random)
}

/// Creates the isolated WASI context of one instance.
pub(super) fn context(output: &Output) -> WasiCtx {
    WasiCtx::builder()
        .stdout(output.clone())
        .stderr(output.clone())
        .secure_random(Deterministic::new(vec![0]))
        .insecure_random(Deterministic::new(vec![0]))
        .insecure_random_seed(0)
        .wall_clock(Still)
        .monotonic_clock(Still)
        .build()
}

/// A clock that stands still, because a verdict must not depend on the time of the call.
struct Still;

impl HostWallClock for Still {
    fn resolution(&self) -> Duration {
        Duration::from_secs(1)
    }

    fn now(&self) -> Duration {
        Duration::ZERO
    }
}

impl HostMonotonicClock for Still {
    fn resolution(&self) -> u64 {
        1
    }

    fn now(&self) -> u64 {
        0
    }
}

impl Output {
    pub(super) fn new(filter: Arc<str>) -> Self {
        Self(Arc::new(Mutex::new(Lines { filter, partial: Vec::new(), last: String::new(), logged: 0 })))
    }

    /// Resets the count of lines at the start of a call.
    pub(super) fn begin(&self) {
        let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        lines.logged = 0;
        lines.last.clear();
        lines.partial.clear();
    }

    /// Returns whether the call has printed or logged a line.
    pub(super) fn was_written(&self) -> bool {
        let lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        lines.logged > 0 || !lines.partial.is_empty()
    }

    /// Returns the last lines that the call printed, joined to one line.
    pub(super) fn last(&self) -> String {
        let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        lines.end_line();
        std::mem::take(&mut lines.last)
    }

    /// Counts one more line. Returns false if the call has reached its bound.
    pub(super) fn may_log(&self) -> bool {
        let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        lines.logged += 1;
        lines.logged <= LINES
    }

    fn take(&self, bytes: &[u8]) {
        let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            let room = LINE.saturating_sub(lines.partial.len());
            let text = part.strip_suffix(b"\n").unwrap_or(part);
            lines.partial.extend_from_slice(text.get(..room).unwrap_or(text));
            if part.ends_with(b"\n") {
                lines.end_line();
            }
        }
    }
}

impl Lines {
    fn end_line(&mut self) {
        if self.partial.is_empty() {
            return;
        }
        let line = one_line(&String::from_utf8_lossy(&std::mem::take(&mut self.partial)), LINE);
        if self.logged < LINES {
            self.logged += 1;
            tracing::info!(filter = %self.filter, line, "output of the filter module");
        }
        if self.last.len() + line.len() < LINE {
            if !self.last.is_empty() {
                self.last.push(' ');
            }
            self.last.push_str(&line);
        }
    }
}

impl IsTerminal for Output {
    fn is_terminal(&self) -> bool {
        false
    }
}

impl StdoutStream for Output {
    fn async_stream(&self) -> Box<dyn AsyncWrite + Send + Sync> {
        Box::new(tokio::io::sink())
    }

    fn p2_stream(&self) -> Box<dyn OutputStream> {
        Box::new(self.clone())
    }
}

#[wasmtime_wasi::async_trait]
impl Pollable for Output {
    async fn ready(&mut self) {}
}

#[wasmtime_wasi::async_trait]
impl OutputStream for Output {
    fn write(&mut self, bytes: Bytes) -> StreamResult<()> {
        self.take(&bytes);
        Ok(())
    }

    fn flush(&mut self) -> StreamResult<()> {
        Ok(())
    }

    fn check_write(&mut self) -> StreamResult<usize> {
        Ok(4096)
    }
}
