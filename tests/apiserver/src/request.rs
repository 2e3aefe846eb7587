//! Parses a request: Kubernetes' RequestInfo and the options in the query.
//!
//! Memory: the request's own path and query.

use std::sync::Arc;

use http::{Method, Uri};
use percent_encoding::percent_decode_str;

use crate::catalog::{Catalog, Resource};
use crate::status::Status;

/// The decoded query. The first value of a repeated key counts.
#[derive(Clone, Debug, Default)]
pub(crate) struct QueryOptions(Vec<(String, String)>);

/// The target of a path.
#[derive(Clone, Debug)]
pub(crate) enum Target {
    /// A served resource.
    Resource(Place),
    /// Any other path: discovery, health, or an unknown one.
    Path,
}

/// An object, a collection, or a sub-resource.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) resource: Arc<Resource>,
    /// Empty for all namespaces and for cluster-scoped resources.
    pub(crate) namespace: String,
    /// Empty for a collection.
    pub(crate) name: String,
    pub(crate) subresource: Option<String>,
    /// The deprecated `/watch/` prefix was used.
    pub(crate) watch_prefix: bool,
}

// === impl QueryOptions ===

impl QueryOptions {
    pub(crate) fn parse(uri: &Uri) -> Self {
        let decode = |text: &str| {
            let spaced = text.replace('+', " ");
            percent_decode_str(&spaced).decode_utf8_lossy().into_owned()
        };
        let pairs = uri.query().unwrap_or("").split('&');
        Self(
            pairs
                .filter(|pair| !pair.is_empty())
                .map(|pair| {
                    let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
                    (decode(key), decode(value))
                })
                .collect(),
        )
    }

    pub(crate) fn get(&self, key: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| known == key).map(|(_, value)| value.as_str())
    }

    pub(crate) fn text(&self, key: &str) -> &str {
        self.get(key).unwrap_or("")
    }

    /// As in Go's conversion of query values: true if present and neither `false` nor `0`.
    pub(crate) fn flag(&self, key: &str) -> bool {
        self.get(key).is_some_and(|value| !matches!(value, "false" | "0"))
    }

    pub(crate) fn number(&self, key: &str) -> Result<Option<u64>, Status> {
        match self.get(key) {
            None | Some("") => Ok(None),
            Some(text) => text
                .parse()
                .map(Some)
                .map_err(|_| Status::bad_request(format!("{key}: Invalid value: {text:?}: must be a number"))),
        }
    }
}

// === impl Place ===

impl Place {
    /// The verb for authorization and the record.
    pub(crate) fn verb(&self, method: &Method, query: &QueryOptions) -> &'static str {
        let collection = self.name.is_empty();
        match *method {
            Method::GET | Method::HEAD if self.watch_prefix => "watch",
            Method::GET | Method::HEAD if collection && query.flag("watch") => "watch",
            Method::GET | Method::HEAD if collection => "list",
            Method::GET | Method::HEAD => "get",
            Method::POST => "create",
            Method::PUT => "update",
            Method::PATCH => "patch",
            Method::DELETE if collection => "deletecollection",
            Method::DELETE => "delete",
            _ => "",
        }
    }
}

/// Finds the target of a path.
pub(crate) fn target(catalog: &Catalog, path: &str) -> Target {
    let mut segments = Vec::new();
    for segment in path.trim_matches('/').split('/') {
        let decoded = percent_decode_str(segment).decode_utf8_lossy().into_owned();
        segments.push(decoded);
    }
    let mut rest: &[String] = &segments;
    let group = match take(&mut rest) {
        Some("api") => "",
        Some("apis") => match take(&mut rest) {
            Some(group) => group,
            None => return Target::Path,
        },
        _ => return Target::Path,
    };
    let Some(version) = take(&mut rest) else {
        return Target::Path;
    };
    let watch_prefix = rest.first().is_some_and(|first| first == "watch");
    if watch_prefix {
        take(&mut rest);
    }
    let mut namespace = "";
    // `namespaces/<ns>/<resource>…`. But `namespaces/<name>` and its own sub-resources are the namespace object
    // itself.
    if let [first, second, third, ..] = rest
        && first == "namespaces"
        && third != "status"
        && third != "finalize"
    {
        namespace = second;
        rest = rest.get(2..).unwrap_or_default();
    }
    let Some(plural) = take(&mut rest) else {
        return Target::Path;
    };
    let Some(resource) = catalog.by_path(group, version, plural) else {
        return Target::Path;
    };
    if !resource.namespaced && !namespace.is_empty() {
        return Target::Path;
    }
    let name = take(&mut rest).unwrap_or("");
    let subresource = take(&mut rest).map(str::to_owned);
    if subresource.as_ref().is_some_and(|sub| !resource.has(sub))
        || (!rest.is_empty() && subresource.as_deref() != Some("proxy"))
        || (resource.namespaced && namespace.is_empty() && !name.is_empty())
    {
        return Target::Path;
    }
    Target::Resource(Place {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        subresource,
        watch_prefix,
        resource,
    })
}

fn take<'a>(rest: &mut &'a [String]) -> Option<&'a str> {
    let (first, others) = rest.split_first()?;
    *rest = others;
    Some(first.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(path: &str) -> Option<(String, String, String, Option<String>)> {
        match target(&Catalog::new(), path) {
            Target::Resource(place) => {
                Some((place.resource.qualified(), place.namespace, place.name, place.subresource))
            }
            Target::Path => None,
        }
    }

    #[test]
    fn paths_lead_where_kubernetes_says() {
        let found =
            |q: &str, ns: &str, n: &str, s: Option<&str>| Some((q.into(), ns.into(), n.into(), s.map(Into::into)));
        for (path, expected) in [
            ("/api/v1/services", found("services", "", "", None)),
            ("/api/v1/namespaces/a/services/b", found("services", "a", "b", None)),
            ("/api/v1/namespaces/a", found("namespaces", "", "a", None)),
            ("/api/v1/namespaces/a/status", found("namespaces", "", "a", Some("status"))),
            ("/api/v1/watch/namespaces/a/pods", found("pods", "a", "", None)),
            ("/apis/apps.openyurt.io/v1beta1/nodepools/p", found("nodepools.apps.openyurt.io", "", "p", None)),
            ("/api/v1/nodes/n/proxy/a/b/c", found("nodes", "", "n", Some("proxy"))),
            ("/api/v1/services/b", None),
            ("/api/v1/namespaces/a/nodes", None),
            ("/api/v1/namespaces/a/pods/p/nothing", None),
            ("/api/v1", None),
            ("/apis/none/v1/things", None),
            ("/healthz", None),
        ] {
            assert_eq!(place(path), expected, "{path}");
        }
    }
}
