//! One object of a get or a watch: opened from what is round it, judged, and shown in the form its client asked for.
//!
//! Bytes are shared with the body or the frame that they came in; what is shown of an edited object is a copy.

use std::sync::{Arc, LazyLock};

use bytes::Bytes;
use http::HeaderMap;
use weir_document::protobuf::{Envelope, kind_of};
use weir_document::{Document, Error, Path, PathError, TypeMeta, Value};

use super::object_type::{ObjectType, ObjectTypeError};
use weir_kube::{Encoding, IncludeObject, MediaType, MetaVersion, Query, ResourceRequest, Transform};

/// An object as it came.
#[derive(Debug, Clone)]
pub(super) struct Object {
    document: Document,
    wrapper: Wrapper,
}

/// What is round an object.
#[derive(Debug, Clone)]
enum Wrapper {
    Bare,
    Envelope(Envelope, Arc<TypeMeta>),
    /// The only row of a Table.
    Table(Document),
}

/// Paths into Tables.
struct Paths {
    rows: Path,
    first_object: Path,
    object: Path,
    columns: Path,
    metadata: Path,
}

static PATHS: LazyLock<Result<Paths, PathError>> = LazyLock::new(|| {
    Ok(Paths {
        rows: Path::parse("rows[*]")?,
        first_object: Path::parse("rows[0].object")?,
        object: Path::parse("object")?,
        columns: Path::parse("columnDefinitions")?,
        metadata: Path::parse("metadata")?,
    })
});

impl Object {
    /// Opens a body or a frame's object; none for a Table that has not one row with an object.
    ///
    /// # Errors
    /// Bytes that are none, a kind that has no protobuf here.
    pub(super) fn open(encoding: Encoding, transform: Transform, bytes: Bytes) -> Result<Option<Self>, Error> {
        if encoding == Encoding::Protobuf {
            let envelope = Envelope::open(bytes)?;
            let type_meta = Arc::new(envelope.type_meta().clone());
            let document = message(envelope.object(), &type_meta)?;
            return Ok(Some(Self { document, wrapper: Wrapper::Envelope(envelope, type_meta) }));
        }
        Self::json(transform, Document::json(bytes))
    }

    /// Opens a body or a frame's object that is JSON; none for a Table that has not one row with an object.
    ///
    /// # Errors
    /// Bytes that are none.
    pub(super) fn json(transform: Transform, document: Document) -> Result<Option<Self>, Error> {
        if !matches!(transform, Transform::Table(..)) || document.kind()? != "Table" {
            return Ok(Some(Self { document, wrapper: Wrapper::Bare }));
        }
        if document.lengths(&paths()?.rows)? != [1] {
            return Ok(None);
        }
        let object = document.json_at(&paths()?.first_object)?.filter(|object| object.starts_with(b"{"));
        Ok(object.map(|object| Self { document: Document::json(object), wrapper: Wrapper::Table(document) }))
    }

    /// Whether it is more than the metadata of an object, which is all that a Table has unless it is asked.
    pub(super) fn is_whole(&self) -> bool {
        !matches!(self.wrapper, Wrapper::Table(_))
            || self.document.kind().is_ok_and(|kind| kind != "PartialObjectMetadata")
    }

    /// With the type of its resource, unless it names its own.
    ///
    /// # Errors
    /// [`ObjectTypeError`].
    pub(super) fn typed(self, object_type: &ObjectType) -> Result<Self, ObjectTypeError> {
        Ok(Self { document: object_type.apply(self.document)?, ..self })
    }

    /// What filters judge.
    pub(super) fn document(&self) -> &Document {
        &self.document
    }

    /// What its client is shown of it: as it came, or as filters have left it. A Table whose object was edited is shown
    /// as the object itself, because its cells would lie.
    ///
    /// # Errors
    /// Metadata that cannot be read.
    pub(super) fn show(&self, edited: Option<&Bytes>, transform: Transform) -> Result<Bytes, Error> {
        let cut = |version: MetaVersion| self.edited(edited)?.only_metadata(&partial(version));
        match (&self.wrapper, transform, edited) {
            (Wrapper::Table(table), Transform::Table(version, include), None) => {
                let object = shown_in_row(&self.document, version, include)?;
                Ok(replaced(table, &paths()?.first_object, object)?.bytes().clone())
            }
            (Wrapper::Envelope(..), Transform::Metadata(version), _) => {
                Ok(Envelope::seal(&partial(version), &cut(version)?))
            }
            (_, Transform::Metadata(version), _) => cut(version),
            (Wrapper::Envelope(envelope, _), _, None) => Ok(envelope.body().clone()),
            (Wrapper::Envelope(envelope, _), _, Some(edited)) => envelope.with(edited),
            (_, _, None) => Ok(self.document.bytes().clone()),
            (_, _, Some(edited)) => Ok(edited.clone()),
        }
    }

    fn edited(&self, edited: Option<&Bytes>) -> Result<Document, Error> {
        let Some(edited) = edited else { return Ok(self.document.clone()) };
        match &self.wrapper {
            Wrapper::Envelope(_, type_meta) => message(edited.clone(), type_meta),
            Wrapper::Bare | Wrapper::Table(_) => Ok(Document::json(edited.clone())),
        }
    }
}

