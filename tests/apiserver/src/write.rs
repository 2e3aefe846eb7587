//! create, update, patch, delete and deletecollection. Each is decided and applied under the store's lock.
//!
//! Memory: one request body, at most 3 MiB as in kube-apiserver.

use bytes::Bytes;
use http::{HeaderMap, Response, StatusCode, header};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use serde_json::{Map, Value};

use crate::admit;
use crate::body::{self, Body};
use crate::negotiate::Media;
use crate::patch::Patch;
use crate::plane::Plane;
use crate::protobuf;
use crate::render::Renderer;
use crate::request::{Place, QueryOptions};
use crate::status::Status;
use crate::store::{Key, StoredObject, WriteDecision, WriteResult};

mod delete;
mod subresource;

const BODY_LIMIT: usize = 3 * 1024 * 1024;

/// A write request with its complete body.
pub(crate) struct Posted<'a> {
    pub(crate) plane: &'a Plane,
    pub(crate) place: &'a Place,
    pub(crate) query: &'a QueryOptions,
    pub(crate) headers: &'a HeaderMap,
    pub(crate) body: Bytes,
    /// How objects are encoded. It is negotiated before anything is written.
    pub(crate) renderer: Renderer,
    /// How a Status is encoded.
    pub(crate) media: Media,
}

/// Reads the body of a request.
pub(crate) async fn collect(body: Incoming) -> Result<Bytes, Status> {
    let limited = Limited::new(body, BODY_LIMIT).collect().await;
    limited.map(http_body_util::Collected::to_bytes).map_err(|_| Status::too_big())
}

/// The body of a request as an object: JSON, YAML or protobuf.
pub(crate) fn object(headers: &HeaderMap, body: &Bytes) -> Result<Map<String, Value>, Status> {
    let parsed = match media(headers).as_str() {
        "" | "application/json" => serde_json::from_slice(body).map_err(|error| error.to_string()),
        "application/yaml" => yaml(body),
        "application/vnd.kubernetes.protobuf" => protobuf::object(body),
        _ => {
            return Err(Status::unsupported_media_type(
                "application/json, application/yaml, application/vnd.kubernetes.protobuf",
            ));
        }
    };
    match parsed {
        Ok(Value::Object(object)) => Ok(object),
        Ok(_) => Err(Status::bad_request("the object provided is not an object")),
        Err(error) => Err(Status::bad_request(format!("the object provided is unrecognized: {error}"))),
    }
}

// === impl Posted ===

