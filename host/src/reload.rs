//! The life of a change: noticed → coalesced → read → each filter loaded or kept → one swap. Anything that fails on the
//! way leaves in force what was, and is told on the log, in a metric and on `/filters`.
//!
//! One task does it all, one change after another; a newer notice ends an attempt that is under way.

mod metrics;
mod prove;
mod source;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::watch;

pub use self::metrics::ReloadMetrics;
pub use self::prove::prove;
use self::source::read;
pub use self::source::{Found, Place};
use crate::admin::status::{Reloaded, StatusBoard, Trouble};
use crate::config::Configuration;
use weir_runtime::{FilterSet, Loader, MatchRule, Serving, ServingSender};
use weir_upstream::Notices;

/// After a failure that nothing on our side may mend (a missing permission, a module not there yet) the next try.
const RETRY: Duration = Duration::from_secs(2);
/// The longest pause between tries.
const RETRY_MOST: Duration = Duration::from_secs(60);

/// Keeps the set of filters in force what the configuration says.
pub struct Reloader {
    /// Where the configuration is.
    pub place: Place,
    /// The configuration as followed through the API.
    pub found: watch::Receiver<Found>,
    /// Where modules are dropped.
    pub modules: Option<PathBuf>,
    /// Proves filters.
    pub loader: Loader,
    /// Where the set goes.
    pub serving: ServingSender,
    /// Where results are shown.
    pub board: Arc<StatusBoard>,
    /// Where results are counted.
    pub metrics: Arc<ReloadMetrics>,
}

/// How an attempt ended.
enum End {
    /// The set is in force, new or as it was.
    Done,
    /// There is no configuration to apply yet.
    Waiting,
    /// Something failed; trying again may help.
    Failed,
}

impl Reloader {
    /// Runs until the daemon stops. Dropping it at any point leaves what is in force.
    pub async fn run(mut self) {
        let directories = self.modules.iter().cloned().chain(self.place.directory()).collect();
        let mut notices = Notices::new(directories);
        let mut pause = RETRY;
        loop {
            let mut found = self.found.clone();
            found.mark_unchanged();
            let end = tokio::select! {
                end = self.attempt() => Some(end),
                () = notices.next() => None,
                Ok(()) = found.changed() => None,
            };
            let retry = match end {
                None => continue,
                Some(End::Failed) => {
                    let now = pause;
                    pause = (pause * 2).min(RETRY_MOST);
                    Some(now)
                }
                Some(End::Done | End::Waiting) => {
                    pause = RETRY;
                    None
                }
            };
            let again = async {
                match retry {
                    Some(pause) => tokio::time::sleep(pause).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = notices.next() => pause = RETRY,
                Ok(()) = found.changed() => pause = RETRY,
                () = again => {}
            }
        }
    }

    async fn attempt(&mut self) -> End {
        let began = Instant::now();
        let found = match &self.place {
            Place::File(path) => read(path).await,
            Place::ConfigMap { .. } => self.found.borrow_and_update().clone(),
        };
        let source = self.place.name();
        let configuration = match found {
            Found::Nothing => return End::Waiting,
            Found::Valid(configuration) => configuration,
            Found::Invalid(error) => {
                return self.refuse(&source, vec![Trouble { filter: None, reason: error.to_string() }]);
            }
            Found::Unreadable(reason) => {
                return self.refuse(&source, vec![Trouble { filter: None, reason: reason.to_string() }]);
            }
        };
        let before = match &*self.serving.borrow() {
            Serving::Live(set) => Some(set.clone()),
            Serving::Unknown | Serving::Pending(_) => None,
        };
        if before.is_none() {
            self.serving.send_replace(Serving::Pending(known_rules(&configuration)));
        }
        let (mut filters, mut troubles) = (Vec::new(), Vec::new());
        for entry in &configuration.filters {
            self.board.loading(entry);
            let in_force = before.as_deref().map(FilterSet::filters).unwrap_or_default();
            match prove(&self.loader, entry, &configuration, self.modules.as_deref(), in_force).await {
                Ok(filter) => filters.push(filter),
                Err(reason) => troubles.push(Trouble { filter: Some(entry.name.clone()), reason }),
            }
        }
        if !troubles.is_empty() {
            return self.refuse(&source, troubles);
        }
        let same = before.as_deref().is_some_and(|before| {
            before.filters().len() == filters.len()
                && before.filters().iter().zip(&filters).all(|(old, new)| Arc::ptr_eq(old, new))
        });
        let names: Vec<_> = filters.iter().map(|filter| filter.name().to_string()).collect();
        self.loader.retain(|digest| filters.iter().any(|filter| filter.digest() == digest));
        // In force, then shown, then told: who sees the one may rely on the one before.
        if !same {
            let set = match before.as_deref() {
                Some(before) => FilterSet::succeeding(before, filters.clone()),
                None => FilterSet::new(filters.clone()),
            };
            self.serving.send_replace(Serving::Live(Arc::new(set)));
        }
        self.board.live(&filters, Reloaded::applied(&source, &configuration.warnings));
        self.metrics.reload(if same { "unchanged" } else { "applied" });
        if same {
            tracing::debug!(source, "the filters are unchanged");
            return End::Done;
        }
        for warning in &configuration.warnings {
            tracing::warn!(source, "{warning}");
        }
        tracing::info!(source, filters = names.join(","), took = ?began.elapsed(), "a new set of filters is in force");
        End::Done
    }

    fn refuse(&self, source: &str, troubles: Vec<Trouble>) -> End {
        let kept = match &*self.serving.borrow() {
            Serving::Live(_) => "the last good set stays in force",
            Serving::Unknown | Serving::Pending(_) => "not ready: what may be filtered is not served",
        };
        self.metrics.reload("refused");
        // Shown before it is told: who reads the log line may ask `/readyz` or `/filters` at once.
        self.board.refused(Reloaded::refused(source, troubles.clone()));
        for trouble in &troubles {
            let filter = trouble.filter.as_ref().map(ToString::to_string).unwrap_or_default();
            tracing::error!(source, filter, "configuration refused, {kept}: {}", trouble.reason);
        }
        End::Failed
    }
}

/// The match rules, if all of them are known without loading a module.
fn known_rules(configuration: &Configuration) -> Option<Arc<[MatchRule]>> {
    let rules: Option<Vec<_>> = configuration.filters.iter().map(|entry| entry.matches.clone()).collect();
    rules.map(|rules| rules.into_iter().flatten().collect())
}
