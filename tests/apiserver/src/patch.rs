//! The four patch types, by media type.
//!
//! A patch is parsed before the store is locked, and applied under the lock. Memory: one patch.

use serde_json::{Map, Value};

use crate::catalog::Resource;
use crate::request::QueryOptions;
use crate::status::Status;
use crate::write::yaml;

mod json;
mod merge;
mod strategic;

use self::json::Operation;

/// A parsed patch.
pub(crate) enum Patch {
    /// RFC 6902.
    Json(Vec<Operation>),
    /// RFC 7386.
    Merge(Value),
    /// Strategic merge patch, which merges lists by key.
    Strategic(Value),
    /// Server-side apply, without field ownership: merges like a strategic patch, and creates a missing object.
    Apply {
        /// The applied configuration.
        configuration: Map<String, Value>,
    },
}

// === impl Patch ===

impl Patch {
    pub(crate) fn parse(resource: &Resource, media: &str, bytes: &[u8], query: &QueryOptions) -> Result<Self, Status> {
        let json = || -> Result<Value, Status> {
            serde_json::from_slice(bytes).map_err(|error| Status::bad_request(format!("error decoding patch: {error}")))
        };
        match media {
            "application/json-patch+json" => Ok(Self::Json(json::parse(json()?)?)),
            "application/merge-patch+json" => Ok(Self::Merge(json()?)),
            "application/strategic-merge-patch+json" if !resource.custom => Ok(Self::Strategic(json()?)),
            "application/apply-patch+yaml" => {
                if query.text("fieldManager").is_empty() {
                    return Err(Status::bad_request("fieldManager is required for apply patch"));
                }
                match yaml(bytes) {
                    Ok(Value::Object(configuration)) => Ok(Self::Apply { configuration }),
                    Ok(_) => Err(Status::bad_request("an apply patch is an object")),
                    Err(error) => Err(Status::bad_request(format!("error decoding YAML: {error}"))),
                }
            }
            _ => Err(Status::unsupported_media_type(
                "application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml",
            )),
        }
    }

    /// The object that the patch creates. Only apply creates one.
    pub(crate) fn create(&self) -> Option<Map<String, Value>> {
        match self {
            Self::Apply { configuration } => Some(configuration.clone()),
            _ => None,
        }
    }

    /// The patched object.
    pub(crate) fn apply(
        &self,
        resource: &Resource,
        name: &str,
        old: Map<String, Value>,
    ) -> Result<Map<String, Value>, Status> {
        let mut value = Value::Object(old);
        match self {
            Self::Json(operations) => {
                json::apply(&mut value, operations).map_err(|why| Status::invalid(resource, name, "patch", &why))?;
            }
            Self::Merge(patch) => merge::apply(&mut value, patch),
            Self::Strategic(patch) => strategic::apply(&mut value, patch),
            Self::Apply { configuration } => {
                strategic::apply(&mut value, &Value::Object(configuration.clone()));
            }
        }
        match value {
            Value::Object(object) => Ok(object),
            _ => Err(Status::bad_request("the patch leaves no object")),
        }
    }
}
