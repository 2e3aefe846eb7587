//! The immutable set of filters that one configuration made. A set is built aside, proven, and swapped in whole.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use super::chain::Chain;
use super::filter::Filter;
use crate::config::Class;
use crate::resource::GroupResource;

/// Chains remembered by (component, resource, class); past it they are put together anew each time.
const CHAINS: usize = 1024;

/// All filters of one configuration, in order.
#[derive(Debug, Default)]
pub struct FilterSet {
    filters: Vec<Arc<Filter>>,
    chains: Mutex<HashMap<(String, GroupResource, Class), Option<Chain>>>,
    #[cfg(test)]
    scripts: Vec<(crate::config::MatchRule, super::script::Script)>,
}

impl FilterSet {
    /// A set of filters that were all proven.
    #[must_use]
    pub fn new(filters: Vec<Arc<Filter>>) -> Self {
        Self {
            filters,
            chains: Mutex::default(),
            #[cfg(test)]
            scripts: Vec::new(),
        }
    }

    /// A set whose only filter is a function.
    #[cfg(test)]
    pub(crate) fn scripted(rule: &str, script: super::script::Script) -> Arc<Self> {
        Arc::new(Self { scripts: vec![(rule.parse().unwrap(), script)], ..Self::default() })
    }

    /// The filters, in configured order.
    #[must_use]
    pub fn filters(&self) -> &[Arc<Filter>] {
        &self.filters
    }

    /// The chain for one component's requests of a class for a resource; none: nothing matches, pass it through.
    /// `component` is compared without regard to case.
    #[must_use]
    pub fn chain(&self, component: &str, resource: &GroupResource, class: Class) -> Option<Chain> {
        #[cfg(test)]
        if let Some((_, script)) = self.scripts.iter().find(|(rule, _)| rule.matches(component, resource, class)) {
            return Some(Chain::scripted(script.clone()));
        }
        let key = (component.to_ascii_lowercase(), resource.clone(), class);
        let mut chains = self.chains.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(chain) = chains.get(&key) {
            return chain.clone();
        }
        let matching = self.filters.iter().filter(|filter| filter.matches(component, resource, class));
        let filters: Vec<_> = matching.cloned().collect();
        let chain = (!filters.is_empty()).then(|| Chain::new(filters.into(), resource));
        if chains.len() < CHAINS {
            chains.insert(key, chain.clone());
        }
        chain
    }
}
