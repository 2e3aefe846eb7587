//! create, update, patch, delete and deletecollection, each judged and made under the store's lock.
//!
//! Memory: one request body, at most 3 MiB as in kube-apiserver.

use bytes::Bytes;
use http::{HeaderMap, Response, StatusCode, header};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use serde_json::{Map, Value, json};

use crate::admit;
use crate::body::{self, Body};
use crate::clock;
use crate::negotiate;
use crate::patch::Patch;
use crate::plane::Plane;
use crate::read;
use crate::render::{ListMeta, Renderer};
use crate::request::{Place, Query};
use crate::selector::Selector;
use crate::status::{self, Status};
use crate::store::{Key, Lost, Object, Write, Written};

const BODY_LIMIT: usize = 3 * 1024 * 1024;

/// A write's request, its body read.
pub(crate) struct Posted<'a> {
    pub(crate) plane: &'a Plane,
    pub(crate) place: &'a Place,
    pub(crate) query: &'a Query,
    pub(crate) headers: &'a HeaderMap,
    pub(crate) body: Bytes,
}

/// What DeleteOptions and the query ask of a deletion.
struct Deletion {
    uid: Option<String>,
    version: Option<String>,
    dry: bool,
}

/// Reads a request's body.
pub(crate) async fn collect(body: Incoming) -> Result<Bytes, Status> {
    let limited = Limited::new(body, BODY_LIMIT).collect().await;
    limited
        .map(http_body_util::Collected::to_bytes)
        .map_err(|_| Status::too_big())
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

    /// The body as an object, JSON or YAML.
    pub(crate) fn object(&self) -> Result<Map<String, Value>, Status> {
        let media = media(self.headers);
        let parsed = match media.as_str() {
            "" | "application/json" => {
                serde_json::from_slice(&self.body).map_err(|error| error.to_string())
            }
            "application/yaml" => yaml(&self.body),
            _ => {
                return Err(Status::unsupported_media_type(
                    "application/json, application/yaml",
                ));
            }
        };
        match parsed {
            Ok(Value::Object(object)) => Ok(object),
            Ok(_) => Err(Status::bad_request("the object provided is not an object")),
            Err(error) => Err(Status::bad_request(format!(
                "the object provided is unrecognized: {error}"
            ))),
        }
    }

    pub(crate) fn create(&self) -> Result<Response<Body>, Status> {
        let mut body = self.object()?;
        let mut name = admit::identify(self.place, &mut body)?;
        if name.is_empty()
            && let Some(Value::String(start)) = body
                .get("metadata")
                .and_then(|metadata| metadata.get("generateName"))
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
                let mut body = patch
                    .create()
                    .ok_or_else(|| Status::not_found(resource, name))?;
                admit::identify(place, &mut body)?;
                admit::create(place, name, &mut body)?;
                return Ok(body);
            };
            let mut next = patch.apply(resource, name, old.value(resource))?;
            admit::identify(place, &mut next)?;
            admit::update(place, old, next)
        })
    }

    /// Stores what `next` makes of the present state, and answers with it.
    fn store(
        &self,
        name: &str,
        next: impl FnOnce(Option<&Object>) -> Result<Map<String, Value>, Status>,
    ) -> Result<Response<Body>, Status> {
        let mut dry = None;
        let mut last = None;
        let written = self
            .plane
            .store
            .write(&self.place.resource, &self.key(name), |old| {
                let body = next(old)?;
                if self.dry() {
                    let fresh = old.is_none();
                    dry = Some((body, fresh));
                    return Ok(Write::Nothing);
                }
                if old.is_some() && finished(&body) {
                    last = Some(());
                    return Ok(Write::Delete);
                }
                Ok(Write::Put(body))
            })?;
        let created = |fresh: bool| {
            if fresh {
                StatusCode::CREATED
            } else {
                StatusCode::OK
            }
        };
        match (written, dry) {
            (Written::Stored(object, fresh), _) => self.answer(created(fresh), &object),
            (Written::Deleted(object), _) => self.answer(StatusCode::OK, &object),
            (Written::Nothing, Some((body, fresh))) => {
                let object = Object::unstored(self.key(name), body, self.plane.store.revision());
                self.answer(created(fresh), &object)
            }
            (Written::Nothing, None) => Err(Status::not_found(&self.place.resource, name)),
        }
    }

    fn answer(&self, status: StatusCode, object: &Object) -> Result<Response<Body>, Status> {
        let renderer = self.renderer()?;
        let bytes = renderer.object(object, true);
        Ok(body::respond(status, "application/json", body::full(bytes)))
    }

    fn renderer(&self) -> Result<Renderer, Status> {
        let form = negotiate::form(self.headers)?;
        Ok(read::renderer(self.place, form, self.query))
    }

    fn namespace_exists(&self) -> Result<(), Status> {
        if !self.place.resource.namespaced {
            return Ok(());
        }
        let namespaces = self.plane.catalog.by_path("", "v1", "namespaces");
        match namespaces {
            Some(namespaces)
                if self
                    .plane
                    .store
                    .find("namespaces", &Key::new("", &self.place.namespace))
                    .is_none() =>
            {
                Err(Status::not_found(&namespaces, &self.place.namespace))
            }
            _ => Ok(()),
        }
    }

    pub(crate) fn delete(&self) -> Result<Response<Body>, Status> {
        let deletion = Deletion::parse(self)?;
        let (resource, name) = (&self.place.resource, &self.place.name);
        let written = self.plane.store.write(resource, &self.key(name), |old| {
            let old = old.ok_or_else(|| Status::not_found(resource, name))?;
            deletion.allowed(self.place, old)?;
            Ok(match marked(old) {
                _ if deletion.dry => Write::Nothing,
                Some(body) => Write::Put(body),
                None => Write::Delete,
            })
        })?;
        match written {
            Written::Stored(object, _) => self.answer(StatusCode::OK, &object),
            Written::Deleted(object) => {
                if resource.qualified() == "namespaces" {
                    self.empty_namespace(name);
                }
                let status = status::deleted(resource, name, object.text("uid"));
                Ok(body::json(StatusCode::OK, &status))
            }
            Written::Nothing => Ok(body::json(
                StatusCode::OK,
                &status::deleted(resource, name, ""),
            )),
        }
    }

    /// A namespace takes what it holds with it, at once.
    fn empty_namespace(&self, namespace: &str) {
        for resource in self.plane.catalog.all() {
            if !resource.namespaced {
                continue;
            }
            let held = self
                .plane
                .store
                .snapshot(&resource.qualified(), Some(namespace), None);
            for object in held.map(|held| held.objects).unwrap_or_default() {
                let gone = self.plane.store.write(&resource, &object.key, |_| {
                    Ok::<_, std::convert::Infallible>(Write::Delete)
                });
                debug_assert!(gone.is_ok());
            }
        }
    }

    pub(crate) fn delete_collection(&self) -> Result<Response<Body>, Status> {
        let deletion = Deletion::parse(self)?;
        let selector = Selector::parse(
            self.query.text("labelSelector"),
            self.query.text("fieldSelector"),
        )?;
        let namespace =
            Some(self.place.namespace.as_str()).filter(|namespace| !namespace.is_empty());
        let held = self
            .plane
            .store
            .snapshot(&self.qualified(), namespace, None)
            .map_err(|_: Lost| Status::expired("the state is gone"))?;
        let mut objects = Vec::new();
        for object in held
            .objects
            .into_iter()
            .filter(|object| selector.matches(object))
        {
            let written = self
                .plane
                .store
                .write(&self.place.resource, &object.key, |old| {
                    Ok::<_, std::convert::Infallible>(match old {
                        Some(_) if deletion.dry => Write::Nothing,
                        Some(old) => marked(old).map_or(Write::Delete, Write::Put),
                        None => Write::Nothing,
                    })
                });
            match written {
                Ok(Written::Deleted(last) | Written::Stored(last, _)) => objects.push(last),
                Ok(Written::Nothing) => objects.push(object),
                Err(never) => match never {},
            }
        }
        let meta = ListMeta {
            revision: self.plane.store.revision(),
            next_page: None,
            remaining: None,
        };
        let rendered = self.renderer()?.list(objects, &meta);
        let gzip = negotiate::accepts_gzip(self.headers).then(|| self.plane.gzip());
        Ok(body::pieces(rendered.pieces, rendered.length, gzip))
    }

    /// The sub-resources that are created: a review's answer, a binding, an eviction, a token.
    pub(crate) fn create_sub(&self, subresource: &str) -> Result<Response<Body>, Status> {
        let (resource, name) = (&self.place.resource, &self.place.name);
        let key = self.key(name);
        if self.plane.store.find(&self.qualified(), &key).is_none() {
            return Err(Status::not_found(resource, name));
        }
        let posted = self.object()?;
        match subresource {
            "binding" => {
                let node = posted
                    .get("target")
                    .and_then(|target| target.get("name"))
                    .cloned();
                self.plane.store.write(resource, &key, |old| {
                    let mut body = old
                        .ok_or_else(|| Status::not_found(resource, name))?
                        .body
                        .clone();
                    if let (Some(node), Some(Value::Object(spec))) = (node, body.get_mut("spec")) {
                        spec.insert("nodeName".into(), node);
                    }
                    Ok::<_, Status>(Write::Put(body))
                })?;
                Ok(body::json(StatusCode::CREATED, &success()))
            }
            "eviction" => {
                self.plane
                    .store
                    .write(resource, &key, |_| Ok::<_, Status>(Write::Delete))?;
                Ok(body::json(StatusCode::CREATED, &success()))
            }
            "token" => {
                let mut answer = Value::Object(posted);
                if let Some(answer) = answer.as_object_mut() {
                    let token = format!("token-of-{}-{name}", self.place.namespace);
                    let status =
                        json!({"token": token, "expirationTimestamp": "2099-01-01T00:00:00Z"});
                    answer.insert("status".into(), status);
                }
                Ok(body::json(StatusCode::CREATED, &answer))
            }
            _ => Err(Status::method_not_allowed()),
        }
    }
}

