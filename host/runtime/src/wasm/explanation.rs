//! What an explained filter call reads and edits, in words: for people who ask why a client sees an object as it does.
//!
//! Bounds: at most [`STEPS`] host calls, of each result at most [`TEXT`] bytes or [`ITEMS`] items, and [`LINES`] log lines.

use serde_json::{Value as Json, json};
use weir_document::{Column, StringSet, Value};
use weir_spec::{CachedObject, LookupSpec};

use super::hit::LookupHit;
use super::host_call::{Edit, HostCall, Observed, Read, SelectionRead, Target};
use super::lookup::Declared;
use super::wasi::LINES;
use weir_process::one_line;

/// The most host calls of an explanation.
const STEPS: usize = 1000;
/// The longest text of a result or an argument in bytes.
const TEXT: usize = 1024;
/// The most items of a result or an argument.
const ITEMS: usize = 64;

/// One host call of an explained filter call.
#[derive(Debug, Clone, PartialEq)]
pub struct Step {
    /// What is read or edited: `object`, `services shop/web`, `pods where app=web`, `cluster` or `node`.
    pub on: String,
    /// The host call and its arguments, as the contract names them: `text spec.type`.
    pub call: String,
    /// Its result as JSON: null if there is nothing, the name of a looked-up object, the number of selected objects.
    pub result: Json,
}

/// The host calls of one explained filter call.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Steps {
    /// In order.
    pub steps: Vec<Step>,
    /// Whether the call made more of them.
    pub is_truncated: bool,
    /// The first lines that the filter logged, which have its reasons.
    pub reasons: Vec<String>,
}

/// Notes the host calls of a running filter call.
#[derive(Debug, Default)]
pub(super) struct Explainer {
    noted: Steps,
    hits: Vec<String>,
    selections: Vec<String>,
}

impl Explainer {
    /// Notes a line that the filter logs.
    pub(super) fn note_line(&mut self, line: String) {
        if self.noted.reasons.len() < LINES {
            self.noted.reasons.push(line);
        }
    }

    /// Notes a host call that faulted.
    pub(super) fn fault(&mut self, call: &HostCall, reason: &str) {
        self.note(call, json!({"error": one_line(reason, TEXT)}));
    }

    /// Notes a host call and its result.
    pub(super) fn observe(&mut self, call: &HostCall, observed: &Observed<'_>) {
        self.note(call, result(observed));
    }

    /// Notes a lookup of one object.
    pub(super) fn found(&mut self, call: &HostCall, hit: &LookupHit) {
        let name = identity(&hit.lookup, &hit.object);
        self.note(call, name.clone().into());
        self.hits.push(name);
    }

    /// Notes a lookup of many objects.
    pub(super) fn selected(&mut self, call: &HostCall, objects: usize) {
        self.note(call, json!({"objects": objects}));
        if let HostCall::Find { declared, namespace, label_selector, .. } = call {
            let place = namespace.as_deref().map(|namespace| format!(" in {namespace}")).unwrap_or_default();
            let selector = match &**label_selector {
                "" => String::new(),
                selector => format!(" where {}", one_line(selector, TEXT)),
            };
            self.selections.push(format!("{}{place}{selector}", resource(declared)));
        }
    }

    /// Ends the call.
    pub(super) fn end(self) -> Steps {
        self.noted
    }

    fn note(&mut self, call: &HostCall, result: Json) {
        if self.noted.steps.len() >= STEPS {
            self.noted.is_truncated = true;
            return;
        }
        let (on, call) = self.described(call);
        self.noted.steps.push(Step { on, call, result });
    }

    fn described(&self, call: &HostCall) -> (String, String) {
        let named = |names: &[String], place: u32| names.get(place as usize).cloned().unwrap_or_default();
        let target = |target: &Target| match target {
            Target::Object => "object".to_owned(),
            Target::Hit(place) => named(&self.hits, *place),
        };
        let cluster = "cluster".to_owned();
        match call {
            HostCall::Read(on, read) => (target(on), described_read(read)),
            HostCall::Edit(on, edit) => (target(on), described_edit(edit)),
            HostCall::Get { declared, namespace, name } => {
                (cluster, lookup("get", declared, namespace.as_deref(), name))
            }
            HostCall::PresenceOf { declared, namespace, name } => {
                (cluster, lookup("presence-of", declared, namespace.as_deref(), name))
            }
            HostCall::LastKnown { declared, namespace, name } => {
                (cluster, lookup("last-known", declared, namespace.as_deref(), name))
            }
            HostCall::Referent { declared, from, at } => {
                (cluster, format!("referent {} {} {at}", resource(declared), target(from)))
            }
            HostCall::Find { declared, namespace, label_selector, last_known } => {
                let namespace = namespace.as_deref().map(|namespace| format!(" {namespace}")).unwrap_or_default();
                let name = if *last_known { "find-last-known" } else { "find" };
                let call = format!("{name} {}{namespace} {label_selector:?}", resource(declared));
                (cluster, one_line(&call, TEXT))
            }
            HostCall::Select(place, read) => {
                let call = match read {
                    SelectionRead::Count => "count".to_owned(),
                    SelectionRead::At(index) => format!("at {index}"),
                    SelectionRead::Column(at) => format!("column {at}"),
                    SelectionRead::Fingerprint(at) => format!("fingerprint {at}"),
                };
                (named(&self.selections, *place), call)
            }
            HostCall::Addresses => ("node".to_owned(), "addresses".to_owned()),
        }
    }
}

