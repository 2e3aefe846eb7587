//! One Kubernetes object, as a filter sees it: a handle on bytes that the host holds. Nothing is decoded until it is
//! read, and each read or edit is one crossing.
//!
//! A read of malformed bytes ends the call in the host. Natively it yields an empty answer and the run fails
//! afterwards, so that reads need no `?` in either world.

use crate::{Column, Error, Path, Rows, StringSet, Value, backend};

static NAME: Path = Path::new("metadata.name");

/// A Kubernetes object: the one being filtered, or one that was looked up.
///
/// Rows of a path are the elements of the array at its last `[*]`, flattened over outer ones; without `[*]`, the object
/// is the one row. Edits cost one pass over the bytes whatever the number of rows, so collect [`Rows`] and edit once.
/// Refused, with an error and nothing changed: edits of apiVersion, kind and metadata's name, namespace, uid,
/// resourceVersion, labels and ownerReferences, of what the host guards, and of any object that was looked up.
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

    /// `v1`, `discovery.k8s.io/v1`.
    pub fn api_version(&self) -> String {
        self.handle.api_version()
    }

    /// `Service`, `EndpointSlice`.
    pub fn kind(&self) -> String {
        self.handle.kind()
    }

    /// Whether the object is of this apiVersion and kind.
    pub fn is(&self, api_version: &str, kind: &str) -> bool {
        self.kind() == kind && self.api_version() == api_version
    }

    /// metadata.namespace; none for an object outside namespaces.
    pub fn namespace(&self) -> Option<String> {
        self.handle.namespace()
    }

    /// Whether metadata.name is this: the way to be for one object, see [`one_of`](Self::one_of).
    pub fn is_named(&self, name: &str) -> bool {
        self.one_of(&NAME, &[name.to_owned()]).is_some()
    }

    /// metadata.name, or an empty string.
    pub fn name(&self) -> String {
        self.handle.name()
    }

    /// The value of one label.
    pub fn label(&self, key: &str) -> Option<String> {
        self.handle.label(key)
    }

    /// The value of one annotation.
    pub fn annotation(&self, key: &str) -> Option<String> {
        self.handle.annotation(key)
    }

    /// The value at a path without `[*]`, with its type.
    pub fn get(&self, at: &Path) -> Option<Value> {
        self.handle.get(at)
    }

    /// The value at a path without `[*]` as text: strings unescaped, all else as JSON; none if it is missing or null.
    pub fn text(&self, at: &Path) -> Option<String> {
        self.handle.text(at)
    }

    /// Which of these texts [`text`](Self::text) would give at the path. The question to ask of names: most objects
    /// answer it alike, and those that answer all questions alike are judged without a call.
    pub fn one_of(&self, at: &Path, values: &[String]) -> Option<usize> {
        self.handle.one_of(at, values).and_then(|position| usize::try_from(position).ok())
    }

    /// The values of all rows, in one crossing.
    pub fn column(&self, at: &Path) -> Column {
        let (text, ends) = self.handle.column(at);
        Column::new(text, ends)
    }

    /// The sizes of the arrays under the last `[*]`, one per row of the part before it; 0 for a missing one.
    pub fn lengths(&self, at: &Path) -> Vec<u32> {
        self.handle.lengths(at)
    }

    /// The member names of the object at a path without `[*]`.
    pub fn keys(&self, at: &Path) -> Vec<String> {
        self.handle.keys(at)
    }

    /// A number that is equal for equal values at the path, for the life of this filter instance: a key for [`Memo`].
    ///
    /// [`Memo`]: crate::Memo
    pub fn fingerprint(&self, at: &Path) -> u64 {
        self.handle.fingerprint(at)
    }

    /// The whole object as JSON, edits included. Dear: prefer reads at paths.
    pub fn to_json(&self) -> String {
        self.handle.to_json()
    }

    /// Sets the value in every row. Missing objects on the way are made, array elements never.
    pub fn set(&mut self, at: &Path, value: impl Into<Value>) -> Result<(), Error> {
        self.handle.set(at, value.into()).map_err(Error::new)
    }

    /// Sets the value in the chosen rows. Without any, nothing crosses.
    pub fn set_rows(&mut self, at: &Path, rows: &Rows, value: impl Into<Value>) -> Result<(), Error> {
        if rows.none() {
            return Ok(());
        }
        self.handle.set_rows(at, rows.as_bytes(), value.into()).map_err(Error::new)
    }

    /// Removes the member or element at the path in every row; says how many there were.
    pub fn remove(&mut self, at: &Path) -> Result<u32, Error> {
        self.handle.remove(at).map_err(Error::new)
    }

    /// Removes it in the chosen rows; says how many there were. Without any, nothing crosses.
    pub fn remove_rows(&mut self, at: &Path, rows: &Rows) -> Result<u32, Error> {
        if rows.none() {
            return Ok(0);
        }
        self.handle.remove_rows(at, rows.as_bytes()).map_err(Error::new)
    }

    /// Keeps the chosen elements of the last `[*]` and cuts the others; what follows `[*]` is ignored, so the path of a
    /// column serves. If all are chosen, nothing crosses.
    pub fn retain(&mut self, at: &Path, keep: &Rows) -> Result<(), Error> {
        if keep.all() {
            return Ok(());
        }
        self.handle.retain(at, keep.as_bytes()).map_err(Error::new)
    }

    /// Keeps the elements of the last `[*]` whose value at the path is one of the texts, and cuts the others, those without
    /// a value too. As `column` and `retain` are together, and objects may be cut so without a call.
    pub fn retain_in(&mut self, at: &Path, values: &StringSet) -> Result<(), Error> {
        self.handle.retain_in(at, &values.0).map_err(Error::new)
    }

    /// Adds an element to the array at the path in every row; a missing array is made.
    pub fn append(&mut self, at: &Path, value: impl Into<Value>) -> Result<(), Error> {
        self.handle.append(at, value.into()).map_err(Error::new)
    }

    /// Replaces the whole object by this JSON.
    pub fn replace(&mut self, json: &str) -> Result<(), Error> {
        self.handle.replace(json).map_err(Error::new)
    }
}
