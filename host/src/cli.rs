//! What filter authors and operators run by hand: `weir run` shows what one filter does to objects from files,
//! `weir check` proves a configuration with its modules. Neither needs a cluster.

mod check;
mod run;

pub use check::{CheckError, check};
pub use run::{Ran, RunError, run};

use std::sync::Arc;

use futures_util::future::BoxFuture;

use weir_kube::Lookup;
use weir_runtime::{ClusterView, Engine, EngineError, Loader, LookupSource, LookupSubscription, Lookups};

/// Lookups that never change need nothing to keep them up to date.
#[derive(Debug)]
struct Fixed;

impl LookupSubscription for Fixed {}

/// Lookups answered from a cluster that does not change.
#[derive(Debug)]
struct Still(Arc<dyn ClusterView>);

impl LookupSource for Still {
    fn view(&self) -> Arc<dyn ClusterView> {
        self.0.clone()
    }

    fn follow(&self, _lookups: Vec<Arc<Lookup>>) -> BoxFuture<'static, Result<Lookups, String>> {
        Box::pin(std::future::ready(Ok(Box::new(Fixed) as Lookups)))
    }
}

/// A loader whose filters see a fixed world. It compiles in this process: the author waits for his own module, there is
/// no daemon to protect.
///
/// # Errors
/// When this machine can't run compiled modules.
pub fn loader(view: Arc<dyn ClusterView>) -> Result<Loader, EngineError> {
    Ok(Loader::new(Engine::new(None)?, None, Arc::new(Still(view)), Arc::default(), 1))
}
