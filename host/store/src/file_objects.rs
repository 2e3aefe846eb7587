//! Objects and node addresses from files, for `weir run`, `weir check` and tests.
//!
//! Queries give the results that reflectors of the same lookups would give. The objects never change.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use serde_json::Value;
use weir_document::Document;
use weir_kube::{GroupResource, LabelSelector, yaml_documents};

use super::indexed_objects::{Delta, IndexedObjects};
use super::stored_object::read_object;
use weir_spec::{CachedObject, InterfaceAddress, LookupSpec, Selection};

/// A fixed set of objects. Clones share it.
#[derive(Clone, Default)]
pub struct FileObjects(Arc<FileState>);

#[derive(Default)]
struct FileState {
    addresses: Arc<[InterfaceAddress]>,
    /// The objects by resource, as their kinds suggest it.
    objects: HashMap<GroupResource, Vec<FileObject>>,
    /// The objects of each lookup, selected at its first query.
    lookups: Mutex<HashMap<LookupSpec, Arc<IndexedObjects>>>,
}

struct FileObject {
    version: String,
    name: String,
    bytes: Bytes,
}

/// A file that does not contain valid objects.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FileObjectsError {
    /// The text is neither YAML nor JSON.
    #[error("not YAML or JSON: {0}")]
    Syntax(String),
    /// A document is not a Kubernetes object.
    #[error("document {0} is not a Kubernetes object: it needs apiVersion, kind and metadata.name")]
    NotAnObject(usize),
    /// An object cannot be read.
    #[error("object {kind} {name:?} cannot be read")]
    Object {
        /// The kind of the object.
        kind: String,
        /// The name of the object.
        name: String,
        /// Why.
        #[source]
        source: weir_document::Error,
    },
}

/// Parses the objects of a file: YAML documents or JSON. Lists, generic and typed ones, give their items.
///
/// # Errors
/// [`FileObjectsError`].
pub fn read_objects(text: &str) -> Result<Vec<Value>, FileObjectsError> {
    let documents = yaml_documents(text).map_err(FileObjectsError::Syntax)?;
    let mut objects = Vec::new();
    for (i, document) in documents.into_iter().enumerate() {
        match document {
            // Go writes an empty list as null.
            Value::Object(list) if is_empty_list(&list) => {}
            Value::Object(mut list) if list.get("items").is_some_and(Value::is_array) => {
                let Some(Value::Array(items)) = list.remove("items") else {
                    continue;
                };
                let text = |key: &str| list.get(key).and_then(Value::as_str).unwrap_or_default();
                let (api_version, kind) = (text("apiVersion"), text("kind"));
                let kind = kind.strip_suffix("List").unwrap_or(kind);
                for item in items {
                    objects.push(typed(item, api_version, kind).ok_or(FileObjectsError::NotAnObject(i + 1))?);
                }
            }
            document => objects.push(typed(document, "", "").ok_or(FileObjectsError::NotAnObject(i + 1))?),
        }
    }
    Ok(objects)
}

/// Whether this is a list whose items are null.
fn is_empty_list(list: &serde_json::Map<String, Value>) -> bool {
    list.get("items").is_some_and(Value::is_null)
        && list.get("kind").and_then(Value::as_str).is_some_and(|kind| kind.ends_with("List"))
}

/// The object with its type first, or with the type of its list if it has none; `None` if it is not an object.
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
    /// Collects the objects that [`read_objects`] returned. An object replaces an earlier one of the same kind, namespace and
    /// name.
    ///
    /// # Errors
    /// The error names the first invalid object.
    pub fn new(
        objects: impl IntoIterator<Item = Value>,
        addresses: Vec<InterfaceAddress>,
    ) -> Result<Self, FileObjectsError> {
        let mut by_resource: HashMap<GroupResource, Vec<FileObject>> = HashMap::new();
        for (i, value) in objects.into_iter().enumerate() {
            let text = |value: Option<&Value>| value.and_then(Value::as_str).map(str::to_owned);
            let (api_version, kind) = (text(value.get("apiVersion")), text(value.get("kind")));
            let (Some(api_version), Some(kind)) = (api_version, kind) else {
                return Err(FileObjectsError::NotAnObject(i + 1));
            };
            let bytes = Bytes::from(value.to_string());
            let document = Document::json(bytes.clone());
            let failed = |source| FileObjectsError::Object { kind: kind.clone(), name: String::new(), source };
            let name = document.name().map_err(failed)?.into_owned();
            if name.is_empty() {
                return Err(FileObjectsError::NotAnObject(i + 1));
            }
            let version = api_version.rsplit('/').next().unwrap_or_default().to_owned();
            let resource = GroupResource::of_kind(&api_version, &kind);
            by_resource.entry(resource).or_default().push(FileObject { version, name, bytes });
        }
        Ok(Self(Arc::new(FileState { addresses: addresses.into(), objects: by_resource, lookups: Mutex::default() })))
    }
}

