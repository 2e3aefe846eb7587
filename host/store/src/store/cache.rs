//! Selections that were asked for, and indexes over labels, of one moment of a feed; and how they go over to the next.

use std::collections::{HashMap, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

use rpds::RedBlackTreeMapSync;
use weir_kube::Selector;

use super::{Key, joined, selects};
use weir_document::{CachedObject, Selection};

/// Label value, then key: `value\0namespace\0name` → the object.
pub(super) type Index = RedBlackTreeMapSync<Box<str>, (Key, Arc<CachedObject>)>;

/// Selections kept; the oldest goes first.
const MAX_SELECTIONS: usize = 256;
/// Labels indexed; further ones are answered by a scan.
const MAX_INDEXES: usize = 8;

/// Cheap to clone: pointers.
#[derive(Debug, Clone, Default)]
pub(super) struct Caches {
    selections: HashMap<Box<str>, Cached>,
    /// Keys of `selections`, oldest first.
    order: VecDeque<Box<str>>,
    indexes: HashMap<Box<str>, Index>,
}

#[derive(Debug, Clone)]
struct Cached {
    namespace: Option<Box<str>>,
    selector: Arc<Selector>,
    /// Of the objects of `selection`, in its order.
    keys: Arc<[Key]>,
    selection: Arc<Selection>,
}

/// An index over one label.
pub(super) fn index<'a>(label: &str, objects: impl Iterator<Item = (&'a Key, &'a Arc<CachedObject>)>) -> Index {
    let mut index = Index::new_sync();
    for (key, object) in objects {
        if let Some(at) = place(label, key, object) {
            index.insert_mut(at, (key.clone(), object.clone()));
        }
    }
    index
}

/// Where an object stands in the index over a label.
fn place(label: &str, key: &Key, object: &CachedObject) -> Option<Box<str>> {
    let value = object.document().label(label).ok().flatten()?;
    Some(joined(&value, key.as_str()).into())
}

impl Caches {
    pub(super) fn selection(&self, namespace: Option<&str>, label_selector: &str) -> Option<Arc<Selection>> {
        self.selections.get(name_of(namespace, label_selector).as_str()).map(|cached| cached.selection.clone())
    }

    /// Keeps a selection; if another thread was faster, its one is given, so that fingerprints are shared.
    pub(super) fn remember(
        &mut self,
        namespace: Option<&str>,
        label_selector: &str,
        selector: Selector,
        chosen: Vec<(Key, Arc<CachedObject>)>,
    ) -> Arc<Selection> {
        if let Some(found) = self.selection(namespace, label_selector) {
            return found;
        }
        let (keys, objects): (Vec<_>, Vec<_>) = chosen.into_iter().unzip();
        let selection = Arc::new(Selection::new(objects));
        if self.order.len() >= MAX_SELECTIONS
            && let Some(oldest) = self.order.pop_front()
        {
            self.selections.remove(&oldest);
        }
        let name: Box<str> = name_of(namespace, label_selector).into();
        self.order.push_back(name.clone());
        let cached = Cached {
            namespace: namespace.map(Into::into),
            selector: Arc::new(selector),
            keys: keys.into(),
            selection: selection.clone(),
        };
        self.selections.insert(name, cached);
        selection
    }

    /// What an index has under a value. None: there is no such index.
    pub(super) fn indexed(&self, label: &str, value: &str) -> Option<Vec<(Key, Arc<CachedObject>)>> {
        let index = self.indexes.get(label)?;
        let (from, to) = (joined(value, ""), format!("{value}\u{1}"));
        let bounds = (Bound::Included(from.as_str()), Bound::Excluded(to.as_str()));
        Some(index.range::<str, _>(bounds).map(|(_, found)| found.clone()).collect())
    }

    /// Takes an index, if there is room, and answers from it.
    pub(super) fn add_index(
        &mut self,
        label: &str,
        index: Index,
        value: &str,
    ) -> Option<Vec<(Key, Arc<CachedObject>)>> {
        if self.indexes.len() >= MAX_INDEXES {
            return None;
        }
        self.indexes.insert(label.into(), index);
        self.indexed(label, value)
    }

    /// Goes over to the next moment, in which one object is different.
    pub(super) fn apply(&mut self, key: &Key, old: Option<&Arc<CachedObject>>, new: Option<&Arc<CachedObject>>) {
        for (label, index) in &mut self.indexes {
            if let Some(at) = old.and_then(|old| place(label, key, old)) {
                index.remove_mut(&at);
            }
            if let Some((at, object)) = new.and_then(|new| Some((place(label, key, new)?, new))) {
                index.insert_mut(at, (key.clone(), object.clone()));
            }
        }
        for cached in self.selections.values_mut() {
            if cached.namespace.as_deref().is_none_or(|namespace| namespace == key.namespace()) {
                cached.apply(key, new);
            }
        }
    }
}

impl Cached {
    fn apply(&mut self, key: &Key, new: Option<&Arc<CachedObject>>) {
        let new = new.filter(|object| selects(&self.selector, object));
        let at = self.keys.binary_search(key);
        if at.is_err() && new.is_none() {
            return;
        }
        let mut keys = self.keys.to_vec();
        let mut objects = self.selection.objects().to_vec();
        match (at, new) {
            (Ok(at), Some(new)) => {
                if let Some(object) = objects.get_mut(at) {
                    *object = new.clone();
                }
            }
            (Err(at), Some(new)) => {
                keys.insert(at, key.clone());
                objects.insert(at, new.clone());
            }
            // INVARIANT: `keys` and `objects` are of one length, and `at` was found in `keys`.
            (Ok(at), None) => {
                keys.remove(at);
                objects.remove(at);
            }
            (Err(_), None) => {}
        }
        self.keys = keys.into();
        self.selection = Arc::new(Selection::new(objects));
    }
}

fn name_of(namespace: Option<&str>, label_selector: &str) -> String {
    // No namespace has a control character in its name.
    joined(namespace.unwrap_or("\u{1}"), label_selector)
}
