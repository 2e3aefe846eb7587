//! Selections that were asked for, and indexes over labels, of one version of a feed's objects; and how the next version
//! takes them over.
//!
//! A change copies one pointer per selection and index. A selection that it concerns is copied once for all objects that
//! change together; one that more than [`MAX_CHANGES`] of them concern is dropped, and made again when it is asked for.

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
/// Objects that change together in one selection before it is dropped.
const MAX_CHANGES: usize = 32;

/// An object that is different in the next version: its key, what it was and what it is.
pub(super) type Changed = (Key, Option<Arc<CachedObject>>, Option<Arc<CachedObject>>);

/// Cheap to clone: pointers.
#[derive(Debug, Clone, Default)]
pub(super) struct Caches {
    selections: HashMap<Arc<str>, Arc<Cached>>,
    /// Keys of `selections`, oldest first.
    order: VecDeque<Arc<str>>,
    indexes: HashMap<Arc<str>, Index>,
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
        let name: Arc<str> = name_of(namespace, label_selector).into();
        self.order.push_back(name.clone());
        let cached = Cached {
            namespace: namespace.map(Into::into),
            selector: Arc::new(selector),
            keys: keys.into(),
            selection: selection.clone(),
        };
        self.selections.insert(name, Arc::new(cached));
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

    /// Takes over to the next version, in which these objects are different, in this order.
    pub(super) fn apply(&mut self, changed: &[Changed]) {
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
        self.selections.retain(|_, cached| match cached.applied(changed) {
            Applied::Same => true,
            Applied::Next(next) => {
                *cached = Arc::new(next);
                true
            }
            Applied::TooMany => false,
        });
        let Self { selections, order, .. } = self;
        order.retain(|name| selections.contains_key(name));
    }
}

/// What becomes of a selection.
enum Applied {
    Same,
    Next(Cached),
    TooMany,
}

impl Cached {
    fn applied(&self, changed: &[Changed]) -> Applied {
        let concerns = |(key, _, new): &&Changed| {
            self.namespace.as_deref().is_none_or(|namespace| namespace == key.namespace())
                && (self.keys.binary_search(key).is_ok()
                    || new.as_ref().is_some_and(|new| selects(&self.selector, new)))
        };
        let concerning: Vec<_> = changed.iter().filter(concerns).take(MAX_CHANGES + 1).collect();
        if concerning.is_empty() {
            return Applied::Same;
        }
        if concerning.len() > MAX_CHANGES {
            return Applied::TooMany;
        }
        let mut keys = self.keys.to_vec();
        let mut objects = self.selection.objects().to_vec();
        for (key, _, new) in concerning {
            let new = new.as_ref().filter(|object| selects(&self.selector, object));
            // INVARIANT: `keys` and `objects` are of one length, and a place that is found is one of both.
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
        Applied::Next(Self {
            namespace: self.namespace.clone(),
            selector: self.selector.clone(),
            keys: keys.into(),
            selection: Arc::new(Selection::new(objects)),
        })
    }
}

fn name_of(namespace: Option<&str>, label_selector: &str) -> String {
    // No namespace has a control character in its name.
    joined(namespace.unwrap_or("\u{1}"), label_selector)
}
