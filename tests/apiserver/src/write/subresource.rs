//! Sub-resources that clients create: bindings, evictions, tokens.
//!
//! It holds no state.

use http::{Response, StatusCode};
use serde_json::{Value, json};

use super::Posted;
use crate::body::{self, Body};
use crate::status::{self, Status};
use crate::store::WriteDecision;

// === impl Posted ===

impl Posted<'_> {
    /// Creates on sub-resources: reviews, bindings, evictions, tokens.
    pub(crate) fn create_sub(&self, subresource: &str) -> Result<Response<Body>, Status> {
        let (resource, name) = (&self.place.resource, &self.place.name);
        let key = self.key(name);
        if self.plane.store.find(&self.qualified(), &key).is_none() {
            return Err(Status::not_found(resource, name));
        }
        let posted = self.object()?;
        match subresource {
            "binding" => {
                let node = posted.get("target").and_then(|target| target.get("name")).cloned();
                self.plane.store.write(resource, &key, |old| {
                    let mut body = old.ok_or_else(|| Status::not_found(resource, name))?.body.clone();
                    if let (Some(node), Some(Value::Object(spec))) = (node, body.get_mut("spec")) {
                        spec.insert("nodeName".into(), node);
                    }
                    Ok::<_, Status>(WriteDecision::Put(body))
                })?;
                Ok(status::answer(StatusCode::CREATED, &success(), self.media))
            }
            "eviction" => {
                self.plane.store.write(resource, &key, |_| Ok::<_, Status>(WriteDecision::Delete))?;
                Ok(status::answer(StatusCode::CREATED, &success(), self.media))
            }
            "token" => {
                let mut answer = Value::Object(posted);
                if let Some(answer) = answer.as_object_mut() {
                    let token = format!("token-of-{}-{name}", self.place.namespace);
                    let status = json!({"token": token, "expirationTimestamp": "2099-01-01T00:00:00Z"});
                    answer.insert("status".into(), status);
                }
                Ok(body::json(StatusCode::CREATED, &answer))
            }
            _ => Err(Status::method_not_allowed()),
        }
    }
}

fn success() -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201})
}
