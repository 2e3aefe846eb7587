//! The wasm backend: the SDK's types over the generated bindings, and the functions that [`export!`](crate::export)
//! calls. An import either succeeds or ends the call, so nothing here returns an error of its own.

use std::cell::OnceCell;

use self::bindings::exports::weir::filter::module;
use self::bindings::weir::filter::{cluster, log, node, objects};
use crate::cluster::Presence;
use crate::log::Level;
use crate::node::{Address, Endpoint};
use crate::{Filter, Object, Path, Plan, Value, Verdict, settings};

/// Generated from `wit`, in the repository a link to the folder of the contract.
#[allow(
    unsafe_code,
    missing_docs,
    unreachable_pub,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    clippy::allow_attributes_without_reason,
    reason = "generated code"
)]
pub mod bindings {
    wit_bindgen::generate!({
        path: "wit",
        world: "filter",
        pub_export_macro: true,
        default_bindings_module: "weir_filter::guest::bindings",
    });
}

/// A parsed path.
pub(crate) struct CompiledPath(objects::Path);

impl CompiledPath {
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        objects::Path::parse(text).map(Self)
    }
}

/// Returns the host's handle of a path. The host accepts every path that compiled here. If it ever does not, the call
/// ends like with any other fault.
fn compiled(at: &Path) -> &objects::Path {
    match at.compiled() {
        Ok(path) => &path.0,
        Err(reason) => {
            log::write(log::Level::Error, &format!("path {}: {reason}", at.text()));
            std::process::abort()
        }
    }
}

/// An object: borrowed from the host for one call, or owned.
pub(crate) enum Handle<'a> {
    Borrowed(&'a objects::Object),
    Owned(objects::Object),
}

impl Handle<'_> {
    fn raw(&self) -> &objects::Object {
        match self {
            Self::Borrowed(object) => object,
            Self::Owned(object) => object,
        }
    }

    pub(crate) fn api_version(&self) -> String {
        self.raw().api_version()
    }

    pub(crate) fn kind(&self) -> String {
        self.raw().kind()
    }

    pub(crate) fn namespace(&self) -> Option<String> {
        self.raw().namespace()
    }

    pub(crate) fn name(&self) -> String {
        self.raw().name()
    }

    pub(crate) fn label(&self, key: &str) -> Option<String> {
        self.raw().label(key)
    }

    pub(crate) fn annotation(&self, key: &str) -> Option<String> {
        self.raw().annotation(key)
    }

    pub(crate) fn get(&self, at: &Path) -> Option<Value> {
        self.raw().get(compiled(at)).map(from_host)
    }

    pub(crate) fn text(&self, at: &Path) -> Option<String> {
        self.raw().text(compiled(at))
    }

    pub(crate) fn one_of(&self, at: &Path, values: &[String]) -> Option<u32> {
        self.raw().one_of(compiled(at), values)
    }

    pub(crate) fn column(&self, at: &Path) -> (String, Vec<u32>) {
        let column = self.raw().column(compiled(at));
        (column.text, column.ends)
    }

    pub(crate) fn lengths(&self, at: &Path) -> Vec<u32> {
        self.raw().lengths(compiled(at))
    }

    pub(crate) fn keys(&self, at: &Path) -> Vec<String> {
        self.raw().keys(compiled(at))
    }

    pub(crate) fn fingerprint(&self, at: &Path) -> u64 {
        self.raw().fingerprint(compiled(at))
    }

    pub(crate) fn to_json(&self) -> String {
        self.raw().to_json()
    }

    pub(crate) fn set(&mut self, at: &Path, value: Value) -> Result<(), String> {
        self.raw().set(compiled(at), &to_host(value))
    }

    pub(crate) fn set_rows(&mut self, at: &Path, rows: &[u8], value: Value) -> Result<(), String> {
        self.raw().set_rows(compiled(at), rows, &to_host(value))
    }

    pub(crate) fn remove(&mut self, at: &Path) -> Result<u32, String> {
        self.raw().remove(compiled(at))
    }

    pub(crate) fn remove_rows(&mut self, at: &Path, rows: &[u8]) -> Result<u32, String> {
        self.raw().remove_rows(compiled(at), rows)
    }

    pub(crate) fn retain(&mut self, at: &Path, keep: &[u8]) -> Result<(), String> {
        self.raw().retain(compiled(at), keep)
    }

    pub(crate) fn retain_in(&mut self, at: &Path, values: &StringSet) -> Result<(), String> {
        self.raw().retain_in(compiled(at), &values.0)
    }

    pub(crate) fn append(&mut self, at: &Path, value: Value) -> Result<(), String> {
        self.raw().append(compiled(at), &to_host(value))
    }

    pub(crate) fn replace(&mut self, json: &str) -> Result<(), String> {
        self.raw().replace(json)
    }
}

fn from_host(value: objects::Value) -> Value {
    match value {
        objects::Value::Null => Value::Null,
        objects::Value::Boolean(value) => Value::Boolean(value),
        objects::Value::Number(number) => Value::Number(number),
        objects::Value::Text(text) => Value::Text(text),
        objects::Value::Json(json) => Value::Json(json),
    }
}

