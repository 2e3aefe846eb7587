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

use crate::one_line::one_line;

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

/// The exit code of a child that failed for what its machine lacks, and not for its input: `EX_TEMPFAIL` of sysexits.h.
pub const MACHINE_LACKS: u8 = 75;

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
            code => Err(ChildFailure::of(code, &message, &status.to_string())),
        }
    }
}

impl ChildFailure {
    /// Why a child ended with this exit code, or with none, and this text on its standard error.
    fn of(code: Option<i32>, message: &str, status: &str) -> Self {
        match code {
            None if message.contains(OUT_OF_MEMORY) => Self::Memory,
            Some(code) if code == i32::from(MACHINE_LACKS) => {
                Self::Process(io::Error::other(one_line(message, MAX_ERROR)))
            }
            Some(_) if !message.is_empty() => Self::Refused(one_line(message, MAX_ERROR)),
            _ => Self::Stopped(one_line(&format!("{status} {message}"), MAX_ERROR)),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_fails_for_its_input_or_for_its_machine() {
        let of = |code, message| format!("{:?}", ChildFailure::of(code, message, "exit status"));
        assert_eq!(of(Some(1), "no filter"), r#"Refused("no filter")"#);
        assert!(of(Some(i32::from(MACHINE_LACKS)), "the disk is full").starts_with("Process(Custom"));
        assert_eq!(of(Some(1), ""), r#"Stopped("exit status ")"#);
        assert!(of(None, "killed").starts_with("Stopped"));
        assert_eq!(of(None, OUT_OF_MEMORY), "Memory");
    }
}