/// A message as a document.
///
/// # Errors
/// [`Error::NoSchema`].
pub(super) fn message(bytes: Bytes, type_meta: &Arc<TypeMeta>) -> Result<Document, Error> {
    let missing = || Error::NoSchema { api_version: type_meta.api_version.clone(), kind: type_meta.kind.clone() };
    Document::protobuf(bytes, type_meta.clone()).ok_or_else(missing)
}

/// The columns of a watch's Tables: only the first event names them. If that one is not shown, the next one names them
/// in its stead.
#[derive(Debug, Default)]
pub(super) struct Columns {
    owed: Option<Bytes>,
}

impl Columns {
    /// Takes note of what an event names.
    ///
    /// # Errors
    /// A Table that cannot be read.
    pub(super) fn note(&mut self, object: &Object) -> Result<(), Error> {
        if let Wrapper::Table(table) = &object.wrapper
            && let Some(columns) = named(table)?
        {
            self.owed = Some(columns);
        }
        Ok(())
    }

    /// What is shown, with the columns that are owed to the client if it is a Table.
    ///
    /// # Errors
    /// A Table that cannot be read.
    pub(super) fn pay(&mut self, shown: Bytes) -> Result<Bytes, Error> {
        if self.owed.is_none() {
            return Ok(shown);
        }
        let table = Document::json(shown.clone());
        if table.kind()? != "Table" {
            return Ok(shown);
        }
        match self.owed.take() {
            Some(columns) if named(&table)?.is_none() => {
                Ok(replaced(&table, &paths()?.columns, json(&columns)?)?.bytes().clone())
            }
            _ => Ok(shown),
        }
    }
}

/// The columns that a Table names; none for null and nothing.
fn named(table: &Document) -> Result<Option<Bytes>, Error> {
    Ok(table.json_at(&paths()?.columns)?.filter(|columns| columns != "null"))
}

/// The whole object of a Table's row; none if the row has none, or has only its metadata.
///
/// # Errors
/// A row that cannot be read.
pub(super) fn of_row(row: &Document) -> Result<Option<Document>, Error> {
    let object = row.json_at(&paths()?.object)?.filter(|object| object.starts_with(b"{")).map(Document::json);
    match object {
        Some(object) if object.kind()? == "PartialObjectMetadata" => Ok(None),
        object => Ok(object),
    }
}

/// A Table's row with as much of its object as the client asked for.
///
/// # Errors
/// An object whose metadata cannot be read.
pub(super) fn row(
    row: &Document,
    object: &Document,
    version: MetaVersion,
    include: IncludeObject,
) -> Result<Bytes, Error> {
    Ok(replaced(row, &paths()?.object, shown_in_row(object, version, include)?)?.bytes().clone())
}

/// What an object is of which only the metadata is shown.
pub(super) fn partial(version: MetaVersion) -> TypeMeta {
    TypeMeta { api_version: version.api_version().to_owned(), kind: "PartialObjectMetadata".to_owned() }
}

/// What a list of such is.
pub(super) fn partial_list(version: MetaVersion) -> TypeMeta {
    TypeMeta { api_version: version.api_version().to_owned(), kind: "PartialObjectMetadataList".to_owned() }
}

/// The form that a read of a resource asks for.
pub(super) fn negotiate(headers: &HeaderMap, resource: &ResourceRequest, query: &Query) -> MediaType {
    let protobuf = kind_of(&resource.api_version(), &resource.resource.resource).is_some();
    MediaType::negotiate(headers, protobuf, query)
}

/// The metadata of a JSON list or Table.
///
/// # Errors
/// Bytes that are no object.
pub(super) fn list_metadata(list: &Document) -> Result<Bytes, Error> {
    Ok(list.json_at(&paths()?.metadata)?.unwrap_or(Bytes::from_static(b"{}")))
}

fn shown_in_row(object: &Document, version: MetaVersion, include: IncludeObject) -> Result<Option<Value>, Error> {
    match include {
        IncludeObject::None => Ok(Some(Value::Null)),
        IncludeObject::Metadata => json(&object.only_metadata(&partial(version))?),
        IncludeObject::Object => Ok(None),
    }
}

fn json(text: &[u8]) -> Result<Option<Value>, Error> {
    let text = std::str::from_utf8(text).map_err(|error| malformed(error.valid_up_to(), "text that is not UTF-8"))?;
    Ok(Some(Value::Json(text.to_owned())))
}

/// The document with another value at a path; none: as it is.
fn replaced(document: &Document, at: &Path, value: Option<Value>) -> Result<Document, Error> {
    let mut document = document.clone();
    if let Some(value) = value {
        document.set(at, &value)?;
    }
    Ok(document)
}

fn paths() -> Result<&'static Paths, Error> {
    PATHS.as_ref().map_err(|error| malformed(error.position, error.reason))
}

fn malformed(offset: usize, reason: &'static str) -> Error {
    Error::Malformed { offset, reason }
}