// === impl Deletion ===

impl Deletion {
    fn parse(posted: &Posted<'_>) -> Result<Self, Status> {
        let options = if posted.body.is_empty() {
            Map::new()
        } else {
            posted.object()?
        };
        let condition = |field: &str| {
            let conditions = options.get("preconditions")?;
            conditions.get(field)?.as_str().map(str::to_owned)
        };
        let dry = options.get("dryRun").and_then(Value::as_array);
        Ok(Self {
            uid: condition("uid"),
            version: condition("resourceVersion"),
            dry: posted.dry() || dry.is_some_and(|dry| dry.iter().any(|value| value == "All")),
        })
    }

    fn allowed(&self, place: &Place, old: &Object) -> Result<(), Status> {
        for (wanted, field, label) in [
            (&self.uid, "uid", "UID"),
            (&self.version, "resourceVersion", "ResourceVersion"),
        ] {
            if let Some(wanted) = wanted
                && wanted != old.text(field)
            {
                let why = format!(
                    "Precondition failed: {label} in precondition: {wanted}, {label} in object meta: {}",
                    old.text(field)
                );
                return Err(Status::conflict(&place.resource, &old.key.name, &why));
            }
        }
        Ok(())
    }
}

fn media(headers: &HeaderMap) -> String {
    let value = headers
        .get(header::CONTENT_TYPE)
        .and_then(|value| value.to_str().ok());
    let media = value.unwrap_or("").split(';').next().unwrap_or("");
    media.trim().to_owned()
}

