//! Reads of a document. A read validates the value that it returns and everything on its path, and nothing else.

use super::{Document, Encoded};
use crate::{
    Column, Error, Path, Rows, StringSet, TypeMeta, Value,
    json::{
        self,
        read::{Cells, Fingerprint, Lengths, MemberNames, One, Pick, RawRows},
    },
    path::Segment,
    protobuf,
};
use bytes::Bytes;
use std::{borrow::Cow, ops::Range};

pub(super) static API_VERSION: Path = crate::path!("apiVersion");
pub(super) static KIND: Path = crate::path!("kind");
static NAMESPACE: Path = crate::path!("metadata.namespace");
static NAME: Path = crate::path!("metadata.name");
static RESOURCE_VERSION: Path = crate::path!("metadata.resourceVersion");
static LABELS: Path = crate::path!("metadata.labels");
static ANNOTATIONS: Path = crate::path!("metadata.annotations");

/// Reads. An error means that the object's bytes are invalid, or that the path does not suit the function.
impl Document {
    /// Returns the apiVersion: `v1`, `discovery.k8s.io/v1`. It is empty if neither the bytes nor
    /// [`Document::with_type`] provide it.
    pub fn api_version(&self) -> Result<Cow<'_, str>, Error> {
        Ok(self.text_at(API_VERSION.segments())?.unwrap_or_default())
    }

    /// Returns the kind: `Service`. It is empty if neither the bytes nor [`Document::with_type`] provide it.
    pub fn kind(&self) -> Result<Cow<'_, str>, Error> {
        Ok(self.text_at(KIND.segments())?.unwrap_or_default())
    }

    /// Returns metadata.namespace, or none for a cluster-scoped object.
    pub fn namespace(&self) -> Result<Option<Cow<'_, str>>, Error> {
        Ok(self.text_at(NAMESPACE.segments())?.filter(|namespace| !namespace.is_empty()))
    }

    /// Returns metadata.name, or an empty string if it is missing.
    pub fn name(&self) -> Result<Cow<'_, str>, Error> {
        Ok(self.text_at(NAME.segments())?.unwrap_or_default())
    }

    /// Returns metadata.resourceVersion, or none if it is missing.
    pub fn resource_version(&self) -> Result<Option<Cow<'_, str>>, Error> {
        self.text_at(RESOURCE_VERSION.segments())
    }

    /// Returns the value of one label.
    pub fn label(&self, key: &str) -> Result<Option<Cow<'_, str>>, Error> {
        self.pick(LABELS.segments(), key)
    }

    /// Returns the value of one annotation.
    pub fn annotation(&self, key: &str) -> Result<Option<Cow<'_, str>>, Error> {
        self.pick(ANNOTATIONS.segments(), key)
    }

    /// Returns the value at a path without `[*]`, or none if it is missing.
    pub fn get(&self, at: &Path) -> Result<Option<Value>, Error> {
        one_place(at)?;
        if let Some(text) = self.implied(at.segments())? {
            return Ok(Some(Value::Text(text.to_owned())));
        }
        if at.segments().is_empty() {
            return Ok(Some(Value::Json(self.to_json()?)));
        }
        match &self.encoded {
            Encoded::Json(object) => {
                span(object, at.segments())?.map(|span| json::read::value(object.bytes(), span)).transpose()
            }
            Encoded::Protobuf(object) => {
                let node = protobuf::read::one(object, at.segments())?;
                node.map(|node| protobuf::decode::value(object.bytes(), &node)).transpose()
            }
        }
    }

    /// Returns the value at a path without `[*]` in the spelling of a column, or none if it is missing or null.
    pub fn text(&self, at: &Path) -> Result<Option<Cow<'_, str>>, Error> {
        one_place(at)?;
        self.text_at(at.segments())
    }

    /// Returns the values of all rows.
    pub fn column(&self, at: &Path) -> Result<Column, Error> {
        let mut column = Column::default();
        self.column_into(at, &mut column)?;
        Ok(column)
    }

    /// Appends the values of all rows to a column, for one column over several documents. After an error the column may
    /// contain some of them.
    pub fn column_into(&self, at: &Path, column: &mut Column) -> Result<(), Error> {
        self.cells(at, |cell| match cell {
            Some(cell) => column.push(cell),
            None => column.push_absent(),
        })
    }

    /// Selects the rows whose value is in the set.
    pub(super) fn rows_in_set(&self, at: &Path, values: &StringSet) -> Result<Rows<'static>, Error> {
        let mut rows = Rows::from_iter([]);
        self.cells(at, |cell| {
            rows.push(cell.is_some_and(|cell| values.contains(cell)));
            Ok(())
        })?;
        Ok(rows)
    }

    fn cells(&self, at: &Path, mut cell: impl FnMut(Option<&str>) -> Result<(), Error>) -> Result<(), Error> {
        if at.segments().is_empty() || self.implied(at.segments())?.is_some() {
            return cell(self.text_at(at.segments())?.as_deref());
        }
        match &self.encoded {
            Encoded::Json(object) => object.visit_recording_spans(at, Cells(cell)),
            Encoded::Protobuf(object) => protobuf::read::cells(object, at.segments(), cell),
        }
    }

    /// Returns the sizes of the arrays at the last `[*]`, one per row of the path before it, and 0 for a missing array.
    /// Returns nothing for a path without `[*]`.
    pub fn lengths(&self, at: &Path) -> Result<Vec<u32>, Error> {
        let Some(segments) = at.rows_in() else {
            return Ok(Vec::new());
        };
        match &self.encoded {
            Encoded::Json(object) => {
                let mut lengths = Lengths::default();
                object.visit(segments, &mut lengths)?;
                Ok(lengths.0)
            }
            Encoded::Protobuf(object) => protobuf::read::lengths(object, segments),
        }
    }

    /// Returns the member names of the object at a path without `[*]`, in document order.
    pub fn keys(&self, at: &Path) -> Result<Vec<String>, Error> {
        one_place(at)?;
        let mut keys = match &self.encoded {
            Encoded::Json(object) => {
                let mut keys = MemberNames::default();
                object.visit(at.segments(), &mut keys)?;
                keys.0
            }
            Encoded::Protobuf(object) => protobuf::read::keys(object, at.segments())?,
        };
        if at.segments().is_empty() {
            for name in [&API_VERSION, &KIND] {
                if self.implied(name.segments())?.is_some() && !keys.iter().any(|key| key == name.text()) {
                    keys.push(name.text().to_owned());
                }
            }
        }
        Ok(keys)
    }

    /// Returns a hash of the values of all rows. Equal values have equal hashes for the life of this process.
    pub fn fingerprint(&self, at: &Path) -> Result<u64, Error> {
        let mut fingerprint = Fingerprint::new();
        match self.implied(at.segments())? {
            Some(text) => fingerprint.text(text),
            None if at.segments().is_empty() => fingerprint.text(&self.to_json()?),
            None => match &self.encoded {
                Encoded::Json(object) => object.visit(at.segments(), &mut fingerprint)?,
                Encoded::Protobuf(object) => protobuf::read::fingerprint(object, at.segments(), &mut fingerprint)?,
            },
        }
        Ok(fingerprint.finish())
    }

    /// Returns the whole object as an item of a JSON list: a message without kind and apiVersion, which its list names, and
    /// JSON as it came.
    pub fn to_json_item(&self) -> Result<Bytes, Error> {
        match &self.encoded {
            Encoded::Protobuf(object) => object.to_json_item().map(Bytes::from),
            Encoded::Json(object) => {
                object.index()?;
                Ok(object.bytes().clone())
            }
        }
    }

    /// Returns the whole object as JSON text.
    pub fn to_json(&self) -> Result<String, Error> {
        let text = match (&self.encoded, &self.type_meta) {
            (Encoded::Protobuf(object), _) => return object.to_json(),
            (Encoded::Json(object), Some(type_meta)) => json::with_type_meta(object.bytes(), type_meta)?,
            (Encoded::Json(object), None) => {
                object.index()?;
                object.bytes().clone()
            }
        };
        String::from_utf8(text.into())
            .map_err(|error| Error::malformed(error.utf8_error().valid_up_to(), "text that is not UTF-8"))
    }

    /// Returns the apiVersion or kind from [`Document::with_type`], if the bytes have none.
    fn implied(&self, segments: &[Segment]) -> Result<Option<&str>, Error> {
        let [Segment::Name(name)] = segments else {
            return Ok(None);
        };
        let Some(type_meta) = self.type_meta() else {
            return Ok(None);
        };
        let text = match &**name {
            "apiVersion" => &type_meta.api_version,
            "kind" => &type_meta.kind,
            _ => return Ok(None),
        };
        let silent = match &self.encoded {
            Encoded::Json(object) => match span(object, segments)? {
                None => true,
                Some(span) => object.bytes().get(span).is_some_and(|value| value == b"null"),
            },
            // A message never contains its type.
            Encoded::Protobuf(object) => {
                object.check()?;
                true
            }
        };
        Ok(silent.then_some(text))
    }

    fn type_meta(&self) -> Option<&TypeMeta> {
        match &self.encoded {
            Encoded::Json(_) => self.type_meta.as_deref(),
            Encoded::Protobuf(object) => Some(object.type_meta()),
        }
    }

    fn text_at(&self, segments: &[Segment]) -> Result<Option<Cow<'_, str>>, Error> {
        if segments.is_empty() {
            return self.to_json().map(|text| Some(Cow::Owned(text)));
        }
        if let Some(text) = self.implied(segments)? {
            return Ok(Some(Cow::Borrowed(text)));
        }
        match &self.encoded {
            Encoded::Json(object) => match span(object, segments)? {
                Some(span) => json::read::cell(object.bytes(), span),
                None => Ok(None),
            },
            Encoded::Protobuf(object) => cell(object, protobuf::read::one(object, segments)?),
        }
    }

    fn pick(&self, segments: &[Segment], key: &str) -> Result<Option<Cow<'_, str>>, Error> {
        match &self.encoded {
            Encoded::Json(object) => {
                let mut pick = Pick::new(key);
                object.visit(segments, &mut pick)?;
                match pick.found {
                    Some(span) => json::read::cell(object.bytes(), span),
                    None => Ok(None),
                }
            }
            Encoded::Protobuf(object) => cell(object, protobuf::read::pick(object, segments, key)?),
        }
    }

    /// Returns the values of all rows in their spelling, none for missing and null.
    pub(super) fn raw_rows(&self, at: &Path) -> Result<Vec<Option<Cow<'_, [u8]>>>, Error> {
        if let Some(text) = self.implied(at.segments())? {
            let mut spelt = Vec::new();
            json::write_string(text, &mut spelt);
            return Ok(vec![Some(Cow::Owned(spelt))]);
        }
        match &self.encoded {
            Encoded::Json(object) => {
                let mut rows = RawRows::default();
                object.visit(at.segments(), &mut rows)?;
                let raw = |span: Option<Range<usize>>| Some(Cow::Borrowed(self.bytes().get(span?)?));
                Ok(rows.0.into_iter().map(raw).collect())
            }
            Encoded::Protobuf(_) if at.segments().is_empty() => {
                Ok(vec![Some(Cow::Owned(self.to_json()?.into_bytes()))])
            }
            Encoded::Protobuf(object) => {
                let rows = protobuf::read::spelt_rows(object, at.segments())?;
                Ok(rows.into_iter().map(|row| Some(Cow::Owned(row?.into_bytes()))).collect())
            }
        }
    }
}

pub(super) fn span(object: &json::Object, segments: &[Segment]) -> Result<Option<Range<usize>>, Error> {
    let mut one = One::default();
    object.visit(segments, &mut one)?;
    Ok(one.0)
}

fn cell(object: &protobuf::Object, node: Option<protobuf::ValueRef>) -> Result<Option<Cow<'_, str>>, Error> {
    match node {
        Some(node) => protobuf::decode::cell(object.bytes(), &node),
        None => Ok(None),
    }
}

pub(super) fn one_place(at: &Path) -> Result<(), Error> {
    if at.wildcards() == 0 { Ok(()) } else { Err(Error::Wildcard { path: at.clone() }) }
}
