//! Compiles modules in a child process of the same binary. The child fills a cache of its own, from which the daemon takes the
//! code ([`CompiledCode`]). Hostile modules can take any amount of time and memory to compile. Even a harmless module would
//! leave the daemon 18 MB larger, and one from Python or JavaScript 300 MB. The kernel limits the child's memory and processor
//! time. The daemon limits its wall time.

use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::cgroup::child_memory;
use super::code::{CompiledCode, code_cache};
use crate::Digest;
use crate::child::{Child, ChildFailure, ChildLimits};
use crate::{Engine, EngineError, LinkError, Linked};

/// The maximum size of a module in bytes.
pub const MAX_MODULE: usize = 64 << 20;
/// The child's address space. A JavaScript module of 12 MB takes 400 MB to compile. Threads and mappings need more.
const ADDRESSES: u64 = 3 << 30;
/// The child's processor time, the sum over its threads. A module of Python or JavaScript takes 10 s on a fast core, and minutes on
/// the core of a small device. The child has low priority.
const PROCESSOR: Duration = Duration::from_secs(600);
/// The child's wall time.
const WALL: Duration = Duration::from_secs(900);

/// Starts compiler processes that fill one code cache.
#[derive(Debug)]
pub struct Compiler {
    cache: PathBuf,
    /// At most one child runs, so that a reload of many modules does not overload the node.
    turn: tokio::sync::Mutex<()>,
}

/// The reason why a module was not compiled.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CompileError {
    /// The module is larger than [`MAX_MODULE`].
    #[error("it has {0} bytes, more than the limit of {MAX_MODULE}")]
    TooLarge(usize),
    /// The child returned an error.
    #[error("{0}")]
    Refused(String),
    /// The child needs more memory than it may take.
    #[error(
        "compiling it takes more than {} MiB of memory, which is what it may take: raise the memory limit of the daemon, of \
         which compiling gets what is left, up to {} MiB",
        _0 >> 20,
        ADDRESSES >> 20
    )]
    Memory(u64),
    /// A signal ended the child, because it reached its memory or processor limit.
    #[error("compiling it was stopped: {reason} (limits: {} MiB of memory, {PROCESSOR:?} of processor time)", memory >> 20)]
    Stopped {
        /// How the child ended.
        reason: String,
        /// Its memory limit in bytes.
        memory: u64,
    },
    /// The child took too long.
    #[error("compiling it took longer than {WALL:?}")]
    Time,
    /// The child could not be started, or its pipes failed.
    #[error("the compiling process could not be run")]
    Process(#[source] io::Error),
}

impl Compiler {
    /// Creates a compiler. `directory` is the daemon's cache directory, which contains [`code_cache`].
    #[must_use]
    pub fn new(directory: &Path) -> Self {
        Self { cache: directory.to_owned(), turn: tokio::sync::Mutex::default() }
    }

    /// Compiles a module into the cache unless the cache has it. Cancel-safe: dropping the future kills the child.
    ///
    /// # Errors
    /// If the module cannot be compiled within the limits.
    pub async fn compile(&self, digest: &Digest, module: &[u8]) -> Result<(), CompileError> {
        if module.len() > MAX_MODULE {
            return Err(CompileError::TooLarge(module.len()));
        }
        let _turn = self.turn.lock().await;
        let code = CompiledCode::new(&self.cache, digest);
        let prepared = code.clone();
        if blocking(move || prepared.prepare()).await.map_err(CompileError::Process)? {
            return Ok(());
        }
        let run = tokio::time::timeout(WALL, self.run(code.child_directory(), module)).await;
        let run = run.unwrap_or(Err(CompileError::Time));
        let ended = blocking(move || code.end(run.is_ok()).map(|()| run)).await;
        ended.map_err(CompileError::Process)?
    }

    async fn run(&self, directory: &Path, module: &[u8]) -> Result<(), CompileError> {
        let memory = child_memory(ADDRESSES);
        let bytes = memory.to_string();
        let arguments =
            ["compile".as_ref(), "--cache-dir".as_ref(), directory.as_os_str(), "--memory".as_ref(), bytes.as_ref()];
        let child = Child { arguments: &arguments, has_environment: false };
        child.run(module, |_| {}).await.map_err(|failure| match failure {
            ChildFailure::Process(error) => CompileError::Process(error),
            ChildFailure::Refused(reason) => CompileError::Refused(reason),
            ChildFailure::Memory => CompileError::Memory(memory),
            ChildFailure::Stopped(reason) => CompileError::Stopped { reason, memory },
        })
    }
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> io::Result<T> + Send + 'static) -> io::Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(io::Error::other)?
}

/// The reason why the child failed. It writes it to its standard error.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ChildError {
    /// The engine could not be created.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The module was refused.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// Standard input or the limits failed.
    #[error("the compiling process failed: {0}")]
    System(#[from] io::Error),
}

/// Runs in the child: reads a module from standard input and compiles it into the cache, with at most `memory` bytes.
///
/// # Errors
/// If the module is not a filter, or does not compile.
pub fn compile_child(directory: &Path, memory: u64) -> Result<(), ChildError> {
    ChildLimits { memory, addresses: ADDRESSES, processor: PROCESSOR, file: None }.apply()?;
    let mut module = Vec::new();
    std::io::stdin().lock().take(MAX_MODULE as u64 + 1).read_to_end(&mut module)?;
    let engine = Engine::new(Some(&code_cache(directory)))?;
    Linked::new(&engine, &module)?;
    Ok(())
}
