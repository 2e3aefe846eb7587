//! The objects of a store at one version, and the changes that lead to the next one.

use std::sync::Arc;

use rpds::RedBlackTreeMapSync;

use super::event::StoreEvent;
use super::object::{Object, ObjectFormat};
use crate::store_key::StoreKey;

/// All objects of a store at one resourceVersion.
#[derive(Debug, Clone)]
pub struct Snapshot {
    /// The resourceVersion. Every change up to it is contained, and no later one.
    pub version: u64,
    /// How the objects are encoded.
    pub format: ObjectFormat,
    /// The objects by key.
    pub objects: RedBlackTreeMapSync<StoreKey, Arc<Object>>,
    /// The version of the last list or change of an object. A BOOKMARK may be ahead of it, also one that is wrong.
    pub(crate) changed: u64,
}

/// A change that a watch event reports.
#[derive(Debug)]
pub(crate) enum Delta {
    /// The object was added or updated.
    Put(Object),
    /// The object is in a list: it exists, also if its version is not above that of the store.
    Listed(Object),
    /// The object was deleted at this version.
    Remove(StoreKey, u64),
    /// Nothing changed up to this version.
    Bookmark(u64),
    /// The end of a list at this version.
    ListEnd(u64),
}

impl Snapshot {
    /// Applies one delta. `None` if it changes neither an object nor the version: a repeated or older event, or the deletion of
    /// an unknown object.
    pub(super) fn apply(&mut self, delta: Delta) -> Option<StoreEvent> {
        match delta {
            // An unknown object at a version that the store has passed was deleted since. That a BOOKMARK has passed it proves
            // nothing: after one from the future, an event with a lower version is the first one of its object.
            Delta::Put(object) if object.version <= self.changed && !self.objects.contains_key(&object.key) => None,
            Delta::Put(object) | Delta::Listed(object) => {
                let old = self.objects.get(&object.key).cloned();
                if old.as_ref().is_some_and(|old| old.version >= object.version) {
                    return None;
                }
                let new = Arc::new(object);
                self.advance(new.version);
                self.objects.insert_mut(new.key.clone(), new.clone());
                Some(StoreEvent { version: self.version, old, new: Some(new), is_list: false })
            }
            Delta::Remove(key, version) => {
                let old = self.objects.get(&key).cloned()?;
                // A deletion before the object's present version is a repeated event: the object was created again since.
                if version < old.version {
                    return None;
                }
                self.advance(version);
                self.objects.remove_mut(&key);
                Some(StoreEvent { version: self.version, old: Some(old), new: None, is_list: false })
            }
            Delta::ListEnd(version) => {
                self.changed = self.changed.max(version);
                self.reach(version, true)
            }
            Delta::Bookmark(version) => self.reach(version, false),
        }
    }

    fn advance(&mut self, version: u64) {
        self.changed = self.changed.max(version);
        self.version = self.version.max(version);
    }

    fn reach(&mut self, version: u64, is_list: bool) -> Option<StoreEvent> {
        (version > self.version).then(|| {
            self.version = version;
            StoreEvent { version, old: None, new: None, is_list }
        })
    }
}
