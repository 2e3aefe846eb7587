//! The part of WASI that a filter may import: what the runtimes of languages import, whether they use it or not.
//! Environment and arguments are empty, standard input is closed, there are no files, sockets are refused, random numbers
//! are constant, and clocks stand still. The daemon logs standard output and error line by line, up to a bound.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::io::AsyncWrite;
use wasmtime::component::{HasData, Linker, Resource, ResourceTable};
use wasmtime_wasi::cli::{IsTerminal, StdoutStream, WasiCli, WasiCliView};
use wasmtime_wasi::clocks::{HostWallClock, WasiClocks, WasiClocksView};
use wasmtime_wasi::filesystem::{WasiFilesystem, WasiFilesystemView};
use wasmtime_wasi::p2::bindings::{cli, clocks, filesystem, random, sockets};
use wasmtime_wasi::p2::{DynPollable, OutputStream, Pollable, StreamResult, subscribe};
use wasmtime_wasi::random::{Deterministic, WasiRandom, WasiRandomView};
use wasmtime_wasi::sockets::{WasiSockets, WasiSocketsView};
use wasmtime_wasi::{WasiCtx, WasiView};
use wasmtime_wasi_io::bindings::wasi::io;

use super::log_rate::LogRate;
use super::state::GuestState;
use weir_process::one_line;

/// The maximum length of a logged line in bytes. Longer lines are truncated.
pub(super) const LINE: usize = 1024;
/// The maximum number of logged lines per call. Further lines are dropped.
pub(super) const LINES: usize = 32;

/// The most handles of WASI that a module holds: streams, timers and what it asks readiness of. Runtimes of languages hold ten.
const HANDLES: usize = 256;
/// What the host keeps for all of them, at most. It counts as memory of the module from the start.
pub(super) const HANDLE_MEMORY: usize = HANDLES * 256;

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
    "wasi:filesystem/types",
    "wasi:filesystem/preopens",
    "wasi:sockets/network",
    "wasi:sockets/instance-network",
    "wasi:sockets/ip-name-lookup",
    "wasi:sockets/tcp",
    "wasi:sockets/tcp-create-socket",
    "wasi:sockets/udp",
    "wasi:sockets/udp-create-socket",
];

/// The standard output and error of a module. Complete lines are logged at once. The last lines are kept for the
/// message of a panic.
#[derive(Debug, Clone)]
pub(super) struct Output(Arc<Mutex<Lines>>);

#[derive(Debug)]
struct Lines {
    filter: Arc<str>,
    rate: Arc<LogRate>,
    /// That of lines below `info`.
    reason_rate: Arc<LogRate>,
    partial: Vec<u8>,
    last: String,
    logged: usize,
    /// The lines below `info`.
    reasons: usize,
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
    clocks::monotonic_clock::add_to_linker::<GuestState, StillClock>(l, |state| StillClock(state.ctx().table))?;
    random::random::add_to_linker::<GuestState, WasiRandom>(l, GuestState::random)?;
    random::insecure::add_to_linker::<GuestState, WasiRandom>(l, GuestState::random)?;
    random::insecure_seed::add_to_linker::<GuestState, WasiRandom>(l, GuestState::random)?;
    // Without preopened directories no module can name a file.
    filesystem::types::add_to_linker::<GuestState, WasiFilesystem>(l, GuestState::filesystem)?;
    filesystem::preopens::add_to_linker::<GuestState, WasiFilesystem>(l, GuestState::filesystem)?;
    // The context of an instance allows neither sockets nor names, and refuses them before it opens a descriptor.
    let options = sockets::network::LinkOptions::default();
    sockets::network::add_to_linker::<GuestState, WasiSockets>(l, &options, GuestState::sockets)?;
    sockets::instance_network::add_to_linker::<GuestState, WasiSockets>(l, GuestState::sockets)?;
    sockets::ip_name_lookup::add_to_linker::<GuestState, WasiSockets>(l, GuestState::sockets)?;
    sockets::tcp::add_to_linker::<GuestState, WasiSockets>(l, GuestState::sockets)?;
    sockets::tcp_create_socket::add_to_linker::<GuestState, WasiSockets>(l, GuestState::sockets)?;
    sockets::udp::add_to_linker::<GuestState, WasiSockets>(l, GuestState::sockets)?;
    sockets::udp_create_socket::add_to_linker::<GuestState, WasiSockets>(l, GuestState::sockets)
}

/// Creates the table of the handles of one instance. wasmtime's own bound is a million.
pub(super) fn handles() -> ResourceTable {
    let mut table = ResourceTable::new();
    table.set_max_capacity(HANDLES);
    table
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
        .build()
}

/// The monotonic clock, whose timers are ready at once: a module that sleeps must not outlast its time limit.
struct StillClock<'a>(&'a mut ResourceTable);

impl HasData for StillClock<'static> {
    type Data<'a> = StillClock<'a>;
}

impl StillClock<'_> {
    fn ready(&mut self) -> wasmtime::Result<Resource<DynPollable>> {
        let timer = self.0.push(Ready)?;
        subscribe(self.0, timer)
    }
}

impl clocks::monotonic_clock::Host for StillClock<'_> {
    fn now(&mut self) -> wasmtime::Result<u64> {
        // Go's runtime does not start at 0.
        Ok(1)
    }

    fn resolution(&mut self) -> wasmtime::Result<u64> {
        Ok(1)
    }

    fn subscribe_instant(&mut self, _when: u64) -> wasmtime::Result<Resource<DynPollable>> {
        self.ready()
    }

    fn subscribe_duration(&mut self, _when: u64) -> wasmtime::Result<Resource<DynPollable>> {
        self.ready()
    }
}

/// A timer that has expired.
struct Ready;

#[wasmtime_wasi::async_trait]
impl Pollable for Ready {
    async fn ready(&mut self) {}
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

impl Output {
    pub(super) fn new(filter: Arc<str>, rate: Arc<LogRate>, reason_rate: Arc<LogRate>) -> Self {
        let (partial, last) = (Vec::new(), String::new());
        Self(Arc::new(Mutex::new(Lines { filter, rate, reason_rate, partial, last, logged: 0, reasons: 0 })))
    }

    /// Resets the count of lines at the start of a call.
    pub(super) fn begin(&self) {
        let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        lines.logged = 0;
        lines.reasons = 0;
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

    /// Counts one more line. Returns false if the call or the filter has reached its bound.
    pub(super) fn may_log(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).may_log()
    }

    /// The same of a line below `info`, which does not keep the call from being replayed.
    pub(super) fn may_log_reason(&self) -> bool {
        let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        lines.reasons += 1;
        lines.reasons <= LINES && lines.reason_rate.allows(&lines.filter)
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
    fn may_log(&mut self) -> bool {
        self.logged += 1;
        self.logged <= LINES && self.rate.allows(&self.filter)
    }

    fn end_line(&mut self) {
        if self.partial.is_empty() {
            return;
        }
        let line = one_line(&String::from_utf8_lossy(&std::mem::take(&mut self.partial)), LINE);
        if self.may_log() {
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
