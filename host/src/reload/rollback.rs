//! Begins and ends the trials of new filter sets, keeps a set that has passed, and rolls back to it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use weir_runtime::Filter;

use super::changes::Changes;
use super::held::Held;
use super::last_good::SourcedConfiguration;
use super::trial::{LoadedSet, TakenBack, Trial, TrialEnd};
use super::{Kept, Reloader};
use crate::admin::status::{ReloadError, ReloadResult};
use crate::config::Configuration;

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
        kept.trial = match (&kept.passed, &self.last_good) {
            (Some(passed), _) => Trial::begin(set, &passed.filters),
            (None, Some(last_good)) => {
                let earlier = last_good.read("").await;
                let differs = earlier.is_some_and(|earlier| earlier.filters != set.configuration.filters);
                differs.then(|| Trial::begin(set, &[])).flatten()
            }
            (None, None) => None,
        };
    }

    /// Ends a trial: the set has passed, or the one before it becomes active again. Returns whether that is up to the next
    /// attempt.
    async fn end_trial(&self, end: TrialEnd, kept: &mut Kept) -> bool {
        let Some(Trial { set, .. }) = kept.trial.take() else { return false };
        let error = match end {
            TrialEnd::Passed => {
                tracing::info!(source = %self.source, "filter set has passed its trial");
                self.keep(set, kept).await;
                return false;
            }
            TrialEnd::Exceeded(error) => error,
        };
        let source = self.source.to_string();
        kept.taken_back = Some(TakenBack { set, error: error.clone() });
        kept.held = match &kept.passed {
            Some(passed) => Held::of(&passed.configuration, &passed.filters, false),
            // It is on disk, and has to be loaded.
            None => Held::default(),
        };
        self.hold_for_the_node(&source, kept, Instant::now());
        self.metrics.reload("taken_back");
        self.status.refused(ReloadResult::refused(&source, vec![error.clone()], &[]));
        let (filter, reason) = (error.filter.as_ref().map(tracing::field::display), error.reason);
        let next =
            if kept.passed.is_some() { "the one before it is active again" } else { "the one on disk is loaded" };
        tracing::error!(source, filter, reason, "filter set taken back, {next}");
        kept.passed.is_none()
    }

    /// The last good configuration of this source.
    pub(super) async fn last(&self, reason: &str) -> Option<SourcedConfiguration> {
        self.last_good.as_ref()?.read(reason).await
    }

    /// Activates what was never loaded, because the Node had it off, or else the last good configuration.
    ///
    /// # Errors
    /// As [`Reloader::fall_back`].
    pub(super) async fn fall_back_to_any(
        &self,
        source: &str,
        kept: &mut Kept,
        started: Instant,
    ) -> Result<(), Vec<ReloadError>> {
        let never_loaded = kept.held.never_loaded.clone();
        if never_loaded.is_some() && self.fall_back(never_loaded, source, kept, started).await.is_ok() {
            return Ok(());
        }
        let last = self.last("the configuration is refused").await.map(Arc::new);
        self.fall_back(last, source, kept, started).await
    }

    /// Activates the last good configuration.
    ///
    /// # Errors
    /// Why that fails; nothing if there is none.
    pub(super) async fn fall_back(
        &self,
        last: Option<Arc<SourcedConfiguration>>,
        source: &str,
        kept: &mut Kept,
        started: Instant,
    ) -> Result<(), Vec<ReloadError>> {
        let Some(configuration) = last else { return Err(Vec::new()) };
        let failed = match self.activate(source, &configuration, kept, started).await {
            Ok(_) => {
                kept.fallback_warnings.clone_from(&configuration.warnings);
                return Ok(());
            }
            Err(refusal) => refusal.errors,
        };
        let prefixed = |error: ReloadError| ReloadError {
            reason: format!("the last good configuration is refused, too: {}", error.reason),
            ..error
        };
        Err(failed.into_iter().map(prefixed).collect())
    }

    /// Keeps a set that has passed its trial, and its configuration on disk, unless it is there.
    pub(super) async fn keep(&self, set: LoadedSet, kept: &mut Kept) {
        let is_kept = kept
            .passed
            .as_ref()
            .is_some_and(|passed| passed.configuration == set.configuration && passed.is_same(&set));
        if let (Some(last_good), false) = (&self.last_good, is_kept) {
            last_good.keep(&set.configuration, &set.filters).await;
        }
        kept.passed = Some(set);
        if !is_kept {
            self.retain_modules(None, kept).await;
        }
    }

    /// Drops modules that neither the last set nor the one on disk, which may be an older one, has, nor this configuration.
    pub(super) async fn retain_modules(&self, configuration: Option<&Configuration>, kept: &Kept) {
        let on_disk = match &self.last_good {
            Some(last_good) => last_good.read("").await,
            None => None,
        };
        let passed = kept.passed.as_ref();
        let configurations = [configuration, passed.map(|set| &**set.configuration), on_disk.as_deref()];
        let filters = passed.map(|set| &*set.filters).unwrap_or_default();
        self.modules.retain(configurations.into_iter().flatten(), filters).await;
    }
}

impl Reloader {
    /// Waits for what calls for an attempt at once, which is true, or for the time of a retry. Ends trials meanwhile.
    pub(super) async fn wait(&self, changes: &mut Changes, retry: Option<Duration>, kept: &mut Kept) -> bool {
        let retry = async {
            match retry {
                Some(pause) => tokio::time::sleep(pause).await,
                None => std::future::pending().await,
            }
        };
        tokio::pin!(retry);
        loop {
            tokio::select! {
                () = changes.next() => return true,
                () = &mut retry => return false,
                end = trial_end(&mut kept.trial) => {
                    if self.end_trial(end, kept).await {
                        return true;
                    }
                }
            }
        }
    }
}

/// Resolves when the trial has ended; never without one. Cancel-safe.
async fn trial_end(trial: &mut Option<Trial>) -> TrialEnd {
    match trial {
        Some(trial) => trial.ended().await,
        None => std::future::pending().await,
    }
}