impl Posted<'_> {
    fn dry(&self) -> bool {
        self.query.text("dryRun") == "All"
    }

    fn qualified(&self) -> String {
        self.place.resource.qualified()
    }

    fn key(&self, name: &str) -> Key {
        Key::new(&self.place.namespace, name)
    }

    pub(crate) fn object(&self) -> Result<Map<String, Value>, Status> {
        object(self.headers, &self.body)
    }

    pub(crate) fn create(&self) -> Result<Response<Body>, Status> {
        let mut body = self.object()?;
        let mut name = admit::identify(self.place, &mut body)?;
        if name.is_empty()
            && let Some(Value::String(start)) = body.get("metadata").and_then(|metadata| metadata.get("generateName"))
        {
            name = format!("{start}{:05x}", self.plane.store.advance());
        }
        admit::create(self.place, &name, &mut body)?;
        self.namespace_exists()?;
        self.store(&name, |old| match old {
            Some(_) => Err(Status::already_exists(&self.place.resource, &name)),
            None => Ok(body),
        })
    }

    pub(crate) fn update(&self) -> Result<Response<Body>, Status> {
        let mut body = self.object()?;
        admit::identify(self.place, &mut body)?;
        let resource = &self.place.resource;
        let name = &self.place.name;
        let versioned = body
            .get("metadata")
            .and_then(|metadata| metadata.get("resourceVersion"))
            .is_some_and(|version| version != "");
        self.store(name, |old| match old {
            None => Err(Status::not_found(resource, name)),
            Some(_) if resource.custom && !versioned => Err(Status::invalid(
                resource,
                name,
                "metadata.resourceVersion",
                "Invalid value: 0: must be specified for an update",
            )),
            Some(old) => admit::update(self.place, old, body),
        })
    }

    pub(crate) fn patch(&self) -> Result<Response<Body>, Status> {
        let place = self.place;
        let (resource, name) = (&place.resource, &place.name);
        let patch = Patch::parse(resource, &media(self.headers), &self.body, self.query)?;
        if let Patch::Apply { .. } = patch {
            admit::check_name(resource, name)?;
        }
        self.store(name, |old| {
            let Some(old) = old else {
                let mut body = patch.create().ok_or_else(|| Status::not_found(resource, name))?;
                admit::identify(place, &mut body)?;
                admit::create(place, name, &mut body)?;
                return Ok(body);
            };
            let mut next = patch.apply(resource, name, old.value(resource))?;
            admit::identify(place, &mut next)?;
            admit::update(place, old, next)
        })
    }

    /// Stores the object that `next` makes of the current one, and returns the response.
    fn store(
        &self,
        name: &str,
        next: impl FnOnce(Option<&StoredObject>) -> Result<Map<String, Value>, Status>,
    ) -> Result<Response<Body>, Status> {
        let mut dry = None;
        let mut last = None;
        let written = self.plane.store.write(&self.place.resource, &self.key(name), |old| {
            let body = next(old)?;
            if self.dry() {
                let fresh = old.is_none();
                dry = Some((body, fresh));
                return Ok(WriteDecision::Nothing);
            }
            if old.is_some() && finished(&body) {
                last = Some(());
                return Ok(WriteDecision::Delete);
            }
            Ok(WriteDecision::Put(body))
        })?;
        let created = |fresh: bool| {
            if fresh { StatusCode::CREATED } else { StatusCode::OK }
        };
        match (written, dry) {
            (WriteResult::Stored(object, fresh), _) => self.answer(created(fresh), &object),
            (WriteResult::Deleted(object), _) => self.answer(StatusCode::OK, &object),
            (WriteResult::Nothing, Some((body, fresh))) => {
                let object = StoredObject::unstored(self.key(name), body, self.plane.store.revision());
                self.answer(created(fresh), &object)
            }
            (WriteResult::Nothing, None) => Err(Status::not_found(&self.place.resource, name)),
        }
    }

    fn answer(&self, status: StatusCode, object: &StoredObject) -> Result<Response<Body>, Status> {
        let mut response = body::rendered(self.renderer.object(object)?, None);
        *response.status_mut() = status;
        Ok(response)
    }

    fn namespace_exists(&self) -> Result<(), Status> {
        if !self.place.resource.namespaced {
            return Ok(());
        }
        let namespaces = self.plane.catalog.by_path("", "v1", "namespaces");
        match namespaces {
            Some(namespaces) if self.plane.store.find("namespaces", &Key::new("", &self.place.namespace)).is_none() => {
                Err(Status::not_found(&namespaces, &self.place.namespace))
            }
            _ => Ok(()),
        }
    }
}

fn media(headers: &HeaderMap) -> String {
    let value = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let media = value.unwrap_or("").split(';').next().unwrap_or("");
    media.trim().to_owned()
}

/// YAML as kubectl and client-go send it in apply patches. JSON is YAML.
pub(crate) fn yaml(bytes: &[u8]) -> Result<Value, String> {
    if let Ok(value) = serde_json::from_slice(bytes) {
        return Ok(value);
    }
    let text = std::str::from_utf8(bytes).map_err(|error| error.to_string())?;
    serde_saphyr::from_str(text).map_err(|error| error.to_string())
}

/// Whether an object that is marked for deletion has no finalizers left.
fn finished(body: &Map<String, Value>) -> bool {
    let metadata = body.get("metadata");
    let field = |name: &str| metadata.and_then(|metadata| metadata.get(name));
    let held = field("finalizers").and_then(Value::as_array);
    field("deletionTimestamp").is_some_and(Value::is_string) && held.is_none_or(Vec::is_empty)
}
