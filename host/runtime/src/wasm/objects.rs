//! The `objects` import: reads and edits of the object at hand, reads of looked-up ones. Every function is total and
//! bounded; what can't be answered traps.

use std::borrow::Cow;

use wasmtime::Result;
use wasmtime::component::Resource;
use weir_document::{Document, Path, Value};

use super::bindings::weir::filter::objects::{self, Column};
use super::fault::Refusal;
use super::found::Found;
use super::lesson::{Question, Reply, Step, is_long, position};
use super::state::{AT_HAND, GuestState, Map, ObjectHandle, PathHandle, StringSetHandle};

impl GuestState {
    fn looked_up(&self, handle: u32) -> Result<&Found> {
        self.held.get(handle.wrapping_sub(1))
    }

    /// The object behind a handle, for reading. A read of a looked-up one is recorded as the value at `at`.
    pub(super) fn reading(&self, handle: &Resource<ObjectHandle>, at: &Path) -> Result<&Document> {
        if handle.rep() == AT_HAND {
            return self.object.as_ref().ok_or_else(|| Refusal::BadHandle(AT_HAND).into());
        }
        Ok(self.finder.read(self.looked_up(handle.rep())?, at).document())
    }

    /// As [`Self::reading`], for what can't change while the object is the same one.
    pub(super) fn identity(&self, handle: &Resource<ObjectHandle>) -> Result<&Document> {
        match handle.rep() {
            AT_HAND => self.object.as_ref().ok_or_else(|| Refusal::BadHandle(AT_HAND).into()),
            other => Ok(self.looked_up(other)?.object.document()),
        }
    }

    /// A question to an object was answered: part of what the call teaches.
    fn teach(&mut self, handle: &Resource<ObjectHandle>, question: impl FnOnce() -> Question, reply: Reply<'_>) {
        if self.lesson.listens() {
            match self.lesson.which(handle.rep()) {
                Some(which) => self.lesson.note(Step::Ask(which, question()), reply),
                None => self.lesson.interrupt(),
            }
        }
    }

    fn teach_text(&mut self, handle: &Resource<ObjectHandle>, question: impl FnOnce() -> Question, text: Option<&str>) {
        self.teach(handle, question, Reply::text(text.map(Cow::Borrowed)));
    }

    /// Changes the object at hand; `step`: what the call teaches of it, with the reply, if it can be told.
    fn edit<T>(
        &mut self,
        handle: &Resource<ObjectHandle>,
        change: impl FnOnce(&mut Document) -> Result<T, weir_document::Error>,
        step: impl FnOnce(&T) -> Option<(Step, Reply<'static>)>,
    ) -> Result<Result<T, String>> {
        if handle.rep() != AT_HAND {
            self.lesson.interrupt();
            self.looked_up(handle.rep())?;
            return Ok(Err("a looked-up object can not be edited".to_owned()));
        }
        let object = self.object.as_mut().ok_or(Refusal::BadHandle(AT_HAND))?;
        let made = change(object).map_err(|error| error.to_string());
        if self.lesson.listens() {
            match made.as_ref().ok().and_then(step) {
                Some((step, reply)) => self.lesson.note(step, reply),
                None => self.lesson.interrupt(),
            }
        }
        Ok(made)
    }

    fn text_of(&mut self, handle: &Resource<ObjectHandle>, at: Path) -> Result<Option<String>> {
        let text = match handle.rep() {
            AT_HAND => self.identity(handle)?.text(&at)?,
            other => self.finder.read(self.looked_up(other)?, &at).text(&at)?,
        };
        let text = text.map(Cow::into_owned);
        self.teach_text(handle, || Question::Text(at), text.as_deref());
        Ok(text)
    }

    fn path_of(&self, at: &Resource<PathHandle>) -> Result<Path> {
        self.path(at.rep()).cloned()
    }

    pub(super) fn single(&self, at: &Resource<PathHandle>) -> Result<Path> {
        let path = self.path_of(at)?;
        if path.wildcards() > 0 {
            return Err(Refusal::WildcardRead(path.text().to_owned()).into());
        }
        Ok(path)
    }
}

impl objects::Host for GuestState {}

impl objects::HostPath for GuestState {
    fn parse(&mut self, expression: String) -> Result<Result<Resource<PathHandle>, String>> {
        Ok(self.intern(&expression)?.map(Resource::new_own))
    }

