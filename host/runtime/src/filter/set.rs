//! The filters of one configuration. The set is immutable. A reload creates and validates it, then swaps it in.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use super::chain::{Chain, DocumentFilter};
use super::filter::Filter;
use super::in_force::{InForce, RequestKind};
use super::version::{ChainPeriod, ChainVersion};
use weir_kube::GroupResource;
use weir_kube::VerbClass;
use weir_spec::MatchRule;

/// The maximum number of cached chains. Further chains are created for each request.
const CHAINS: usize = 1024;

/// All filters of one configuration, in order.
#[derive(Debug)]
pub struct FilterSet {
    filters: Vec<Arc<Filter>>,
    links: Vec<Arc<dyn DocumentFilter>>,
    made: u64,
    chains: Mutex<Chains>,
    in_force: Arc<Mutex<InForce>>,
    /// The match rules of filters that served clients of a former process.
    former: Arc<[MatchRule]>,
}

#[derive(Debug, Default)]
struct Chains {
    by_request: HashMap<RequestKind, Option<Chain>>,
    /// When the chains came into force that this set has brought, by the identities of their filters.
    begun: HashMap<Box<[u64]>, u64>,
}

impl Default for FilterSet {
    fn default() -> Self {
        Self::of(Vec::new())
    }
}

impl FilterSet {
    /// Creates a set of validated filters.
    #[must_use]
    pub fn new(filters: Vec<Arc<Filter>>) -> Self {
        let links = filters.iter().map(|filter| filter.clone() as Arc<dyn DocumentFilter>).collect();
        Self { filters, ..Self::of(links) }
    }

    /// Puts the set in the place of another one. Unchanged filters keep their version.
    #[must_use]
    pub fn succeeding(self, before: &Self) -> Self {
        Self { former: before.former.clone(), in_force: before.in_force.clone(), ..self }
    }

    /// Creates the set that has another filter in front of these. `before` is the set that it replaces, if that had the filter,
    /// too. Unchanged filters keep their version.
    #[must_use]
    pub fn with_first(&self, first: Arc<dyn DocumentFilter>, before: Option<&Self>) -> Self {
        let links = std::iter::once(first).chain(self.links.iter().cloned()).collect();
        let in_force = match before {
            Some(before) => before.in_force.clone(),
            // From now on this set has chains of its own.
            None => Arc::new(Mutex::new(self.in_force().clone())),
        };
        Self { filters: self.filters.clone(), former: self.former.clone(), in_force, ..Self::of(links) }
    }

    /// Notes the match rules of the filters of former processes. Their clients may continue with what those have made.
    #[must_use]
    pub fn after_restart(self, former: Arc<[MatchRule]>) -> Self {
        Self { former, ..self }
    }

    /// Whether a filter of a former process may have made what a client of this component has read of a resource.
    #[must_use]
    pub(crate) fn was_matched(&self, component: &str, resource: &GroupResource) -> bool {
        self.former.iter().any(|rule| rule.matches(component, resource, VerbClass::Read))
    }

    /// Whether a client of this component may hold what filters have made of a resource: those in force now, or others before
    /// them, of this process or a former one.
    #[must_use]
    pub fn has_filtered(&self, component: &str, resource: &GroupResource) -> bool {
        self.period(component, resource).has_filtered()
    }

    /// The version of what a client of this component is shown of a resource that no filter matches: it names the time since when.
    /// [`ChainVersion::UNFILTERED`], if that is not known.
    #[must_use]
    pub fn unfiltered_since(&self, component: &str, resource: &GroupResource) -> ChainVersion {
        let begun = self.in_force().begun(&read_kind(component, resource));
        begun.map_or(ChainVersion::UNFILTERED, |since| ChainVersion::new(since, since))
    }

    /// Which chain the reads of a component pass, and since when.
    #[must_use]
    pub fn period(&self, component: &str, resource: &GroupResource) -> ChainPeriod {
        if let Some(chain) = self.chain(component, resource, VerbClass::Read) {
            return chain.period();
        }
        let kind = read_kind(component, resource);
        let (was_filtered, begun) = {
            let in_force = self.in_force();
            (in_force.was_filtered(&kind), in_force.begun(&kind))
        };
        if !was_filtered && !self.was_matched(component, resource) {
            return ChainPeriod::default();
        }
        // One that was forgotten meanwhile begins with this set, as all of them.
        ChainPeriod::new(Box::default(), begun.unwrap_or_else(|| self.chains().begin(Box::default(), self.made)))
    }

    /// Creates a set of filters that are not configured modules. [`FilterSet::filters`] is empty.
    #[must_use]
    pub fn of(links: Vec<Arc<dyn DocumentFilter>>) -> Self {
        Self {
            filters: Vec::new(),
            links,
            made: ChainVersion::tick(),
            chains: Mutex::default(),
            in_force: Arc::default(),
            former: Arc::default(),
        }
    }

    /// Returns the filters in the order of the configuration.
    #[must_use]
    pub fn filters(&self) -> &[Arc<Filter>] {
        &self.filters
    }

