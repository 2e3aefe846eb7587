//! A document: one object's bytes, read at paths and edited in place.
//!
//! Cheap to clone and to hold: the bytes are shared. Nothing is looked at before the first read, which makes a table of
//! the object's first two levels (16 bytes a member) and marks its brackets and quotes (half the size of the JSON). Edits
//! build a new buffer; the old one lives on in checkpoints.

use crate::{Error, Path, StringSet, TypeMeta, Value, json, path::Step, protect, protobuf, rows::Rows};
use bytes::Bytes;
use std::sync::Arc;

/// One Kubernetes object. Reads see earlier edits. An edit that fails changes nothing; one that changes no value leaves
/// the object unedited, byte for byte.
#[derive(Debug, Clone)]
pub struct Document {
    form: Form,
    type_meta: Option<Arc<TypeMeta>>,
    guards: Option<Arc<[Path]>>,
    read_only: bool,
    edited: bool,
}

/// A document's state to come back to. Holds the bytes of that time.
#[derive(Debug, Clone)]
pub struct Checkpoint {
    form: Form,
    edited: bool,
}

/// How the object is encoded.
#[derive(Debug, Clone)]
enum Form {
    Json(json::Object),
    Protobuf(protobuf::Object),
}

impl Document {
    /// An object as JSON. Nothing is checked yet: bad bytes are an error of the reads.
    pub fn json(bytes: Bytes) -> Document {
        Document::new(Form::Json(json::Object::new(bytes)), None)
    }

    /// The same, with what a split has seen of the bytes.
    pub(crate) fn seen(bytes: Bytes, seen: json::Seen) -> Document {
        Document::new(Form::Json(json::Object::seen(bytes, seen)), None)
    }

    /// An object as a protobuf message without its envelope, read and edited like the JSON object that it stands for.
    /// apiVersion and kind are those given. None for a kind that the schema lacks: it is to be asked for as JSON.
    ///
    /// What cannot be said in protobuf is an error of the edit: fields that the kind has not, values of another type.
    /// What JSON leaves out is absent: setting it to null, or a plain field to its zero value, makes it so.
    pub fn protobuf(bytes: Bytes, type_meta: Arc<TypeMeta>) -> Option<Document> {
        let object = protobuf::Object::new(bytes, type_meta.clone())?;
        Some(Document::new(Form::Protobuf(object), Some(type_meta)))
    }

    fn new(form: Form, type_meta: Option<Arc<TypeMeta>>) -> Document {
        Document { form, type_meta, guards: None, read_only: false, edited: false }
    }

    /// Whether the bytes are protobuf.
    pub fn is_protobuf(&self) -> bool {
        matches!(self.form, Form::Protobuf(_))
    }

    /// What apiVersion and kind answer, in every read, when the bytes have none or null: items of a typed list. The bytes
    /// are not changed by it. A protobuf object has its type already and keeps it.
    pub fn with_type(mut self, type_meta: Arc<TypeMeta>) -> Document {
        if !self.is_protobuf() {
            self.type_meta = Some(type_meta);
        }
        self
    }

    /// Further paths at, above or below which edits are refused.
    pub fn with_guards(mut self, guards: Arc<[Path]>) -> Document {
        self.guards = Some(guards);
        self
    }

    /// The same object, refusing every edit: one that is looked up, and held for that.
    pub fn read_only(mut self) -> Document {
        self.read_only = true;
        if let Form::Json(object) = self.form {
            self.form = Form::Json(object.frugal());
        }
        self
    }

    /// Whether an edit has changed the bytes.
    pub fn is_edited(&self) -> bool {
        self.edited
    }

    /// The current bytes: the very input while nothing is edited.
    pub fn bytes(&self) -> &Bytes {
        match &self.form {
            Form::Json(object) => object.bytes(),
            Form::Protobuf(object) => object.bytes(),
        }
    }

    /// The state now.
    pub fn checkpoint(&self) -> Checkpoint {
        Checkpoint { form: self.form.clone(), edited: self.edited }
    }

    /// Undoes every edit since the checkpoint.
    pub fn restore(&mut self, checkpoint: Checkpoint) {
        self.form = checkpoint.form;
        self.edited = checkpoint.edited;
    }
}

/// Edits. All are refused with [`Error::ReadOnly`] on a read-only document and with [`Error::Protected`] at, above or
/// below apiVersion, kind and metadata's name, namespace, uid, resourceVersion, labels and ownerReferences, and the guards.
impl Document {
    /// Sets the value in every row. Objects that are missing or null on the way are made, array elements never: a row
    /// whose path leads through one stays as it is. A value of another kind in the way is an error.
    pub fn set(&mut self, at: &Path, value: &Value) -> Result<(), Error> {
        self.may_edit(at, at.steps())?;
        let edited = match &self.form {
            Form::Json(object) => json::edit::set(object, at, Rows::All, value),
            Form::Protobuf(object) => protobuf::edit::set(object, at, Rows::All, value),
        }?;
        self.take(edited);
        Ok(())
    }

    /// Sets the value in the rows whose bit is 1, in one pass.
    pub fn set_rows(&mut self, at: &Path, rows: &[u8], value: &Value) -> Result<(), Error> {
        self.may_edit(at, at.steps())?;
        let edited = match &self.form {
            Form::Json(object) => json::edit::set(object, at, Rows::Bits(rows), value),
            Form::Protobuf(object) => protobuf::edit::set(object, at, Rows::Bits(rows), value),
        }?;
        self.take(edited);
        Ok(())
    }