    fn drop(&mut self, _path: Resource<PathHandle>) -> Result<()> {
        Ok(())
    }
}

impl objects::HostStringSet for GuestState {
    fn new(&mut self, strings: Vec<String>) -> Result<Resource<StringSetHandle>> {
        self.string_sets.put(strings.into_iter().collect()).map(Resource::new_own)
    }

    fn drop(&mut self, set: Resource<StringSetHandle>) -> Result<()> {
        if set.owned() {
            self.string_sets.free(set.rep());
        }
        Ok(())
    }
}

impl objects::HostObject for GuestState {
    fn api_version(&mut self, this: Resource<ObjectHandle>) -> Result<String> {
        let text = self.identity(&this)?.api_version()?.to_string();
        self.teach_text(&this, || Question::ApiVersion, Some(&text));
        Ok(text)
    }

    fn kind(&mut self, this: Resource<ObjectHandle>) -> Result<String> {
        let text = self.identity(&this)?.kind()?.to_string();
        self.teach_text(&this, || Question::Kind, Some(&text));
        Ok(text)
    }

    fn namespace(&mut self, this: Resource<ObjectHandle>) -> Result<Option<String>> {
        let text = self.identity(&this)?.namespace()?.map(|text| text.to_string());
        self.teach_text(&this, || Question::Namespace, text.as_deref());
        Ok(text)
    }

    fn name(&mut self, this: Resource<ObjectHandle>) -> Result<String> {
        let text = self.identity(&this)?.name()?.to_string();
        self.teach_text(&this, || Question::Name, Some(&text));
        Ok(text)
    }

    fn label(&mut self, this: Resource<ObjectHandle>, key: String) -> Result<Option<String>> {
        if this.rep() == AT_HAND {
            let text = self.identity(&this)?.label(&key)?.map(|text| text.to_string());
            self.teach_text(&this, || Question::Label(key.into()), text.as_deref());
            return Ok(text);
        }
        let at = self.member(Map::Labels, &key)?;
        self.text_of(&this, at)
    }

    fn annotation(&mut self, this: Resource<ObjectHandle>, key: String) -> Result<Option<String>> {
        if this.rep() == AT_HAND {
            let text = self.identity(&this)?.annotation(&key)?.map(|text| text.to_string());
            self.teach_text(&this, || Question::Annotation(key.into()), text.as_deref());
            return Ok(text);
        }
        let at = self.member(Map::Annotations, &key)?;
        self.text_of(&this, at)
    }

    fn get(&mut self, this: Resource<ObjectHandle>, at: Resource<PathHandle>) -> Result<Option<objects::Value>> {
        let at = self.single(&at)?;
        let value = self.reading(&this, &at)?.get(&at)?;
        if self.lesson.listens() {
            let reply = value.clone().map_or(Reply::Nothing, Reply::Value);
            self.teach(&this, || Question::Get(at), reply);
        }
        Ok(value.map(lower))
    }

    fn text(&mut self, this: Resource<ObjectHandle>, at: Resource<PathHandle>) -> Result<Option<String>> {
        let at = self.single(&at)?;
        self.text_of(&this, at)
    }

    fn one_of(
        &mut self,
        this: Resource<ObjectHandle>,
        at: Resource<PathHandle>,
        values: Vec<String>,
    ) -> Result<Option<u32>> {
        let at = self.single(&at)?;
        let found = position(self.reading(&this, &at)?.text(&at)?.as_deref(), &values);
        self.teach(&this, || Question::OneOf(at, values.into()), found.map_or(Reply::Nothing, Reply::Position));
        Ok(found)
    }

    fn column(&mut self, this: Resource<ObjectHandle>, at: Resource<PathHandle>) -> Result<Column> {
        self.lesson.interrupt();
        let at = self.path_of(&at)?;
        let column = self.reading(&this, &at)?.column(&at)?;
        Ok(Column { text: column.text, ends: column.ends })
    }

    fn lengths(&mut self, this: Resource<ObjectHandle>, at: Resource<PathHandle>) -> Result<Vec<u32>> {
        let at = self.path_of(&at)?;
        let lengths = self.reading(&this, &at)?.lengths(&at)?;
        if this.rep() == AT_HAND && self.lesson.listens() {
            self.teach(&this, || Question::Lengths(at), Reply::Lengths(lengths.clone()));
        } else {
            self.lesson.interrupt();
        }
        Ok(lengths)
    }

