//! The wasmtime engine of the process, and the thread that advances its epochs.
//!
//! A tick is [`TICK`] of wall time. The thread ticks while an instance is checked out ([`Ticking`]), and for [`LINGER`]
//! ticks longer. Otherwise it is parked, because a thousand wake-ups per second cost an edge node more than its
//! filters. It lingers because the batches of a list follow one another, and waking the thread for each costs more than
//! the batch.

use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use wasmtime::{Cache, CacheConfig, Config};

/// The interval at which a running module yields, and the unit of its time budget.
pub(crate) const TICK: Duration = Duration::from_millis(1);

/// The number of ticks without a checked-out instance before the thread parks.
const LINGER: u32 = 2;

/// The maximum size of the compiled code on disk in bytes. The least recently used code is deleted first.
const CACHE_SIZE: u64 = 512 << 20;

/// The engine. Clones share it.
#[derive(Clone)]
pub struct Engine {
    inner: wasmtime::Engine,
    cache: Option<Cache>,
    ticker: Arc<Ticker>,
}

/// The reason why the engine could not be created.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EngineError {
    /// The cache directory of compiled code is unusable.
    #[error("the cache of compiled code in {0} is unusable: {1:#}")]
    Cache(std::path::PathBuf, wasmtime::Error),
    /// This machine cannot run compiled modules.
    #[error("the WebAssembly engine does not support this machine: {0:#}")]
    Unsupported(wasmtime::Error),
    /// The thread could not be started.
    #[error("the epoch thread could not be started")]
    Thread(#[source] std::io::Error),
}

struct Ticker {
    state: Mutex<Ticks>,
    woken: Condvar,
    /// The number of ticks so far.
    count: Arc<AtomicU64>,
}

/// Counts the engine's ticks. Each host call reads it twice, which is one atomic load each.
#[derive(Debug, Clone)]
#[cfg_attr(test, derive(Default))]
pub(super) struct Clock(Arc<AtomicU64>);

#[derive(Default)]
struct Ticks {
    /// The number of checked-out instances.
    running: usize,
    /// The number of ticks since the last instance was given back.
    idle: u32,
    /// Whether the thread is parked.
    parked: bool,
}

/// Keeps the epochs advancing until it is dropped.
pub(crate) struct Ticking(Arc<Ticker>);

impl Engine {
    /// Creates the engine. It caches compiled code in the directory `cache`, which it creates if necessary. The engine
    /// trusts the machine code in the directory, so only the daemon may have access to it, and checks it before.
    ///
    /// # Errors
    /// If the cache directory is unusable, or the machine is not supported.
    pub fn new(cache: Option<&Path>) -> Result<Self, EngineError> {
        Self::of(Config::new(), cache)
    }

    /// Creates an engine that counts the instructions of modules as fuel.
    #[cfg(test)]
    pub(super) fn metered() -> Result<Self, EngineError> {
        let mut config = Config::new();
        config.consume_fuel(true);
        Self::of(config, None)
    }

    fn of(mut config: Config, cache: Option<&Path>) -> Result<Self, EngineError> {
        config
            // With concurrency support a call costs five times as much. Only component-model-async needs it, which
            // filters do not use.
            .concurrency_support(false)
            .epoch_interruption(true)
            .wasm_memory64(false)
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

    /// Returns wasmtime's engine.
    #[must_use]
    pub(crate) fn inner(&self) -> &wasmtime::Engine {
        &self.inner
    }

    /// Returns the hits and misses of the cache of compiled code.
    #[must_use]
    pub fn cache_hits_and_misses(&self) -> (usize, usize) {
        self.cache.as_ref().map_or((0, 0), |cache| (cache.cache_hits(), cache.cache_misses()))
    }

    /// Returns the clock of the ticks.
    pub(super) fn clock(&self) -> Clock {
        Clock(self.ticker.count.clone())
    }

    /// Starts the ticks unless they run already.
    #[must_use]
    pub(crate) fn ticking(&self) -> Ticking {
        let mut state = self.ticker.lock();
        state.running += 1;
        // Cleared here, so that the next call does not wake the thread again.
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
    // Code that wasmtime compresses again would differ from its digest.
    config.with_optimized_compression_usage_counter_threshold(u64::MAX);
    Cache::new(config).map_err(refused)
}

impl Clock {
    /// Returns the number of ticks so far. It wraps.
    pub(super) fn ticks(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Ticker {
    fn lock(&self) -> MutexGuard<'_, Ticks> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Parks if no instance is checked out. Returns after a minute at the latest, so that the thread ends with its
    /// engine.
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
