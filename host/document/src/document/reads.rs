//! Reads of a document. Each validates what it returns and what lies on the way; nothing else is looked at closely.

use super::{Document, Form};
use crate::{
    Column, Error, Path, StringSet, Value,
    json::{
        self,
        read::{Cells, Fingerprint, Keys, Lengths, One, Pick, RawRows},
    },
    path::Step,
    protobuf,
    rows::Bitmap,
};
use std::{borrow::Cow, ops::Range, sync::LazyLock};

/// The steps of the reads that every filter makes.
struct Known {
    api_version: Vec<Step>,
    kind: Vec<Step>,
    namespace: Vec<Step>,
    name: Vec<Step>,
    labels: Vec<Step>,
    annotations: Vec<Step>,
}

static KNOWN: LazyLock<Known> = LazyLock::new(|| {
    let steps = |names: &[&str]| names.iter().map(|name| Step::Name((*name).to_owned())).collect();
    Known {
        api_version: steps(&["apiVersion"]),
        kind: steps(&["kind"]),
        namespace: steps(&["metadata", "namespace"]),
        name: steps(&["metadata", "name"]),
        labels: steps(&["metadata", "labels"]),
        annotations: steps(&["metadata", "annotations"]),
    }
});

/// Reads. An error means that the object's bytes are bad, or that the path does not fit the call.
impl Document {
    /// `v1`, `discovery.k8s.io/v1`; empty if neither the bytes nor [`Document::with_type`] say it.
    pub fn api_version(&self) -> Result<Cow<'_, str>, Error> {
        Ok(self.text_at(&KNOWN.api_version)?.unwrap_or_default())
    }

    /// `Service`; empty if neither the bytes nor [`Document::with_type`] say it.
    pub fn kind(&self) -> Result<Cow<'_, str>, Error> {
        Ok(self.text_at(&KNOWN.kind)?.unwrap_or_default())
    }

    /// metadata.namespace; none for an object outside namespaces.
    pub fn namespace(&self) -> Result<Option<Cow<'_, str>>, Error> {
        Ok(self.text_at(&KNOWN.namespace)?.filter(|namespace| !namespace.is_empty()))
    }

    /// metadata.name; empty if there is none.
    pub fn name(&self) -> Result<Cow<'_, str>, Error> {
        Ok(self.text_at(&KNOWN.name)?.unwrap_or_default())
    }

    /// The value of one label.
    pub fn label(&self, key: &str) -> Result<Option<Cow<'_, str>>, Error> {
        self.pick(&KNOWN.labels, key)
    }

    /// The value of one annotation.
    pub fn annotation(&self, key: &str) -> Result<Option<Cow<'_, str>>, Error> {
        self.pick(&KNOWN.annotations, key)
    }

    /// The value at a path without `[*]`; none if it is missing.
    pub fn get(&self, at: &Path) -> Result<Option<Value>, Error> {
        one_place(at)?;
        if let Some(text) = self.implied(at.steps())? {
            return Ok(Some(Value::Text(text.to_owned())));
        }
        if at.steps().is_empty() {
            return Ok(Some(Value::Json(self.to_json()?)));
        }
        match &self.form {
            Form::Json(object) => {
                span(object, at.steps())?.map(|span| json::read::value(object.bytes(), span)).transpose()
            }
            Form::Protobuf(object) => {
                let node = protobuf::read::one(object, at.steps())?;
                node.map(|node| protobuf::spell::typed(object.bytes(), &node)).transpose()
            }
        }
    }

    /// The value at a path without `[*]`, as a column's cell: none if it is missing or null.
    pub fn text(&self, at: &Path) -> Result<Option<Cow<'_, str>>, Error> {
        one_place(at)?;
        self.text_at(at.steps())
    }

    /// The values of all rows.
    pub fn column(&self, at: &Path) -> Result<Column, Error> {
        let mut column = Column::default();
        self.column_into(at, &mut column)?;
        Ok(column)
    }

    /// Adds the values of all rows to a column: one column over many documents. After an error it may hold a part.
    pub fn column_into(&self, at: &Path, column: &mut Column) -> Result<(), Error> {
        self.cells(at, |cell| match cell {
            Some(cell) => column.push(cell),
            None => column.push_absent(),
        })
    }

    /// In which rows the value is in the set.
    pub(super) fn among(&self, at: &Path, values: &StringSet) -> Result<Bitmap, Error> {
        let mut rows = Bitmap::default();
        self.cells(at, |cell| {
            rows.push(cell.is_some_and(|cell| values.contains(cell)));
            Ok(())
        })?;
        Ok(rows)
    }

    fn cells(&self, at: &Path, mut cell: impl FnMut(Option<&str>) -> Result<(), Error>) -> Result<(), Error> {
        if at.steps().is_empty() || self.implied(at.steps())?.is_some() {
            return cell(self.text_at(at.steps())?.as_deref());
        }
        match &self.form {
            Form::Json(object) => object.visit_noting(at, Cells(cell)),
            Form::Protobuf(object) => protobuf::read::cells(object, at.steps(), cell),
        }
    }

    /// Sizes of the arrays under the last `[*]`, one per row of the part before it; 0 for a missing one. Empty for a path
    /// without `[*]`.
    pub fn lengths(&self, at: &Path) -> Result<Vec<u32>, Error> {
        let Some(steps) = at.rows_in() else {
            return Ok(Vec::new());
        };
        match &self.form {
            Form::Json(object) => {
                let mut lengths = Lengths::default();
                object.visit(steps, &mut lengths)?;
                Ok(lengths.0)
            }
            Form::Protobuf(object) => protobuf::read::lengths(object, steps),
        }
    }

    /// Member names of the object at a path without `[*]`, in document order.
    pub fn keys(&self, at: &Path) -> Result<Vec<String>, Error> {
        one_place(at)?;
        let mut keys = match &self.form {
            Form::Json(object) => {
                let mut keys = Keys::default();
                object.visit(at.steps(), &mut keys)?;
                keys.0
            }
            Form::Protobuf(object) => protobuf::read::keys(object, at.steps())?,
        };
        if at.steps().is_empty() {
            for (steps, name) in [(&KNOWN.api_version, "apiVersion"), (&KNOWN.kind, "kind")] {
                if self.implied(steps)?.is_some() && !keys.iter().any(|key| key == name) {
                    keys.push(name.to_owned());
                }
            }
        }
        Ok(keys)
    }

    /// A number for the values of all rows: equal values, equal number, for the life of this process.
    pub fn fingerprint(&self, at: &Path) -> Result<u64, Error> {
        let mut fingerprint = Fingerprint::new();
        match self.implied(at.steps())? {
            Some(text) => fingerprint.text(text),
            None if at.steps().is_empty() => fingerprint.text(&self.to_json()?),
            None => match &self.form {
                Form::Json(object) => object.visit(at.steps(), &mut fingerprint)?,
                Form::Protobuf(object) => protobuf::read::fingerprint(object, at.steps(), &mut fingerprint)?,
            },
        }
        Ok(fingerprint.finish())
    }

    /// The whole object as JSON text.
    pub fn to_json(&self) -> Result<String, Error> {
        let text = match (&self.form, &self.type_meta) {
            (Form::Protobuf(object), _) => return object.to_json(),
            (Form::Json(object), Some(type_meta)) => json::with_type_meta(object.bytes(), type_meta)?,
            (Form::Json(object), None) => {
                object.index()?;
                object.bytes().clone()
            }
        };
        String::from_utf8(text.into())
            .map_err(|error| Error::malformed(error.utf8_error().valid_up_to(), "text that is not UTF-8"))
    }

    /// What apiVersion and kind answer where the bytes are silent.
    fn implied(&self, steps: &[Step]) -> Result<Option<&str>, Error> {
        let Some(type_meta) = &self.type_meta else {
            return Ok(None);
        };
        let [Step::Name(name)] = steps else {
            return Ok(None);
        };
        let text = match name.as_str() {
            "apiVersion" => &type_meta.api_version,
            "kind" => &type_meta.kind,
            _ => return Ok(None),
        };
        let silent = match &self.form {
            Form::Json(object) => match span(object, steps)? {
                None => true,
                Some(span) => object.bytes().get(span).is_some_and(|value| value == b"null"),
            },
            // A message never says it.
            Form::Protobuf(object) => {
                object.check()?;
                true
            }
        };
        Ok(silent.then_some(text))
    }

    fn text_at(&self, steps: &[Step]) -> Result<Option<Cow<'_, str>>, Error> {
        if steps.is_empty() {
            return self.to_json().map(|text| Some(Cow::Owned(text)));
        }
        if let Some(text) = self.implied(steps)? {
            return Ok(Some(Cow::Borrowed(text)));
        }
        match &self.form {
            Form::Json(object) => match span(object, steps)? {
                Some(span) => json::read::cell(object.bytes(), span),
                None => Ok(None),
            },
            Form::Protobuf(object) => cell(object, protobuf::read::one(object, steps)?),
        }
    }

    fn pick(&self, steps: &[Step], key: &str) -> Result<Option<Cow<'_, str>>, Error> {
        match &self.form {
            Form::Json(object) => {
                let mut pick = Pick::new(key);
                object.visit(steps, &mut pick)?;
                match pick.found {
                    Some(span) => json::read::cell(object.bytes(), span),
                    None => Ok(None),
                }
            }
            Form::Protobuf(object) => cell(object, protobuf::read::pick(object, steps, key)?),
        }
    }

    /// The values of all rows as they are spelt; none for missing and null.
    pub(super) fn raw_rows(&self, at: &Path) -> Result<Vec<Option<Cow<'_, [u8]>>>, Error> {
        if let Some(text) = self.implied(at.steps())? {
            let mut spelt = Vec::new();
            json::write_string(text, &mut spelt);
            return Ok(vec![Some(Cow::Owned(spelt))]);
        }
        match &self.form {
            Form::Json(object) => {
                let mut rows = RawRows::default();
                object.visit(at.steps(), &mut rows)?;
                let raw = |span: Option<Range<usize>>| Some(Cow::Borrowed(self.bytes().get(span?)?));
                Ok(rows.0.into_iter().map(raw).collect())
            }
            Form::Protobuf(_) if at.steps().is_empty() => Ok(vec![Some(Cow::Owned(self.to_json()?.into_bytes()))]),
            Form::Protobuf(object) => {
                let rows = protobuf::read::spelt_rows(object, at.steps())?;
                Ok(rows.into_iter().map(|row| Some(Cow::Owned(row?.into_bytes()))).collect())
            }
        }
    }
}

pub(super) fn span(object: &json::Object, steps: &[Step]) -> Result<Option<Range<usize>>, Error> {
    let mut one = One::default();
    object.visit(steps, &mut one)?;
    Ok(one.0)
}

fn cell(object: &protobuf::Object, node: Option<protobuf::Node>) -> Result<Option<Cow<'_, str>>, Error> {
    match node {
        Some(node) => protobuf::spell::cell(object.bytes(), &node),
        None => Ok(None),
    }
}

fn one_place(at: &Path) -> Result<(), Error> {
    if at.wildcards() == 0 { Ok(()) } else { Err(Error::Wildcard { path: at.clone() }) }
}
