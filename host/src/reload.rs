//! Reloads the configuration: watches it, loads each changed filter, and swaps the filter set at once. After an error the
//! active set stays, or the last good one is activated if none is, and the log, a metric and `/filters` report the error.
//!
//! One task handles one change after another. A newer change cancels the load in progress.

mod last_good;
mod metrics;
mod prepare;
mod served_rules;
mod source;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::watch;

pub use self::last_good::LastGood;
use self::last_good::SourcedConfiguration;
pub use self::metrics::ReloadMetrics;
pub use self::prepare::prepare;
use self::served_rules::ServedRules;
use self::source::read;
pub use self::source::{SourceState, watch_source};
use crate::admin::status::{FilterStatus, ReloadError, ReloadResult};
use crate::config::{ConfigSource, Configuration};
use crate::modules::Modules;
use weir_runtime::{Filter, FilterSet, Loader, MatchRule, Serving, ServingSender};
use weir_upstream::{DirectoryWatcher, WatchedFiles};

/// The first pause before a retry. Some errors end without a change that Weir watches, such as a missing permission.
const RETRY: Duration = Duration::from_secs(2);
/// The longest pause between retries.
const MAX_RETRY: Duration = Duration::from_secs(60);

/// Keeps the active filter set equal to the configuration.
pub struct Reloader {
    /// The source of the configuration.
    pub source: ConfigSource,
    /// The configuration in a watched ConfigMap.
    pub state: watch::Receiver<SourceState>,
    /// Where modules come from.
    pub modules: Modules,
    /// Compiles and validates modules.
    pub loader: Loader,
    /// Publishes the filter set to the proxy.
    pub serving: ServingSender,
    /// Reports results on the admin port.
    pub status: Arc<FilterStatus>,
    /// Counts results.
    pub metrics: Arc<ReloadMetrics>,
    /// Keeps the configuration for a start without the API server or with an invalid one.
    pub last_good: Option<LastGood>,
}

/// What is on disk.
struct Kept {
    configuration: Option<Arc<SourcedConfiguration>>,
    rules: Option<ServedRules>,
    /// The warnings of the last good configuration, while it stands in for a refused one.
    fallback_warnings: Vec<String>,
}

/// Changes of what a configuration is read from. What else is in the folder of a file, such as a log, does not count: it would
/// end each load before it is done.
struct Notices {
    files: WatchedFiles,
    modules: DirectoryWatcher,
}

/// The result of an attempt.
enum AttemptResult {
    /// The configuration is active.
    Done,
    /// The configuration has not been read yet.
    Waiting,
    /// An error that a retry may fix.
    Failed,
}

impl Notices {
    fn new(source: &ConfigSource, modules: &Modules) -> Self {
        let files = source.file().into_iter().chain(modules.files()).cloned().collect();
        let directories = modules.directory.iter().cloned().collect();
        Self { files: WatchedFiles::new(files), modules: DirectoryWatcher::new(directories) }
    }

    /// Resolves after a change. Cancel-safe.
    async fn changed(&mut self) {
        tokio::select! {
            () = self.files.changed() => {}
            () = self.modules.changed() => {}
        }
    }
}

