//! Compiles modules in a child process of the same binary. The child fills a cache of its own, from which the daemon takes the
//! code ([`CompiledCode`]). Hostile modules can take any amount of time and memory to compile. Even a harmless module would
//! leave the daemon 18 MB larger, and one from Python or JavaScript 300 MB. The kernel limits the child's memory and processor
//! time. The daemon limits its wall time.
//!
//! The disk is a cache: where it cannot be written, the code is handed over in memory, to an engine of its own.

use std::fmt;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::OwnedMutexGuard;
use weir_process::files;

use super::code::{CompiledCode, code_cache};
use super::code_in_memory::{CodeInMemory, MEMORY};
use crate::{Engine, EngineError, LinkError};
use weir_process::{Child, ChildFailure, ChildLimits, MACHINE_LACKS};
use weir_spec::{Digest, MAX_MODULE};

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
    /// Finds the code in the cache; `None` if the cache cannot be used.
    engine: Option<Engine>,
    /// At most one child runs, so that a reload of many modules does not overload the node. The engine for code in memory.
    turn: Arc<tokio::sync::Mutex<Option<CodeInMemory>>>,
}

/// A module was compiled: its code is there until this is dropped.
pub(super) struct Compiled {
    /// The engine that finds the code.
    pub(super) engine: Engine,
    _in_memory: Option<InMemory>,
}

/// Code in memory. It is removed when this is dropped: what was loaded is a copy.
struct InMemory(OwnedMutexGuard<Option<CodeInMemory>>);

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
    /// The code cannot be written, neither to the cache nor to memory.
    #[error("its compiled code has no place")]
    Code(#[source] io::Error),
}

impl Compiler {
    /// Creates a compiler, and the engine for what is compiled already. `directory` is the daemon's cache directory.
    ///
    /// # Errors
    /// This machine cannot run compiled modules. A directory that cannot be used is no error: nothing is kept then.
    pub fn open(directory: &Path) -> Result<(Engine, Self), EngineError> {
        match Engine::new(Some(&code_cache(directory))) {
            Ok(engine) => Ok((engine.clone(), Self::of(directory, Some(engine)))),
            Err(error @ EngineError::Cache(..)) => Self::in_memory(directory, &error),
            Err(error) => Err(error),
        }
    }

    /// Creates the same for a directory that cannot be used, for this reason.
    ///
    /// # Errors
    /// This machine cannot run compiled modules.
    pub fn in_memory(directory: &Path, reason: &dyn fmt::Display) -> Result<(Engine, Self), EngineError> {
        tracing::warn!(%reason, "compiled code cannot be kept on disk, each start compiles all modules");
        Ok((Engine::new(None)?, Self::of(directory, None)))
    }

    fn of(directory: &Path, engine: Option<Engine>) -> Self {
        Self { cache: directory.to_owned(), engine, turn: Arc::default() }
    }

    /// Runs in the child: reads a module from standard input and compiles it into the cache, with at most `memory` bytes.
    ///
    /// # Errors
    /// If the module is not a filter, or does not compile.
    pub fn run_child(directory: &Path, memory: u64) -> Result<(), ChildError> {
        ChildLimits { memory, addresses: ADDRESSES, processor: PROCESSOR, file: None }.apply()?;
        let mut module = Vec::new();
        std::io::stdin().lock().take(MAX_MODULE as u64 + 1).read_to_end(&mut module)?;
        let engine = Engine::new(Some(&code_cache(directory)))?;
        engine.compile(&module)?;
        Ok(())
    }

    /// Compiles a module unless the cache has its code. Where the disk cannot be written, the code is in memory. Cancel-safe:
    /// dropping the future kills the child.
    ///
    /// # Errors
    /// If the module cannot be compiled within the limits.
    pub(super) async fn compile(&self, digest: &Digest, module: &[u8]) -> Result<Compiled, CompileError> {
        if module.len() > MAX_MODULE {
            return Err(CompileError::TooLarge(module.len()));
        }
        let mut turn = self.turn.clone().lock_owned().await;
        if let Some(engine) = &self.engine {
            match self.compile_in(&self.cache, digest, module).await {
                Err(CompileError::Code(error)) => {
                    let path = self.cache.display();
                    tracing::warn!(%path, %digest, %error, "compiled code cannot be kept on disk, it is handed over in memory");
                }
                compiled => return compiled.map(|()| Compiled { engine: engine.clone(), _in_memory: None }),
            }
        }
        let (former, cache) = (turn.take(), self.cache.clone());
        let begin = move || CodeInMemory::begin(former, &cache);
        let memory = files::at(Path::new(MEMORY), files::DEADLINE, begin).await.map_err(CompileError::Code)?;
        let (engine, directory) = (memory.engine.clone(), memory.directory.clone());
        *turn = Some(memory);
        let in_memory = InMemory(turn);
        self.compile_in(&directory, digest, module).await?;
        Ok(Compiled { engine, _in_memory: Some(in_memory) })
    }

    /// Compiles a module into a cache directory unless it has its code.
    async fn compile_in(&self, directory: &Path, digest: &Digest, module: &[u8]) -> Result<(), CompileError> {
        let code = CompiledCode::new(directory, digest);
        let (prepared, room) = (code.clone(), module.len() as u64);
        if files::at(directory, files::DEADLINE, move || prepared.prepare(room)).await.map_err(CompileError::Code)? {
            return Ok(());
        }
        let run = tokio::time::timeout(WALL, self.run(code.child_directory(), module)).await;
        let run = run.unwrap_or(Err(CompileError::Time));
        let ended = files::at(directory, files::WRITE_DEADLINE, move || code.end(run.is_ok()).map(|()| run)).await;
        ended.map_err(CompileError::Code)?
    }

    async fn run(&self, directory: &Path, module: &[u8]) -> Result<(), CompileError> {
        let memory = ChildLimits::memory_left(ADDRESSES);
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

impl Drop for InMemory {
    fn drop(&mut self) {
        if let Some(memory) = &*self.0 {
            memory.end();
        }
    }
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

impl ChildError {
    /// The exit code that says whether the module was refused, or the machine lacks something: then another try may succeed.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Link(_) => 1,
            Self::Engine(_) | Self::System(_) => MACHINE_LACKS,
        }
    }
}
