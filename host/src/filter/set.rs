//! The immutable set of filters that one configuration made. A set is built aside, proven, and swapped in whole.

use std::sync::Arc;

use super::chain::Chain;
use crate::config::{Class, MatchRule};
use crate::resource::GroupResource;

/// One filter in force.
#[derive(Debug)]
pub struct Filter {
    /// As configured.
    pub name: Arc<str>,
    /// From the configuration, else from the module's plan.
    pub matches: Vec<MatchRule>,
}

/// All filters of one configuration, in order.
#[derive(Debug, Default)]
pub struct FilterSet {
    filters: Vec<Arc<Filter>>,
}

impl FilterSet {
    /// The chain for one component's requests of a class for a resource; none: nothing matches, pass it through.
    /// `component` is compared without regard to case.
    #[must_use]
    pub fn chain(&self, component: &str, resource: &GroupResource, class: Class) -> Option<Chain> {
        let filters: Vec<_> = self
            .filters
            .iter()
            .filter(|filter| filter.matches.iter().any(|rule| rule.matches(component, resource, class)))
            .cloned()
            .collect();
        (!filters.is_empty()).then(|| Chain::new(filters.into()))
    }
}
