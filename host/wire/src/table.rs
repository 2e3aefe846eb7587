//! Tables: their rows, the object of a row, and their columns.
//!
//! The API server puts an object beside the cells of each row if the request asks for it (`includeObject`). Filters need
//! the whole object; the client gets the part that it requested.

use bytes::Bytes;
use weir_document::{Document, Error, Path, Value, path};
use weir_kube::{IncludeObject, MetaVersion};

use super::object_type::partial;

static ROWS: Path = path!("rows[*]");
static FIRST_OBJECT: Path = path!("rows[0].object");
static OBJECT: Path = path!("object");
static COLUMNS: Path = path!("columnDefinitions");
static METADATA: Path = path!("metadata");

/// The columns of a watch's Tables. Only the first event names them; if filters hide that event, the next one that the
/// client gets must name them.
#[derive(Debug, Default)]
pub(crate) struct TableColumns {
    /// The columns that were not sent yet.
    pending: Option<Bytes>,
}

impl TableColumns {
    /// Keeps the columns that an event names for the next event that is sent.
    pub(crate) fn note(&mut self, columns: Option<&Bytes>) {
        if let Some(columns) = columns {
            self.pending = Some(columns.clone());
        }
    }

    /// Adds the columns to an encoded event if it is a Table and they were not sent yet.
    ///
    /// # Errors
    /// The Table is malformed.
    pub(crate) fn add_to(&mut self, encoded: Bytes) -> Result<Bytes, Error> {
        if self.pending.is_none() {
            return Ok(encoded);
        }
        let table = Document::json(encoded.clone());
        if table.kind()? != "Table" {
            return Ok(encoded);
        }
        match self.pending.take() {
            Some(columns) if columns_of(&table)?.is_none() => {
                Ok(replaced(&table, &COLUMNS, json(&columns)?)?.bytes().clone())
            }
            _ => Ok(encoded),
        }
    }
}

/// Returns the columns that a Table names; none for `null` and for an absent field.
///
/// # Errors
/// The Table is malformed.
pub(crate) fn columns_of(table: &Document) -> Result<Option<Bytes>, Error> {
    Ok(table.json_at(&COLUMNS)?.filter(|columns| columns != "null"))
}

/// Returns the object of a Table's only row; none if there are no or several rows, or no object.
pub(crate) fn only_object(table: &Document) -> Result<Option<Document>, Error> {
    if table.lengths(&ROWS)? != [1] {
        return Ok(None);
    }
    Ok(table.json_at(&FIRST_OBJECT)?.filter(|object| object.starts_with(b"{")).map(Document::json))
}

/// Returns a Table of one row with the part of its object that the client requested.
pub(crate) fn with_only_object(
    table: &Document,
    object: &Document,
    version: MetaVersion,
    include: IncludeObject,
) -> Result<Bytes, Error> {
    Ok(replaced(table, &FIRST_OBJECT, included(object, version, include)?)?.bytes().clone())
}

/// Returns the whole object of a row; none if the row has none, or has only its metadata.
///
/// # Errors
/// The row is malformed.
pub(crate) fn row_object(row: &Document) -> Result<Option<Document>, Error> {
    let object = row.json_at(&OBJECT)?.filter(|object| object.starts_with(b"{")).map(Document::json);
    match object {
        Some(object) if object.kind()? == "PartialObjectMetadata" => Ok(None),
        object => Ok(object),
    }
}

/// Returns a row with the part of its object that the client requested.
///
/// # Errors
/// The object's metadata is malformed.
pub(crate) fn row(
    row: &Document,
    object: &Document,
    version: MetaVersion,
    include: IncludeObject,
) -> Result<Bytes, Error> {
    Ok(replaced(row, &OBJECT, included(object, version, include)?)?.bytes().clone())
}

/// Returns the metadata of a JSON list or Table.
///
/// # Errors
/// The bytes are not a JSON object.
pub(crate) fn list_metadata(list: &Document) -> Result<Bytes, Error> {
    Ok(list.json_at(&METADATA)?.unwrap_or(Bytes::from_static(b"{}")))
}

/// The value of a row's `object` field; none: the field stays as it is.
fn included(object: &Document, version: MetaVersion, include: IncludeObject) -> Result<Option<Value>, Error> {
    match include {
        IncludeObject::None => Ok(Some(Value::Null)),
        IncludeObject::Metadata => json(&object.only_metadata(&partial(version))?),
        IncludeObject::Object => Ok(None),
    }
}

fn json(text: &[u8]) -> Result<Option<Value>, Error> {
    let text = std::str::from_utf8(text)
        .map_err(|error| Error::Malformed { offset: error.valid_up_to(), reason: "text that is not UTF-8" })?;
    Ok(Some(Value::Json(text.to_owned())))
}

/// Returns the document with another value at a path, or unchanged if there is none.
fn replaced(document: &Document, at: &Path, value: Option<Value>) -> Result<Document, Error> {
    let mut document = document.clone();
    if let Some(value) = value {
        document.set(at, &value)?;
    }
    Ok(document)
}
