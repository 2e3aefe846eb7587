//! Cached selections and label indexes of one version of the objects, and their update to the next version.
//!
//! A change copies one pointer per selection and index. A selection that it concerns is copied once for all objects that
//! change together. A selection that more than [`MAX_CHANGES`] of them concern is dropped, and rebuilt when it is read.

use std::collections::{HashMap, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

use rpds::RedBlackTreeMapSync;
use weir_kube::LabelSelector;

use super::selects;
use crate::store_key::{StoreKey, joined};
use weir_spec::{CachedObject, Selection};

/// An index over one label: `value\0namespace\0name` → the object.
pub(super) type LabelIndex = RedBlackTreeMapSync<Box<str>, (StoreKey, Arc<CachedObject>)>;

/// The maximum number of cached selections. The oldest is evicted first.
const MAX_SELECTIONS: usize = 256;
/// The maximum number of label indexes. Queries for other labels scan all objects.
const MAX_INDEXES: usize = 8;

/// The maximum number of objects that change together in one selection. With more, the selection is dropped.
const MAX_CHANGES: usize = 32;

/// An object that differs in the next version: its key, its old and its new state.
pub(super) type ChangedObject = (StoreKey, Option<Arc<CachedObject>>, Option<Arc<CachedObject>>);

/// Cached selections and label indexes. A clone copies pointers.
#[derive(Debug, Clone, Default)]
pub(super) struct IndexCaches {
    selections: HashMap<Arc<str>, Arc<CachedSelection>>,
    /// Keys of `selections`, oldest first.
    order: VecDeque<Arc<str>>,
    indexes: HashMap<Arc<str>, LabelIndex>,
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
pub(super) fn index<'a>(
    label: &str,
    objects: impl Iterator<Item = (&'a StoreKey, &'a Arc<CachedObject>)>,
) -> LabelIndex {
    let mut index = LabelIndex::new_sync();
    for (key, object) in objects {
        if let Some(at) = place(label, key, object) {
            index.insert_mut(at, (key.clone(), object.clone()));
        }
    }
    index
}

/// The key of an object in the index over a label.
fn place(label: &str, key: &StoreKey, object: &CachedObject) -> Option<Box<str>> {
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
        chosen: Vec<(StoreKey, Arc<CachedObject>)>,
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
        let name: Arc<str> = name_of(namespace, label_selector).into();
        self.order.push_back(name.clone());
        let cached = CachedSelection {
            namespace: namespace.map(Into::into),
            selector: Arc::new(selector),
            keys: keys.into(),
            selection: selection.clone(),
        };
        self.selections.insert(name, Arc::new(cached));
        selection
    }

    /// The objects with a label value; `None` if the label is not indexed.
    pub(super) fn indexed(&self, label: &str, value: &str) -> Option<Vec<(StoreKey, Arc<CachedObject>)>> {
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
    ) -> Option<Vec<(StoreKey, Arc<CachedObject>)>> {
        if self.indexes.len() >= MAX_INDEXES {
            return None;
        }
        self.indexes.insert(label.into(), index);
        self.indexed(label, value)
    }

    /// Updates selections and indexes for these changed objects, each of which is there once.
    pub(super) fn apply(&mut self, changed: &[ChangedObject]) {
        for (label, index) in &mut self.indexes {
            for (key, old, new) in changed {
                if let Some(at) = old.as_ref().and_then(|old| place(label, key, old)) {
                    index.remove_mut(&at);
                }
                if let Some((at, object)) = new.as_ref().and_then(|new| Some((place(label, key, new)?, new))) {
                    index.insert_mut(at, (key.clone(), object.clone()));
                }
            }
        }
        self.selections.retain(|_, cached| match cached.updated(changed) {
            SelectionUpdate::Unchanged => true,
            SelectionUpdate::Next(next) => {
                *cached = Arc::new(next);
                true
            }
            SelectionUpdate::TooMany => false,
        });
        let Self { selections, order, .. } = self;
        order.retain(|name| selections.contains_key(name));
    }
}

/// The effect of changed objects on a selection.
enum SelectionUpdate {
    /// No changed object concerns it.
    Unchanged,
    /// The selection of the next version.
    Next(CachedSelection),
    /// More than [`MAX_CHANGES`] objects concern it.
    TooMany,
}

impl CachedSelection {
    fn updated(&self, changed: &[ChangedObject]) -> SelectionUpdate {
        let concerns = |(key, _, new): &&ChangedObject| {
            self.namespace.as_deref().is_none_or(|namespace| namespace == key.namespace())
                && (self.keys.binary_search(key).is_ok()
                    || new.as_ref().is_some_and(|new| selects(&self.selector, new)))
        };
        let concerning: Vec<_> = changed.iter().filter(concerns).take(MAX_CHANGES + 1).collect();
        if concerning.is_empty() {
            return SelectionUpdate::Unchanged;
        }
        if concerning.len() > MAX_CHANGES {
            return SelectionUpdate::TooMany;
        }
        let mut keys = self.keys.to_vec();
        let mut objects = self.selection.objects().to_vec();
        for (key, _, new) in concerning {
            let new = new.as_ref().filter(|object| selects(&self.selector, object));
            // INVARIANT: `keys` and `objects` have the same length, and an index found in one is valid in both.
            match (keys.binary_search(key), new) {
                (Ok(at), Some(new)) => {
                    if let Some(object) = objects.get_mut(at) {
                        *object = new.clone();
                    }
                }
                (Err(at), Some(new)) => {
                    keys.insert(at, key.clone());
                    objects.insert(at, new.clone());
                }
                (Ok(at), None) => {
                    keys.remove(at);
                    objects.remove(at);
                }
                (Err(_), None) => {}
            }
        }
        SelectionUpdate::Next(Self {
            namespace: self.namespace.clone(),
            selector: self.selector.clone(),
            keys: keys.into(),
            selection: Arc::new(Selection::new(objects)),
        })
    }
}

fn name_of(namespace: Option<&str>, label_selector: &str) -> String {
    // The name of a namespace contains no control character.
    joined(namespace.unwrap_or("\u{1}"), label_selector)
}
