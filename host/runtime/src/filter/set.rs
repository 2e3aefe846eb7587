//! The immutable set of filters that one configuration made. A set is built aside, proven, and swapped in whole.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use weir_kube::{GroupResource, VerbClass};

use super::chain::{Chain, DocumentFilter};
use super::filter::Filter;

/// Chains remembered by (component, resource, class); past it they are put together anew each time.
const CHAINS: usize = 1024;

/// All filters of one configuration, in order.
#[derive(Debug, Default)]
pub struct FilterSet {
    loaded: Vec<Arc<Filter>>,
    filters: Vec<Arc<dyn DocumentFilter>>,
    chains: Mutex<HashMap<(String, GroupResource, VerbClass), Option<Chain>>>,
}

impl FilterSet {
    /// A set of filters that were all proven.
    #[must_use]
    pub fn new(loaded: Vec<Arc<Filter>>) -> Self {
        let filters = loaded.iter().map(|filter| filter.clone() as Arc<dyn DocumentFilter>).collect();
        Self { loaded, filters, chains: Mutex::default() }
    }

    /// A set of filters that are no loaded modules.
    #[must_use]
    pub fn of(filters: Vec<Arc<dyn DocumentFilter>>) -> Self {
        Self { loaded: Vec::new(), filters, chains: Mutex::default() }
    }

    /// The loaded modules among its filters, in configured order.
    #[must_use]
    pub fn filters(&self) -> &[Arc<Filter>] {
        &self.loaded
    }

    /// The chain for one component's requests of a class for a resource; none: nothing matches, pass it through.
    /// `component` is compared without regard to case.
    #[must_use]
    pub fn chain(&self, component: &str, resource: &GroupResource, class: VerbClass) -> Option<Chain> {
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
