//! Discovery documents: `/api`, `/apis` and below, `/version`, health, OpenAPI.
//!
//! They are built from the catalogue for each request. Nothing is cached.

mod aggregated;

use http::{HeaderMap, Response, StatusCode};
use serde_json::{Map, Value, json};

use crate::body::{self, Body};
use crate::catalog::{Catalog, Resource};

/// The response for a path that names no resource.
pub(crate) fn answer(catalog: &Catalog, path: &str, headers: &HeaderMap) -> Response<Body> {
    if let Some(response) = aggregated::answer(catalog, path, headers) {
        return response;
    }
    match document(catalog, path.trim_end_matches('/')) {
        Some(document) => body::json(StatusCode::OK, &document),
        None if matches!(path, "/healthz" | "/livez" | "/readyz") => body::text(StatusCode::OK, "ok"),
        None => body::text(StatusCode::NOT_FOUND, "404 page not found\n"),
    }
}

fn document(catalog: &Catalog, path: &str) -> Option<Value> {
    let segments: Vec<&str> = path.trim_start_matches('/').split('/').collect();
    match segments.as_slice() {
        ["version"] => Some(version()),
        ["api"] => Some(json!({
            "kind": "APIVersions",
            "versions": ["v1"],
            "serverAddressByClientCIDRs": [],
        })),
        ["apis"] => {
            let groups: Vec<Value> = groups(catalog).iter().map(|group| api_group(catalog, group)).collect();
            Some(json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}))
        }
        ["apis", group] if groups(catalog).iter().any(|known| known == group) => {
            let mut document = json!({"kind": "APIGroup", "apiVersion": "v1"});
            if let (Some(target), Value::Object(fields)) = (document.as_object_mut(), api_group(catalog, group)) {
                target.extend(fields);
            }
            Some(document)
        }
        ["api", version] => resources(catalog, "", version),
        ["apis", group, version] => resources(catalog, group, version),
        ["openapi", "v3"] => Some(openapi_index(catalog)),
        ["openapi", "v3", "api", version] => openapi(catalog, "", version),
        ["openapi", "v3", "apis", group, version] => openapi(catalog, group, version),
        _ => None,
    }
}

fn version() -> Value {
    json!({
        "major": "1",
        "minor": "34",
        "gitVersion": "v1.34.0-weir",
        "gitCommit": "",
        "gitTreeState": "clean",
        "buildDate": "2025-08-27T00:00:00Z",
        "goVersion": "none",
        "compiler": "rustc",
        "platform": format!("linux/{}", std::env::consts::ARCH),
    })
}

/// The named groups in the order of their registration.
fn groups(catalog: &Catalog) -> Vec<String> {
    let mut groups: Vec<String> = Vec::new();
    for resource in catalog.all() {
        if !resource.group.is_empty() && !groups.contains(&resource.group) {
            groups.push(resource.group.clone());
        }
    }
    groups
}

fn versions(catalog: &Catalog, group: &str) -> Vec<String> {
    let mut versions: Vec<String> = Vec::new();
    for resource in catalog.all() {
        if resource.group == group && !versions.contains(&resource.version) {
            versions.push(resource.version.clone());
        }
    }
    versions
}

fn api_group(catalog: &Catalog, group: &str) -> Value {
    let versions: Vec<Value> = versions(catalog, group)
        .iter()
        .map(|version| json!({"groupVersion": format!("{group}/{version}"), "version": version}))
        .collect();
    json!({"name": group, "versions": versions, "preferredVersion": versions.first()})
}

fn resources(catalog: &Catalog, group: &str, version: &str) -> Option<Value> {
    let all = catalog.all();
    let mut served = all.iter().filter(|resource| resource.group == group && resource.version == version).peekable();
    let group_version = served.peek()?.api_version();
    let mut entries = Vec::new();
    for resource in served {
        entries.push(json!({
            "name": resource.plural,
            "singularName": resource.singular(),
            "namespaced": resource.namespaced,
            "kind": resource.kind,
            "verbs": resource.verbs(),
            "shortNames": resource.short_names,
        }));
        for subresource in &resource.subresources {
            entries.push(json!({
                "name": format!("{}/{subresource}", resource.plural),
                "singularName": "",
                "namespaced": resource.namespaced,
                "kind": resource.kind,
                "verbs": subresource_verbs(subresource),
            }));
        }
    }
    Some(json!({
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": group_version,
        "resources": entries,
    }))
}

fn subresource_verbs(subresource: &str) -> &'static [&'static str] {
    match subresource {
        "status" | "ephemeralcontainers" | "resize" => &["get", "patch", "update"],
        "log" => &["get"],
        "binding" | "eviction" | "token" => &["create"],
        "finalize" => &["update"],
        _ => &["create", "get"],
    }
}

/// The minimum of OpenAPI v3 from which kubectl learns that the server validates fields and supports dry runs.
fn openapi_index(catalog: &Catalog) -> Value {
    let mut paths = Map::new();
    for resource in catalog.all() {
        let path = group_path(&resource);
        let url = json!({"serverRelativeURL": format!("/openapi/v3/{path}")});
        paths.insert(path, url);
    }
    json!({"paths": paths})
}

fn openapi(catalog: &Catalog, group: &str, version: &str) -> Option<Value> {
    let all = catalog.all();
    let mut served = all.iter().filter(|resource| resource.group == group && resource.version == version).peekable();
    served.peek()?;
    let parameters: Vec<Value> = ["dryRun", "fieldManager", "fieldValidation", "force"]
        .iter()
        .map(|name| json!({"name": name, "in": "query", "schema": {"type": "string", "uniqueItems": true}}))
        .collect();
    let mut paths = Map::new();
    for resource in served.filter(|resource| !resource.review) {
        let scope = if resource.namespaced { "namespaces/{namespace}/" } else { "" };
        let path = format!("/{}/{scope}{}/{{name}}", group_path(resource), resource.plural);
        let operation = json!({
            "parameters": parameters,
            "responses": {"200": {"description": "OK"}},
            "x-kubernetes-action": "patch",
            "x-kubernetes-group-version-kind": {"group": group, "version": version, "kind": resource.kind},
        });
        paths.insert(path, json!({"patch": operation}));
    }
    Some(json!({
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": "v1.34.0-weir"},
        "paths": paths,
        "components": {"schemas": {}},
    }))
}

fn group_path(resource: &Resource) -> String {
    if resource.group.is_empty() {
        format!("api/{}", resource.version)
    } else {
        format!("apis/{}/{}", resource.group, resource.version)
    }
}
