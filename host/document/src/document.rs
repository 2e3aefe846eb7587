//! A document: the bytes of one object, read at paths and edited in place.
//!
//! Clones are cheap, because they share the bytes. The first read builds a table of the object's first two levels (16
//! bytes per member) and marks its brackets and quotes (five eighths of the size of the JSON). An edit builds a new buffer. A
//! checkpoint keeps the old one.

use crate::{
    EditRules, Error, Path, Rows, StringSet, TypeMeta, Value, json, path::Segment, protobuf, rows::RowSet,
    rules::first_affected,
};
use bytes::Bytes;
use std::sync::Arc;

use self::reads::{API_VERSION, KIND};

/// One Kubernetes object. Reads return the effects of earlier edits. A failed edit changes nothing. An edit that
/// changes no value leaves the bytes as they are.
#[derive(Debug, Clone)]
pub struct Document {
    encoded: Encoded,
    /// The type of a JSON object that does not name it. A message has its own.
    type_meta: Option<Arc<TypeMeta>>,
    rules: &'static EditRules,
    guards: Option<Arc<[Path]>>,
    read_only: bool,
    edited: bool,
}

/// A state of a document that it can be restored to. It holds the bytes of that state.
#[derive(Debug, Clone)]
pub struct Checkpoint {
    encoded: Encoded,
    edited: bool,
}

/// The bytes of the object, by encoding.
#[derive(Debug, Clone)]
enum Encoded {
    Json(json::Object),
    Protobuf(protobuf::Object),
}

impl Document {
    /// Creates a document from JSON. The bytes are not checked yet: reads return errors for invalid bytes.
    pub fn json(bytes: Bytes) -> Document {
        Document::new(Encoded::Json(json::Object::new(bytes)))
    }

    /// Creates a document from a protobuf message without its envelope. Reads and edits work as on the equivalent JSON
    /// object, and apiVersion and kind are the given ones. Returns `None` if the schema lacks the kind: request such
    /// objects as JSON.
    ///
    /// An edit returns an error if protobuf cannot encode it: an unknown field, or a value of another type. A value
    /// that Go's JSON omits is absent. Setting a field to null makes it absent, and so does setting a plain field to
    /// its zero value.
    pub fn protobuf(bytes: Bytes, type_meta: Arc<TypeMeta>) -> Option<Document> {
        let object = protobuf::Object::new(bytes, type_meta)?;
        Some(Document::new(Encoded::Protobuf(object)))
    }

    fn new(encoded: Encoded) -> Document {
        Document { encoded, type_meta: None, rules: &EditRules::NONE, guards: None, read_only: false, edited: false }
    }

    /// Returns whether the bytes are protobuf.
    pub fn is_protobuf(&self) -> bool {
        matches!(self.encoded, Encoded::Protobuf(_))
    }

    /// Sets the apiVersion and kind that all reads return if the bytes have none or null, as in items of a typed list.
    /// It does not change the bytes. A protobuf object keeps its own type.
    pub fn with_type(mut self, type_meta: Arc<TypeMeta>) -> Document {
        if !self.is_protobuf() {
            self.type_meta = Some(type_meta);
        }
        self
    }

    /// Sets the rules of edits.
    pub fn with_rules(mut self, rules: &'static EditRules) -> Document {
        self.rules = rules;
        self
    }

    /// Adds to the protected fields of the rules those that are known only when the program runs.
    pub fn with_guards(mut self, guards: Arc<[Path]>) -> Document {
        self.guards = Some(guards);
        self
    }

    /// Makes the document refuse every edit. For looked-up objects, which are held for a long time.
    pub fn read_only(mut self) -> Document {
        self.read_only = true;
        if let Encoded::Json(object) = self.encoded {
            self.encoded = Encoded::Json(object.uncached());
        }
        self
    }

    /// Returns whether an edit has changed the bytes.
    pub fn is_edited(&self) -> bool {
        self.edited
    }

    /// Returns the current bytes. Without edits, these are the input bytes themselves.
    pub fn bytes(&self) -> &Bytes {
        match &self.encoded {
            Encoded::Json(object) => object.bytes(),
            Encoded::Protobuf(object) => object.bytes(),
        }
    }

    /// Returns the current state.
    pub fn checkpoint(&self) -> Checkpoint {
        Checkpoint { encoded: self.encoded.clone(), edited: self.edited }
    }

    /// Undoes every edit since the checkpoint.
    pub fn restore(&mut self, checkpoint: Checkpoint) {
        self.encoded = checkpoint.encoded;
        self.edited = checkpoint.edited;
    }
}

/// Edits. A read-only document refuses all edits with [`Error::ReadOnly`]. The rules and the guards of a document refuse edits
/// with [`Error::Protected`] and [`Error::TooLarge`].
impl Document {
    /// Sets the value in every row. Creates objects that are missing or null along the path, but never array elements:
    /// a row whose path leads through a missing element stays as it is. A value of another kind on the path is an
    /// error.
    pub fn set(&mut self, at: &Path, value: &Value) -> Result<(), Error> {
        self.set_where(at, RowSet::All, value)
    }

    /// Sets the value in the selected rows, in one pass.
    pub fn set_rows(&mut self, at: &Path, rows: &Rows<'_>, value: &Value) -> Result<(), Error> {
        self.set_where(at, rows.set(), value)
    }

