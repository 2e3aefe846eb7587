//! Other objects of the cluster, from the daemon's memory: no request leaves during a call. Only what the plan declares
//! may be asked for, and never from `configure`: the host ends the call otherwise, a native run fails.

use crate::{Column, Object, Path, backend};

/// One object, or none if it is not there: `get("services", Some("default"), "kubernetes")`.
pub fn get(resource: &str, namespace: Option<&str>, name: &str) -> Option<Object<'static>> {
    backend::cluster_get(resource, namespace, name).map(Object::new)
}

/// The object that another one refers to by the text at a path, in its namespace or outside of all: the Service of a
/// slice, by its label. Prefer it to [`get`] where the name itself does not matter: slices of different Services are
/// then judged without a call, if those Services answer alike.
pub fn referent(resource: &str, object: &Object<'_>, name_at: &Path) -> Option<Object<'static>> {
    backend::cluster_referent(resource, object.handle(), name_at).map(Object::new)
}

/// The objects of a namespace (none = of all) that a label selector matches (an empty one matches all).
pub fn find(resource: &str, namespace: Option<&str>, label_selector: &str) -> Selection {
    Selection { handle: backend::cluster_find(resource, namespace, label_selector) }
}

/// Objects that were found, sorted by namespace, then name.
pub struct Selection {
    handle: backend::Selection,
}

impl Selection {
    /// How many objects.
    pub fn count(&self) -> u32 {
        self.handle.count()
    }

    /// One of them, by position from 0.
    pub fn at(&self, index: u32) -> Option<Object<'static>> {
        self.handle.at(index).map(Object::new)
    }

    /// The columns of all objects, one after another, in one crossing.
    pub fn column(&self, at: &Path) -> Column {
        let (text, ends) = self.handle.column(at);
        Column::new(text, ends)
    }

    /// As [`Object::fingerprint`], over all objects.
    pub fn fingerprint(&self, at: &Path) -> u64 {
        self.handle.fingerprint(at)
    }
}
