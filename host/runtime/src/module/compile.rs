//! Compiling happens in a child process of the same binary, which fills the compiled-code cache: compiling hostile
//! bytes may take any amount of time and memory, and even for a good module it would leave the daemon 18 MB larger
//! (300 MB for a Python or JavaScript one) for good. The child's memory and processor time are limited by the system,
//! its wall time by us.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Resource, Rlimit, setrlimit};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::Command;

use crate::Digest;
use crate::{Engine, EngineError, LinkError, Linked, one_line};

/// Largest module, in bytes.
pub const MAX_MODULE: usize = 64 << 20;
/// This very program, also after its file was replaced by a newer one: another version would fill the cache for itself.
const PROGRAM: &str = "/proc/self/exe";
/// The child's address space: a 12 MB JavaScript module takes 400 MB to compile; threads and mappings come on top.
const MEMORY: u64 = 3 << 30;
/// The child's processor time, all threads together.
const PROCESSOR: Duration = Duration::from_secs(120);
/// The child's wall time.
const WALL: Duration = Duration::from_secs(120);
/// Longest explanation taken from the child.
const WORDS: usize = 4096;

/// Starts compiling children that fill one code cache.
#[derive(Debug)]
pub struct Compiler {
    cache: PathBuf,
    /// One child at a time: a node must not be flooded by a reload of many modules.
    turn: tokio::sync::Mutex<()>,
}

/// Why a module was not compiled.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CompileError {
    /// Larger than [`MAX_MODULE`].
    #[error("it has {0} bytes, more than the {MAX_MODULE} allowed")]
    TooLarge(usize),
    /// The child said why.
    #[error("{0}")]
    Refused(String),
    /// The child was ended by a signal: it hit its memory or processor limit.
    #[error("compiling it was stopped: {0} (limits: {memory} MiB of memory, {PROCESSOR:?} of processor time)", memory = MEMORY >> 20)]
    Stopped(String),
    /// The child did not end in time.
    #[error("compiling it took longer than {WALL:?}")]
    Time,
    /// The child could not be started or spoken to.
    #[error("the compiling process could not be run")]
    Process(#[source] std::io::Error),
}

impl Compiler {
    /// `directory` is the daemon's cache directory, in which [`code_cache`] is filled.
    #[must_use]
    pub fn new(directory: &Path) -> Self {
        Self { cache: directory.to_owned(), turn: tokio::sync::Mutex::default() }
    }

    /// Has a module compiled into the cache, if it is not there yet. Cancel-safe: the child dies with the future.
    ///
    /// # Errors
    /// When the module can't be compiled within the limits.
    pub async fn compile(&self, digest: &Digest, module: &[u8]) -> Result<(), CompileError> {
        if module.len() > MAX_MODULE {
            return Err(CompileError::TooLarge(module.len()));
        }
        let done = self.cache.join("compiled").join(format!("{}-{}", env!("CARGO_PKG_VERSION"), digest.hex()));
        let _turn = self.turn.lock().await;
        if tokio::fs::try_exists(&done).await.unwrap_or(false) {
            return Ok(());
        }
        let run = tokio::time::timeout(WALL, self.run(module)).await;
        run.map_err(|_| CompileError::Time)??;
        let marked = async {
            tokio::fs::create_dir_all(self.cache.join("compiled")).await?;
            tokio::fs::write(&done, []).await
        };
        marked.await.map_err(CompileError::Process)
    }

    async fn run(&self, module: &[u8]) -> Result<(), CompileError> {
        let mut child = Command::new(PROGRAM)
            .arg("compile")
            .arg("--cache-dir")
            .arg(&self.cache)
            .env_clear()
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .map_err(CompileError::Process)?;
        let (input, errors) = (child.stdin.take(), child.stderr.take());
        let feed = async {
            if let Some(mut input) = input {
                // A child that gave up early closes its end; why is in its words.
                let _ = input.write_all(module).await;
            }
        };
        let listen = async {
            let mut words = Vec::new();
            if let Some(errors) = errors {
                let _ = errors.take(WORDS as u64).read_to_end(&mut words).await;
            }
            // The engine's messages run over lines; in a log they are one.
            let words = String::from_utf8_lossy(&words);
            words.trim_start_matches("weir: ").split_whitespace().collect::<Vec<_>>().join(" ")
        };
        let ((), words, status) = tokio::join!(feed, listen, child.wait());
        let status = status.map_err(CompileError::Process)?;
        match status.code() {
            Some(0) => Ok(()),
            Some(_) if !words.is_empty() => Err(CompileError::Refused(one_line(&words, WORDS))),
            _ => Err(CompileError::Stopped(one_line(&format!("{status} {words}"), WORDS))),
        }
    }
}

/// Where compiled code lies in the daemon's cache directory.
#[must_use]
pub fn code_cache(directory: &Path) -> PathBuf {
    directory.join("code")
}

/// Why the child failed, for its standard error.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ChildError {
    /// The engine could not be built.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The module is refused.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// Standard input or the limits failed.
    #[error("the compiling process failed: {0}")]
    System(#[from] std::io::Error),
}

/// The child's side: reads a module from standard input and leaves its code in the cache.
///
/// # Errors
/// When the module is no filter, or does not compile.
pub fn compile_child(directory: &Path) -> Result<(), ChildError> {
    let limit = |most: u64| Rlimit { current: Some(most), maximum: Some(most) };
    setrlimit(Resource::As, limit(MEMORY)).map_err(std::io::Error::from)?;
    setrlimit(Resource::Cpu, limit(PROCESSOR.as_secs())).map_err(std::io::Error::from)?;
    setrlimit(Resource::Core, limit(0)).map_err(std::io::Error::from)?;
    let mut module = Vec::new();
    std::io::stdin().lock().take(MAX_MODULE as u64 + 1).read_to_end(&mut module)?;
    let engine = Engine::new(Some(&code_cache(directory)))?;
    Linked::new(&engine, &module)?;
    Ok(())
}
