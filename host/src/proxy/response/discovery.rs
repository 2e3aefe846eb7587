//! Remembers discovery, `/version` and OpenAPI, so that kubectl and informers start while no API server can be reached.
//!
//! Every authenticated client may read them (`system:discovery`), so that one client's response serves all. Responses are
//! kept as they came, by path, `Accept` and `Accept-Encoding`.

use http::{HeaderMap, Method, header};
use weir_kube::{RequestInfo, RequestKind};

use super::answer_memory::{AnswerKey, KEEP, WRITE_INTERVAL};
use weir_upstream::clock;

/// Returns the key of a request; `None` if it is not for discovery, the version or OpenAPI.
pub(in crate::proxy) fn discovery_key(method: &Method, headers: &HeaderMap, parsed: &RequestInfo) -> Option<AnswerKey> {
    let path = parsed.forward.path();
    let remembered = ["/api", "/apis", "/version", "/openapi"]
        .into_iter()
        .any(|root| path.strip_prefix(root).is_some_and(|rest| rest.is_empty() || rest.starts_with('/')));
    if *method != Method::GET || !remembered || parsed.kind != RequestKind::NonResource {
        return None;
    }
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let (accept, encoding) = (text(header::ACCEPT), text(header::ACCEPT_ENCODING));
    let name = format!("discovery/{}\n{accept}\n{encoding}", parsed.forward);
    Some(AnswerKey { name, confidential: false, expires: clock::now() + KEEP, interval: WRITE_INTERVAL })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(path: &str) -> Option<AnswerKey> {
        let parsed = RequestInfo::parse(&Method::GET, &path.parse().unwrap()).unwrap();
        discovery_key(&Method::GET, &HeaderMap::new(), &parsed)
    }

    #[test]
    fn discovery_the_version_and_openapi_are_remembered_and_nothing_else() {
        for path in ["/api", "/apis", "/apis/apps/v1", "/api/v1", "/version", "/openapi/v3/apis/apps/v1?hash=1"] {
            assert!(key(path).is_some(), "{path}");
        }
        for path in ["/api/v1/pods", "/healthz", "/apiserver", "/metrics", "/apis/apps/v1/deployments"] {
            assert!(key(path).is_none(), "{path}");
        }
    }
}