    /// Returns the chain for a component, a resource and a verb class, or none if no filter matches. The comparison of
    /// `component` ignores case.
    #[must_use]
    pub fn chain(&self, component: &str, resource: &GroupResource, class: VerbClass) -> Option<Chain> {
        let key = (component.to_ascii_lowercase(), resource.clone(), class);
        let mut chains = self.chains();
        if let Some(chain) = chains.by_request.get(&key) {
            self.in_force().note_use(&key);
            return chain.clone();
        }
        let matching = self.links.iter().filter(|filter| filter.matches(component, resource, class));
        let filters: Arc<[_]> = matching.cloned().collect();
        let identities: Box<[u64]> = filters.iter().map(|filter| filter.identity()).collect();
        let since = self.in_force().since(&key, identities.clone(), || chains.begin(identities, self.made));
        let chain = (!filters.is_empty()).then(|| Chain::new(filters, resource, since));
        if chains.by_request.len() < CHAINS {
            chains.by_request.insert(key, chain.clone());
        }
        chain
    }

    fn chains(&self) -> std::sync::MutexGuard<'_, Chains> {
        self.chains.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn in_force(&self) -> std::sync::MutexGuard<'_, InForce> {
        self.in_force.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn read_kind(component: &str, resource: &GroupResource) -> RequestKind {
    (component.to_ascii_lowercase(), resource.clone(), VerbClass::Read)
}

impl Chains {
    /// Returns when the chain came into force that is new with this set: the same time for all its requests. Beyond the bound,
    /// returns the time of the set.
    fn begin(&mut self, filters: Box<[u64]>, set: u64) -> u64 {
        if self.begun.len() >= CHAINS {
            return self.begun.get(&filters).copied().unwrap_or(set);
        }
        *self.begun.entry(filters).or_insert_with(ChainVersion::tick)
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
    fn a_chains_version_grows_with_each_change_and_never_equals_that_of_another_chain() {
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

    #[test]
    fn a_filter_in_front_changes_only_the_chains_that_it_matches() {
        let (first, filter) = (TestFilter::new("a/services"), TestFilter::new("*/services"));
        let base = set_of(&[&filter]);
        let (a, b) = (chain(&base, "a"), chain(&base, "b"));
        let layered = base.with_first(Arc::new(first.clone()), None);
        assert!(!chain(&layered, "a").same_filters(&a) && chain(&layered, "a").version() != a.version());
        assert!(chain(&layered, "b").same_filters(&b) && chain(&layered, "b").version() == b.version());
        let again = set_of(&[&filter]).with_first(Arc::new(first), Some(&layered));
        assert_eq!(chain(&again, "a").version(), chain(&layered, "a").version());
        assert_eq!(chain(&again, "b").version(), b.version());
    }

    #[test]
    fn a_chain_that_comes_back_has_another_version_than_before() {
        let (all, one) = (TestFilter::new("*/services"), TestFilter::new("a/services"));
        let first = set_of(&[&all]);
        let (a, b) = (chain(&first, "a"), chain(&first, "b"));
        assert_eq!(a.version(), b.version());
        let again = set_of(&[&all]).succeeding(&first);
        assert_eq!(chain(&again, "a").version(), a.version());
        let other = set_of(&[&all, &one]).succeeding(&again);
        assert_ne!(chain(&other, "a").version(), a.version());
        let back = set_of(&[&all]).succeeding(&other);
        assert!(chain(&back, "a").same_filters(&a) && chain(&back, "a").version() != a.version());
        assert_eq!(chain(&back, "b").version(), b.version(), "it has been in force all the time");
        let none = set_of(&[]).succeeding(&back);
        assert!(none.chain("b", &GroupResource::new("services", ""), VerbClass::Read).is_none());
        assert_ne!(chain(&set_of(&[&all]).succeeding(&none), "b").version(), b.version());
    }

    #[test]
    fn components_have_one_period_while_the_same_filters_have_shown_them_the_same() {
        let services = GroupResource::new("services", "");
        let (all, one) = (TestFilter::new("*/services"), TestFilter::new("a/services"));
        let first = set_of(&[&all]);
        let period = |set: &FilterSet, component: &str| set.period(component, &services);
        assert_eq!(period(&first, "a"), period(&first, "B"));
        assert!(period(&first, "a").has_filtered());
        let pods = GroupResource::new("pods", "");
        assert_eq!(first.period("a", &pods), ChainPeriod::default(), "nothing was ever filtered");
        let second = set_of(&[&all, &one]).succeeding(&first);
        assert_ne!(period(&second, "a"), period(&second, "b"));
        assert_eq!(period(&second, "b"), period(&first, "b"));
        let third = set_of(&[&all]).succeeding(&second);
        assert_ne!(period(&third, "a"), period(&third, "b"), "in between it was shown something else");
        let none = set_of(&[]).succeeding(&third);
        assert_eq!(period(&none, "a"), period(&none, "b"));
        assert!(period(&none, "a").has_filtered(), "its clients hold what the filters made");
        assert_eq!(period(&none, "c"), ChainPeriod::default());
    }

    #[test]
    fn rules_of_former_processes_stay_known_across_reloads() {
        let former: Arc<[MatchRule]> =
            ["kube-proxy/services#list", "x/pods#update"].map(|rule| rule.parse().unwrap()).into();
        let set = FilterSet::default().succeeding(&FilterSet::default().after_restart(former));
        let [services, pods] = ["services", "pods"].map(|resource| GroupResource::new(resource, ""));
        assert!(set.was_matched("Kube-Proxy", &services));
        assert!(!set.was_matched("kubelet", &services) && !set.was_matched("x", &pods));
        assert!(!FilterSet::default().was_matched("kube-proxy", &services));
    }

    #[tokio::test]
    async fn a_changed_value_resolves_changed_since() {
        let filter = TestFilter::new("*/services");
        let chain = chain(&set_of(&[&filter]), "a");
        let version = chain.version();
        tokio::join!(chain.changed_since(version), async { filter.change() });
        assert_ne!(chain.version(), version);
    }
}
