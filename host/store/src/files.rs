//! Objects from files, and the addresses of a node: what `weir run`, `weir check` and tests give a filter.
//!
//! It answers as the feeds would: narrowed by the lookup's name, selector, versions and metadata-only. It never changes.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use serde_json::Value;
use weir_document::{Document, resource_of};
use weir_kube::Selector;

use super::object::hold;
use super::store::{Delta, Objects};
use weir_document::{CachedObject, Selection};
use weir_kube::{Address, Lookup};

/// Objects that never change. Clones share them.
#[derive(Clone)]
pub struct FileObjects(Arc<State>);

struct State {
    addresses: Arc<[Address]>,
    /// By resource, as `resource_of` names it.
    objects: HashMap<String, Vec<Object>>,
    /// What each lookup takes of them; made when first asked for.
    lookups: Mutex<HashMap<Lookup, Arc<Objects>>>,
}

struct Object {
    version: String,
    name: String,
    bytes: Bytes,
}

/// Why files are no objects.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FilesError {
    /// Neither YAML nor JSON.
    #[error("not YAML or JSON: {0}")]
    Syntax(String),
    /// A document that is no Kubernetes object.
    #[error("document {0} is no Kubernetes object: it needs apiVersion, kind and metadata.name")]
    NotAnObject(usize),
    /// An object that the engine can not read.
    #[error("object {kind} {name:?} can not be read")]
    Object {
        /// Its kind.
        kind: String,
        /// Its name.
        name: String,
        /// Why.
        #[source]
        source: weir_document::Error,
    },
}

/// Reads objects from a file's text: one or several YAML documents, JSON, lists (`kind: List` or typed) laid open.
///
/// # Errors
/// [`FilesError`].
pub fn read_objects(text: &str) -> Result<Vec<Value>, FilesError> {
    let options = serde_saphyr::options! { with_snippet: false };
    let documents: Vec<Value> = serde_saphyr::from_multiple_with_options(text, options)
        .map_err(|error| FilesError::Syntax(error.to_string().replace('\n', " ")))?;
    let mut objects = Vec::new();
    for (i, document) in documents.into_iter().enumerate() {
        match document {
            Value::Null => {}
            Value::Object(mut list) if list.get("items").is_some_and(Value::is_array) => {
                let Some(Value::Array(items)) = list.remove("items") else {
                    continue;
                };
                let text = |key: &str| list.get(key).and_then(Value::as_str).unwrap_or_default();
                let (api_version, kind) = (text("apiVersion"), text("kind"));
                let kind = kind.strip_suffix("List").unwrap_or(kind);
                for item in items {
                    objects.push(typed(item, api_version, kind).ok_or(FilesError::NotAnObject(i + 1))?);
                }
            }
            document => objects.push(typed(document, "", "").ok_or(FilesError::NotAnObject(i + 1))?),
        }
    }
    Ok(objects)
}

/// The object with its type in front, taken from its list if it has none; none if it is no object.
fn typed(object: Value, api_version: &str, kind: &str) -> Option<Value> {
    let Value::Object(object) = object else {
        return None;
    };
    let text = |key: &str, default: &str| {
        let own = object.get(key).and_then(Value::as_str).unwrap_or(default);
        (!own.is_empty()).then(|| own.to_owned())
    };
    let (api_version, kind) = (text("apiVersion", api_version)?, text("kind", kind)?);
    object.get("metadata")?.get("name")?.as_str()?;
    if object.contains_key("apiVersion") && object.contains_key("kind") {
        return Some(Value::Object(object));
    }
    let mut whole = serde_json::Map::new();
    whole.insert("apiVersion".into(), api_version.into());
    whole.insert("kind".into(), kind.into());
    whole.extend(object.into_iter().filter(|(key, _)| key != "apiVersion" && key != "kind"));
    Some(Value::Object(whole))
}

impl FileObjects {
    /// These objects, as [`read_objects`] gives them. A later object replaces an earlier one of the same kind,
    /// namespace and name.
    ///
    /// # Errors
    /// [`FilesError`], naming the object.
    pub fn new(objects: impl IntoIterator<Item = Value>, addresses: Vec<Address>) -> Result<Self, FilesError> {
        let mut by_resource: HashMap<String, Vec<Object>> = HashMap::new();
        for (i, value) in objects.into_iter().enumerate() {
            let text = |value: Option<&Value>| value.and_then(Value::as_str).map(str::to_owned);
            let (api_version, kind) = (text(value.get("apiVersion")), text(value.get("kind")));
            let (Some(api_version), Some(kind)) = (api_version, kind) else {
                return Err(FilesError::NotAnObject(i + 1));
            };
            let bytes = Bytes::from(value.to_string());
            let document = Document::json(bytes.clone());
            let failed = |source| FilesError::Object { kind: kind.clone(), name: String::new(), source };
            let name = document.name().map_err(failed)?.into_owned();
            if name.is_empty() {
                return Err(FilesError::NotAnObject(i + 1));
            }
            let version = api_version.rsplit('/').next().unwrap_or_default().to_owned();
            let resource = resource_of(&api_version, &kind);
            by_resource.entry(resource).or_default().push(Object { version, name, bytes });
        }
        Ok(Self(Arc::new(State { addresses: addresses.into(), objects: by_resource, lookups: Mutex::default() })))
    }
}

