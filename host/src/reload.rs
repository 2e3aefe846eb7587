//! Reloads the configuration: watches it, loads each changed filter, and swaps the filter set at once. After an error the
//! active set stays, or the last good one is activated if none is, and the log, a metric and `/filters` report the error.
//!
//! One task handles one change after another. [`changes`] says what a newer change makes of the attempt in progress.

mod absence;
mod changes;
pub(crate) mod file_copy;
mod held;
mod last_good;
mod metrics;
mod partial;
mod prepare;
mod rollback;
mod selection;
mod served_rules;
mod source;
#[cfg(test)]
mod tests;
mod trial;

use std::borrow::Cow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::watch;

pub use self::changes::LastTried;
use self::changes::{Changes, Effect};
use self::held::Held;
pub use self::last_good::LastGood;
use self::last_good::SourcedConfiguration;
pub use self::metrics::ReloadMetrics;
use self::partial::Refusal;
pub use self::prepare::{Unprepared, prepare};
use self::selection::{Selected, select};
use self::served_rules::ServedRules;
pub use self::source::{SourceState, watch_source};
use self::source::{read, read_first};
use self::trial::{LoadedSet, TakenBack, Trial};
use crate::admin::status::{FilterStatus, ReloadError, ReloadResult};
use crate::config::{ConfigSource, Configuration};
use crate::modules::Modules;
use crate::node_facts::NodeState;
use weir_runtime::{Filter, FilterSet, Loader, Serving};
use weir_spec::MatchRule;

/// The first pause before a retry. Some errors end without a change that Weir watches, such as a missing permission.
const RETRY: Duration = Duration::from_secs(2);
/// The longest pause between retries.
const MAX_RETRY: Duration = Duration::from_secs(60);
/// How long the first activation waits for the Node. It is there at once, from the API server or from disk, if either has it.
const NODE_READ: Duration = Duration::from_secs(1);

/// Keeps the active filter set equal to the configuration.
pub struct Reloader {
    /// The source of the configuration.
    pub source: ConfigSource,
    /// The configuration in a watched ConfigMap.
    pub state: watch::Receiver<SourceState>,
    /// What is known of this daemon's Node.
    pub node: watch::Receiver<NodeState>,
    /// Where modules come from.
    pub modules: Modules,
    /// Compiles and validates modules.
    pub loader: Loader,
    /// Publishes the filter set to the proxy.
    pub serving: watch::Sender<Serving>,
    /// Reports results on the admin port.
    pub status: Arc<FilterStatus>,
    /// Counts results.
    pub metrics: Arc<ReloadMetrics>,
    /// What the last attempt tried, and is trying.
    pub tried: LastTried,
    /// Keeps the configuration for a start without the API server or with an invalid one.
    pub last_good: Option<LastGood>,
}

/// What is kept between attempts: what is on disk, and the trial of the active set.
#[derive(Default)]
struct Kept {
    /// The last set that no trial has taken back. Its configuration is on disk.
    passed: Option<LoadedSet>,
    /// What holds while a configuration is refused.
    held: Held,
    rules: Option<ServedRules>,
    /// What the configuration's file contained when nobody was writing it.
    file: Option<SourceState>,
    /// The warnings of the last good configuration, while it stands in for a refused one.
    fallback_warnings: Vec<String>,
    /// Whether the active set is without filters that cannot be loaded.
    is_partial: bool,
    /// Whether nothing is active because no configuration has ever named a set.
    never_had: bool,
    trial: Option<Trial>,
    taken_back: Option<TakenBack>,
}

/// The result of an attempt.
enum AttemptResult {
    /// The configuration is active.
    Done,
    /// The configuration has not been read yet.
    Waiting,
    /// An error that a retry may fix.
    Failed,
    /// An error that only a change fixes: what was refused is not read and compiled again and again.
    Final,
}

/// The result of a valid configuration.
enum Activation {
    /// It is active. The set, unless the Node turns all filters off.
    Active(Option<LoadedSet>),
    /// Its filters for this node are not known yet.
    Waiting,
    /// A trial has taken it back.
    TakenBack(ReloadError),
}