    /// Removes the member or element at the path in every row; says how many there were.
    pub fn remove(&mut self, at: &Path) -> Result<u32, Error> {
        self.remove_where(at, Rows::All)
    }

    /// Removes it in the rows whose bit is 1; says how many there were.
    pub fn remove_rows(&mut self, at: &Path, rows: &[u8]) -> Result<u32, Error> {
        self.remove_where(at, Rows::Bits(rows))
    }

    /// Cuts the elements of the last `[*]` whose bit is 0; what follows the last `[*]` is ignored.
    pub fn retain(&mut self, at: &Path, keep: &[u8]) -> Result<(), Error> {
        let rows_in = at.rows_in().ok_or_else(|| Error::NoWildcard { path: at.clone() })?;
        self.may_edit(at, rows_in)?;
        let edited = match &self.form {
            Form::Json(object) => json::edit::retain(object, at, Rows::Bits(keep)),
            Form::Protobuf(object) => protobuf::edit::retain(object, at, Rows::Bits(keep)),
        }?;
        self.take(edited);
        Ok(())
    }

    /// Cuts the elements of the last `[*]` whose value at the path is not in the set, as a column's cell: those of
    /// missing and null go too.
    pub fn retain_in(&mut self, at: &Path, values: &StringSet) -> Result<(), Error> {
        let keep = self.among(at, values)?;
        self.retain(at, keep.bits())
    }

    /// Adds an element to the array at the path, in every row; a missing or null array is made.
    pub fn append(&mut self, at: &Path, value: &Value) -> Result<(), Error> {
        self.may_edit(at, at.steps())?;
        let edited = match &self.form {
            Form::Json(object) => json::edit::append(object, at, value),
            Form::Protobuf(object) => protobuf::edit::append(object, at, value),
        }?;
        self.take(edited);
        Ok(())
    }

    /// Replaces the whole object by JSON text, which is validated in full. What may not be edited must be there with the
    /// same values; so must what is guarded.
    pub fn replace(&mut self, json: &str) -> Result<(), Error> {
        if self.read_only {
            return Err(Error::ReadOnly);
        }
        if json.as_bytes() == &**self.bytes() || json == self.to_json()? {
            return Ok(());
        }
        let limit = self.bytes().len().max(crate::MAX_EDITED);
        if json.len() > limit {
            return Err(Error::TooLarge { limit });
        }
        json::validate_object(json).map_err(|source| Error::InvalidValue { source: Box::new(source) })?;
        // Compared as JSON in either form: a protobuf message could not say that the type is another. That of a message
        // stands in its JSON, and must be said in what replaces it.
        let form = Form::Json(json::Object::new(Bytes::from(json.to_owned())));
        let type_meta = self.type_meta.clone().filter(|_| !self.is_protobuf());
        let next = Document { form, type_meta, ..self.clone() };
        for field in protect::fields().iter().chain(self.guards.iter().flat_map(|guards| guards.iter())) {
            if !self.agrees(&next, field)? {
                return Err(Error::Protected { path: field.clone(), field: field.clone() });
            }
        }
        let form = match &self.form {
            Form::Json(_) => next.form,
            Form::Protobuf(object) => Form::Protobuf(object.with(protobuf::encode(object, json)?)),
        };
        self.form = form;
        self.edited = true;
        Ok(())
    }

    fn remove_where(&mut self, at: &Path, rows: Rows<'_>) -> Result<u32, Error> {
        self.may_edit(at, at.steps())?;
        let (count, edited) = match &self.form {
            Form::Json(object) => json::edit::remove(object, at, rows),
            Form::Protobuf(object) => protobuf::edit::remove(object, at, rows),
        }?;
        self.take(edited);
        Ok(count)
    }

    fn may_edit(&self, at: &Path, steps: &[Step]) -> Result<(), Error> {
        if self.read_only {
            return Err(Error::ReadOnly);
        }
        let guards = self.guards.as_deref().unwrap_or_default();
        match protect::touched(steps, protect::fields()).or_else(|| protect::touched(steps, guards)) {
            Some(field) => Err(Error::Protected { path: at.clone(), field: field.clone() }),
            None => Ok(()),
        }
    }

    /// Whether another version has the same values in all rows of a path; missing and null are the same.
    fn agrees(&self, next: &Document, at: &Path) -> Result<bool, Error> {
        let (old, new) = (self.raw_rows(at)?, next.raw_rows(at)?);
        if old.len() != new.len() || self.lengths(at)? != next.lengths(at)? {
            return Ok(false);
        }
        for pair in old.iter().zip(&new) {
            match pair {
                (None, None) => {}
                (Some(old), Some(new)) if json::equal(old, new)? => {}
                _ => return Ok(false),
            }
        }
        Ok(true)
    }

    fn take(&mut self, edited: Option<Bytes>) {
        if let Some(bytes) = edited {
            self.form = match &self.form {
                Form::Json(_) => Form::Json(json::Object::new(bytes)),
                Form::Protobuf(object) => Form::Protobuf(object.with(bytes)),
            };
            self.edited = true;
        }
    }
}

mod partial;
mod reads;

#[cfg(test)]
mod tests;