impl State {
    /// What a lookup takes.
    fn objects(&self, lookup: &Lookup) -> Arc<Objects> {
        let mut lookups = self.lookups.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = lookups.get(lookup) {
            return found.clone();
        }
        let selector = lookup.label_selector.as_deref().map(Selector::parse);
        let mut objects = Objects::default();
        let all = self.objects.get(&lookup.resource.to_string()).map(Vec::as_slice).unwrap_or_default();
        let deltas = all
            .iter()
            .filter(|object| lookup.versions.is_empty() || lookup.versions.contains(&object.version))
            .filter(|object| lookup.name.as_ref().is_none_or(|name| *name == object.name))
            .filter_map(|object| hold(&object.bytes, None, lookup.metadata_only).ok())
            .filter(|(_, held)| match &selector {
                None => true,
                Some(Ok(selector)) => selector.matches(|label| held.object.document().label(label).ok().flatten()),
                Some(Err(_)) => false,
            })
            .map(|(key, mut held)| {
                // Files are written by people: two objects with one version are still two.
                held.version = Box::default();
                Delta::Put(key, held)
            })
            .collect();
        if let Some((next, _)) = objects.next(deltas) {
            objects = next;
        }
        let objects = Arc::new(objects);
        lookups.insert(lookup.clone(), objects.clone());
        objects
    }
}

impl FileObjects {
    /// One object, or nothing.
    #[must_use]
    pub fn get(&self, lookup: &Lookup, namespace: Option<&str>, name: &str) -> Option<Arc<CachedObject>> {
        Some(self.0.objects(lookup).get(namespace.unwrap_or_default(), name)?.object.clone())
    }

    /// The objects of a namespace (or all) that a label selector matches, sorted by namespace and name.
    ///
    /// # Errors
    /// A malformed selector.
    pub fn find(
        &self,
        lookup: &Lookup,
        namespace: Option<&str>,
        label_selector: &str,
    ) -> Result<Arc<Selection>, String> {
        self.0.objects(lookup).find(namespace, label_selector)
    }

    /// The node's addresses.
    #[must_use]
    pub fn addresses(&self) -> Arc<[Address]> {
        self.0.addresses.clone()
    }
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileObjects").field("kinds", &self.objects.len()).finish_non_exhaustive()
    }
}

impl fmt::Debug for FileObjects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POOLS: &str = r#"
apiVersion: apps.openyurt.io/v1beta2
kind: NodePool
metadata: {name: hangzhou}
status: {nodes: [n1, n2]}
---
apiVersion: v1
kind: NodeList
items:
- metadata: {name: n2, labels: {pool: hangzhou}}
  status: {phase: x}
- metadata: {name: n1, labels: {pool: shanghai}}
---
"#;

    fn world() -> FileObjects {
        FileObjects::new(read_objects(POOLS).unwrap(), Vec::new()).unwrap()
    }

    fn names(selection: &Selection) -> Vec<String> {
        selection.objects().iter().map(|object| object.document().name().unwrap().into_owned()).collect()
    }

    #[test]
    fn several_documents_and_lists_are_laid_open() {
        let snapshot = world();
        let pool = snapshot.get(&Lookup::all("nodepools".parse().unwrap()), None, "hangzhou").unwrap();
        assert_eq!(pool.document().kind().unwrap(), "NodePool");
        let nodes = snapshot.find(&Lookup::all("nodes".parse().unwrap()), None, "").unwrap();
        assert_eq!(names(&nodes), ["n1", "n2"]);
        assert_eq!(nodes.objects()[0].document().api_version().unwrap(), "v1");
    }

    #[test]
    fn a_lookup_narrows_as_a_feed_would() {
        let snapshot = world();
        let named = Lookup { name: Some("n1".into()), ..Lookup::all("nodes".parse().unwrap()) };
        assert_eq!(names(&snapshot.find(&named, None, "").unwrap()), ["n1"]);
        let selected = Lookup { label_selector: Some("pool=hangzhou".into()), ..Lookup::all("nodes".parse().unwrap()) };
        assert_eq!(names(&snapshot.find(&selected, None, "").unwrap()), ["n2"]);
        let metadata = Lookup { metadata_only: true, ..Lookup::all("nodes".parse().unwrap()) };
        let node = snapshot.get(&metadata, None, "n2").unwrap();
        assert!(!String::from_utf8_lossy(node.document().bytes()).contains("phase"));
        let version = Lookup { versions: vec!["v1beta1".into()], ..Lookup::all("nodepools".parse().unwrap()) };
        assert!(snapshot.get(&version, None, "hangzhou").is_none());
        assert!(snapshot.find(&Lookup::all("nodes".parse().unwrap()), None, "a in").is_err());
    }

    #[test]
    fn what_is_no_object_is_refused_by_its_place() {
        assert_eq!(read_objects("a: [").unwrap_err().to_string().split(':').next(), Some("not YAML or JSON"));
        for bad in ["7", "kind: A", "{apiVersion: v1, kind: A}", "{apiVersion: v1, kind: A, metadata: {}}"] {
            let message = read_objects(bad).unwrap_err().to_string();
            assert!(message.starts_with("document 1 is no Kubernetes object"), "{bad}: {message}");
        }
    }
}