impl Reloader {
    /// Runs until it is cancelled. Cancel-safe: the active filter set stays.
    pub async fn run(mut self) {
        let mut changes = Changes {
            source: self.source.clone(),
            files: self.modules.files.clone(),
            state: self.state.clone(),
            node: self.node.clone(),
        };
        self.follow(None);
        // Events begin before the first read: they show whether a file is being written.
        self.modules.files.begin().await;
        let mut pause = RETRY;
        let mut logged = Logged::default();
        let rules = match &self.last_good {
            Some(last_good) => Some(ServedRules::read(last_good.disk()).await),
            None => None,
        };
        let mut kept = Kept { rules, ..Kept::default() };
        self.node_is_read().await;
        loop {
            changes.begin();
            if let Effect::Off(turned_off) = changes.effect(&self.tried, &self.serving.subscribe()).await {
                self.turn_off(turned_off, &mut kept);
            }
            let (tried, serving) = (self.tried.clone(), self.serving.subscribe());
            let attempt = self.attempt(&mut logged, &mut kept);
            let (attempt, has_changed) = changes.during(attempt, &tried, &serving).await;
            let retry = match attempt {
                Some(AttemptResult::Failed) => {
                    let now = pause;
                    pause = (pause * 2).min(MAX_RETRY);
                    Some(now)
                }
                _ => {
                    pause = RETRY;
                    None
                }
            };
            if has_changed || self.wait(&mut changes, retry, &mut kept).await {
                pause = RETRY;
                logged.has_changed = true;
            }
        }
    }

    /// Waits until the Node is read, but not long: an annotation on it may turn all filters off.
    async fn node_is_read(&mut self) {
        let read = self.node.wait_for(|node| *node != NodeState::Pending);
        let _ = tokio::time::timeout(NODE_READ, read).await;
    }

    async fn attempt(&mut self, logged: &mut Logged, kept: &mut Kept) -> AttemptResult {
        let started = Instant::now();
        let state = match &self.source {
            ConfigSource::File(path) => {
                // Nobody sees half a file: while it is written, what was read of it last counts.
                let state = match &kept.file {
                    Some(_) => read(path, &self.modules.files).await,
                    None => read_first(path, &self.modules.files, self.last_good.as_ref()).await,
                };
                kept.file = state.or(kept.file.take());
                kept.file.clone().unwrap_or(SourceState::Pending)
            }
            ConfigSource::ConfigMap { .. } => self.state.borrow_and_update().clone(),
        };
        let source = self.source.to_string();
        // Filters that the Node turns on again wait for no load.
        self.hold_for_the_node(&source, kept, started);
        // Whether there is another one to fall back to.
        let mut has_other = true;
        let Refusal { mut errors, partial, may_pass } = match state {
            SourceState::Pending => return AttemptResult::Waiting,
            SourceState::Valid(configuration) if let Some(absence) = self.absence(&configuration, kept).await => {
                has_other = false;
                let held = self.hold(&source, kept, started).await;
                std::iter::once(absence).chain(held.err().unwrap_or_default()).collect::<Vec<_>>().into()
            }
            SourceState::Valid(configuration) => match self.activate(&source, &configuration, kept, started).await {
                Ok(Activation::Waiting) => return AttemptResult::Waiting,
                Ok(Activation::Active(set)) => {
                    kept.never_had = configuration.absent.is_some();
                    match set {
                        Some(set) if kept.trial.is_none() => self.keep(set, kept).await,
                        Some(_) => {}
                        None => kept.held.is_off(&configuration),
                    }
                    kept.fallback_warnings.clear();
                    *logged = Logged::default();
                    return AttemptResult::Done;
                }
                Ok(Activation::TakenBack(error)) => Refusal { errors: vec![error], partial: None, may_pass: false },
                Err(refusal) => {
                    kept.held.is_refused(&configuration);
                    self.retain_modules(Some(&configuration), kept).await;
                    has_other = !configuration.is_from_disk();
                    refusal
                }
            },
            SourceState::Invalid(error) => vec![whole(error.to_string())].into(),
            SourceState::Unreadable(reason) => vec![whole(reason.to_string())].into(),
        };
        if self.active().is_none() || kept.is_partial || kept.held.filters.is_none() {
            let fell_back = match has_other {
                true => self.fall_back_to_any(&source, kept, started).await,
                false => Err(Vec::new()),
            };
            if let Some(partial) = partial.filter(|_| fell_back.is_err()) {
                self.activate_partial(&source, partial, kept, started).await;
            }
            errors.extend(fell_back.err().unwrap_or_default());
        }
        self.hold_for_the_node(&source, kept, started);
        let is_final = !may_pass && self.active().is_some() && kept.held.filters.is_some();
        self.refuse(&source, errors, kept, logged);
        if is_final { AttemptResult::Final } else { AttemptResult::Failed }
    }

