//! Sub-resources that clients create: bindings, evictions, tokens.
//!
//! It holds no state.

use std::sync::atomic::{AtomicU64, Ordering};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::{Response, StatusCode};
use serde_json::{Map, Value, json};

use super::Posted;
use crate::access::User;
use crate::body::{self, Body};
use crate::status::{self, Status};
use crate::store::WriteDecision;

/// How many tokens were issued: no two are the same.
static ISSUED: AtomicU64 = AtomicU64::new(1);
/// The API server's own audience.
const AUDIENCE: &str = "https://kubernetes.default.svc";
/// 2099-01-01, in seconds.
const EXPIRES: u64 = 4_070_908_800;

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
                let account = self.plane.store.find(&self.qualified(), &key);
                let uid = account.and_then(|account| account.body.get("metadata")?.get("uid").cloned());
                let answer = self.issue(posted, &uid.unwrap_or_default());
                Ok(body::json(StatusCode::CREATED, &answer))
            }
            _ => Err(Status::method_not_allowed()),
        }
    }
}

impl Posted<'_> {
    /// A TokenRequest with a token of its service account. One for the API server itself authenticates from then on.
    fn issue(&self, mut request: Map<String, Value>, uid: &Value) -> Value {
        let (namespace, name) = (&self.place.namespace, &self.place.name);
        let mut spec = request.remove("spec").unwrap_or_default();
        let of_spec = |pointer: &str| spec.pointer(pointer).cloned().unwrap_or_default();
        let asked = of_spec("/audiences");
        let is_own = asked.as_array().is_none_or(Vec::is_empty);
        let audiences = if is_own { json!([AUDIENCE]) } else { asked };
        let claims = json!({
            "iss": AUDIENCE, "aud": audiences, "exp": EXPIRES,
            "sub": format!("system:serviceaccount:{namespace}:{name}"),
            "kubernetes.io": {
                "namespace": namespace, "serviceaccount": {"name": name, "uid": uid},
                "pod": {"name": of_spec("/boundObjectRef/name"), "uid": of_spec("/boundObjectRef/uid")},
            },
        });
        let number = ISSUED.fetch_add(1, Ordering::Relaxed);
        let token = format!("e30.{}.token-of-{namespace}-{name}-{number}", URL_SAFE_NO_PAD.encode(claims.to_string()));
        if is_own {
            let user = format!("system:serviceaccount:{namespace}:{name}");
            self.plane.access.add_token(token.clone(), User::authenticated(&user, &["system:serviceaccounts"]));
        }
        if let Some(spec) = spec.as_object_mut() {
            spec.insert("audiences".to_owned(), audiences);
        }
        request.insert("spec".to_owned(), spec);
        request.insert("status".to_owned(), json!({"token": token, "expirationTimestamp": "2099-01-01T00:00:00Z"}));
        Value::Object(request)
    }
}

fn success() -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201})
}
