//! The native backend: the contract's imports as functions on documents, in the same process. It has the same functions
//! as the wasm backend.

use weir_document::{Column, Document, Error, Rows};

use super::call;
use super::runner::NativeError;
use crate::cluster::Presence;
use crate::log::Level;
use crate::node::{Address, Endpoint};
use crate::{Path, Value};

/// A parsed path.
pub(crate) struct CompiledPath(weir_document::Path);

impl CompiledPath {
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        weir_document::Path::parse(text).map(Self).map_err(|error| error.to_string())
    }
}

/// An object: borrowed from the runner for one call, or looked up.
pub(crate) enum Handle<'a> {
    Filtered(&'a mut Document),
    LookedUp(Document),
}

/// Performs a read. If it fails, records the fault and returns an empty value.
fn read<T: Default>(at: &Path, read: impl FnOnce(&weir_document::Path) -> Result<T, Error>) -> T {
    match at.compiled() {
        Ok(path) => value_or_fault(read(&path.0)),
        Err(reason) => {
            call::fail(NativeError::Misuse(reason));
            T::default()
        }
    }
}

fn value_or_fault<T: Default>(result: Result<T, Error>) -> T {
    result.unwrap_or_else(|error| {
        call::fail(NativeError::Document(error));
        T::default()
    })
}

impl Handle<'_> {
    fn document(&self) -> &Document {
        match self {
            Self::Filtered(document) => document,
            Self::LookedUp(document) => document,
        }
    }

    /// Performs an edit. A refused edit returns an error.
    fn edit<T>(
        &mut self,
        at: &Path,
        edit: impl FnOnce(&mut Document, &weir_document::Path) -> Result<T, Error>,
    ) -> Result<T, String> {
        let path = at.compiled()?;
        let document = match self {
            Self::Filtered(document) => document,
            Self::LookedUp(document) => document,
        };
        edit(document, &path.0).map_err(|error| weir_kube::error_chain(&error))
    }

    pub(crate) fn api_version(&self) -> String {
        value_or_fault(self.document().api_version().map(|text| text.into_owned()))
    }

    pub(crate) fn kind(&self) -> String {
        value_or_fault(self.document().kind().map(|text| text.into_owned()))
    }

    pub(crate) fn namespace(&self) -> Option<String> {
        value_or_fault(self.document().namespace().map(|text| text.map(|text| text.into_owned())))
    }

    pub(crate) fn name(&self) -> String {
        value_or_fault(self.document().name().map(|text| text.into_owned()))
    }

    pub(crate) fn label(&self, key: &str) -> Option<String> {
        value_or_fault(self.document().label(key).map(|text| text.map(|text| text.into_owned())))
    }

    pub(crate) fn annotation(&self, key: &str) -> Option<String> {
        value_or_fault(self.document().annotation(key).map(|text| text.map(|text| text.into_owned())))
    }

    pub(crate) fn get(&self, at: &Path) -> Option<Value> {
        read(at, |path| self.document().get(path)).map(from_document)
    }

    pub(crate) fn text(&self, at: &Path) -> Option<String> {
        read(at, |path| self.document().text(path).map(|text| text.map(|text| text.into_owned())))
    }

    pub(crate) fn one_of(&self, at: &Path, values: &[String]) -> Option<u32> {
        let text = read(at, |path| self.document().text(path))?;
        values.iter().position(|other| *other == text).and_then(|position| u32::try_from(position).ok())
    }

    pub(crate) fn column(&self, at: &Path) -> (String, Vec<u32>) {
        let column = read(at, |path| self.document().column(path));
        (column.text, column.ends)
    }

    pub(crate) fn lengths(&self, at: &Path) -> Vec<u32> {
        read(at, |path| self.document().lengths(path))
    }

    pub(crate) fn keys(&self, at: &Path) -> Vec<String> {
        read(at, |path| self.document().keys(path))
    }

    pub(crate) fn fingerprint(&self, at: &Path) -> u64 {
        read(at, |path| self.document().fingerprint(path))
    }

    pub(crate) fn to_json(&self) -> String {
        value_or_fault(self.document().to_json())
    }

    pub(crate) fn set(&mut self, at: &Path, value: Value) -> Result<(), String> {
        self.edit(at, |document, path| document.set(path, &to_document(value)))
    }

    pub(crate) fn set_rows(&mut self, at: &Path, rows: &[u8], value: Value) -> Result<(), String> {
        self.edit(at, |document, path| document.set_rows(path, &Rows::from_bits(rows), &to_document(value)))
    }

    pub(crate) fn remove(&mut self, at: &Path) -> Result<u32, String> {
        self.edit(at, |document, path| document.remove(path))
    }

    pub(crate) fn remove_rows(&mut self, at: &Path, rows: &[u8]) -> Result<u32, String> {
        self.edit(at, |document, path| document.remove_rows(path, &Rows::from_bits(rows)))
    }

    pub(crate) fn retain(&mut self, at: &Path, keep: &[u8]) -> Result<(), String> {
        self.edit(at, |document, path| document.retain(path, &Rows::from_bits(keep)))
    }

    pub(crate) fn retain_in(&mut self, at: &Path, values: &StringSet) -> Result<(), String> {
        self.edit(at, |document, path| document.retain_in(path, &values.0))
    }

    pub(crate) fn append(&mut self, at: &Path, value: Value) -> Result<(), String> {
        self.edit(at, |document, path| document.append(path, &to_document(value)))
    }

    pub(crate) fn replace(&mut self, json: &str) -> Result<(), String> {
        match self {
            Self::Filtered(document) => document.replace(json),
            Self::LookedUp(document) => document.replace(json),
        }
        .map_err(|error| weir_kube::error_chain(&error))
    }
}

