//! A filter set without filters that cannot be loaded and have `failurePolicy: Ignore`, for a node that has nothing better: no set
//! is active, and there is no last good one.

use std::sync::Arc;
use std::time::Instant;

use super::held::{Held, is_same};
use super::served_rules::ServedRules;
use super::{Kept, Reloader};
use crate::admin::status::ReloadError;
use crate::config::Configuration;
use weir_runtime::{Filter, Serving};
use weir_spec::{FailurePolicy, MatchRule};

/// Why a configuration is refused.
pub(super) struct Refusal {
    pub(super) errors: Vec<ReloadError>,
    /// What of it could be active all the same.
    pub(super) partial: Option<PartialSet>,
    /// Whether the errors may pass without a change.
    pub(super) may_pass: bool,
}

/// The filters that could be loaded.
pub(super) struct PartialSet {
    configuration: Configuration,
    filters: Vec<Arc<Filter>>,
}

impl Refusal {
    /// The refusal of a configuration whose other filters, these, were loaded.
    pub(super) fn of(
        configuration: &Configuration,
        filters: Vec<Arc<Filter>>,
        errors: Vec<ReloadError>,
        may_pass: bool,
    ) -> Self {
        let may_be_absent = |error: &ReloadError| {
            let mut entries = configuration.filters.iter().filter(|entry| Some(&entry.name) == error.filter.as_ref());
            entries.any(|entry| entry.failure_policy == FailurePolicy::Ignore)
        };
        let partial = errors.iter().all(may_be_absent);
        let partial = partial.then(|| PartialSet { configuration: configuration.clone(), filters });
        Self { errors, partial, may_pass }
    }
}

impl From<Vec<ReloadError>> for Refusal {
    fn from(errors: Vec<ReloadError>) -> Self {
        Self { errors, partial: None, may_pass: true }
    }
}

impl Reloader {
    /// Activates what could be loaded. It is no set to fall back to.
    pub(super) async fn activate_partial(&self, source: &str, partial: PartialSet, kept: &mut Kept, started: Instant) {
        let PartialSet { mut configuration, filters } = partial;
        let before = self.active();
        if kept.is_partial && before.as_ref().is_some_and(|before| is_same(before, &filters)) {
            return;
        }
        let absent = configuration.filters.iter().filter(|entry| filters.iter().all(|filter| filter.entry() != *entry));
        let warnings = absent.map(|entry| {
            format!("filter {} is not active: it cannot be loaded, and its failurePolicy is Ignore", entry.name)
        });
        configuration.warnings.extend(warnings.collect::<Vec<_>>());
        if let Some(rules) = &mut kept.rules {
            rules.add(&filters).await;
        }
        let former = kept.rules.as_ref().map(ServedRules::former).unwrap_or_default();
        kept.held = Held::of(&configuration, &filters, true);
        self.apply(source, &configuration, before.as_deref(), former, filters, started);
        kept.is_partial = true;
        kept.fallback_warnings = configuration.warnings;
    }

    /// Notes what requests wait for while nothing is active: the match rules, as far as no request can match others.
    pub(super) async fn pend(&self, configuration: &Configuration, loaded: &[Arc<Filter>]) {
        let mut rules = Some(Vec::new());
        for entry in &configuration.filters {
            let of_filter: Option<&[MatchRule]> = match (&entry.matches, configuration.kept.get(&entry.name)) {
                (Some(rules), _) => Some(rules),
                // Only with the module that has them.
                (None, Some(kept)) if self.modules.kept(entry, configuration).await.is_some() => Some(&kept.rules),
                (None, _) => loaded.iter().find(|filter| filter.entry() == entry).map(|filter| filter.rules()),
            };
            rules = rules.zip(of_filter).map(|(rules, of_filter)| [&rules, of_filter].concat());
        }
        self.serving.send_replace(Serving::Pending(rules.map(Into::into)));
    }
}
