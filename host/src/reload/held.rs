//! What holds while a configuration is refused: the filters that were loaded last, as far as the Node selects them. Its switch turns
//! them off and on again, whether or not the configuration can be read.

use std::sync::Arc;
use std::time::Instant;

use super::changes::without;
use super::last_good::SourcedConfiguration;
use super::selection::{all_off, still_selected};
use super::{Kept, Reloader};
use crate::config::Configuration;
use weir_runtime::{Filter, FilterSet};
use weir_spec::FilterName;

/// What was loaded last.
#[derive(Default)]
pub(super) struct Held {
    /// The filters of the active set, and those of them that the Node has turned off since; `None` before the first set.
    pub(super) filters: Option<Vec<Arc<Filter>>>,
    configuration: Configuration,
    /// Whether it is without filters that cannot be loaded.
    is_partial: bool,
    /// A configuration that was never loaded, because the Node has all filters off.
    pub(super) never_loaded: Option<Arc<SourcedConfiguration>>,
}

impl Held {
    /// Holds the filters of a set that becomes active.
    pub(super) fn of(configuration: &Configuration, filters: &[Arc<Filter>], is_partial: bool) -> Self {
        let mut configuration = configuration.clone();
        if !is_partial {
            configuration.warnings.clear();
        }
        Self { filters: Some(filters.to_vec()), configuration, is_partial, never_loaded: None }
    }

    /// Forgets filters that were removed.
    pub(super) fn forget(&mut self, names: &[FilterName]) {
        if let Some(filters) = &mut self.filters {
            *filters = without(filters, names);
        }
    }

    /// Notes a configuration whose filters are off.
    pub(super) fn is_off(&mut self, configuration: &SourcedConfiguration) {
        if self.filters.is_none() {
            self.never_loaded = Some(Arc::new(configuration.as_fallback()));
        }
    }

    /// Notes a configuration that cannot be loaded: there is nothing to fall back to in it.
    pub(super) fn is_refused(&mut self, configuration: &SourcedConfiguration) {
        drop(self.never_loaded.take_if(|never_loaded| ***never_loaded == **configuration));
    }
}

impl Reloader {
    /// Activates what of the held filters the Node selects now.
    pub(super) fn hold_for_the_node(&self, source: &str, kept: &mut Kept, started: Instant) {
        let (Some(filters), Some(before)) = (&kept.held.filters, self.active()) else { return };
        let node = self.node.borrow().clone();
        let (selected, left_out) = still_selected(filters, &node);
        kept.fallback_warnings.retain(|warning| *warning != all_off());
        if !filters.is_empty() && node.is_off() {
            kept.fallback_warnings.push(all_off());
        }
        if !is_same(&before, &selected) {
            kept.is_partial = kept.held.is_partial;
            if kept.is_partial {
                kept.fallback_warnings.extend(kept.held.configuration.warnings.iter().cloned());
            }
            self.status.left_out(left_out);
            self.apply(source, &kept.held.configuration, Some(&before), Arc::default(), selected, started);
        }
    }
}

/// Whether a set has exactly these filters.
pub(super) fn is_same(set: &FilterSet, filters: &[Arc<Filter>]) -> bool {
    set.filters().len() == filters.len()
        && set.filters().iter().zip(filters).all(|(one, other)| Arc::ptr_eq(one, other))
}
