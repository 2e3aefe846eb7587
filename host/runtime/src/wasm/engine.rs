//! The one wasmtime engine of the process, and the thread that ticks its epochs.
//!
//! A tick is [`TICK`] of wall time. The thread ticks while an instance is checked out ([`Ticking`]) and for [`LINGER`]
//! ticks longer; otherwise it is parked, because a thousand wake-ups a second cost an edge node more than its filters.
//! It lingers because the batches of a list follow one another: waking the thread for each costs more than the batch.

use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use wasmtime::{Cache, CacheConfig, Config};

/// How often a running module gives way, and the unit in which its time is counted.
pub const TICK: Duration = Duration::from_millis(1);

/// Ticks with nothing checked out before the thread parks.
const LINGER: u32 = 2;

/// Bytes of compiled code kept on disk before the least used are deleted.
const CACHE_SIZE: u64 = 512 << 20;

/// The engine; clones share it.
#[derive(Clone)]
pub struct Engine {
    inner: wasmtime::Engine,
    cache: Option<Cache>,
    ticker: Arc<Ticker>,
}

/// Why the engine could not be built.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EngineError {
    /// The directory of the compiled-code cache can't be used.
    #[error("the compiled-code cache in {0} can not be used: {1:#}")]
    Cache(std::path::PathBuf, wasmtime::Error),
    /// This machine can't run compiled modules.
    #[error("no WebAssembly engine for this machine: {0:#}")]
    Unsupported(wasmtime::Error),
    /// The ticking thread could not be started.
    #[error("the epoch thread could not be started")]
    Thread(#[source] std::io::Error),
}

struct Ticker {
    state: Mutex<Ticks>,
    woken: Condvar,
    /// Ticks so far.
    count: Arc<AtomicU64>,
}

/// Counts the engine's ticks. Read twice for every host call: one load of an atomic.
#[derive(Debug, Clone)]
pub(super) struct Clock(Arc<AtomicU64>);

#[derive(Default)]
struct Ticks {
    /// Instances that are checked out.
    running: usize,
    /// Ticks since the last one was.
    idle: u32,
    /// The thread waits to be woken.
    parked: bool,
}

/// Keeps the epochs ticking while it lives.
pub struct Ticking(Arc<Ticker>);

impl Engine {
    /// Builds the engine, with compiled code cached in `cache` (created if absent). The directory holds machine code
    /// that is trusted when read: it must belong to the daemon alone.
    ///
    /// # Errors
    /// When the cache directory can't be used, or the machine is not supported.
    pub fn new(cache: Option<&Path>) -> Result<Self, EngineError> {
        let mut config = Config::new();
        config
            // Without it a call costs five times as much; it serves component-model-async, which filters do not use.
            .concurrency_support(false)
            .epoch_interruption(true)
            .wasm_memory64(false)
            .wasm_multi_memory(false)
            .async_stack_size(1 << 20)
            .max_wasm_stack(512 << 10)
            .wasm_backtrace_max_frames(NonZeroUsize::new(16));
        let cache = cache.map(open_cache).transpose()?;
        config.cache(cache.clone());
        let inner = wasmtime::Engine::new(&config).map_err(EngineError::Unsupported)?;
        let ticker = Arc::new(Ticker { state: Mutex::default(), woken: Condvar::new(), count: Arc::default() });
        let (weak, at) = (inner.weak(), Arc::downgrade(&ticker));
        std::thread::Builder::new()
            .name("weir-epochs".into())
            .spawn(move || {
                while let Some(ticker) = at.upgrade() {
                    ticker.wait_until_running();
                    ticker.count.fetch_add(1, Ordering::Relaxed);
                    drop(ticker);
                    let Some(engine) = weak.upgrade() else { return };
                    engine.increment_epoch();
                    drop(engine);
                    std::thread::sleep(TICK);
                }
            })
            .map_err(EngineError::Thread)?;
        Ok(Self { inner, cache, ticker })
    }

    /// wasmtime's engine.
    #[must_use]
    pub fn inner(&self) -> &wasmtime::Engine {
        &self.inner
    }

    /// How many modules came from the compiled-code cache, and how many did not.
    #[must_use]
    pub fn cache_hits_and_misses(&self) -> (usize, usize) {
        self.cache.as_ref().map_or((0, 0), |cache| (cache.cache_hits(), cache.cache_misses()))
    }

    /// The clock of the ticks.
    pub(super) fn clock(&self) -> Clock {
        Clock(self.ticker.count.clone())
    }

    /// Starts the ticks, if they do not run yet.
    #[must_use]
    pub fn ticking(&self) -> Ticking {
        let mut state = self.ticker.lock();
        state.running += 1;
        // Cleared here, so that the next ones do not wake it again.
        let parked = std::mem::take(&mut state.parked);
        drop(state);
        if parked {
            self.ticker.woken.notify_one();
        }
        Ticking(self.ticker.clone())
    }
}

fn open_cache(directory: &Path) -> Result<Cache, EngineError> {
    let refused = |error| EngineError::Cache(directory.to_owned(), error);
    std::fs::create_dir_all(directory).map_err(|error| refused(error.into()))?;
    let directory_text = directory.canonicalize().map_err(|error| refused(error.into()))?;
    let mut config = CacheConfig::new();
    config.with_directory(directory_text).with_files_total_size_soft_limit(CACHE_SIZE);
    Cache::new(config).map_err(refused)
}

impl Clock {
    /// Ticks so far; wraps.
    pub(super) fn ticks(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Ticker {
    fn lock(&self) -> MutexGuard<'_, Ticks> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Parks when nothing has run for a while; gives up now and then so that the thread sees its engine go.
    fn wait_until_running(&self) {
        let mut state = self.lock();
        state.idle = if state.running > 0 { 0 } else { state.idle + 1 };
        if state.idle <= LINGER {
            return;
        }
        state.parked = true;
        let nothing = |state: &mut Ticks| state.parked;
        let waited = self.woken.wait_timeout_while(state, Duration::from_secs(60), nothing);
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        state.parked = false;
        state.idle = 0;
    }
}

impl Drop for Ticking {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.running = state.running.saturating_sub(1);
    }
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine").finish_non_exhaustive()
    }
}
