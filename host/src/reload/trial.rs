//! The trial of a new filter set: its first time, in which the bounds of `rollback` hold. If a filter exceeds one, the set before it is
//! active again, and the configuration is refused until it or one of its modules changes.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::select_all;
use tokio::sync::watch;
use tokio::time::Instant;
use weir_runtime::Filter;
use weir_spec::{Digest, FilterName};

use super::last_good::SourcedConfiguration;
use crate::admin::status::ReloadError;

/// A filter set on trial.
pub(super) struct Trial {
    /// The filters on trial, and why one of them is to be taken back.
    filters: Vec<(FilterName, watch::Receiver<Option<Arc<str>>>)>,
    until: Instant,
    /// What is on trial.
    pub(super) set: LoadedSet,
}

/// A configuration with its loaded filters.
#[derive(Clone)]
pub(super) struct LoadedSet {
    pub(super) configuration: Arc<SourcedConfiguration>,
    pub(super) filters: Vec<Arc<Filter>>,
}

impl LoadedSet {
    /// Whether both have the same filters with the same modules.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        let modules = |set: &Self| -> Vec<(FilterName, Digest)> {
            set.filters.iter().map(|filter| (filter.entry().name.clone(), *filter.digest())).collect()
        };
        self.configuration.filters == other.configuration.filters && modules(self) == modules(other)
    }
}

/// How a trial ends.
pub(super) enum TrialEnd {
    /// No bound was exceeded.
    Passed,
    /// A filter has exceeded a bound.
    Exceeded(ReloadError),
}

/// A set that was taken back.
pub(super) struct TakenBack {
    pub(super) set: LoadedSet,
    /// Why.
    pub(super) error: ReloadError,
}

impl Trial {
    /// Begins the trial of a set that is about to become active; `None` if none of its filters is new and has bounds. `proven` is
    /// the set before it that has proved itself.
    pub(super) fn begin(set: &LoadedSet, proven: &[Arc<Filter>]) -> Option<Self> {
        let is_new = |filter: &&Arc<Filter>| proven.iter().all(|before| !Arc::ptr_eq(before, filter));
        let mut filters = Vec::new();
        let mut longest = Duration::ZERO;
        for filter in set.filters.iter().filter(is_new) {
            let before = proven.iter().find(|before| before.name() == filter.name());
            if let Some(exceeded) = filter.begin_trial(before.map(|before| &**before)) {
                filters.push((filter.entry().name.clone(), exceeded));
                longest = longest.max(filter.entry().rollback.map_or(Duration::ZERO, |bounds| bounds.within));
            }
        }
        (!filters.is_empty()).then(|| Self { filters, until: Instant::now() + longest, set: set.clone() })
    }

    /// Resolves when the trial has ended. Cancel-safe.
    pub(super) async fn ended(&mut self) -> TrialEnd {
        let exceeded = self.filters.iter_mut().map(|(name, exceeded)| {
            Box::pin(async move {
                let reason = exceeded.wait_for(Option::is_some).await.map(|reason| reason.clone());
                match reason {
                    Ok(reason) => (name.clone(), reason),
                    // The filter is gone, and with it its trial.
                    Err(_) => std::future::pending().await,
                }
            })
        });
        tokio::select! {
            ((name, reason), ..) = select_all(exceeded) => TrialEnd::Exceeded(ReloadError {
                filter: Some(name),
                reason: format!("taken back: {}", reason.as_deref().unwrap_or_default()),
            }),
            () = tokio::time::sleep_until(self.until) => TrialEnd::Passed,
        }
    }
}
