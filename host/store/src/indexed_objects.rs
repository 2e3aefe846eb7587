//! The objects of one lookup in one version: an immutable, ordered, persistent map.
//!
//! The next version shares the map except for the paths to changed objects. Reading a version is a pointer copy, and
//! publishing one costs O(log n) per change.
//!
//! Each version also holds the selections that were queried and indexes over labels. The next version takes them over and
//! updates those that a change affects. Their number is bounded, and they hold pointers only.

mod cache;

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Bound;
use std::sync::{Arc, Mutex, PoisonError};

use rpds::RedBlackTreeMapSync;
use weir_kube::LabelSelector;

use self::cache::{ChangedObject, IndexCaches};
use super::store_key::{StoreKey, joined};
use weir_spec::{CachedObject, Selection};

/// So many objects are read sooner than the remembered selections are asked.
const FEW: usize = 1024;

/// One change of an object.
#[derive(Debug, Clone)]
pub(super) enum Delta {
    /// The object was added or updated.
    Put(StoreKey, Arc<CachedObject>),
    /// The object was deleted.
    Remove(StoreKey),
}

/// The objects of one lookup in one version.
pub(super) struct IndexedObjects {
    map: RedBlackTreeMapSync<StoreKey, Arc<CachedObject>>,
    caches: Mutex<IndexCaches>,
}

impl Default for IndexedObjects {
    fn default() -> Self {
        Self { map: RedBlackTreeMapSync::new_sync(), caches: Mutex::default() }
    }
}

impl IndexedObjects {
    /// One object.
    pub(super) fn get(&self, namespace: &str, name: &str) -> Option<&Arc<CachedObject>> {
        self.map.get(joined(namespace, name).as_str())
    }

    pub(super) fn count(&self) -> usize {
        self.map.size()
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = &StoreKey> {
        self.map.keys()
    }

    /// The objects of a namespace, or of all namespaces, in order.
    fn of_namespace(&self, namespace: Option<&str>) -> impl Iterator<Item = (&StoreKey, &Arc<CachedObject>)> {
        let (from, to) = match namespace {
            Some(namespace) => (joined(namespace, ""), Some(format!("{namespace}\u{1}"))),
            None => (String::new(), None),
        };
        let bounds = (Bound::Included(from.as_str()), to.as_deref().map_or(Bound::Unbounded, Bound::Excluded));
        // The range borrows its bounds, so the pointers are collected before it ends.
        self.map.range::<str, _>(bounds).collect::<Vec<_>>().into_iter()
    }

    /// The objects of a namespace, or of all namespaces, that a selector matches, in order.
    pub(super) fn find(&self, namespace: Option<&str>, label_selector: &str) -> Result<Arc<Selection>, String> {
        if let Some(found) = self.caches().selection(namespace, label_selector) {
            return Ok(found);
        }
        let selector = LabelSelector::parse(label_selector).map_err(|error| error.to_string())?;
        let chosen: Vec<(StoreKey, Arc<CachedObject>)> = match self.indexed(label_selector) {
            Some(some) => some
                .into_iter()
                .filter(|(key, _)| namespace.is_none_or(|namespace| key.namespace() == namespace))
                .filter(|(_, object)| selects(&selector, object))
                .collect(),
            None => self
                .of_namespace(namespace)
                .filter(|(_, object)| selects(&selector, object))
                .map(|(key, object)| (key.clone(), object.clone()))
                .collect(),
        };
        Ok(self.caches().remember(namespace, label_selector, selector, chosen))
    }

    /// How many objects [`IndexedObjects::find`] reads at most: of more than a few, none if it remembers the selection.
    pub(super) fn to_read(&self, namespace: Option<&str>, label_selector: &str) -> usize {
        let all = self.count();
        if all > FEW && self.caches().selection(namespace, label_selector).is_some() { 0 } else { all }
    }

    /// Answers the first requirement of a selector from an index, if that requirement is an equality. The result is a
    /// superset of the objects that the whole selector matches.
    fn indexed(&self, label_selector: &str) -> Option<Vec<(StoreKey, Arc<CachedObject>)>> {
        let (label, value) = first_equality(label_selector)?;
        if let Some(found) = self.caches().indexed(label, value) {
            return Some(found);
        }
        // The index is built without the lock, so that other filters can read meanwhile.
        let index = cache::index(label, self.map.iter());
        self.caches().add_index(label, index, value)
    }

    /// The next version and its changed keys; `None` if the deltas change nothing.
    pub(super) fn next(&self, deltas: Vec<Delta>) -> Option<(Self, Vec<StoreKey>)> {
        let mut map = self.map.clone();
        let mut changed: Vec<ChangedObject> = Vec::new();
        // An object may change more than once. Only its last state counts.
        let last = deltas.into_iter().map(|delta| match delta {
            Delta::Put(key, new) => (key, Some(new)),
            Delta::Remove(key) => (key, None),
        });
        for (key, new) in last.collect::<BTreeMap<_, _>>() {
            let old = map.get(key.as_str()).cloned();
            match (&old, &new) {
                (None, None) => continue,
                (Some(old), Some(new)) if old.document().bytes() == new.document().bytes() => continue,
                _ => {}
            }
            changed.push((key.clone(), old, new.clone()));
            match new {
                Some(new) => map.insert_mut(key, new),
                None => drop(map.remove_mut(key.as_str())),
            }
        }
        if changed.is_empty() {
            return None;
        }
        let mut caches = self.caches().clone();
        caches.apply(&changed);
        let keys = changed.into_iter().map(|(key, ..)| key).collect();
        Some((Self { map, caches: Mutex::new(caches) }, keys))
    }

    fn caches(&self) -> std::sync::MutexGuard<'_, IndexCaches> {
        self.caches.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether a selector matches the labels of an object. Unreadable labels count as absent.
fn selects(selector: &LabelSelector, object: &CachedObject) -> bool {
    selector.is_empty() || selector.matches(|label| object.document().label(label).ok().flatten())
}

/// The label and value of a first requirement that is an equality: `app=web,…` → (`app`, `web`).
fn first_equality(selector: &str) -> Option<(&str, &str)> {
    let first = selector.split(',').next()?;
    let (label, value) = first.split_once('=')?;
    let (label, value) = (label.trim(), value.strip_prefix('=').unwrap_or(value).trim());
    let plain =
        |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_./".contains(&b));
    (plain(label) && plain(value)).then_some((label, value))
}

impl fmt::Debug for IndexedObjects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IndexedObjects").field("count", &self.map.size()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
