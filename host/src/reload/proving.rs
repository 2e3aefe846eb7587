//! Proves new filter sets: begins and ends their trials, keeps what has proved itself, and falls back to it.

use std::sync::Arc;
use std::time::Instant;

use weir_runtime::Filter;

use super::selection::still_selected;
use super::trial::{LoadedSet, TakenBack, Trial, TrialEnd};
use super::{Kept, Reloader};
use crate::admin::status::{ReloadError, ReloadResult};

impl Reloader {
    /// Begins the trial of a set, unless there is none before it that could be active again.
    pub(super) async fn begin_trial(&self, set: &LoadedSet, kept: &mut Kept) {
        let same = |one: &[Arc<Filter>], other: &[Arc<Filter>]| {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| Arc::ptr_eq(one, other))
        };
        if kept.trial.as_ref().is_some_and(|trial| same(&trial.set.filters, &set.filters)) {
            return;
        }
        kept.trial = None;
        if set.configuration.is_from_disk() {
            return;
        }
        kept.trial = match (&kept.proven, &self.last_good) {
            (Some(proven), _) => Trial::begin(set, &proven.filters),
            (None, Some(last_good)) => {
                let earlier = last_good.read("").await;
                let differs = earlier.is_some_and(|earlier| earlier.filters != set.configuration.filters);
                differs.then(|| Trial::begin(set, &[])).flatten()
            }
            (None, None) => None,
        };
    }

    /// Ends a trial: the set has proved itself, or the one before it becomes active again.
    pub(super) async fn end_trial(&self, end: TrialEnd, kept: &mut Kept) {
        let Some(Trial { set, .. }) = kept.trial.take() else { return };
        let error = match end {
            TrialEnd::Passed => {
                tracing::info!(source = %self.source, "filter set has passed its trial");
                return self.keep(set, kept).await;
            }
            TrialEnd::Exceeded(error) => error,
        };
        let (source, started) = (self.source.to_string(), Instant::now());
        kept.taken_back = Some(TakenBack { set, error: error.clone() });
        let mut errors = vec![error.clone()];
        match kept.proven.clone() {
            Some(proven) => {
                let filters = still_selected(&proven.filters, &self.node.borrow());
                let (before, former) = (self.active(), Arc::default());
                self.apply(&source, &proven.configuration, before.as_deref(), former, filters, started);
            }
            None => errors.extend(self.fall_back("the filter set was taken back", &source, kept, started).await),
        }
        self.metrics.reload("taken_back");
        self.status.refused(ReloadResult::refused(&source, errors, &[]));
        let (filter, reason) = (error.filter.as_ref().map(tracing::field::display), error.reason);
        tracing::error!(source, filter, reason, "filter set taken back, the one before it is active again");
    }

    /// Activates the last good configuration. Returns why that fails.
    pub(super) async fn fall_back(
        &self,
        reason: &str,
        source: &str,
        kept: &mut Kept,
        started: Instant,
    ) -> Vec<ReloadError> {
        let Some(last_good) = &self.last_good else { return Vec::new() };
        let Some(configuration) = last_good.read(reason).await else { return Vec::new() };
        let configuration = Arc::new(configuration);
        let failed = match self.activate(source, &configuration, kept, started).await {
            Ok(_) => {
                kept.fallback_warnings.clone_from(&configuration.warnings);
                return Vec::new();
            }
            Err(failed) => failed,
        };
        let prefixed = |error: ReloadError| ReloadError {
            reason: format!("the last good configuration is refused, too: {}", error.reason),
            ..error
        };
        failed.into_iter().map(prefixed).collect()
    }

    /// Keeps a set that has proved itself, and its configuration on disk, unless it is there.
    pub(super) async fn keep(&self, set: LoadedSet, kept: &mut Kept) {
        let active = set.configuration.clone();
        let is_kept = kept.proven.as_ref().is_some_and(|proven| proven.configuration == active);
        kept.proven = Some(set);
        if is_kept {
            return;
        }
        let mut on_disk = None;
        if let Some(last_good) = &self.last_good {
            last_good.keep(&active).await;
            // If that failed, it is an older one, whose modules must stay.
            on_disk = last_good.read("").await;
        }
        self.modules.retain(std::iter::once(&**active).chain(on_disk.as_deref())).await;
    }
}

/// Resolves when the trial has ended; never without one. Cancel-safe.
pub(super) async fn trial_end(trial: &mut Option<Trial>) -> TrialEnd {
    match trial {
        Some(trial) => trial.ended().await,
        None => std::future::pending().await,
    }
}
