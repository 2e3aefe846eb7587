//! The documents that may be remembered: a fixed set, apart from the API groups that the server itself has.

use http::{Response, header};
use weir_kube::RequestInfo;

use super::{AGGREGATED, JSON};
use crate::serve::body::ResponseBody;

/// The media types in which documents are remembered, beside JSON: as they are requested, and as they are sent.
const FORMS: [(&str, &[&str]); 6] = [
    (JSON, &["application/*", "*/*"]),
    (AGGREGATED, &[]),
    ("application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList", &[]),
    ("application/vnd.kubernetes.protobuf", &[]),
    (
        "application/com.github.proto-openapi.spec.v2@v1.0+protobuf",
        &["application/com.github.proto-openapi.spec.v2.v1.0+protobuf"],
    ),
    (
        "application/com.github.proto-openapi.spec.v3@v1.0+protobuf",
        &["application/com.github.proto-openapi.spec.v3.v1.0+protobuf"],
    ),
];
/// The longest name of an API group, and of its version.
const MAX_NAME: usize = 253;

/// The path of the document that a request asks for; `None` if that is none of the known ones. Parameters do not name
/// documents: kubectl adds a timeout, and OpenAPI the hash of the content.
pub(super) fn path(request: &RequestInfo) -> Option<&str> {
    let path = request.forward.path();
    let segments: Vec<_> = path.strip_prefix('/')?.splitn(6, '/').collect();
    let is_name = |name: &&str| {
        (1..=MAX_NAME).contains(&name.len())
            && name
                .bytes()
                .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'.' | b'-'))
    };
    let groups = match segments.as_slice() {
        ["version"] | ["openapi", "v2" | "v3"] | ["openapi", "v3", "version"] => return Some(path),
        ["openapi", "v3", rest @ ..] => rest,
        all => all,
    };
    let is_known = match groups {
        ["api"] | ["apis"] => true,
        ["api", version] => is_name(version),
        ["apis", names @ ..] => names.len() <= 2 && names.iter().all(is_name),
        _ => false,
    };
    is_known.then_some(path)
}

/// Whether a response is the document that its request names. The server redirects a request with another hash than that of
/// the present content; whatever else answers it is not remembered.
pub(super) fn has_hash(hash: Option<&str>, response: &Response<ResponseBody>) -> bool {
    let etag = response.headers().get(header::ETAG).and_then(|etag| etag.to_str().ok());
    hash.is_none_or(|hash| hash.is_empty() || etag.is_some_and(|etag| etag.trim_matches('"') == hash))
}

/// The media type that a range of an `Accept` header, or a content type, stands for; `None` if documents are not kept in it.
pub(super) fn known_form(range: &str) -> Option<&'static str> {
    let mut parts = range.split(';').map(str::trim);
    let kind = parts.next()?;
    let mut parameters: Vec<_> =
        parts.filter(|part| !part.starts_with("q=") && !part.starts_with("charset=")).collect();
    parameters.sort_unstable();
    let form = |(form, aliases): &(&'static str, &[&str])| {
        let mut parts = form.split(';');
        let of = parts.next().unwrap_or_default();
        let mut wanted: Vec<_> = parts.collect();
        wanted.sort_unstable();
        let is_kind = of.eq_ignore_ascii_case(kind) || aliases.iter().any(|alias| alias.eq_ignore_ascii_case(kind));
        (is_kind && wanted == parameters).then_some(*form)
    };
    FORMS.iter().find_map(form)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use http::Method;

    use super::*;
    use crate::serve::body::full;

    #[test]
    fn what_kubectl_accepts_stands_for_the_forms_that_are_kept() {
        let old = AGGREGATED.replace("v=v2;", "v=v2beta1;");
        for (range, form) in [
            ("application/json", Some(JSON)),
            (" */*;q=0.8", Some(JSON)),
            ("application/json; charset=utf-8", Some(JSON)),
            (AGGREGATED, Some(AGGREGATED)),
            ("application/json;as=APIGroupDiscoveryList;v=v2;g=apidiscovery.k8s.io", Some(AGGREGATED)),
            (&old, Some(&*old)),
            ("application/json;as=Table;v=v1;g=meta.k8s.io", None),
            ("application/vnd.kubernetes.protobuf", Some("application/vnd.kubernetes.protobuf")),
            ("application/com.github.proto-openapi.spec.v2.v1.0+protobuf", Some(FORMS[4].0)),
            ("application/json;x=1", None),
            ("text/plain", None),
        ] {
            assert_eq!(known_form(range), form, "{range}");
        }
    }

    #[test]
    fn a_fixed_set_of_documents_is_remembered() {
        let of = |target: &str| {
            let parsed = RequestInfo::parse(&Method::GET, &target.parse().unwrap()).unwrap();
            path(&parsed).map(str::to_owned)
        };
        for known in [
            "/api",
            "/apis",
            "/apis/apps",
            "/apis/apps/v1",
            "/api/v1",
            "/version",
            "/openapi/v2",
            "/openapi/v3",
            "/openapi/v3/api/v1",
            "/openapi/v3/apis/networking.k8s.io/v1",
        ] {
            assert_eq!(of(known).as_deref(), Some(known));
            assert_eq!(of(&format!("{known}?x=1&timeout=32s")).as_deref(), Some(known), "parameters name nothing");
        }
        for other in [
            "/openapi",
            "/openapi/v2/x",
            "/openapi/v3/apis/apps/v1/x",
            "/openapi/v3/logs",
            "/version/x",
            "/apis/Apps",
            "/healthz",
        ] {
            assert_eq!(of(other), None, "{other}");
        }
    }

    #[test]
    fn only_the_hash_that_the_server_names_is_that_of_the_document() {
        let mut response = Response::new(full(Bytes::new()));
        assert!(has_hash(None, &response) && !has_hash(Some("a"), &response));
        response.headers_mut().insert(header::ETAG, "\"a\"".parse().unwrap());
        assert!(has_hash(Some("a"), &response) && !has_hash(Some("b"), &response) && has_hash(None, &response));
    }
}