    /// Loads the filters of a configuration that are for this node, and activates them.
    async fn activate(
        &self,
        source: &str,
        configuration: &Arc<SourcedConfiguration>,
        kept: &mut Kept,
        started: Instant,
    ) -> Result<Activation, Refusal> {
        let before = self.active();
        let node = self.node.borrow().clone();
        let (here, left_out, is_off) = match select(configuration, &node)? {
            Selected::Filters(here, left_out) => (here, left_out, false),
            Selected::Off(none, left_out) => (Cow::Owned(none), left_out, true),
            Selected::Unknown => {
                if before.is_none() {
                    self.pend(configuration, &[]).await;
                }
                return Ok(Activation::Waiting);
            }
        };
        if !configuration.is_from_disk() {
            self.follow(Some(&here));
            // While all are off, all are tried: it is known which of them are removed meanwhile.
            self.tries(if is_off { configuration } else { &here }, configuration, kept);
        }
        if before.is_none() {
            self.pend(&here, &[]).await;
        }
        let mut reusable = before.as_deref().map(|set| set.filters().to_vec()).unwrap_or_default();
        // The filters of the last set that has passed return with all their traces.
        reusable.extend(kept.passed.iter().flat_map(|passed| passed.filters.iter().cloned()));
        reusable.extend(kept.held.filters.iter().flatten().cloned());
        let (filters, errors, may_pass) = self.load_all(&here, &reusable, configuration.is_from_disk()).await;
        if !errors.is_empty() {
            if before.is_none() {
                self.pend(&here, &filters).await;
            }
            return Err(Refusal::of(&here, filters, errors, may_pass));
        }
        let set = LoadedSet { configuration: configuration.clone(), filters };
        if let Some(taken_back) = kept.taken_back.as_ref().filter(|taken_back| taken_back.set.is_same(&set)) {
            return Ok(Activation::TakenBack(taken_back.error.clone()));
        }
        if !is_off {
            if !configuration.is_from_disk() {
                kept.taken_back = None;
            }
            self.begin_trial(&set, kept).await;
            kept.held = Held::of(&here, &set.filters, false);
        }
        if let Some(rules) = &mut kept.rules {
            rules.add(&set.filters).await;
        }
        let former = kept.rules.as_ref().map(ServedRules::former).unwrap_or_default();
        self.status.left_out(left_out);
        self.apply(source, &here, before.as_deref(), former, set.filters.clone(), started);
        kept.is_partial = false;
        Ok(Activation::Active((!is_off).then_some(set)))
    }

    /// The active filter set.
    fn active(&self) -> Option<Arc<FilterSet>> {
        self.serving.borrow().live().cloned()
    }

