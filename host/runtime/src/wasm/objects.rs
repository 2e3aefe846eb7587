//! The `objects` import: reads and edits of objects. Every function is total and bounded. A host call that fails ends
//! the guest's call.

use std::borrow::Cow;

use wasmtime::Result;
use wasmtime::component::Resource;
use weir_document::{Path, Value};

use super::bindings::weir::filter::objects::{self, Column};
use super::cluster::unexpected;
use super::fault::Refusal;
use super::host_call::{Edit, HostCall, Observed, Read, Target};
use super::paths::Map;
use super::state::{GuestState, OBJECT, ObjectHandle, PathHandle, StringSetHandle};

impl GuestState {
    /// Returns the object of a handle, as traces number it.
    pub(super) fn target(&self, handle: &Resource<ObjectHandle>) -> Result<Target> {
        match handle.rep() {
            OBJECT => Ok(Target::Object),
            number => self.scope.hits.place(number).map(Target::Hit),
        }
    }

    /// Returns the path of a handle.
    pub(super) fn path(&self, at: &Resource<PathHandle>) -> Result<Path> {
        self.paths.get(at.rep()).cloned()
    }

    /// Returns the path of a handle. A path with `[*]` is an error.
    pub(super) fn single(&self, at: &Resource<PathHandle>) -> Result<Path> {
        let path = self.paths.get(at.rep())?;
        if path.wildcards() > 0 {
            return Err(Refusal::WildcardRead(path.text().to_owned()).into());
        }
        Ok(path.clone())
    }

    fn read(&mut self, handle: &Resource<ObjectHandle>, read: Read) -> Result<Observed<'_>> {
        let target = self.target(handle)?;
        self.evaluate(HostCall::Read(target, read))
    }

    fn read_text(&mut self, handle: &Resource<ObjectHandle>, read: Read) -> Result<Option<String>> {
        match self.read(handle, read)? {
            Observed::Text(text) => Ok(Some(Cow::into_owned(text))),
            _ => Ok(None),
        }
    }

    /// Reads a label or annotation. For a looked-up object, the call depends on this one only.
    fn read_member(&mut self, handle: &Resource<ObjectHandle>, map: Map, key: String) -> Result<Option<String>> {
        let read = match (handle.rep(), map) {
            (OBJECT, Map::Labels) => Read::Label(key.into()),
            (OBJECT, Map::Annotations) => Read::Annotation(key.into()),
            (_, map) => Read::Text(self.paths.member(map, &key)?),
        };
        self.read_text(handle, read)
    }

    fn edit(&mut self, handle: &Resource<ObjectHandle>, edit: Edit) -> Result<Result<(), String>> {
        Ok(self.edit_counting(handle, edit)?.map(|_| ()))
    }

    /// Edits an object. Returns the number of removed values.
    fn edit_counting(&mut self, handle: &Resource<ObjectHandle>, edit: Edit) -> Result<Result<u32, String>> {
        let target = self.target(handle)?;
        match self.evaluate(HostCall::Edit(target, edit))? {
            Observed::Done => Ok(Ok(0)),
            Observed::Number(count) => Ok(Ok(u32::try_from(count)?)),
            Observed::Refused(reason) => Ok(Err(reason)),
            other => Err(unexpected(&other)),
        }
    }
}

impl objects::Host for GuestState {}

impl objects::HostPath for GuestState {
    fn parse(&mut self, expression: String) -> Result<Result<Resource<PathHandle>, String>> {
        Ok(self.open_path(&expression)?.map(Resource::new_own))
    }

    fn drop(&mut self, path: Resource<PathHandle>) -> Result<()> {
        if path.owned() {
            self.free_path(path.rep());
        }
        Ok(())
    }
}

impl objects::HostStringSet for GuestState {
    fn new(&mut self, strings: Vec<String>) -> Result<Resource<StringSetHandle>> {
        self.put_string_set(strings.into_iter().collect()).map(Resource::new_own)
    }

    fn drop(&mut self, set: Resource<StringSetHandle>) -> Result<()> {
        if set.owned() {
            self.free_string_set(set.rep());
        }
        Ok(())
    }
}

impl objects::HostObject for GuestState {
    fn api_version(&mut self, this: Resource<ObjectHandle>) -> Result<String> {
        Ok(self.read_text(&this, Read::ApiVersion)?.unwrap_or_default())
    }

    fn kind(&mut self, this: Resource<ObjectHandle>) -> Result<String> {
        Ok(self.read_text(&this, Read::Kind)?.unwrap_or_default())
    }

    fn namespace(&mut self, this: Resource<ObjectHandle>) -> Result<Option<String>> {
        self.read_text(&this, Read::Namespace)
    }

    fn name(&mut self, this: Resource<ObjectHandle>) -> Result<String> {
        Ok(self.read_text(&this, Read::Name)?.unwrap_or_default())
    }

    fn label(&mut self, this: Resource<ObjectHandle>, key: String) -> Result<Option<String>> {
        self.read_member(&this, Map::Labels, key)
    }

    fn annotation(&mut self, this: Resource<ObjectHandle>, key: String) -> Result<Option<String>> {
        self.read_member(&this, Map::Annotations, key)
    }

    fn get(&mut self, this: Resource<ObjectHandle>, at: Resource<PathHandle>) -> Result<Option<objects::Value>> {
        let at = self.single(&at)?;
        match self.read(&this, Read::Get(at))? {
            Observed::Value(value) => Ok(Some(lower(value))),
            _ => Ok(None),
        }
    }

