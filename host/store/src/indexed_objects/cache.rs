//! Cached selections and label indexes of one version of the objects, and their update to the next version.

use std::collections::{HashMap, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

use rpds::RedBlackTreeMapSync;
use weir_kube::LabelSelector;

use super::{StoreKey, joined, selects};
use weir_document::{LookedUp, Selection};

/// An index over one label: `value\0namespace\0name` → the object.
pub(super) type LabelIndex = RedBlackTreeMapSync<Box<str>, (StoreKey, Arc<LookedUp>)>;

/// The maximum number of cached selections. The oldest is evicted first.
const MAX_SELECTIONS: usize = 256;
/// The maximum number of label indexes. Queries for other labels scan all objects.
const MAX_INDEXES: usize = 8;

/// Cached selections and label indexes. A clone copies pointers.
#[derive(Debug, Clone, Default)]
pub(super) struct IndexCaches {
    selections: HashMap<Box<str>, CachedSelection>,
    /// Keys of `selections`, oldest first.
    order: VecDeque<Box<str>>,
    indexes: HashMap<Box<str>, LabelIndex>,
}

#[derive(Debug, Clone)]
struct CachedSelection {
    namespace: Option<Box<str>>,
    selector: Arc<LabelSelector>,
    /// The keys of the objects of `selection`, in the same order.
    keys: Arc<[StoreKey]>,
    selection: Arc<Selection>,
}

/// Builds an index over one label.
pub(super) fn index<'a>(label: &str, objects: impl Iterator<Item = (&'a StoreKey, &'a Arc<LookedUp>)>) -> LabelIndex {
    let mut index = LabelIndex::new_sync();
    for (key, object) in objects {
        if let Some(at) = place(label, key, object) {
            index.insert_mut(at, (key.clone(), object.clone()));
        }
    }
    index
}

/// The key of an object in the index over a label.
fn place(label: &str, key: &StoreKey, object: &LookedUp) -> Option<Box<str>> {
    let value = object.document().label(label).ok().flatten()?;
    Some(joined(&value, key.as_str()).into())
}

impl IndexCaches {
    pub(super) fn selection(&self, namespace: Option<&str>, label_selector: &str) -> Option<Arc<Selection>> {
        self.selections.get(name_of(namespace, label_selector).as_str()).map(|cached| cached.selection.clone())
    }

    /// Caches a selection. If another thread was faster, its selection is returned, so that fingerprints are shared.
    pub(super) fn remember(
        &mut self,
        namespace: Option<&str>,
        label_selector: &str,
        selector: LabelSelector,
        chosen: Vec<(StoreKey, Arc<LookedUp>)>,
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
        let cached = CachedSelection {
            namespace: namespace.map(Into::into),
            selector: Arc::new(selector),
            keys: keys.into(),
            selection: selection.clone(),
        };
        self.selections.insert(name, cached);
        selection
    }

    /// The objects with a label value; `None` if the label is not indexed.
    pub(super) fn indexed(&self, label: &str, value: &str) -> Option<Vec<(StoreKey, Arc<LookedUp>)>> {
        let index = self.indexes.get(label)?;
        let (from, to) = (joined(value, ""), format!("{value}\u{1}"));
        let bounds = (Bound::Included(from.as_str()), Bound::Excluded(to.as_str()));
        Some(index.range::<str, _>(bounds).map(|(_, found)| found.clone()).collect())
    }

    /// Adds an index, if the limit allows, and answers from it.
    pub(super) fn add_index(
        &mut self,
        label: &str,
        index: LabelIndex,
        value: &str,
    ) -> Option<Vec<(StoreKey, Arc<LookedUp>)>> {
        if self.indexes.len() >= MAX_INDEXES {
            return None;
        }
        self.indexes.insert(label.into(), index);
        self.indexed(label, value)
    }

    /// Updates selections and indexes for one changed object.
    pub(super) fn apply(&mut self, key: &StoreKey, old: Option<&Arc<LookedUp>>, new: Option<&Arc<LookedUp>>) {
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

impl CachedSelection {
    fn apply(&mut self, key: &StoreKey, new: Option<&Arc<LookedUp>>) {
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
            // INVARIANT: `keys` and `objects` have the same length, and `at` was found in `keys`.
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
    // The name of a namespace contains no control character.
    joined(namespace.unwrap_or("\u{1}"), label_selector)
}