    fn keys(&mut self, this: Resource<ObjectHandle>, at: Resource<PathHandle>) -> Result<Vec<String>> {
        self.lesson.interrupt();
        let at = self.single(&at)?;
        Ok(self.reading(&this, &at)?.keys(&at)?)
    }

    fn fingerprint(&mut self, this: Resource<ObjectHandle>, at: Resource<PathHandle>) -> Result<u64> {
        let at = self.path_of(&at)?;
        if this.rep() == AT_HAND {
            self.lesson.interrupt();
            return Ok(self.identity(&this)?.fingerprint(&at)?);
        }
        let number = self.finder.read(self.looked_up(this.rep())?, &at).fingerprint(&at)?;
        self.teach(&this, || Question::Fingerprint(at), Reply::Number(number));
        Ok(number)
    }

    fn to_json(&mut self, this: Resource<ObjectHandle>) -> Result<String> {
        self.lesson.interrupt();
        let root = match self.intern("$")? {
            Ok(number) => self.path(number)?.clone(),
            Err(reason) => return Err(wasmtime::Error::msg(reason)),
        };
        Ok(self.reading(&this, &root)?.to_json()?)
    }

    fn set(
        &mut self,
        this: Resource<ObjectHandle>,
        at: Resource<PathHandle>,
        value: objects::Value,
    ) -> Result<Result<(), String>> {
        let at = self.path_of(&at)?;
        let value = lift(value);
        self.edit(
            &this,
            |object| object.set(&at, &value),
            |()| (!is_long(&value)).then(|| (Step::Set(at.clone(), value.clone()), Reply::Done)),
        )
    }

    fn set_rows(
        &mut self,
        this: Resource<ObjectHandle>,
        at: Resource<PathHandle>,
        rows: Vec<u8>,
        value: objects::Value,
    ) -> Result<Result<(), String>> {
        let at = self.path_of(&at)?;
        self.edit(&this, |object| object.set_rows(&at, &rows, &lift(value)), untold)
    }

    fn remove(&mut self, this: Resource<ObjectHandle>, at: Resource<PathHandle>) -> Result<Result<u32, String>> {
        let at = self.path_of(&at)?;
        self.edit(
            &this,
            |object| object.remove(&at),
            |count| Some((Step::Remove(at.clone()), Reply::Number((*count).into()))),
        )
    }

    fn remove_rows(
        &mut self,
        this: Resource<ObjectHandle>,
        at: Resource<PathHandle>,
        rows: Vec<u8>,
    ) -> Result<Result<u32, String>> {
        let at = self.path_of(&at)?;
        self.edit(&this, |object| object.remove_rows(&at, &rows), untold)
    }

    fn retain(
        &mut self,
        this: Resource<ObjectHandle>,
        at: Resource<PathHandle>,
        keep: Vec<u8>,
    ) -> Result<Result<(), String>> {
        let at = self.path_of(&at)?;
        self.edit(&this, |object| object.retain(&at, &keep), untold)
    }

    fn retain_in(
        &mut self,
        this: Resource<ObjectHandle>,
        at: Resource<PathHandle>,
        values: Resource<StringSetHandle>,
    ) -> Result<Result<(), String>> {
        let at = self.path_of(&at)?;
        let values = self.string_sets.get(values.rep())?.clone();
        self.edit(
            &this,
            |object| object.retain_in(&at, &values),
            |()| Some((Step::RetainIn(at.clone(), values.clone()), Reply::Done)),
        )
    }

    fn append(
        &mut self,
        this: Resource<ObjectHandle>,
        at: Resource<PathHandle>,
        value: objects::Value,
    ) -> Result<Result<(), String>> {
        let at = self.path_of(&at)?;
        self.edit(&this, |object| object.append(&at, &lift(value)), untold)
    }

    fn replace(&mut self, this: Resource<ObjectHandle>, json: String) -> Result<Result<(), String>> {
        self.edit(&this, |object| object.replace(&json), untold)
    }

    fn drop(&mut self, object: Resource<ObjectHandle>) -> Result<()> {
        if object.owned() {
            self.held.free(object.rep().wrapping_sub(1));
        }
        Ok(())
    }
}

/// Of an edit that hangs on more than what was asked: which rows it is for.
fn untold<T>(_: &T) -> Option<(Step, Reply<'static>)> {
    None
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
