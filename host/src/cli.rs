//! Commands for filter authors and operators. `weir run` runs one filter on objects from files, `weir check` validates a
//! configuration and its modules. Neither needs a cluster.

mod check;
mod run;

pub use check::{CheckError, check};
pub use run::{RunError, RunSummary, run};

use std::sync::Arc;

use futures_util::future::BoxFuture;

use weir_kube::Lookup;
use weir_runtime::{Engine, EngineError, Loader, LookupSource, Lookups, World};

/// Lookups in objects that never change.
#[derive(Debug)]
struct StaticLookups(Arc<dyn World>);

impl LookupSource for StaticLookups {
    fn world(&self) -> Arc<dyn World> {
        self.0.clone()
    }

    fn follow(&self, _lookups: Vec<Arc<Lookup>>) -> BoxFuture<'static, Result<Lookups, String>> {
        Box::pin(std::future::ready(Ok(Box::new(()) as Lookups)))
    }
}

/// Creates a loader for filters whose lookups never change. It compiles modules in this process, without the limits that
/// protect the daemon.
///
/// # Errors
/// This machine cannot run compiled modules.
pub fn loader(world: Arc<dyn World>) -> Result<Loader, EngineError> {
    Ok(Loader::new(Engine::new(None)?, None, Arc::new(StaticLookups(world)), Arc::default(), 1))
}
