//! A configuration that names no set of filters: the ConfigMap does not exist, its keys are gone, or `filters.yaml` has no list. It
//! turns no filter off: a node that has had a set keeps it, across restarts too, and reports the configuration as refused. A node
//! that has never had one has none.

use std::sync::Arc;
use std::time::Instant;

use super::last_good::SourcedConfiguration;
use super::{Kept, Reloader, whole};
use crate::admin::status::ReloadError;
use crate::config::OFF;

impl Reloader {
    /// Returns why a configuration is refused that names no set, if this node has had one.
    pub(super) async fn absence(&self, configuration: &SourcedConfiguration, kept: &Kept) -> Option<ReloadError> {
        let reason = configuration.absent.as_ref()?;
        let has_had = match self.active() {
            Some(_) if !kept.never_had => true,
            _ => self.last_of_any("").await.is_some(),
        };
        has_had.then(|| whole(format!("{reason}; {OFF}")))
    }

    /// Activates the set that holds, for the Node as it is: it may select other filters now, or turn all off.
    ///
    /// # Errors
    /// Why that fails; nothing if there is none.
    pub(super) async fn hold(&self, source: &str, kept: &mut Kept, started: Instant) -> Result<(), Vec<ReloadError>> {
        let last = match &kept.passed {
            Some(passed) if !kept.never_had => Some(passed.configuration.clone()),
            None if kept.held.never_loaded.is_some() => kept.held.never_loaded.clone(),
            _ => self.last_of_any("the configuration names no set of filters").await.map(Arc::new),
        };
        let held = self.fall_back(last, source, kept, started).await;
        if held.is_ok() {
            self.status.held();
        }
        kept.never_had &= held.is_err();
        held
    }

    /// The last good configuration of this source or, without one, of any.
    pub(super) async fn last_of_any(&self, reason: &str) -> Option<SourcedConfiguration> {
        self.last_good.as_ref()?.read_of_any(reason).await
    }
}
