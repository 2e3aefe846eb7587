//! Child processes of the same binary, for work on what nobody trusts: modules to compile, answers of registries. The kernel
//! limits their memory, their processor time and their files. They get their work on standard input, write lines to standard
//! output, and say why they fail on standard error.

use std::ffi::OsStr;
use std::io;
use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Resource, Rlimit, nice, setrlimit};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::Command;

use crate::one_line;

/// The running program, even if a newer file has replaced it.
const PROGRAM: &str = "/proc/self/exe";
/// What Rust prints before it aborts for want of memory.
const OUT_OF_MEMORY: &str = "memory allocation of";
/// The maximum length of a child's error message in bytes.
const MAX_ERROR: usize = 4096;
/// The maximum size of a child's output in bytes.
const MAX_OUTPUT: u64 = 1 << 20;

/// A child process.
#[derive(Debug, Clone, Copy)]
pub struct Child<'a> {
    /// The command and its flags.
    pub arguments: &'a [&'a OsStr],
    /// Whether it has the environment of this process, which names proxies.
    pub has_environment: bool,
}

/// What the kernel allows a child.
#[derive(Debug, Clone, Copy)]
pub struct ChildLimits {
    /// Memory in bytes.
    pub memory: u64,
    /// Address space in bytes: threads and mappings need more than memory.
    pub addresses: u64,
    /// Processor time, the sum over its threads.
    pub processor: Duration,
    /// The largest file in bytes that it writes.
    pub file: Option<u64>,
}

/// Why a child has no result.
#[derive(Debug)]
pub enum ChildFailure {
    /// It could not be started, or its pipes failed.
    Process(io::Error),
    /// What it says.
    Refused(String),
    /// It needs more memory than it may take.
    Memory,
    /// A signal ended it.
    Stopped(String),
}

impl Child<'_> {
    /// Runs the child. Cancel-safe: dropping the future kills it. `line` gets each line of its output.
    ///
    /// # Errors
    /// It fails.
    pub async fn run(self, input: &[u8], mut line: impl FnMut(&str)) -> Result<(), ChildFailure> {
        let mut command = Command::new(PROGRAM);
        if !self.has_environment {
            command.env_clear();
        }
        command.args(self.arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.kill_on_drop(true).spawn().map_err(ChildFailure::Process)?;
        let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let write = async {
            if let Some(mut stdin) = stdin {
                // A child that fails early closes the pipe. Its standard error has the reason.
                let _ = stdin.write_all(input).await;
            }
        };
        let read = async {
            let Some(stdout) = stdout else { return };
            let mut lines = BufReader::new(stdout.take(MAX_OUTPUT)).lines();
            while let Ok(Some(text)) = lines.next_line().await {
                line(&text);
            }
        };
        let read_error = async {
            let mut message = Vec::new();
            if let Some(stderr) = stderr {
                let _ = stderr.take(MAX_ERROR as u64).read_to_end(&mut message).await;
            }
            // A message may have several lines. A log message has one.
            let message = String::from_utf8_lossy(&message);
            message.trim_start_matches("weir: ").split_whitespace().collect::<Vec<_>>().join(" ")
        };
        let ((), (), message, status) = tokio::join!(write, read, read_error, child.wait());
        let status = status.map_err(ChildFailure::Process)?;
        match status.code() {
            Some(0) => Ok(()),
            None if message.contains(OUT_OF_MEMORY) => Err(ChildFailure::Memory),
            Some(_) if !message.is_empty() => Err(ChildFailure::Refused(one_line(&message, MAX_ERROR))),
            _ => Err(ChildFailure::Stopped(one_line(&format!("{status} {message}"), MAX_ERROR))),
        }
    }
}

impl ChildLimits {
    /// Limits this process, for good. If memory is short all the same, the kernel ends this process and not the daemon.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn apply(self) -> io::Result<()> {
        let limit = |resource, most: u64| {
            setrlimit(resource, Rlimit { current: Some(most), maximum: Some(most) }).map_err(io::Error::from)
        };
        limit(Resource::As, self.addresses)?;
        limit(Resource::Data, self.memory)?;
        limit(Resource::Cpu, self.processor.as_secs())?;
        limit(Resource::Core, 0)?;
        if let Some(file) = self.file {
            limit(Resource::Fsize, file)?;
        }
        // What serves clients comes first.
        let _ = nice(10);
        // Older kernels have no such file.
        let _ = std::fs::write("/proc/self/oom_score_adj", "1000");
        Ok(())
    }
}
