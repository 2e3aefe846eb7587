//! The objects of one feed at one moment: an immutable, ordered, persistent map. The next moment shares all but the path to
//! what changed, so taking one is a pointer and publishing one costs O(log n).
//!
//! Beside the objects: selections that were asked for and indexes over labels, both carried over to the next moment where
//! a change does not touch them. Bounded in number; the memory is pointers only.

mod cache;

use std::borrow::Borrow;
use std::fmt;
use std::ops::Bound;
use std::sync::{Arc, Mutex, PoisonError};

use rpds::RedBlackTreeMapSync;
use weir_kube::Selector;

use self::cache::{Caches, Changed};
use super::change::ObjectKey;
use weir_document::{CachedObject, Selection};

/// An object's namespace and name in one string, `namespace\0name`: sorts by namespace, then name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Key(Arc<str>);

/// One object of a feed.
#[derive(Debug, Clone)]
pub(super) struct Held {
    pub(super) object: Arc<CachedObject>,
    /// Its `metadata.resourceVersion`; equal ones are the same object.
    pub(super) version: Box<str>,
}

/// One step of a feed.
#[derive(Debug, Clone)]
pub(super) enum Delta {
    /// The object is there, thus.
    Put(Key, Held),
    /// The object is gone.
    Remove(Key),
}

/// The objects of one feed at one moment.
pub(super) struct Objects {
    map: RedBlackTreeMapSync<Key, Held>,
    caches: Mutex<Caches>,
}

impl Key {
    pub(super) fn new(namespace: &str, name: &str) -> Self {
        Self(joined(namespace, name).into())
    }

    pub(super) fn namespace(&self) -> &str {
        self.0.split_once('\0').map_or("", |(namespace, _)| namespace)
    }

    pub(super) fn to_object_key(&self) -> ObjectKey {
        let (namespace, name) = self.0.split_once('\0').unwrap_or(("", &self.0));
        ObjectKey { namespace: namespace.into(), name: name.into() }
    }

    fn as_str(&self) -> &str {
        &self.0
    }
}

fn joined(first: &str, second: &str) -> String {
    let mut key = String::with_capacity(first.len() + 1 + second.len());
    key.push_str(first);
    key.push('\0');
    key.push_str(second);
    key
}

impl Borrow<str> for Key {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl Default for Objects {
    fn default() -> Self {
        Self { map: RedBlackTreeMapSync::new_sync(), caches: Mutex::default() }
    }
}

impl Objects {
    /// One object.
    pub(super) fn get(&self, namespace: &str, name: &str) -> Option<&Held> {
        self.map.get(joined(namespace, name).as_str())
    }

    pub(super) fn count(&self) -> usize {
        self.map.size()
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = &Key> {
        self.map.keys()
    }

    /// The objects of a namespace (none: of all), in order.
    fn of_namespace(&self, namespace: Option<&str>) -> impl Iterator<Item = (&Key, &Arc<CachedObject>)> {
        let (from, to) = match namespace {
            Some(namespace) => (joined(namespace, ""), Some(format!("{namespace}\u{1}"))),
            None => (String::new(), None),
        };
        let bounds = (Bound::Included(from.as_str()), to.as_deref().map_or(Bound::Unbounded, Bound::Excluded));
        // The range borrows its bounds for as long as it lives, so what it finds is collected as pointers.
        self.map.range::<str, _>(bounds).map(|(key, held)| (key, &held.object)).collect::<Vec<_>>().into_iter()
    }

    /// The objects of a namespace (none: of all) that a selector matches, in order.
    pub(super) fn find(&self, namespace: Option<&str>, label_selector: &str) -> Result<Arc<Selection>, String> {
        if let Some(found) = self.caches().selection(namespace, label_selector) {
            return Ok(found);
        }
        let selector = Selector::parse(label_selector).map_err(|error| error.to_string())?;
        let chosen: Vec<(Key, Arc<CachedObject>)> = match self.indexed(label_selector) {
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

    /// The objects that the first requirement of a selector names, where that is an equality: a superset of what the whole
    /// selector matches, from an index over that label.
    fn indexed(&self, label_selector: &str) -> Option<Vec<(Key, Arc<CachedObject>)>> {
        let (label, value) = first_equality(label_selector)?;
        if let Some(found) = self.caches().indexed(label, value) {
            return Some(found);
        }
        // Built without the lock: other filters go on meanwhile.
        let index = cache::index(label, self.map.iter().map(|(key, held)| (key, &held.object)));
        self.caches().add_index(label, index, value)
    }

    /// The next version, and the keys of what is different in it. None when nothing is.
    pub(super) fn next(&self, deltas: Vec<Delta>) -> Option<(Self, Vec<Key>)> {
        let mut map = self.map.clone();
        let mut changed: Vec<Changed> = Vec::new();
        for delta in deltas {
            let (key, new) = match delta {
                Delta::Put(key, held) => (key, Some(held)),
                Delta::Remove(key) => (key, None),
            };
            let old = map.get(key.as_str()).cloned();
            match (&old, &new) {
                (None, None) => continue,
                (Some(old), Some(new)) if !new.version.is_empty() && old.version == new.version => {
                    continue;
                }
                _ => {}
            }
            let object = |held: &Option<Held>| held.as_ref().map(|held| held.object.clone());
            changed.push((key.clone(), object(&old), object(&new)));
            match new {
                Some(held) => map.insert_mut(key, held),
                None => drop(map.remove_mut(key.as_str())),
            }
        }
        if changed.is_empty() {
            return None;
        }
        let mut caches = self.caches().clone();
        caches.apply(&changed);
        let mut keys: Vec<_> = changed.into_iter().map(|(key, ..)| key).collect();
        keys.sort_unstable();
        keys.dedup();
        Some((Self { map, caches: Mutex::new(caches) }, keys))
    }

    fn caches(&self) -> std::sync::MutexGuard<'_, Caches> {
        self.caches.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether a selector matches an object's labels. Labels that can not be read count as absent.
fn selects(selector: &Selector, object: &CachedObject) -> bool {
    selector.is_empty() || selector.matches(|label| object.document().label(label).ok().flatten())
}

/// `app=web,…` → (`app`, `web`).
fn first_equality(selector: &str) -> Option<(&str, &str)> {
    let first = selector.split(',').next()?;
    let (label, value) = first.split_once('=')?;
    let (label, value) = (label.trim(), value.strip_prefix('=').unwrap_or(value).trim());
    let plain =
        |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_./".contains(&b));
    (plain(label) && plain(value)).then_some((label, value))
}

impl fmt::Debug for Objects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Objects").field("count", &self.map.size()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
