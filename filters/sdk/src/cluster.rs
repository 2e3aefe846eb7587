//! Lookups of other objects of the cluster. The daemon answers from memory: a call sends no request. A filter may look
//! up what its plan declares, and never during `configure`. Any other lookup ends the call in the host and fails a
//! native run.

use crate::{Column, Object, Path, backend};

/// Returns one object, or none if it does not exist: `get("services", Some("default"), "kubernetes")`.
pub fn get(resource: &str, namespace: Option<&str>, name: &str) -> Option<Object<'static>> {
    backend::cluster_get(resource, namespace, name).map(Object::new)
}

/// What the daemon knows of an object that [`get`] does not return.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// It exists.
    Present,
    /// It does not exist.
    Absent,
    /// The API server does not serve the kind.
    NotServed,
    /// The daemon has not read the kind yet, or may not.
    NotKnown,
}

/// Returns what is known of one object, with the arguments of [`get`].
pub fn presence_of(resource: &str, namespace: Option<&str>, name: &str) -> Presence {
    backend::cluster_presence_of(resource, namespace, name)
}

/// Returns one object, or what a filter last read with this function if it does not exist or cannot be seen. Use it for an
/// object whose absence must not undo what it said, such as the local Node.
pub fn last_known(resource: &str, namespace: Option<&str>, name: &str) -> Option<Object<'static>> {
    backend::cluster_last_known(resource, namespace, name).map(Object::new)
}

/// Returns the object that another object refers to by the text at a path, such as the Service that a slice names in a
/// label. It is in the same namespace, or cluster-scoped. Prefer it to [`get`] if the filter does not need the name
/// itself: the host can then replay one trace for slices of different Services.
pub fn referent(resource: &str, object: &Object<'_>, name_at: &Path) -> Option<Object<'static>> {
    backend::cluster_referent(resource, object.handle(), name_at).map(Object::new)
}

/// Returns the objects of a namespace (none means all) that match a label selector. An empty selector matches
/// everything.
pub fn find(resource: &str, namespace: Option<&str>, label_selector: &str) -> Selection {
    Selection { handle: backend::cluster_find(resource, namespace, label_selector) }
}

/// Returns what [`find`] returns, or what a filter last found with this function if nothing matches or can be seen. Use it for
/// a selection whose absence must not undo what its objects said, such as the members of a node pool.
pub fn find_last_known(resource: &str, namespace: Option<&str>, label_selector: &str) -> Selection {
    Selection { handle: backend::cluster_find_last_known(resource, namespace, label_selector) }
}

/// The objects that [`find`] returned, sorted by namespace, then name.
pub struct Selection {
    handle: backend::Selection,
}

impl Selection {
    /// Returns the number of objects.
    pub fn count(&self) -> u32 {
        self.handle.count()
    }

    /// Returns the object at this index, counted from 0.
    pub fn at(&self, index: u32) -> Option<Object<'static>> {
        self.handle.at(index).map(Object::new)
    }

    /// Returns the columns of all objects, concatenated, in one host call.
    pub fn column(&self, at: &Path) -> Column {
        let (text, ends) = self.handle.column(at);
        Column::new(text, ends)
    }

    /// Like [`Object::fingerprint`], over all objects.
    pub fn fingerprint(&self, at: &Path) -> u64 {
        self.handle.fingerprint(at)
    }
}