/// A lookup by name.
fn lookup(call: &str, declared: &Declared, namespace: Option<&str>, name: &str) -> String {
    let namespace = namespace.map(|namespace| format!("{namespace}/")).unwrap_or_default();
    one_line(&format!("{call} {} {namespace}{name}", resource(declared)), TEXT)
}

fn described_read(read: &Read) -> String {
    match read {
        Read::ApiVersion => "api-version".to_owned(),
        Read::Kind => "kind".to_owned(),
        Read::Namespace => "namespace".to_owned(),
        Read::Name => "name".to_owned(),
        Read::Label(key) => format!("label {}", one_line(key, TEXT)),
        Read::Annotation(key) => format!("annotation {}", one_line(key, TEXT)),
        Read::Get(at) => format!("get {at}"),
        Read::Text(at) => format!("text {at}"),
        Read::OneOf(at, texts) => format!("one-of {at} {}", listed(texts.iter().map(String::as_str))),
        Read::Lengths(at) => format!("lengths {at}"),
        Read::Column(at) => format!("column {at}"),
        Read::Keys(at) => format!("keys {at}"),
        Read::Fingerprint(at) => format!("fingerprint {at}"),
        Read::Json(at) => format!("to-json {at}"),
    }
}

fn described_edit(edit: &Edit) -> String {
    let rows = |bits: &[u8]| format!("{} rows", bits.iter().map(|byte| byte.count_ones()).sum::<u32>());
    match edit {
        Edit::Set(at, value) => format!("set {at} {}", written(value)),
        Edit::SetRows(at, bits, value) => format!("set-rows {at} {} {}", rows(bits), written(value)),
        Edit::Remove(at) => format!("remove {at}"),
        Edit::RemoveRows(at, bits) => format!("remove-rows {at} {}", rows(bits)),
        Edit::Retain(at, bits) => format!("retain {at} {}", rows(bits)),
        Edit::RetainIn(at, texts) => format!("retain-in {at} {}", listed_set(texts)),
        Edit::Append(at, value) => format!("append {at} {}", written(value)),
        Edit::Replace(json) => format!("replace {}", cut(json)),
    }
}

/// The name of a looked-up object.
fn identity(lookup: &LookupSpec, object: &CachedObject) -> String {
    let document = object.document();
    let name = document.name().unwrap_or_default();
    match document.namespace().ok().flatten() {
        Some(namespace) => format!("{} {namespace}/{name}", lookup.resource),
        None => format!("{} {name}", lookup.resource),
    }
}

fn resource(declared: &Declared) -> String {
    declared.resource().map(ToString::to_string).unwrap_or_default()
}

fn result(observed: &Observed<'_>) -> Json {
    match observed {
        Observed::Nothing => Json::Null,
        Observed::Text(text) => cut(text).into(),
        Observed::Value(value) => read_value(value),
        Observed::Position(position) => (*position).into(),
        Observed::Lengths(lengths) => items(lengths.len(), lengths.iter().map(|length| (*length).into())),
        Observed::Column(column) => column_items(column),
        Observed::Keys(keys) => items(keys.len(), keys.iter().map(|key| cut(key).into())),
        Observed::Number(number) => (*number).into(),
        // Described by their names.
        Observed::Hit(_) | Observed::Selection(_) => Json::Null,
        Observed::Addresses(addresses) => items(
            addresses.len(),
            addresses.iter().map(|address| format!("{} {}", address.interface_name, address.ip).into()),
        ),
        Observed::Done => "done".into(),
        Observed::Refused(reason) => json!({"refused": one_line(reason, TEXT)}),
    }
}

fn read_value(value: &Value) -> Json {
    match value {
        Value::Null => Json::Null,
        Value::Boolean(value) => (*value).into(),
        Value::Number(number) => serde_json::from_str(number).unwrap_or_else(|_| number.as_str().into()),
        Value::Text(text) => cut(text).into(),
        Value::Json(json) if json.len() <= TEXT => serde_json::from_str(json).unwrap_or_else(|_| cut(json).into()),
        Value::Json(json) => cut(json).into(),
    }
}

fn written(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Boolean(value) => value.to_string(),
        Value::Number(number) => number.clone(),
        Value::Text(text) => format!("{:?}", cut(text)),
        Value::Json(json) => cut(json),
    }
}

fn column_items(column: &Column) -> Json {
    items(column.len(), column.iter().map(|cell| cell.map_or(Json::Null, |cell| cut(cell).into())))
}

/// The first items of a list, and how many follow.
fn items(total: usize, all: impl Iterator<Item = Json>) -> Json {
    let mut listed: Vec<Json> = all.take(ITEMS).collect();
    if total > ITEMS {
        listed.push(format!("… and {} more", total - ITEMS).into());
    }
    Json::Array(listed)
}

fn listed<'a>(texts: impl Iterator<Item = &'a str>) -> String {
    let (mut list, mut more) = (Vec::new(), 0);
    for text in texts {
        match list.len() < ITEMS {
            true => list.push(format!("{:?}", cut(text))),
            false => more += 1,
        }
    }
    let rest = if more > 0 { format!(", … and {more} more") } else { String::new() };
    format!("[{}{rest}]", list.join(", "))
}

fn listed_set(texts: &StringSet) -> String {
    // In a stable order, so that two explanations can be compared.
    let mut sorted: Vec<_> = texts.iter().collect();
    sorted.sort_unstable();
    listed(sorted.into_iter())
}

/// A text of bounded length.
fn cut(text: &str) -> String {
    if text.len() <= TEXT {
        return text.to_owned();
    }
    let end = text.floor_char_boundary(TEXT);
    format!("{}… ({} bytes)", text.get(..end).unwrap_or_default(), text.len())
}
