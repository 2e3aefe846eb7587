//! The dependencies of one filter, indexed by object and lookup, so that a change finds those that it affects.

use std::collections::{HashMap, hash_set};
use std::ops::Range;
use std::sync::Arc;

use super::DEPENDENCIES;
use super::change_set::{ChangeSet, ObjectId};
use crate::Dependency;
use weir_spec::LookupSpec;

/// A dependency and its value.
#[derive(Debug, Clone)]
pub(super) struct Stored {
    pub(super) dependency: Arc<Dependency>,
    pub(super) value: u64,
}

/// The dependencies. A place is an index of `all`, which is in the order of storing.
#[derive(Debug, Default)]
pub(super) struct Table {
    all: Vec<Stored>,
    places: HashMap<Arc<Dependency>, usize, foldhash::fast::RandomState>,
    objects: HashMap<ObjectId, Vec<usize>, foldhash::fast::RandomState>,
    lookups: HashMap<Arc<LookupSpec>, OfLookup, foldhash::fast::RandomState>,
    addresses: Option<usize>,
    overflowed: bool,
}

/// The places of one lookup.
#[derive(Debug, Default)]
struct OfLookup {
    objects: Vec<usize>,
    selections: Vec<usize>,
}

/// The dependencies that a change affects and that are not validated yet. Dependencies that are stored after its
/// creation are not part of it.
#[derive(Debug)]
pub(super) struct Scan<'a> {
    all: Range<usize>,
    addresses: Option<usize>,
    objects: hash_set::Iter<'a, ObjectId>,
    lookups: Vec<OfLookupScan>,
}

#[derive(Debug)]
struct OfLookupScan {
    lookup: Arc<LookupSpec>,
    objects: Range<usize>,
    selections: Range<usize>,
}

impl Table {
    /// Stores a dependency. Returns false if it is already stored with another value.
    pub(super) fn store(&mut self, dependency: &Dependency, value: u64) -> bool {
        if let Some(stored) = self.places.get(dependency).and_then(|place| self.all.get(*place)) {
            return stored.value == value;
        }
        if self.all.len() >= DEPENDENCIES {
            self.overflowed = true;
            return true;
        }
        let (dependency, place) = (Arc::new(dependency.clone()), self.all.len());
        match &*dependency {
            Dependency::Addresses => self.addresses = Some(place),
            Dependency::Selection { lookup, .. } => {
                self.lookups.entry(lookup.clone()).or_default().selections.push(place);
            }
            Dependency::Object { lookup, namespace, name, .. }
            | Dependency::LastKnown { lookup, namespace, name, .. }
            | Dependency::Presence { lookup, namespace, name } => {
                self.lookups.entry(lookup.clone()).or_default().objects.push(place);
                let namespace = namespace.clone().unwrap_or_default();
                let object = ObjectId { lookup: lookup.clone(), namespace, name: name.clone() };
                self.objects.entry(object).or_default().push(place);
            }
        }
        self.places.insert(dependency.clone(), place);
        self.all.push(Stored { dependency, value });
        true
    }

    /// Returns the dependencies that a change affects, or none if the table has overflowed.
    pub(super) fn concerned<'a>(&self, changes: &'a ChangeSet) -> Option<Scan<'a>> {
        if self.overflowed {
            return None;
        }
        let everything = changes.is_everything();
        let of_lookup = |lookup: &Arc<LookupSpec>| {
            let of = self.lookups.get(lookup)?;
            let objects = if changes.whole.contains(lookup) { of.objects.len() } else { 0 };
            Some(OfLookupScan { lookup: lookup.clone(), objects: 0..objects, selections: 0..of.selections.len() })
        };
        Some(Scan {
            all: 0..if everything { self.all.len() } else { 0 },
            addresses: self.addresses.filter(|_| changes.addresses),
            objects: changes.objects.iter(),
            lookups: changes.touched.iter().filter_map(of_lookup).collect(),
        })
    }

    /// Returns the next dependencies of a scan, after about `most` steps. Returns none at the end.
    pub(super) fn chunk(&self, scan: &mut Scan<'_>, most: usize) -> Option<Vec<Stored>> {
        let mut chunk = Vec::new();
        let mut take = |place: usize| chunk.extend(self.all.get(place).cloned());
        let mut steps = 0;
        while steps < most {
            steps += 1;
            if let Some(place) = scan.all.next().or_else(|| scan.addresses.take()) {
                take(place);
            } else if let Some(object) = scan.objects.next() {
                let places = self.objects.get(object).map(Vec::as_slice).unwrap_or_default();
                steps += places.len();
                places.iter().copied().for_each(&mut take);
            } else if let Some(next) = scan.lookups.last_mut() {
                let of = self.lookups.get(&next.lookup);
                let object = next.objects.next().and_then(|n| of?.objects.get(n));
                match object.or_else(|| next.selections.next().and_then(|n| of?.selections.get(n))) {
                    Some(place) => take(*place),
                    None => drop(scan.lookups.pop()),
                }
            } else {
                return (!chunk.is_empty()).then_some(chunk);
            }
        }
        Some(chunk)
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    pub(super) fn all(&self) -> Vec<(Dependency, u64)> {
        self.all.iter().map(|stored| ((*stored.dependency).clone(), stored.value)).collect()
    }
}
