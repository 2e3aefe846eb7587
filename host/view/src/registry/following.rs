//! How the views follow the filter set in force: each shows what the filters make for its components, and is forked where these
//! part.

use std::collections::BTreeMap;
use std::sync::Arc;

use weir_kube::{GroupResource, ResourceRequest, VerbClass};
use weir_runtime::{Chain, ChainPeriod, FilterSet};
use weir_store::{StoreKey, StoreReader};

use super::open_views::{OpenView, OpenViews, ViewKey};
use crate::readers::Component;
use crate::state::{Shows, View};

impl OpenViews {
    /// Which chain a component's reads pass in the set that is followed; `None` before the first one. Other Weirs read what no
    /// filter has changed.
    pub(super) fn period(&self, component: &Component, resource: &GroupResource) -> Option<ChainPeriod> {
        let Some(component) = component else { return Some(ChainPeriod::default()) };
        Some(self.set.as_ref()?.period(component, resource))
    }

    /// That chain.
    pub(super) fn chain(&self, component: &Component, resource: &GroupResource) -> Option<Chain> {
        self.set.as_ref()?.chain(component.as_deref()?, resource, VerbClass::Read)
    }

    /// The view that serves a component, of those with its filters: the first one that is for it. There is none yet, if that is not open.
    pub(super) fn found_by(&self, component: &Component, mut key: ViewKey) -> ViewKey {
        while self.views.get(&key).is_some_and(|found| !found.view.admits(component)) {
            key.copy += 1;
        }
        key
    }

    /// The views of the objects of a resource that a reader reads.
    pub(super) fn of<'a>(
        &'a self,
        reader: &'a StoreReader,
        resource: &'a GroupResource,
    ) -> impl Iterator<Item = (&'a ViewKey, &'a Arc<View>)> + Clone {
        let all = self.views.iter().map(|(key, found)| (key, &found.view));
        all.filter(move |(key, _)| key.reader == *reader && key.collection.resource == *resource)
    }

    /// An open view that has an object, or that knows that it does not exist. Through whichever filters it is read: a view of the
    /// same store shows it to other components.
    pub(super) fn holding<'a>(
        &'a self,
        reader: &'a StoreReader,
        request: &'a ResourceRequest,
        name: &str,
    ) -> Option<&'a Arc<View>> {
        let namespace = request.namespace.as_deref();
        let mut views = self.of(reader, &request.resource).map(|(_, view)| view);
        let key = StoreKey::new(namespace.unwrap_or_default(), name);
        let has = views.clone().find(|view| view.snapshot().objects.contains_key(&key));
        has.or_else(|| views.find(|view| view.covers(namespace, name)))
    }

    /// Has each view show what this set makes for its components. Returns the views that were forked, whose tasks begin.
    ///
    /// It comes before anything else is made of a set, wherever that is seen first: no request finds a view that shows its component
    /// something else, and no view shows by the former filters what the API server makes from then on.
    pub(super) fn follow(&mut self, set: Arc<FilterSet>) -> Vec<Arc<View>> {
        if self.set.as_ref().is_some_and(|followed| Arc::ptr_eq(followed, &set)) {
            return Vec::new();
        }
        self.set = Some(set);
        let (mut forks, mut placed) = (Vec::new(), Vec::new());
        for (key, found) in std::mem::take(&mut self.views) {
            self.part(key, found, &mut placed, &mut forks);
        }
        // Those whose filters are the same have their places first.
        placed.sort_by_key(|(is_other, ..)| *is_other);
        for (_, key, found) in placed {
            self.place(key, found);
        }
        forks
    }

    /// Forks a view by what its components are shown from now on. It stays with those whose filters are the same, or else with most.
    fn part(
        &self,
        key: ViewKey,
        found: OpenView,
        placed: &mut Vec<(bool, ViewKey, OpenView)>,
        forks: &mut Vec<Arc<View>>,
    ) {
        let resource = &key.collection.resource;
        let mut parts: BTreeMap<ChainPeriod, Vec<Component>> = BTreeMap::new();
        for component in found.view.components() {
            let period = self.period(&component, resource).unwrap_or_default();
            parts.entry(period).or_default().push(component);
        }
        let most = || parts.iter().max_by_key(|(_, components)| components.len()).map(|(period, _)| period.clone());
        let stays = if parts.contains_key(&key.period) { Some(key.period.clone()) } else { most() };
        for (period, components) in parts {
            let chain = components.first().and_then(|component| self.chain(component, resource));
            let shows = Shows { period: period.clone(), chain };
            if Some(&period) == stays.as_ref() {
                found.view.show(shows);
            } else {
                let view = found.view.fork(&components, shows);
                let fork = found.of_fork(view.clone());
                let key = ViewKey { period, copy: 0, ..key.clone() };
                fork.log(&key, "view forked: other filters apply to these components");
                forks.push(view);
                placed.push((true, key, fork));
            }
        }
        let period = stays.unwrap_or_else(|| key.period.clone());
        let is_other = period != key.period;
        let copy = if is_other { 0 } else { key.copy };
        placed.push((is_other, ViewKey { period, copy, ..key }, found));
    }
}
