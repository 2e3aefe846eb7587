//! What the objects of a template become in the cluster: with labels by which they are found, an owner, and a hash of themselves.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};

use super::{APPLIED, MANAGED_BY, MANAGER, POOL, REVISION, TEMPLATE};
use crate::template::{Kind, RenderedObject, Template, short_hash};

/// An object as it is applied.
#[derive(Debug, Clone)]
pub(super) struct Desired {
    pub(super) kind: &'static Kind,
    pub(super) name: String,
    pub(super) hash: String,
    pub(super) object: Value,
}

/// What all objects of a template have in common.
pub(super) struct Stamp<'a> {
    pub(super) template: &'a Template,
    pub(super) revision: &'a str,
    pub(super) owner: &'a OwnerReference,
}

impl Desired {
    /// The object of a pool, or a shared one.
    pub(super) fn new(rendered: RenderedObject, stamp: &Stamp<'_>, pool: Option<&str>) -> Self {
        let RenderedObject { kind, name, mut object } = rendered;
        let version = format!("{}@{}", stamp.template.name, stamp.template.version);
        merge(&mut object, "labels", json!({MANAGED_BY: MANAGER}));
        if let Some(pool) = pool {
            merge(&mut object, "labels", json!({POOL: pool}));
        }
        merge(&mut object, "annotations", json!({TEMPLATE: version, REVISION: stamp.revision}));
        if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.insert("ownerReferences".to_owned(), json!([stamp.owner]));
        }
        let hash = short_hash(Sha256::new_with_prefix(object.to_string()));
        merge(&mut object, "annotations", json!({APPLIED: hash}));
        Self { kind, name, hash, object }
    }

    pub(super) fn namespace(&self) -> Option<&str> {
        self.object.pointer("/metadata/namespace").and_then(Value::as_str)
    }
}

/// Adds fields to a mapping of the metadata.
fn merge(object: &mut Value, key: &str, fields: Value) {
    let (Some(metadata), Value::Object(fields)) = (object.get_mut("metadata").and_then(Value::as_object_mut), fields)
    else {
        return;
    };
    let mapping = metadata.entry(key).or_insert_with(|| Value::Object(Map::new()));
    if let Some(mapping) = mapping.as_object_mut() {
        mapping.extend(fields);
    }
}
