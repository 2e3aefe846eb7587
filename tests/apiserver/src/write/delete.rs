//! delete and deletecollection: preconditions, finalizers, dry runs. Deleting a namespace deletes its objects.
//!
//! Memory: pointers to the deleted objects of one response.

use http::{Response, StatusCode};
use serde_json::{Map, Value};

use super::Posted;
use crate::body::Body;
use crate::clock;
use crate::read;
use crate::render::ListMetadata;
use crate::request::Place;
use crate::selector::Selector;
use crate::status::{self, Status};
use crate::store::{Lost, StoredObject, WriteDecision, WriteResult};

/// The options of a deletion, from DeleteOptions and the query.
struct Deletion {
    uid: Option<String>,
    version: Option<String>,
    dry: bool,
}

// === impl Posted ===

impl Posted<'_> {
    pub(crate) fn delete(&self) -> Result<Response<Body>, Status> {
        let deletion = Deletion::parse(self)?;
        let (resource, name) = (&self.place.resource, &self.place.name);
        let written = self.plane.store.write(resource, &self.key(name), |old| {
            let old = old.ok_or_else(|| Status::not_found(resource, name))?;
            deletion.allowed(self.place, old)?;
            Ok(match marked(old) {
                _ if deletion.dry => WriteDecision::Nothing,
                Some(body) => WriteDecision::Put(body),
                None => WriteDecision::Delete,
            })
        })?;
        match written {
            WriteResult::Stored(object, _) => self.answer(StatusCode::OK, &object),
            WriteResult::Deleted(object) => {
                if resource.qualified() == "namespaces" {
                    self.empty_namespace(name);
                }
                let status = status::deleted(resource, name, object.text("uid"));
                Ok(status::answer(StatusCode::OK, &status, self.media))
            }
            WriteResult::Nothing => {
                Ok(status::answer(StatusCode::OK, &status::deleted(resource, name, ""), self.media))
            }
        }
    }

    /// Deletes the objects of a namespace at once.
    fn empty_namespace(&self, namespace: &str) {
        for resource in self.plane.catalog.all() {
            if !resource.namespaced {
                continue;
            }
            let held = self.plane.store.snapshot(&resource.qualified(), Some(namespace), None);
            for object in held.map(|held| held.objects).unwrap_or_default() {
                let gone = self
                    .plane
                    .store
                    .write(&resource, &object.key, |_| Ok::<_, std::convert::Infallible>(WriteDecision::Delete));
                debug_assert!(gone.is_ok());
            }
        }
    }

    pub(crate) fn delete_collection(&self) -> Result<Response<Body>, Status> {
        let deletion = Deletion::parse(self)?;
        let selector = Selector::parse(self.query.text("labelSelector"), self.query.text("fieldSelector"))?;
        let namespace = Some(self.place.namespace.as_str()).filter(|namespace| !namespace.is_empty());
        let held = self
            .plane
            .store
            .snapshot(&self.qualified(), namespace, None)
            .map_err(|_: Lost| Status::expired("the requested version is no longer available"))?;
        let mut objects = Vec::new();
        for object in held.objects.into_iter().filter(|object| selector.matches(object)) {
            let written = self.plane.store.write(&self.place.resource, &object.key, |old| {
                Ok::<_, std::convert::Infallible>(match old {
                    Some(_) if deletion.dry => WriteDecision::Nothing,
                    Some(old) => marked(old).map_or(WriteDecision::Delete, WriteDecision::Put),
                    None => WriteDecision::Nothing,
                })
            });
            match written {
                Ok(WriteResult::Deleted(last) | WriteResult::Stored(last, _)) => objects.push(last),
                Ok(WriteResult::Nothing) => objects.push(object),
                Err(never) => match never {},
            }
        }
        let meta = ListMetadata { revision: self.plane.store.revision(), next_page: None, remaining: None };
        Ok(read::answer(self.plane, self.headers, self.renderer.list(objects, &meta)?))
    }
}

// === impl Deletion ===

impl Deletion {
    fn parse(posted: &Posted<'_>) -> Result<Self, Status> {
        let options = if posted.body.is_empty() { Map::new() } else { posted.object()? };
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

    fn allowed(&self, place: &Place, old: &StoredObject) -> Result<(), Status> {
        for (wanted, field, label) in [(&self.uid, "uid", "UID"), (&self.version, "resourceVersion", "ResourceVersion")]
        {
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

/// Marks an object with finalizers; `None` if it can be deleted.
fn marked(old: &StoredObject) -> Option<Map<String, Value>> {
    let held = old.metadata().get("finalizers").and_then(Value::as_array);
    if held.is_none_or(Vec::is_empty) {
        return None;
    }
    let mut body = old.body.clone();
    if let Some(Value::Object(metadata)) = body.get_mut("metadata") {
        metadata.entry("deletionTimestamp").or_insert_with(|| clock::now().into());
        metadata.entry("deletionGracePeriodSeconds").or_insert_with(|| 0.into());
    }
    Some(body)
}