    fn text(&mut self, this: Resource<ObjectHandle>, at: Resource<PathHandle>) -> Result<Option<String>> {
        let at = self.single(&at)?;
        self.read_text(&this, Read::Text(at))
    }

    fn one_of(
        &mut self,
        this: Resource<ObjectHandle>,
        at: Resource<PathHandle>,
        values: Vec<String>,
    ) -> Result<Option<u32>> {
        let at = self.single(&at)?;
        match self.read(&this, Read::OneOf(at, values.into()))? {
            Observed::Position(position) => Ok(Some(position)),
            _ => Ok(None),
        }
    }

    fn column(&mut self, this: Resource<ObjectHandle>, at: Resource<PathHandle>) -> Result<Column> {
        let at = self.path(&at)?;
        match self.read(&this, Read::Column(at))? {
            Observed::Column(column) => Ok(Column { text: column.text, ends: column.ends }),
            other => Err(unexpected(&other)),
        }
    }

    fn lengths(&mut self, this: Resource<ObjectHandle>, at: Resource<PathHandle>) -> Result<Vec<u32>> {
        let at = self.path(&at)?;
        match self.read(&this, Read::Lengths(at))? {
            Observed::Lengths(lengths) => Ok(lengths),
            other => Err(unexpected(&other)),
        }
    }

    fn keys(&mut self, this: Resource<ObjectHandle>, at: Resource<PathHandle>) -> Result<Vec<String>> {
        let at = self.single(&at)?;
        match self.read(&this, Read::Keys(at))? {
            Observed::Keys(keys) => Ok(keys),
            other => Err(unexpected(&other)),
        }
    }

    fn fingerprint(&mut self, this: Resource<ObjectHandle>, at: Resource<PathHandle>) -> Result<u64> {
        let at = self.path(&at)?;
        match self.read(&this, Read::Fingerprint(at))? {
            Observed::Number(number) => Ok(number),
            other => Err(unexpected(&other)),
        }
    }

    fn to_json(&mut self, this: Resource<ObjectHandle>) -> Result<String> {
        let root = self.paths.parse("$").map_err(wasmtime::Error::msg)?;
        Ok(self.read_text(&this, Read::Json(root))?.unwrap_or_default())
    }

    fn set(
        &mut self,
        this: Resource<ObjectHandle>,
        at: Resource<PathHandle>,
        value: objects::Value,
    ) -> Result<Result<(), String>> {
        let at = self.path(&at)?;
        self.edit(&this, Edit::Set(at, lift(value)))
    }

    fn set_rows(
        &mut self,
        this: Resource<ObjectHandle>,
        at: Resource<PathHandle>,
        rows: Vec<u8>,
        value: objects::Value,
    ) -> Result<Result<(), String>> {
        let at = self.path(&at)?;
        self.edit(&this, Edit::SetRows(at, rows.into(), lift(value)))
    }

    fn remove(&mut self, this: Resource<ObjectHandle>, at: Resource<PathHandle>) -> Result<Result<u32, String>> {
        let at = self.path(&at)?;
        self.edit_counting(&this, Edit::Remove(at))
    }

    fn remove_rows(
        &mut self,
        this: Resource<ObjectHandle>,
        at: Resource<PathHandle>,
        rows: Vec<u8>,
    ) -> Result<Result<u32, String>> {
        let at = self.path(&at)?;
        self.edit_counting(&this, Edit::RemoveRows(at, rows.into()))
    }

    fn retain(
        &mut self,
        this: Resource<ObjectHandle>,
        at: Resource<PathHandle>,
        keep: Vec<u8>,
    ) -> Result<Result<(), String>> {
        let at = self.path(&at)?;
        self.edit(&this, Edit::Retain(at, keep.into()))
    }

    fn retain_in(
        &mut self,
        this: Resource<ObjectHandle>,
        at: Resource<PathHandle>,
        values: Resource<StringSetHandle>,
    ) -> Result<Result<(), String>> {
        let at = self.path(&at)?;
        let values = self.string_sets.get(values.rep())?.clone();
        self.edit(&this, Edit::RetainIn(at, values))
    }

    fn append(
        &mut self,
        this: Resource<ObjectHandle>,
        at: Resource<PathHandle>,
        value: objects::Value,
    ) -> Result<Result<(), String>> {
        let at = self.path(&at)?;
        self.edit(&this, Edit::Append(at, lift(value)))
    }

    fn replace(&mut self, this: Resource<ObjectHandle>, json: String) -> Result<Result<(), String>> {
        self.edit(&this, Edit::Replace(json.into()))
    }

    fn drop(&mut self, object: Resource<ObjectHandle>) -> Result<()> {
        if object.owned() {
            self.scope.hits.free(object.rep());
        }
        Ok(())
    }
}

fn lower(value: Value) -> objects::Value {
    match value {
        Value::Null => objects::Value::Null,
        Value::Boolean(truth) => objects::Value::Boolean(truth),
        Value::Number(spelling) => objects::Value::Number(spelling),
        Value::Text(text) => objects::Value::Text(text),
        Value::Json(json) => objects::Value::Json(json),
    }
}

fn lift(value: objects::Value) -> Value {
    match value {
        objects::Value::Null => Value::Null,
        objects::Value::Boolean(truth) => Value::Boolean(truth),
        objects::Value::Number(spelling) => Value::Number(spelling),
        objects::Value::Text(text) => Value::Text(text),
        objects::Value::Json(json) => Value::Json(json),
    }
}