impl FileState {
    /// The objects that a lookup selects.
    fn objects(&self, lookup: &LookupSpec) -> Arc<IndexedObjects> {
        let mut lookups = self.lookups.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = lookups.get(lookup) {
            return found.clone();
        }
        let selector = lookup.label_selector.as_deref().map(LabelSelector::parse);
        let mut objects = IndexedObjects::default();
        let all = self.objects.get(&lookup.resource).map(Vec::as_slice).unwrap_or_default();
        let deltas = all
            .iter()
            .filter(|object| lookup.versions.is_empty() || lookup.versions.contains(&object.version))
            .filter(|object| lookup.name.as_ref().is_none_or(|name| *name == object.name))
            .filter_map(|object| read_object(&object.bytes, lookup.metadata_only).ok())
            .filter(|(_, stored)| match &selector {
                None => true,
                Some(Ok(selector)) => selector.matches(|label| stored.document().label(label).ok().flatten()),
                Some(Err(_)) => false,
            })
            .map(|(key, stored)| Delta::Put(key, stored))
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
    /// One object; `None` if it does not exist.
    #[must_use]
    pub fn get(&self, lookup: &LookupSpec, namespace: Option<&str>, name: &str) -> Option<Arc<CachedObject>> {
        Some(self.0.objects(lookup).get(namespace.unwrap_or_default(), name)?.clone())
    }

    /// The objects that a label selector matches, sorted by namespace and name. `None` as namespace means all namespaces.
    ///
    /// # Errors
    /// The selector is malformed.
    pub fn find(
        &self,
        lookup: &LookupSpec,
        namespace: Option<&str>,
        label_selector: &str,
    ) -> Result<Arc<Selection>, String> {
        self.0.objects(lookup).find(namespace, label_selector)
    }

    /// The number of objects of a lookup.
    #[must_use]
    pub fn count(&self, lookup: &LookupSpec) -> usize {
        self.0.objects(lookup).count()
    }

    /// How many objects [`FileObjects::find`] reads: none if it remembers the selection.
    #[must_use]
    pub fn objects_to_read(&self, lookup: &LookupSpec, namespace: Option<&str>, label_selector: &str) -> usize {
        self.0.objects(lookup).to_read(namespace, label_selector)
    }

    /// The addresses of the node.
    #[must_use]
    pub fn addresses(&self) -> Arc<[InterfaceAddress]> {
        self.0.addresses.clone()
    }
}

impl fmt::Debug for FileState {
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

    fn objects() -> FileObjects {
        FileObjects::new(read_objects(POOLS).unwrap(), Vec::new()).unwrap()
    }

    fn names(selection: &Selection) -> Vec<String> {
        selection.objects().iter().map(|object| object.document().name().unwrap().into_owned()).collect()
    }

    #[test]
    fn documents_and_lists_give_their_objects() {
        let snapshot = objects();
        let pool = snapshot.get(&LookupSpec::all("nodepools".parse().unwrap()), None, "hangzhou").unwrap();
        assert_eq!(pool.document().kind().unwrap(), "NodePool");
        let nodes = snapshot.find(&LookupSpec::all("nodes".parse().unwrap()), None, "").unwrap();
        assert_eq!(names(&nodes), ["n1", "n2"]);
        assert_eq!(nodes.objects()[0].document().api_version().unwrap(), "v1");
    }

    #[test]
    fn a_list_whose_items_are_null_is_empty() {
        for list in
            ["{apiVersion: v1, kind: ConfigMapList, items: null}", r#"{"apiVersion":"v1","kind":"List","items":null}"#]
        {
            assert_eq!(read_objects(list).unwrap(), Vec::<Value>::new(), "{list}");
        }
        let named = read_objects("{apiVersion: example.com/v1, kind: Shop, metadata: {name: a}, items: null}").unwrap();
        assert_eq!(named.len(), 1, "not every kind with items is a list");
    }

    #[test]
    fn a_lookup_selects_objects_as_a_reflector_does() {
        let snapshot = objects();
        let named = LookupSpec { name: Some("n1".into()), ..LookupSpec::all("nodes".parse().unwrap()) };
        assert_eq!(names(&snapshot.find(&named, None, "").unwrap()), ["n1"]);
        let selected =
            LookupSpec { label_selector: Some("pool=hangzhou".into()), ..LookupSpec::all("nodes".parse().unwrap()) };
        assert_eq!(names(&snapshot.find(&selected, None, "").unwrap()), ["n2"]);
        let metadata = LookupSpec { metadata_only: true, ..LookupSpec::all("nodes".parse().unwrap()) };
        let node = snapshot.get(&metadata, None, "n2").unwrap();
        assert!(!String::from_utf8_lossy(node.document().bytes()).contains("phase"));
        let version = LookupSpec { versions: vec!["v1beta1".into()], ..LookupSpec::all("nodepools".parse().unwrap()) };
        assert!(snapshot.get(&version, None, "hangzhou").is_none());
        assert!(snapshot.find(&LookupSpec::all("nodes".parse().unwrap()), None, "a in").is_err());
    }

    #[test]
    fn a_document_that_is_not_an_object_is_an_error_with_its_position() {
        assert_eq!(read_objects("a: [").unwrap_err().to_string().split(':').next(), Some("not YAML or JSON"));
        for bad in ["7", "kind: A", "{apiVersion: v1, kind: A}", "{apiVersion: v1, kind: A, metadata: {}}"] {
            let message = read_objects(bad).unwrap_err().to_string();
            assert!(message.starts_with("document 1 is not a Kubernetes object"), "{bad}: {message}");
        }
    }
}