impl Reloader {
    /// Runs until it is cancelled. Cancel-safe: the active filter set stays.
    pub async fn run(mut self) {
        let mut notices = Notices::new(&self.source, &self.modules);
        let mut pause = RETRY;
        // The errors that the log has already. A retry logs only other ones.
        let mut logged = Vec::new();
        let rules = match &self.last_good {
            Some(last_good) => Some(ServedRules::read(last_good.disk()).await),
            None => None,
        };
        let mut kept = Kept { configuration: None, rules, fallback_warnings: Vec::new() };
        loop {
            let mut state = self.state.clone();
            state.mark_unchanged();
            let attempt = tokio::select! {
                attempt = self.attempt(&mut logged, &mut kept) => Some(attempt),
                () = notices.changed() => None,
                Ok(()) = state.changed() => None,
            };
            let Some(attempt) = attempt else {
                logged.clear();
                continue;
            };
            let retry = match attempt {
                AttemptResult::Failed => {
                    let now = pause;
                    pause = (pause * 2).min(MAX_RETRY);
                    Some(now)
                }
                AttemptResult::Done | AttemptResult::Waiting => {
                    pause = RETRY;
                    None
                }
            };
            let retry = async {
                match retry {
                    Some(pause) => tokio::time::sleep(pause).await,
                    None => std::future::pending().await,
                }
            };
            let changed = tokio::select! {
                () = notices.changed() => true,
                Ok(()) = state.changed() => true,
                () = retry => false,
            };
            if changed {
                pause = RETRY;
                logged.clear();
            }
        }
    }

    async fn attempt(&mut self, logged: &mut Vec<ReloadError>, kept: &mut Kept) -> AttemptResult {
        let started = Instant::now();
        let state = match &self.source {
            ConfigSource::File(path) => read(path).await,
            ConfigSource::ConfigMap { .. } => self.state.borrow_and_update().clone(),
        };
        let source = self.source.to_string();
        let mut errors = match state {
            SourceState::Pending => return AttemptResult::Waiting,
            SourceState::Valid(configuration) => match self.activate(&source, &configuration, kept, started).await {
                Ok(()) => {
                    self.keep(&configuration, kept).await;
                    kept.fallback_warnings.clear();
                    return AttemptResult::Done;
                }
                // There is no other one to fall back to.
                Err(errors) if configuration.is_from_disk() => return self.refuse(&source, errors, kept, logged),
                Err(errors) => errors,
            },
            SourceState::Invalid(error) => vec![whole(error.to_string())],
            SourceState::Unreadable(reason) => vec![whole(reason.to_string())],
        };
        errors.extend(self.fall_back(&source, kept, started).await);
        self.refuse(&source, errors, kept, logged)
    }

    /// Loads the filters of a configuration and activates them.
    async fn activate(
        &self,
        source: &str,
        configuration: &Configuration,
        kept: &mut Kept,
        started: Instant,
    ) -> Result<(), Vec<ReloadError>> {
        let before = match &*self.serving.borrow() {
            Serving::Live(set) => Some(set.clone()),
            Serving::Unknown | Serving::Pending(_) => None,
        };
        if before.is_none() {
            self.serving.send_replace(Serving::Pending(known_rules(configuration)));
        }
        let active = before.as_deref().map(FilterSet::filters).unwrap_or_default();
        let filters = self.load_all(configuration, active).await?;
        if let Some(rules) = &mut kept.rules {
            rules.add(&filters).await;
        }
        let former = kept.rules.as_ref().map(ServedRules::former).unwrap_or_default();
        self.apply(source, configuration, before.as_deref(), former, filters, started);
        Ok(())
    }

