//! Admission: checks the identity of a written object, restores immutable fields, sets a few defaults and counts
//! generations.
//!
//! Pure functions over one object.

use serde_json::{Map, Value, json};

use crate::catalog::Resource;
use crate::request::Place;
use crate::status::Status;
use crate::store::StoredObject;

/// The metadata fields that are immutable after creation.
const KEPT: [&str; 4] = ["uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"];

/// Checks kind and namespace of a written object, and sets its namespace. Returns its name.
pub(crate) fn identify(place: &Place, body: &mut Map<String, Value>) -> Result<String, Status> {
    let resource = &place.resource;
    let api_version = resource.api_version();
    for (field, expected) in [("apiVersion", &api_version), ("kind", &resource.kind)] {
        match body.get(field).and_then(Value::as_str) {
            Some(found) if found == expected => {}
            // Go clients may omit both in typed objects.
            None if !resource.custom => {}
            found => {
                return Err(Status::bad_request(format!(
                    "the {field} of the provided object ({}) does not match what the URL expects ({expected})",
                    found.unwrap_or("")
                )));
            }
        }
    }
    let metadata = body
        .entry("metadata")
        .or_insert_with(|| json!({}))
        .as_object_mut()
        .ok_or_else(|| Status::bad_request("metadata is not an object"))?;
    let given = metadata.get("namespace").and_then(Value::as_str);
    match given {
        Some(namespace) if !namespace.is_empty() && namespace != place.namespace => {
            return Err(Status::bad_request(
                "the namespace of the provided object does not match the namespace sent on the request",
            ));
        }
        _ if resource.namespaced => {
            metadata.insert("namespace".into(), place.namespace.clone().into());
        }
        _ => {
            metadata.shift_remove("namespace");
        }
    }
    let name = metadata.get("name").and_then(Value::as_str).unwrap_or("").to_owned();
    if !place.name.is_empty() && !name.is_empty() && name != place.name {
        return Err(Status::bad_request(format!(
            "the name of the object ({name}) does not match the name on the URL ({})",
            place.name
        )));
    }
    Ok(name)
}

/// Refuses names that are not valid path segments. RBAC objects may have almost any other name.
pub(crate) fn check_name(resource: &Resource, name: &str) -> Result<(), Status> {
    if name.is_empty() {
        return Err(Status::invalid(
            resource,
            name,
            "metadata.name",
            "Required value: name or generateName is required",
        ));
    }
    let loose = resource.group == "rbac.authorization.k8s.io";
    let valid = name.len() <= 253
        && name.chars().all(|c| {
            if loose {
                c != '/' && c != '%'
            } else {
                c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '.'
            }
        })
        && (loose || name.chars().next().is_some_and(|c| c.is_ascii_alphanumeric()));
    if valid {
        Ok(())
    } else {
        let why = format!(
            "Invalid value: {name:?}: a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character"
        );
        Err(Status::invalid(resource, name, "metadata.name", &why))
    }
}

/// Prepares an object for creation.
pub(crate) fn create(place: &Place, name: &str, body: &mut Map<String, Value>) -> Result<(), Status> {
    check_name(&place.resource, name)?;
    if let Some(Value::Object(metadata)) = body.get_mut("metadata") {
        for field in KEPT {
            metadata.shift_remove(field);
        }
        metadata.insert("name".into(), name.into());
        if place.resource.generation {
            metadata.insert("generation".into(), 1.into());
        }
    }
    check_labels(&place.resource, name, body)?;
    // A node is created with its status. All other kinds get theirs from a controller.
    if place.resource.has("status") && !matches!(place.resource.plural.as_str(), "nodes" | "namespaces") {
        body.shift_remove("status");
    }
    default(&place.resource, name, body);
    Ok(())
}

/// Prepares the next state of an object. `sub` names the written sub-resource; the write changes that part only.
pub(crate) fn update(
    place: &Place,
    old: &StoredObject,
    mut body: Map<String, Value>,
) -> Result<Map<String, Value>, Status> {
    let resource = &place.resource;
    check_version(resource, old, &body)?;
    match place.subresource.as_deref() {
        Some("status") => {
            let status = body.shift_remove("status");
            let mut next = old.body.clone();
            match status {
                Some(status) => next.insert("status".into(), status),
                None => next.shift_remove("status"),
            };
            return Ok(next);
        }
        _ if resource.has("status") => match old.body.get("status") {
            Some(status) => {
                body.insert("status".into(), status.clone());
            }
            None => {
                body.shift_remove("status");
            }
        },
        _ => {}
    }
    if let Some(Value::Object(metadata)) = body.get_mut("metadata") {
        for field in KEPT.iter().chain(["generation"].iter()) {
            match old.metadata().get(*field) {
                Some(kept) => metadata.insert((*field).into(), kept.clone()),
                None => metadata.shift_remove(*field),
            };
        }
    }
    check_labels(resource, &place.name, &body)?;
    default(resource, &place.name, &mut body);
    if resource.generation && desired(&body) != desired(&old.body) {
        let generation = old.metadata().get("generation").and_then(Value::as_u64);
        if let Some(Value::Object(metadata)) = body.get_mut("metadata") {
            metadata.insert("generation".into(), (generation.unwrap_or(0) + 1).into());
        }
    }
    Ok(body)
}

