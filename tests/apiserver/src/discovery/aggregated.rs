//! Aggregated discovery: all resources in one document each for `/api` and `/apis`, with an `ETag`.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use serde_json::{Value, json};

use super::{groups, subresource_verbs, versions};
use crate::body::{self, Body};
use crate::catalog::{Catalog, Resource};

const MEDIA_TYPE: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// The response to a client that prefers the aggregated form; `None` for all others.
pub(super) fn answer(catalog: &Catalog, path: &str, headers: &HeaderMap) -> Option<Response<Body>> {
    let accept = headers.get(header::ACCEPT)?.to_str().ok()?;
    let groups = match path.trim_end_matches('/') {
        _ if !accept.starts_with(MEDIA_TYPE) => return None,
        "/api" => vec![String::new()],
        "/apis" => groups(catalog),
        _ => return None,
    };
    let items: Vec<_> = groups.iter().map(|group| api_group(catalog, group)).collect();
    let document = json!({"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items});
    let mut hasher = DefaultHasher::new();
    document.to_string().hash(&mut hasher);
    let etag = HeaderValue::try_from(format!("\"{:X}\"", hasher.finish())).ok()?;
    let mut response = match headers.get(header::IF_NONE_MATCH) == Some(&etag) {
        true => body::text(StatusCode::NOT_MODIFIED, ""),
        false => body::json(StatusCode::OK, &document),
    };
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(MEDIA_TYPE));
    response.headers_mut().insert(header::ETAG, etag);
    Some(response)
}

fn api_group(catalog: &Catalog, group: &str) -> Value {
    let of_version = |version: &String| {
        let all = catalog.all();
        let served = all.iter().filter(|resource| resource.group == group && resource.version == *version);
        json!({"version": version, "freshness": "Current", "resources": served.map(|resource| entry(resource)).collect::<Vec<_>>()})
    };
    json!({"metadata": {"name": group}, "versions": versions(catalog, group).iter().map(of_version).collect::<Vec<_>>()})
}

fn entry(resource: &Resource) -> Value {
    let kind = json!({"group": resource.group, "version": resource.version, "kind": resource.kind});
    let subresource =
        |name: &String| json!({"subresource": name, "responseKind": kind, "verbs": subresource_verbs(name)});
    json!({
        "resource": resource.plural,
        "responseKind": kind,
        "scope": if resource.namespaced { "Namespaced" } else { "Cluster" },
        "singularResource": resource.singular(),
        "verbs": resource.verbs(),
        "shortNames": resource.short_names,
        "subresources": resource.subresources.iter().map(subresource).collect::<Vec<_>>(),
    })
}