fn to_host(value: Value) -> objects::Value {
    match value {
        Value::Null => objects::Value::Null,
        Value::Boolean(value) => objects::Value::Boolean(value),
        Value::Number(number) => objects::Value::Number(number),
        Value::Text(text) => objects::Value::Text(text),
        Value::Json(json) => objects::Value::Json(json),
    }
}

/// A set of strings that the host stores.
pub(crate) struct StringSet(objects::StringSet);

impl StringSet {
    pub(crate) fn new(strings: &[String]) -> Self {
        Self(objects::StringSet::new(strings))
    }
}

/// The objects that a lookup returned.
pub(crate) struct Selection(cluster::Selection);

impl Selection {
    pub(crate) fn count(&self) -> u32 {
        self.0.count()
    }

    pub(crate) fn at(&self, index: u32) -> Option<Handle<'static>> {
        self.0.at(index).map(Handle::Owned)
    }

    pub(crate) fn column(&self, at: &Path) -> (String, Vec<u32>) {
        let column = self.0.column(compiled(at));
        (column.text, column.ends)
    }

    pub(crate) fn fingerprint(&self, at: &Path) -> u64 {
        self.0.fingerprint(compiled(at))
    }
}

pub(crate) fn cluster_get(resource: &str, namespace: Option<&str>, name: &str) -> Option<Handle<'static>> {
    cluster::get(resource, namespace, name).map(Handle::Owned)
}

pub(crate) fn cluster_presence_of(resource: &str, namespace: Option<&str>, name: &str) -> Presence {
    match cluster::presence_of(resource, namespace, name) {
        cluster::Presence::Present => Presence::Present,
        cluster::Presence::Absent => Presence::Absent,
        cluster::Presence::NotServed => Presence::NotServed,
        cluster::Presence::NotKnown => Presence::NotKnown,
    }
}

pub(crate) fn cluster_last_known(resource: &str, namespace: Option<&str>, name: &str) -> Option<Handle<'static>> {
    cluster::last_known(resource, namespace, name).map(Handle::Owned)
}

pub(crate) fn cluster_referent(resource: &str, object: &Handle<'_>, name_at: &Path) -> Option<Handle<'static>> {
    cluster::referent(resource, object.raw(), compiled(name_at)).map(Handle::Owned)
}

pub(crate) fn cluster_find(resource: &str, namespace: Option<&str>, label_selector: &str) -> Selection {
    Selection(cluster::find(resource, namespace, label_selector))
}

pub(crate) fn cluster_find_last_known(resource: &str, namespace: Option<&str>, label_selector: &str) -> Selection {
    Selection(cluster::find_last_known(resource, namespace, label_selector))
}

pub(crate) fn node_name() -> String {
    node::name()
}

pub(crate) fn node_addresses() -> Vec<Address> {
    node::addresses()
        .into_iter()
        .map(|address| Address {
            interface_name: address.interface_name,
            ip: address.ip,
            prefix_length: address.prefix_length,
            default_route: address.default_route,
        })
        .collect()
}

pub(crate) fn node_secure_endpoint() -> Option<Endpoint> {
    node::secure_endpoint().map(|endpoint| Endpoint { host: endpoint.host, port: endpoint.port })
}

pub(crate) fn log_write(level: Level, message: &str) {
    let level = match level {
        Level::Trace => log::Level::Trace,
        Level::Debug => log::Level::Debug,
        Level::Info => log::Level::Info,
        Level::Warn => log::Level::Warn,
        Level::Error => log::Level::Error,
    };
    log::write(level, message);
}

/// Implements `describe`, from the filter's Cargo.toml.
pub fn describe(crate_name: &str, version: &str, summary: &str) -> module::Description {
    module::Description { name: crate_name.replace('_', "-"), version: version.to_owned(), summary: summary.to_owned() }
}

/// Implements `configure`: parses the settings, creates the filter and returns its plan.
pub fn configure<F: Filter>(slot: &OnceCell<F>, settings: &str) -> Result<module::Plan, String> {
    let filter = settings::parse(settings).and_then(F::configure).map_err(|error| error.to_string())?;
    let plan = filter.plan();
    slot.set(filter).map_err(|_| "configure was called twice".to_owned())?;
    Ok(to_plan(plan))
}

fn to_plan(plan: Plan) -> module::Plan {
    let lookups = plan.lookups.into_iter().map(|lookup| module::Lookup {
        resource: lookup.resource,
        versions: lookup.versions,
        name: lookup.name,
        label_selector: lookup.label_selector,
        metadata_only: lookup.metadata_only,
        optional: lookup.optional,
    });
    module::Plan { matches: plan.matches, lookups: lookups.collect() }
}

/// Implements `filter`.
pub fn filter<F: Filter>(slot: &OnceCell<F>, object: &objects::Object) -> Result<module::Verdict, String> {
    let filter = slot.get().ok_or("filter was called before configure")?;
    match filter.filter(&mut Object::new(Handle::Borrowed(object))) {
        Ok(Verdict::Keep) => Ok(module::Verdict::Keep),
        Ok(Verdict::Hide) => Ok(module::Verdict::Hide),
        Err(error) => Err(error.to_string()),
    }
}