/// Optimistic concurrency: a resourceVersion or uid in a write must match the stored one.
fn check_version(resource: &Resource, old: &StoredObject, body: &Map<String, Value>) -> Result<(), Status> {
    let metadata = body.get("metadata");
    let text = |field: &str| {
        let value = metadata.and_then(|metadata| metadata.get(field));
        value.and_then(Value::as_str).unwrap_or("")
    };
    let name = &old.key.name;
    if !matches!(text("uid"), "") && text("uid") != old.text("uid") {
        let why = format!(
            "Precondition failed: UID in precondition: {}, UID in object meta: {}",
            text("uid"),
            old.text("uid")
        );
        return Err(Status::conflict(resource, name, &why));
    }
    if !matches!(text("resourceVersion"), "" | "0") && text("resourceVersion") != old.text("resourceVersion") {
        let why = "the object has been modified; please apply your changes to the latest version and try again";
        return Err(Status::conflict(resource, name, why));
    }
    Ok(())
}

/// The values of labels and annotations must be strings.
fn check_labels(resource: &Resource, name: &str, body: &Map<String, Value>) -> Result<(), Status> {
    for field in ["labels", "annotations"] {
        let map = body.get("metadata").and_then(|metadata| metadata.get(field));
        let valid = match map {
            None | Some(Value::Null) => true,
            Some(Value::Object(map)) => map.values().all(Value::is_string),
            Some(_) => false,
        };
        if !valid {
            let why = "Invalid value: must be a map of strings";
            return Err(Status::invalid(resource, name, &format!("metadata.{field}"), why));
        }
    }
    Ok(())
}

fn desired(body: &Map<String, Value>) -> Vec<(&String, &Value)> {
    let mut fields: Vec<_> =
        body.iter().filter(|(key, _)| !matches!(key.as_str(), "metadata" | "status" | "apiVersion" | "kind")).collect();
    fields.sort_by_key(|(key, _)| *key);
    fields
}

/// The few defaults that make responses look like those of a real server.
fn default(resource: &Resource, name: &str, body: &mut Map<String, Value>) {
    match (resource.group.as_str(), resource.plural.as_str()) {
        ("", "services") => default_service(name, body),
        ("", "namespaces") => {
            body.entry("spec").or_insert_with(|| json!({"finalizers": ["kubernetes"]}));
            body.entry("status").or_insert_with(|| json!({"phase": "Active"}));
        }
        ("", "pods") => {
            body.entry("status").or_insert_with(|| json!({"phase": "Pending"}));
        }
        ("", "secrets") => {
            body.entry("type").or_insert_with(|| "Opaque".into());
        }
        _ => {}
    }
}

fn default_service(name: &str, body: &mut Map<String, Value>) {
    body.entry("status").or_insert_with(|| json!({"loadBalancer": {}}));
    let Some(Value::Object(spec)) = body.get_mut("spec") else {
        return;
    };
    if let Some(Value::Array(ports)) = spec.get_mut("ports") {
        for port in ports.iter_mut().filter_map(Value::as_object_mut) {
            port.entry("protocol").or_insert_with(|| "TCP".into());
            if let Some(number) = port.get("port").cloned() {
                port.entry("targetPort").or_insert(number);
            }
        }
    }
    spec.entry("sessionAffinity").or_insert_with(|| "None".into());
    let kind = spec.entry("type").or_insert_with(|| "ClusterIP".into());
    if kind != "ExternalName" {
        // The name determines the address, so that it is the same in every run.
        let digest = name.bytes().fold(0_u16, |sum, byte| sum.wrapping_mul(31).wrapping_add(u16::from(byte)));
        let [high, low] = digest.to_be_bytes();
        let address = spec.entry("clusterIP").or_insert_with(|| format!("10.96.{high}.{low}").into()).clone();
        spec.entry("clusterIPs").or_insert_with(|| json!([address]));
    }
}