/// YAML as kubectl and client-go send it in apply patches; JSON is YAML.
pub(crate) fn yaml(bytes: &[u8]) -> Result<Value, String> {
    if let Ok(value) = serde_json::from_slice(bytes) {
        return Ok(value);
    }
    let text = std::str::from_utf8(bytes).map_err(|error| error.to_string())?;
    serde_saphyr::from_str(text).map_err(|error| error.to_string())
}

fn success() -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201})
}

/// An object with finalizers is only marked; `None` if it can go now.
fn marked(old: &Object) -> Option<Map<String, Value>> {
    let held = old.metadata().get("finalizers").and_then(Value::as_array);
    if held.is_none_or(Vec::is_empty) {
        return None;
    }
    let mut body = old.body.clone();
    if let Some(Value::Object(metadata)) = body.get_mut("metadata") {
        metadata
            .entry("deletionTimestamp")
            .or_insert_with(|| clock::now().into());
        metadata
            .entry("deletionGracePeriodSeconds")
            .or_insert_with(|| 0.into());
    }
    Some(body)
}

/// Whether a marked object has lost its last finalizer.
fn finished(body: &Map<String, Value>) -> bool {
    let metadata = body.get("metadata");
    let field = |name: &str| metadata.and_then(|metadata| metadata.get(name));
    let held = field("finalizers").and_then(Value::as_array);
    field("deletionTimestamp").is_some_and(Value::is_string) && held.is_none_or(Vec::is_empty)
}