    /// Activates the last good configuration if no filter set is active. Returns why that fails.
    async fn fall_back(&self, source: &str, kept: &mut Kept, started: Instant) -> Vec<ReloadError> {
        let is_live = matches!(&*self.serving.borrow(), Serving::Live(_));
        let Some(last_good) = self.last_good.as_ref().filter(|_| !is_live) else { return Vec::new() };
        let Some(configuration) = last_good.read("the configuration is refused").await else { return Vec::new() };
        let failed = match self.activate(source, &configuration, kept, started).await {
            Ok(()) => {
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

    /// Keeps an active configuration on disk, unless it is there.
    async fn keep(&self, active: &Arc<SourcedConfiguration>, kept: &mut Kept) {
        if kept.configuration.as_ref() == Some(active) {
            return;
        }
        let mut on_disk = None;
        if let Some(last_good) = &self.last_good {
            last_good.keep(active).await;
            // If that failed, it is an older one, whose modules must stay.
            on_disk = last_good.read("").await;
        }
        self.modules.retain(std::iter::once(&***active).chain(on_disk.as_deref())).await;
        kept.configuration = Some(active.clone());
    }

    /// Loads the filters of a configuration, in its order.
    async fn load_all(
        &self,
        configuration: &Configuration,
        active: &[Arc<Filter>],
    ) -> Result<Vec<Arc<Filter>>, Vec<ReloadError>> {
        let (mut filters, mut errors) = (Vec::new(), Vec::new());
        for entry in &configuration.filters {
            self.status.loading(entry);
            let progress = |text| self.status.progress(entry, text);
            match prepare(&self.loader, entry, configuration, &self.modules, active, progress).await {
                Ok(filter) => filters.push(filter),
                Err(reason) => errors.push(ReloadError { filter: Some(entry.name.clone()), reason }),
            }
        }
        if errors.is_empty() { Ok(filters) } else { Err(errors) }
    }

    /// Activates a complete filter set.
    fn apply(
        &self,
        source: &str,
        configuration: &Configuration,
        before: Option<&FilterSet>,
        former: Arc<[MatchRule]>,
        filters: Vec<Arc<Filter>>,
        started: Instant,
    ) {
        let unchanged = before.is_some_and(|before| {
            before.filters().len() == filters.len()
                && before.filters().iter().zip(&filters).all(|(old, new)| Arc::ptr_eq(old, new))
        });
        let names: Vec<_> = filters.iter().map(|filter| filter.name().to_string()).collect();
        self.loader.retain(|digest| filters.iter().any(|filter| filter.digest() == digest));
        // Order: the set is active before `/filters` shows it, and `/filters` shows it before the log reports it.
        if !unchanged {
            let set = match before {
                Some(before) => FilterSet::succeeding(before, filters.clone()),
                None => FilterSet::new(filters.clone()).after_restart(former),
            };
            self.serving.send_replace(Serving::Live(Arc::new(set)));
        }
        let plans = filters.iter().flat_map(|filter| filter.plan_warnings());
        let warnings: Vec<_> = configuration.warnings.iter().cloned().chain(plans).collect();
        self.status.live(&filters, ReloadResult::applied(source, &warnings));
        self.metrics.reload(if unchanged { "unchanged" } else { "applied" });
        if unchanged {
            tracing::debug!(source, "filter set unchanged");
            return;
        }
        for warning in &warnings {
            tracing::warn!(source, "configuration warning: {warning}");
        }
        tracing::info!(source, filters = names.join(","), took = ?started.elapsed(), "filter set activated");
    }

    /// Reports errors. `logged` are the errors that the log has already.
    fn refuse(
        &self,
        source: &str,
        errors: Vec<ReloadError>,
        kept: &Kept,
        logged: &mut Vec<ReloadError>,
    ) -> AttemptResult {
        let effect = match &*self.serving.borrow() {
            Serving::Live(_) => "keeping the last valid filter set",
            Serving::Unknown | Serving::Pending(_) => "requests that a filter may match get 503",
        };
        self.metrics.reload("refused");
        // `/readyz` and `/filters` show the error before the log reports it.
        self.status.refused(ReloadResult::refused(source, errors.clone(), &kept.fallback_warnings));
        for error in errors.iter().filter(|error| !logged.contains(error)) {
            let filter = error.filter.as_ref().map(tracing::field::display);
            tracing::error!(source, filter, reason = error.reason, "configuration refused, {effect}");
        }
        *logged = errors;
        AttemptResult::Failed
    }
}

/// An error of the configuration as a whole.
fn whole(reason: String) -> ReloadError {
    ReloadError { filter: None, reason }
}

/// The match rules, if all are known before a module is loaded.
fn known_rules(configuration: &Configuration) -> Option<Arc<[MatchRule]>> {
    let rules: Option<Vec<_>> = configuration.filters.iter().map(|entry| entry.matches.clone()).collect();
    rules.map(|rules| rules.into_iter().flatten().collect())
}