    /// Removes the member or element at the path in every row. Returns the number of removed values.
    pub fn remove(&mut self, at: &Path) -> Result<u32, Error> {
        self.remove_where(at, RowSet::All)
    }

    /// Removes the member or element in the selected rows. Returns the number of removed values.
    pub fn remove_rows(&mut self, at: &Path, rows: &Rows<'_>) -> Result<u32, Error> {
        self.remove_where(at, rows.set())
    }

    /// Keeps the selected elements of the last `[*]`, and removes the others. Ignores the rest of the path.
    pub fn retain(&mut self, at: &Path, keep: &Rows<'_>) -> Result<(), Error> {
        let rows_in = at.rows_in().ok_or_else(|| Error::NoWildcard { path: at.clone() })?;
        self.may_edit(at, rows_in)?;
        let edited = match &self.encoded {
            Encoded::Json(object) => json::edit::retain(object, at, keep.set()),
            Encoded::Protobuf(object) => protobuf::edit::retain(object, at, keep.set()),
        }?;
        self.take(edited);
        Ok(())
    }

    /// Removes the elements of the last `[*]` whose value at the path is not in the set or is absent. Values have the
    /// spelling of a column.
    pub fn retain_in(&mut self, at: &Path, values: &StringSet) -> Result<(), Error> {
        self.retain(at, &self.rows_in_set(at, values)?)
    }

    /// Appends an element to the array at the path in every row. Creates an array that is missing or null.
    pub fn append(&mut self, at: &Path, value: &Value) -> Result<(), Error> {
        self.may_edit(at, at.segments())?;
        let edited = match &self.encoded {
            Encoded::Json(object) => json::edit::append(object, at, value, self.rules.max_bytes),
            Encoded::Protobuf(object) => protobuf::edit::append(object, at, value, self.rules.max_bytes),
        }?;
        self.take(edited);
        Ok(())
    }

    /// Replaces the whole object with JSON text, which is validated completely. Protected fields must have the same values
    /// as before.
    pub fn replace(&mut self, json: &str) -> Result<(), Error> {
        if self.read_only {
            return Err(Error::ReadOnly);
        }
        if json.as_bytes() == &**self.bytes() || json == self.to_json()? {
            return Ok(());
        }
        let limit = self.bytes().len().max(self.rules.max_bytes);
        if json.len() > limit {
            return Err(Error::TooLarge { limit });
        }
        json::validate_object(json).map_err(|source| Error::InvalidValue { source: Box::new(source) })?;
        // Both encodings compare as JSON, because a protobuf message carries no type. The JSON of a message contains
        // its type, which cannot change, and so must the new JSON.
        let fixed = if self.is_protobuf() { &[&API_VERSION, &KIND][..] } else { &[] };
        let encoded = Encoded::Json(json::Object::new(Bytes::from(json.to_owned())));
        let next = Document { encoded, ..self.clone() };
        let guards = self.guards.as_deref().unwrap_or_default();
        for field in fixed.iter().copied().chain(self.rules.protected).chain(guards) {
            if !self.same_values(&next, field)? {
                return Err(Error::Protected { path: field.clone(), field: field.clone() });
            }
        }
        let encoded = match &self.encoded {
            Encoded::Json(_) => next.encoded,
            Encoded::Protobuf(object) => Encoded::Protobuf(object.with(protobuf::encode(object, json)?)),
        };
        self.encoded = encoded;
        self.edited = true;
        Ok(())
    }

    fn set_where(&mut self, at: &Path, rows: RowSet<'_>, value: &Value) -> Result<(), Error> {
        self.may_edit(at, at.segments())?;
        let limit = self.rules.max_bytes;
        let edited = match &self.encoded {
            Encoded::Json(object) => json::edit::set(object, at, rows, value, limit),
            Encoded::Protobuf(object) => protobuf::edit::set(object, at, rows, value, limit),
        }?;
        self.take(edited);
        Ok(())
    }

    fn remove_where(&mut self, at: &Path, rows: RowSet<'_>) -> Result<u32, Error> {
        self.may_edit(at, at.segments())?;
        let (count, edited) = match &self.encoded {
            Encoded::Json(object) => json::edit::remove(object, at, rows),
            Encoded::Protobuf(object) => protobuf::edit::remove(object, at, rows),
        }?;
        self.take(edited);
        Ok(count)
    }

    fn may_edit(&self, at: &Path, segments: &[Segment]) -> Result<(), Error> {
        if self.read_only {
            return Err(Error::ReadOnly);
        }
        // The object itself can only be replaced by another object.
        if segments.is_empty() {
            return Err(Error::Protected { path: at.clone(), field: crate::path!("$") });
        }
        let guards = self.guards.as_deref().unwrap_or_default();
        match first_affected(segments, self.rules.protected).or_else(|| first_affected(segments, guards)) {
            Some(field) => Err(Error::Protected { path: at.clone(), field: field.clone() }),
            None => Ok(()),
        }
    }

    /// Returns whether another version has the same values in all rows of a path. Missing and null are equal.
    fn same_values(&self, next: &Document, at: &Path) -> Result<bool, Error> {
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
            self.encoded = match &self.encoded {
                Encoded::Json(_) => Encoded::Json(json::Object::new(bytes)),
                Encoded::Protobuf(object) => Encoded::Protobuf(object.with(bytes)),
            };
            self.edited = true;
        }
    }
}

mod partial;
mod reads;
mod split;

#[cfg(test)]
mod tests;
