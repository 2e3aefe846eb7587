//! One Kubernetes object, as a handle to bytes that the host holds. The host decodes only what is read. Each read or
//! edit is one host call.
//!
//! In the host, a read of malformed bytes ends the call. In a native run it returns an empty value, and the run fails
//! afterwards. Reads therefore need no `?`.

use crate::{Column, Error, Path, Rows, StringSet, Value, backend};

static NAME: Path = Path::new("metadata.name");

/// A Kubernetes object: the one being filtered, or one that was looked up.
///
/// The rows of a path are the elements of the array at its last `[*]`, flattened over outer ones. A path without `[*]`
/// has one row, the object itself. An edit costs one pass over the bytes for any number of rows, so collect [`Rows`]
/// and edit once.
///
/// The host refuses edits of apiVersion, kind and metadata's name, namespace, uid, resourceVersion, labels and
/// ownerReferences, edits of guarded fields, and edits of looked-up objects. A refused edit returns an error and
/// changes nothing.
pub struct Object<'a> {
    handle: backend::Handle<'a>,
}

impl<'a> Object<'a> {
    pub(crate) fn new(handle: backend::Handle<'a>) -> Self {
        Self { handle }
    }

    pub(crate) fn handle(&self) -> &backend::Handle<'a> {
        &self.handle
    }

    /// Returns the apiVersion: `v1`, `discovery.k8s.io/v1`.
    pub fn api_version(&self) -> String {
        self.handle.api_version()
    }

    /// Returns the kind: `Service`, `EndpointSlice`.
    pub fn kind(&self) -> String {
        self.handle.kind()
    }

    /// Returns whether the object has this apiVersion and kind.
    pub fn is(&self, api_version: &str, kind: &str) -> bool {
        self.kind() == kind && self.api_version() == api_version
    }

    /// Returns metadata.namespace, or none for a cluster-scoped object.
    pub fn namespace(&self) -> Option<String> {
        self.handle.namespace()
    }

    /// Returns whether metadata.name is this name. Prefer it to [`name`](Self::name), see [`one_of`](Self::one_of).
    pub fn is_named(&self, name: &str) -> bool {
        self.one_of(&NAME, &[name.to_owned()]).is_some()
    }

    /// Returns metadata.name, or an empty string.
    pub fn name(&self) -> String {
        self.handle.name()
    }

    /// Returns the value of one label.
    pub fn label(&self, key: &str) -> Option<String> {
        self.handle.label(key)
    }

    /// Returns the value of one annotation.
    pub fn annotation(&self, key: &str) -> Option<String> {
        self.handle.annotation(key)
    }

    /// Returns the value at a path without `[*]`, with its type.
    pub fn get(&self, at: &Path) -> Option<Value> {
        self.handle.get(at)
    }

    /// Returns the value at a path without `[*]` as text, or none if it is missing or null. Strings are unescaped, all
    /// other values are JSON.
    pub fn text(&self, at: &Path) -> Option<String> {
        self.handle.text(at)
    }

    /// Returns the index of the value that [`text`](Self::text) returns at this path, or none if it is not among the
    /// values. Prefer it for names: it returns the same for most objects, so that the host can replay one trace for all
    /// of them.
    pub fn one_of(&self, at: &Path, values: &[String]) -> Option<usize> {
        self.handle.one_of(at, values).and_then(|position| usize::try_from(position).ok())
    }

    /// Returns the values of all rows in one host call.
    pub fn column(&self, at: &Path) -> Column {
        let (text, ends) = self.handle.column(at);
        Column::new(text, ends)
    }

    /// Returns the sizes of the arrays at the last `[*]`, one per row of the path before it, and 0 for a missing array.
    pub fn lengths(&self, at: &Path) -> Vec<u32> {
        self.handle.lengths(at)
    }

    /// Returns the member names of the object at a path without `[*]`.
    pub fn keys(&self, at: &Path) -> Vec<String> {
        self.handle.keys(at)
    }

    /// Returns a hash of the values at the path. Equal values have equal fingerprints for the life of this filter
    /// instance. Use it as a key of [`Memo`].
    ///
    /// [`Memo`]: crate::Memo
    pub fn fingerprint(&self, at: &Path) -> u64 {
        self.handle.fingerprint(at)
    }

    /// Returns the whole object as JSON, including edits. This is expensive: prefer reads at paths.
    pub fn to_json(&self) -> String {
        self.handle.to_json()
    }

    /// Sets the value in every row. Creates missing objects along the path, but never array elements.
    pub fn set(&mut self, at: &Path, value: impl Into<Value>) -> Result<(), Error> {
        self.handle.set(at, value.into()).map_err(Error::new)
    }

    /// Sets the value in the selected rows. Makes no host call if no row is selected.
    pub fn set_rows(&mut self, at: &Path, rows: &Rows, value: impl Into<Value>) -> Result<(), Error> {
        if rows.none() {
            return Ok(());
        }
        self.handle.set_rows(at, rows.as_bytes(), value.into()).map_err(Error::new)
    }

    /// Removes the member or element at the path in every row. Returns the number of removed values.
    pub fn remove(&mut self, at: &Path) -> Result<u32, Error> {
        self.handle.remove(at).map_err(Error::new)
    }

    /// Removes the member or element in the selected rows. Returns the number of removed values. Makes no host call if
    /// no row is selected.
    pub fn remove_rows(&mut self, at: &Path, rows: &Rows) -> Result<u32, Error> {
        if rows.none() {
            return Ok(0);
        }
        self.handle.remove_rows(at, rows.as_bytes()).map_err(Error::new)
    }

    /// Keeps the selected elements of the last `[*]` and removes the others. Ignores the rest of the path, so that the
    /// path of a column can be used. Makes no host call if all rows are selected.
    pub fn retain(&mut self, at: &Path, keep: &Rows) -> Result<(), Error> {
        if keep.all() {
            return Ok(());
        }
        self.handle.retain(at, keep.as_bytes()).map_err(Error::new)
    }

    /// Keeps the elements of the last `[*]` whose value at the path is in the set, and removes the others. This does
    /// the work of `column` and `retain` in one host call, and the host can replay it.
    pub fn retain_in(&mut self, at: &Path, values: &StringSet) -> Result<(), Error> {
        self.handle.retain_in(at, &values.0).map_err(Error::new)
    }

    /// Appends an element to the array at the path in every row. Creates a missing array.
    pub fn append(&mut self, at: &Path, value: impl Into<Value>) -> Result<(), Error> {
        self.handle.append(at, value.into()).map_err(Error::new)
    }

    /// Replaces the whole object with this JSON.
    pub fn replace(&mut self, json: &str) -> Result<(), Error> {
        self.handle.replace(json).map_err(Error::new)
    }
}