    /// Loads the filters of a configuration, in its order. Returns those that could be loaded, why others could not,
    /// and whether that may pass.
    async fn load_all(
        &self,
        configuration: &Configuration,
        active: &[Arc<Filter>],
        is_from_disk: bool,
    ) -> (Vec<Arc<Filter>>, Vec<ReloadError>, bool) {
        let (mut filters, mut errors, mut may_pass) = (Vec::new(), Vec::new(), false);
        for entry in &configuration.filters {
            self.status.loading(entry);
            // Only the newest configuration decides the effect of a change.
            self.tried.lock().begins((!is_from_disk).then_some(entry));
            let progress = |text| self.status.progress(entry, text);
            let waits = || {
                progress("it waits for the objects that it looks up".to_owned());
                self.tried.waits();
            };
            match prepare(&self.loader, entry, configuration, &self.modules, active, (progress, waits)).await {
                Ok(filter) => filters.push(filter),
                Err(Unprepared { reason, is_final }) => {
                    may_pass |= !is_final;
                    errors.push(ReloadError { filter: Some(entry.name.clone()), reason });
                }
            }
        }
        self.tried.lock().begins(None);
        (filters, errors, may_pass)
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
        self.loader.retain(&filters);
        // Order: the set is active before `/filters` shows it, and `/filters` shows it before the log reports it.
        if !unchanged {
            let set = match before {
                Some(before) => FilterSet::new(filters.clone()).succeeding(before),
                None => FilterSet::new(filters.clone()).after_restart(former),
            };
            self.serving.send_replace(Serving::Live(Arc::new(set)));
        }
        let plans = filters.iter().flat_map(|filter| filter.plan_warnings());
        let warnings: Vec<_> = configuration.warnings.iter().cloned().chain(plans).collect();
        let known = self.status.last_result().filter(|_| unchanged);
        let known = known.as_ref().map(ReloadResult::warnings).unwrap_or_default();
        self.status.live(&filters, ReloadResult::applied(source, &warnings));
        self.metrics.reload(if unchanged { "unchanged" } else { "applied" });
        // A switch of a filter that does not exist changes no filter.
        for warning in warnings.iter().filter(|warning| !known.contains(warning)) {
            tracing::warn!(source, "configuration warning: {warning}");
        }
        if unchanged {
            tracing::debug!(source, "filter set unchanged");
            return;
        }
        let removed = before.iter().flat_map(|before| before.filters()).map(|filter| filter.name().to_string());
        let removed: Vec<_> = removed.filter(|name| !names.contains(name)).collect();
        let removed = (!removed.is_empty()).then(|| removed.join(","));
        tracing::info!(source, filters = names.join(","), removed, took = ?started.elapsed(), "filter set activated");
    }

    /// Reports errors that the log does not have already.
    fn refuse(&self, source: &str, errors: Vec<ReloadError>, kept: &Kept, logged: &mut Logged) {
        let effect = match &*self.serving.borrow() {
            Serving::Live(_) if kept.is_partial => "only its other filters are active",
            Serving::Live(_) => "keeping the last valid filter set",
            Serving::Unknown | Serving::Pending(_) => "requests that a filter may match get 503",
        };
        self.metrics.reload("refused");
        // `/readyz` and `/filters` show the error before the log reports it.
        self.status.refused(ReloadResult::refused(source, errors.clone(), &kept.fallback_warnings));
        for error in errors.iter().filter(|error| !logged.errors.contains(error)) {
            let filter = error.filter.as_ref().map(tracing::field::display);
            tracing::error!(source, filter, reason = error.reason, "configuration refused, {effect}");
        }
        if logged.has_changed && errors.iter().all(|error| logged.errors.contains(error)) {
            tracing::warn!(
                source,
                "something has changed, and the configuration is refused for the same reasons as before"
            );
        }
        *logged = Logged { errors, has_changed: false };
    }
}

/// What the log has of refusals since the last set that was active. The same reasons, after a retry or a change that has not
/// mended them, are not logged again.
#[derive(Debug, Default)]
struct Logged {
    errors: Vec<ReloadError>,
    /// Whether something has changed since the last attempt.
    has_changed: bool,
}

/// An error of the configuration as a whole.
fn whole(reason: String) -> ReloadError {
    ReloadError { filter: None, reason }
}
