//! The immutable set of filters that one configuration made. It is built aside, validated, and swapped in whole.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use super::chain::{Chain, DocumentFilter};
use super::filter::Filter;
use super::version::tick;
use weir_kube::GroupResource;
use weir_kube::VerbClass;

/// Chains remembered by (component, resource, class); further ones are put together for each request.
const CHAINS: usize = 1024;

/// All filters of one configuration, in order.
#[derive(Debug)]
pub struct FilterSet {
    filters: Vec<Arc<Filter>>,
    links: Vec<Arc<dyn DocumentFilter>>,
    made: u64,
    chains: Mutex<Chains>,
}

#[derive(Debug, Default)]
struct Chains {
    by_request: HashMap<(String, GroupResource, VerbClass), Option<Chain>>,
    /// When chains of these filters, by their identities, were made first.
    made: HashMap<Box<[u64]>, u64>,
}

impl Default for FilterSet {
    fn default() -> Self {
        Self::of(Vec::new())
    }
}

impl FilterSet {
    /// A set of validated filters.
    #[must_use]
    pub fn new(filters: Vec<Arc<Filter>>) -> Self {
        let links = filters.iter().map(|filter| filter.clone() as Arc<dyn DocumentFilter>).collect();
        Self { filters, ..Self::of(links) }
    }

    /// The set that follows another one: chains of the same filters keep their versions.
    #[must_use]
    pub fn succeeding(before: &Self, filters: Vec<Arc<Filter>>) -> Self {
        let set = Self::new(filters);
        let identities: Vec<_> = set.links.iter().map(|link| link.identity()).collect();
        let mut made = before.chains().made.clone();
        made.retain(|filters, _| filters.iter().all(|filter| identities.contains(filter)));
        set.chains().made = made;
        set
    }

    /// A set of filters that are no configured modules; [`FilterSet::filters`] is empty.
    #[must_use]
    pub fn of(links: Vec<Arc<dyn DocumentFilter>>) -> Self {
        Self { filters: Vec::new(), links, made: tick(), chains: Mutex::default() }
    }

    /// The filters, in configured order.
    #[must_use]
    pub fn filters(&self) -> &[Arc<Filter>] {
        &self.filters
    }

    /// The chain for one component's requests of a class for a resource; none: no filter matches.
    /// `component` is compared without regard to case.
    #[must_use]
    pub fn chain(&self, component: &str, resource: &GroupResource, class: VerbClass) -> Option<Chain> {
        let key = (component.to_ascii_lowercase(), resource.clone(), class);
        let mut chains = self.chains();
        if let Some(chain) = chains.by_request.get(&key) {
            return chain.clone();
        }
        let matching = self.links.iter().filter(|filter| filter.matches(component, resource, class));
        let filters: Arc<[_]> = matching.cloned().collect();
        let chain = (!filters.is_empty()).then(|| {
            let made = chains.made(&filters, self.made);
            Chain::new(filters, resource, made)
        });
        if chains.by_request.len() < CHAINS {
            chains.by_request.insert(key, chain.clone());
        }
        chain
    }

    fn chains(&self) -> std::sync::MutexGuard<'_, Chains> {
        self.chains.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Chains {
    /// When a chain of these filters was made first; past the bound, when the set was.
    fn made(&mut self, filters: &[Arc<dyn DocumentFilter>], set: u64) -> u64 {
        let identities: Box<[u64]> = filters.iter().map(|filter| filter.identity()).collect();
        if let Some(made) = self.made.get(&identities) {
            return *made;
        }
        if self.made.len() >= CHAINS {
            return set;
        }
        let made = tick();
        self.made.insert(identities, made);
        made
    }
}

#[cfg(test)]
mod tests {
    use super::super::test_filter::TestFilter;
    use super::*;

    fn chain(set: &FilterSet, component: &str) -> Chain {
        set.chain(component, &GroupResource::new("services", ""), VerbClass::Read).unwrap()
    }

    fn set_of(filters: &[&TestFilter]) -> FilterSet {
        FilterSet::of(filters.iter().map(|filter| Arc::new((*filter).clone()) as Arc<dyn DocumentFilter>).collect())
    }

    #[test]
    fn a_chains_version_grows_with_each_change_and_is_equal_to_no_other_chains() {
        let (all, one) = (TestFilter::new("*/services"), TestFilter::new("a/services"));
        let set = set_of(&[&all, &one]);
        let (a, b) = (chain(&set, "a"), chain(&set, "b"));
        assert!(!a.same_filters(&b) && a.version() != b.version());
        assert_eq!(chain(&set, "A").version(), a.version());
        let (before_a, before_b) = (a.version(), b.version());
        one.change();
        assert!(a.version() > before_a);
        assert_eq!(b.version(), before_b);
        all.change();
        assert!(b.version() > before_b && a.version() != b.version());
    }

    #[tokio::test]
    async fn a_changed_value_resolves_whoever_follows_the_chain() {
        let filter = TestFilter::new("*/services");
        let chain = chain(&set_of(&[&filter]), "a");
        let version = chain.version();
        tokio::join!(chain.changed_since(version), async { filter.change() });
        assert_ne!(chain.version(), version);
    }
}
