//! Commands for filter authors and operators. `weir run` runs one filter on objects from files, `weir check` validates a
//! configuration and its modules. Neither needs a cluster.

mod check;
mod run;

pub use check::{CheckError, check};
pub use run::{RunError, RunSummary, run};

use std::sync::Arc;

use futures_util::future::BoxFuture;

use weir_kube::LookupSpec;
use weir_runtime::{ClusterView, Engine, EngineError, Loader, LookupSource, LookupSubscription, Lookups};

/// Lookups in objects that never change.
#[derive(Debug)]
struct StaticLookups(Arc<dyn ClusterView>);

/// Objects that never change need no subscription.
#[derive(Debug)]
struct NoSubscription;

impl LookupSubscription for NoSubscription {}

impl LookupSource for StaticLookups {
    fn view(&self) -> Arc<dyn ClusterView> {
        self.0.clone()
    }

    fn follow(&self, _lookups: Vec<Arc<LookupSpec>>) -> BoxFuture<'static, Result<Lookups, String>> {
        Box::pin(std::future::ready(Ok(Box::new(NoSubscription) as Lookups)))
    }
}

/// Creates a loader for filters whose lookups never change. It compiles modules in this process, without the limits that
/// protect the daemon.
///
/// # Errors
/// This machine cannot run compiled modules.
pub fn loader(view: Arc<dyn ClusterView>) -> Result<Loader, EngineError> {
    Ok(Loader::new(Engine::new(None)?, None, Arc::new(StaticLookups(view)), Arc::default(), 1))
}
