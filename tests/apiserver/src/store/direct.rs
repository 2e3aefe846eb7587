//! The test's interface to the store: complete objects in and out, resources by apiVersion and kind, no validation.

use serde::Deserialize;
use serde_json::{Map, Value};

use super::{Key, ObjectStore, WriteDecision, WriteResult};
use crate::catalog::Resource;

/// A reason to refuse an object.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// It is not an object with apiVersion, kind and metadata.name.
    #[error("an object needs apiVersion, kind and metadata.name; got {0}")]
    NotAnObject(String),
    /// The server does not serve the kind.
    #[error("no resource for {api_version} {kind}")]
    UnknownKind {
        /// The object's apiVersion.
        api_version: String,
        /// The object's kind.
        kind: String,
    },
    /// The text is neither YAML nor JSON.
    #[error("cannot read objects")]
    Unreadable(#[source] Box<dyn std::error::Error + Send + Sync>),
}

impl ObjectStore {
    /// Creates or replaces an object, ignores its resourceVersion, and returns the new version. It writes even if
    /// nothing changes. A namespaced object without a namespace goes to `default`. The namespace need not exist.
    pub fn put(&self, object: Value) -> Result<u64, StoreError> {
        let (resource, key) = self.place(&object)?;
        let Value::Object(body) = object else {
            return Err(StoreError::NotAnObject(object.to_string()));
        };
        let mut state = self.state();
        let qualified = resource.qualified();
        let old = state.collections.get(&qualified).and_then(|collection| collection.objects.get(&key).cloned());
        Ok(self.commit(&mut state, &qualified, &key, body, old).revision)
    }

    /// Stores every document of a YAML or JSON text, and the items of `List` objects. Returns the number of objects.
    pub fn load(&self, text: &str) -> Result<usize, StoreError> {
        let documents = documents(text)?;
        let count = documents.len();
        for document in documents {
            self.put(document)?;
        }
        Ok(count)
    }

    /// Changes an object in place and returns its new version; `None` if it does not exist.
    pub fn edit(
        &self,
        api_version: &str,
        kind: &str,
        namespace: &str,
        name: &str,
        change: impl FnOnce(&mut Value),
    ) -> Option<u64> {
        let resource = self.catalog.by_kind(api_version, kind)?;
        let key = Key::new(namespace, name);
        let written = self.write(&resource, &key, |old| {
            let Some(old) = old else {
                return Ok(WriteDecision::Nothing);
            };
            let mut value = Value::Object(old.value(&resource));
            change(&mut value);
            match value {
                Value::Object(body) => Ok::<_, std::convert::Infallible>(WriteDecision::Put(body)),
                _ => Ok(WriteDecision::Nothing),
            }
        });
        match written {
            Ok(WriteResult::Stored(object, _)) => Some(object.revision),
            _ => None,
        }
    }

    /// Deletes an object at once and ignores finalizers. Returns the version of the deletion if the object existed.
    /// Cluster-scoped objects have the empty namespace.
    pub fn delete(&self, api_version: &str, kind: &str, namespace: &str, name: &str) -> Option<u64> {
        let resource = self.catalog.by_kind(api_version, kind)?;
        let key = Key::new(namespace, name);
        let written = self.write(&resource, &key, |_| Ok::<_, std::convert::Infallible>(WriteDecision::Delete));
        match written {
            Ok(WriteResult::Deleted(last)) => Some(last.revision),
            _ => None,
        }
    }

    /// An object in the form of a GET response.
    pub fn get(&self, api_version: &str, kind: &str, namespace: &str, name: &str) -> Option<Value> {
        let resource = self.catalog.by_kind(api_version, kind)?;
        let object = self.find(&resource.qualified(), &Key::new(namespace, name))?;
        Some(Value::Object(object.value(&resource)))
    }

    /// All objects of a kind, sorted by namespace and name.
    pub fn list(&self, api_version: &str, kind: &str) -> Vec<Value> {
        let Some(resource) = self.catalog.by_kind(api_version, kind) else {
            return Vec::new();
        };
        let snapshot = self.snapshot(&resource.qualified(), None, None);
        snapshot.map_or_else(
            |_| Vec::new(),
            |snapshot| snapshot.objects.iter().map(|object| Value::Object(object.value(&resource))).collect(),
        )
    }

    fn place(&self, object: &Value) -> Result<(std::sync::Arc<Resource>, Key), StoreError> {
        let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str);
        let (Some(api_version), Some(kind), Some(name)) = (text("/apiVersion"), text("/kind"), text("/metadata/name"))
        else {
            let mut shown = object.to_string();
            shown.truncate(shown.floor_char_boundary(200));
            return Err(StoreError::NotAnObject(shown));
        };
        let resource = self
            .catalog
            .by_kind(api_version, kind)
            .ok_or_else(|| StoreError::UnknownKind { api_version: api_version.to_owned(), kind: kind.to_owned() })?;
        let namespace = match (resource.namespaced, text("/metadata/namespace")) {
            (false, _) => "",
            (true, None | Some("")) => "default",
            (true, Some(namespace)) => namespace,
        };
        Ok((resource, Key::new(namespace, name)))
    }
}

/// The objects of a YAML or JSON text, including the items of lists.
fn documents(text: &str) -> Result<Vec<Value>, StoreError> {
    let mut stream = serde_json::Deserializer::from_str(text).into_iter::<Value>();
    // JSON first: large files are usually JSON, and the YAML reader limits its input.
    let documents = match stream.next() {
        Some(Ok(first @ Value::Object(_))) => std::iter::once(Ok(first))
            .chain(stream)
            .collect::<Result<Vec<_>, _>>()
            .map_err(|error| StoreError::Unreadable(Box::new(error)))?,
        _ => serde_saphyr::from_multiple::<YamlValue>(text)
            .map_err(|error| StoreError::Unreadable(Box::new(error)))?
            .into_iter()
            .map(|document| document.0)
            .collect(),
    };
    let mut objects = Vec::new();
    for document in documents {
        match document {
            Value::Null => {}
            Value::Object(mut list) if is_list(&list) => {
                if let Some(Value::Array(items)) = list.shift_remove("items") {
                    objects.extend(items);
                }
            }
            other => objects.push(other),
        }
    }
    Ok(objects)
}

fn is_list(map: &Map<String, Value>) -> bool {
    map.get("kind").and_then(Value::as_str) == Some("List")
}

#[derive(Deserialize)]
#[serde(transparent)]
struct YamlValue(Value);
