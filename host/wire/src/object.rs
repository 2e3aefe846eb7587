//! One object of a get, a watch event or the response to a write, with its wrapper: a protobuf envelope, a Table, or none.
//!
//! An object shares the bytes of its body or frame. It is copied only if it is edited, gets a type, or is reduced to its
//! metadata.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, header};
use weir_document::protobuf::Envelope;
use weir_document::{Document, Error, TypeMeta};
use weir_kube::{Encoding, MetaVersion, Transform};

use super::object_type::partial;
use super::{CodecError, ObjectType, table};

/// A received object.
#[derive(Debug, Clone)]
pub struct EncodedObject {
    document: Document,
    wrapper: Wrapper,
}

/// The wrapper of an object.
#[derive(Debug, Clone)]
enum Wrapper {
    Bare,
    Envelope(Envelope, Arc<TypeMeta>),
    /// The object belongs to the only row of this Table.
    Table(Document),
}

impl EncodedObject {
    /// Decodes a body or a frame's object; none for a Table that does not consist of one row with an object.
    ///
    /// # Errors
    /// The bytes are malformed, or the schema does not know the kind of a protobuf object.
    pub fn decode(encoding: Encoding, transform: Transform, bytes: Bytes) -> Result<Option<Self>, Error> {
        if encoding == Encoding::Protobuf {
            let envelope = Envelope::open(bytes)?;
            let type_meta = Arc::new(envelope.type_meta().clone());
            let document = message(envelope.object(), &type_meta)?;
            return Ok(Some(Self { document, wrapper: Wrapper::Envelope(envelope, type_meta) }));
        }
        Self::from_json(transform, Document::json(bytes))
    }

    /// Takes a JSON document; none for a Table that does not consist of one row with an object.
    ///
    /// # Errors
    /// The bytes are malformed.
    pub(crate) fn from_json(transform: Transform, document: Document) -> Result<Option<Self>, Error> {
        if !matches!(transform, Transform::Table(..)) || document.kind()? != "Table" {
            return Ok(Some(Self { document, wrapper: Wrapper::Bare }));
        }
        let object = table::only_object(&document)?;
        Ok(object.map(|object| Self { document: object, wrapper: Wrapper::Table(document) }))
    }

    /// Whether the object is complete. A Table carries only metadata unless the request asks for objects.
    pub fn is_complete(&self) -> bool {
        !matches!(self.wrapper, Wrapper::Table(_))
            || self.document.kind().is_ok_and(|kind| kind != "PartialObjectMetadata")
    }

    /// Gives the object the type of its resource, unless it names its own.
    ///
    /// # Errors
    /// [`CodecError::UnknownType`], if neither is known.
    pub fn typed(self, object_type: &ObjectType) -> Result<Self, CodecError> {
        Ok(Self { document: object_type.apply(self.document)?, ..self })
    }

    /// The object that filters see.
    pub fn document(&self) -> &Document {
        &self.document
    }

    /// Encodes the object, unchanged or as filters edited it, in the form that the client requested. A Table whose object was
    /// edited becomes the plain object, because its cells show the unedited one.
    ///
    /// # Errors
    /// The metadata is malformed.
    pub fn encode(&self, edited: Option<&Bytes>, transform: Transform) -> Result<Bytes, Error> {
        let metadata = |version: MetaVersion| self.edited(edited)?.only_metadata(&partial(version));
        match (&self.wrapper, transform, edited) {
            (Wrapper::Table(table), Transform::Table(version, include), None) => {
                table::with_only_object(table, &self.document, version, include)
            }
            (Wrapper::Envelope(..), Transform::Metadata(version), _) => {
                Ok(Envelope::seal(&partial(version), &metadata(version)?))
            }
            (_, Transform::Metadata(version), _) => metadata(version),
            (Wrapper::Envelope(envelope, _), _, None) => Ok(envelope.body().clone()),
            (Wrapper::Envelope(envelope, _), _, Some(edited)) => envelope.with(edited),
            (_, _, None) => Ok(self.document.bytes().clone()),
            (_, _, Some(edited)) => Ok(edited.clone()),
        }
    }

    /// The Table that this object came in.
    pub(crate) fn table(&self) -> Option<&Document> {
        match &self.wrapper {
            Wrapper::Table(table) => Some(table),
            Wrapper::Bare | Wrapper::Envelope(..) => None,
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

/// The object that is a whole body, by the headers of its message. `None` if it has another type, or is malformed.
pub fn body_document(headers: &HeaderMap, body: &Bytes) -> Option<Document> {
    let content_type = headers.get(header::CONTENT_TYPE)?.to_str().ok()?;
    let encoding = Encoding::from_content_type(content_type)?;
    let object = EncodedObject::decode(encoding, Transform::None, body.clone()).ok()??;
    Some(object.document)
}

/// Creates a document from a protobuf message.
///
/// # Errors
/// [`Error::NoSchema`], if the schema does not know the type.
pub(crate) fn message(bytes: Bytes, type_meta: &Arc<TypeMeta>) -> Result<Document, Error> {
    let missing = || Error::NoSchema { api_version: type_meta.api_version.clone(), kind: type_meta.kind.clone() };
    Document::protobuf(bytes, type_meta.clone()).ok_or_else(missing)
}