fn from_document(value: weir_document::Value) -> Value {
    match value {
        weir_document::Value::Null => Value::Null,
        weir_document::Value::Boolean(value) => Value::Boolean(value),
        weir_document::Value::Number(number) => Value::Number(number),
        weir_document::Value::Text(text) => Value::Text(text),
        weir_document::Value::Json(json) => Value::Json(json),
    }
}

fn to_document(value: Value) -> weir_document::Value {
    match value {
        Value::Null => weir_document::Value::Null,
        Value::Boolean(value) => weir_document::Value::Boolean(value),
        Value::Number(number) => weir_document::Value::Number(number),
        Value::Text(text) => weir_document::Value::Text(text),
        Value::Json(json) => weir_document::Value::Json(json),
    }
}

/// A set of strings.
pub(crate) struct StringSet(weir_document::StringSet);

impl StringSet {
    pub(crate) fn new(strings: &[String]) -> Self {
        Self(strings.iter().map(String::as_str).collect())
    }
}

/// The objects that a lookup returned.
pub(crate) struct Selection(Vec<Document>);

impl Selection {
    pub(crate) fn count(&self) -> u32 {
        u32::try_from(self.0.len()).unwrap_or(u32::MAX)
    }

    pub(crate) fn at(&self, index: u32) -> Option<Handle<'static>> {
        self.0.get(usize::try_from(index).ok()?).cloned().map(Handle::LookedUp)
    }

    pub(crate) fn column(&self, at: &Path) -> (String, Vec<u32>) {
        let column = read(at, |path| {
            self.0.iter().try_fold(Column::default(), |mut column, document| {
                document.column_into(path, &mut column)?;
                Ok(column)
            })
        });
        (column.text, column.ends)
    }

    pub(crate) fn fingerprint(&self, at: &Path) -> u64 {
        // FNV over the objects' own hashes. No input here comes from an attacker.
        read(at, |path| {
            self.0.iter().try_fold(0xcbf2_9ce4_8422_2325_u64, |sum, document| {
                Ok((sum ^ document.fingerprint(path)?).wrapping_mul(0x0100_0000_01b3))
            })
        })
    }
}

/// Performs a lookup. If its resource is not declared, records the fault and returns an empty value.
fn look_up<T: Default>(lookup: impl FnOnce(&super::store::LookupStore) -> Result<T, String>) -> T {
    let Some(store) = call::store() else {
        return T::default();
    };
    lookup(&store).unwrap_or_else(|reason| {
        call::fail(NativeError::Misuse(reason));
        T::default()
    })
}

pub(crate) fn cluster_get(resource: &str, namespace: Option<&str>, name: &str) -> Option<Handle<'static>> {
    look_up(|store| store.get(resource, namespace, name)).map(Handle::LookedUp)
}

/// In a native run every declared kind is known.
pub(crate) fn cluster_presence_of(resource: &str, namespace: Option<&str>, name: &str) -> Presence {
    match cluster_get(resource, namespace, name) {
        Some(_) => Presence::Present,
        None => Presence::Absent,
    }
}

/// In a native run objects never go.
pub(crate) fn cluster_last_known(resource: &str, namespace: Option<&str>, name: &str) -> Option<Handle<'static>> {
    cluster_get(resource, namespace, name)
}

pub(crate) fn cluster_referent(resource: &str, object: &Handle<'_>, name_at: &Path) -> Option<Handle<'static>> {
    let name = object.text(name_at)?;
    match object.namespace() {
        None => cluster_get(resource, None, &name),
        namespace => cluster_get(resource, namespace.as_deref(), &name).or_else(|| cluster_get(resource, None, &name)),
    }
}

pub(crate) fn cluster_find(resource: &str, namespace: Option<&str>, label_selector: &str) -> Selection {
    Selection(look_up(|store| store.find(resource, namespace, label_selector)))
}

/// In a native run objects never go.
pub(crate) fn cluster_find_last_known(resource: &str, namespace: Option<&str>, label_selector: &str) -> Selection {
    cluster_find(resource, namespace, label_selector)
}

pub(crate) fn node_name() -> String {
    call::node().name.clone()
}

pub(crate) fn node_addresses() -> Vec<Address> {
    call::node().addresses.clone()
}

pub(crate) fn node_secure_endpoint() -> Option<Endpoint> {
    call::node().endpoint.clone()
}

/// Writes to standard error, which a test run prints beside a failure.
pub(crate) fn log_write(level: Level, message: &str) {
    eprintln!("{level:?}: {message}");
}
