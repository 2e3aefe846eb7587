//! TokenRequests: kubelet asks for a token of a pod's service account, and starts no pod without one.
//!
//! The answer of the API server is remembered, encrypted on disk. While no API server can be reached, the client that got
//! it gets it again for the same service account, audiences and bound object, until the token expires. Weir never issues a
//! token.

use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::{HeaderMap, Method, Response, StatusCode, header};
use http_body::Body as _;
use http_body_util::{BodyExt as _, Full};
use sha2::{Digest as _, Sha256};
use weir_document::{Document, Path, path};
use weir_kube::{Accepted, Encoding, Query, RequestInfo, Verb};
use weir_upstream::{AnsweredBy, Purpose, RequestBody, RequestHead, clock};

use super::answer_memory::{Answer, AnswerKey};
use crate::offline::Offline;
use crate::serve::body::{Meter, ResponseBody, full};
use crate::serve::caller_request::CallerRequest;
use crate::serve::forward::{self, ForwardRequest};
use crate::serve::get::LIMIT;
use crate::serve::respond::{ApiStatus as _, StatusError};
use weir_access::{Caller, IssuedToken, hash_part, hash_text};
use weir_process::ledger::Owner;
use weir_wire::headers;
use weir_wire::object::body_document;

/// The largest request that is read before it is sent.
const MAX_REQUEST: u64 = 64 << 10;

/// Whether a request asks for the token of a service account, and Weir may read it.
pub(crate) fn is_token_request(request: &http::Request<RequestBody>, parsed: &RequestInfo) -> bool {
    let asks = |resource: &weir_kube::ResourceRequest| {
        resource.verb == Verb::Create
            && resource.subresource.as_deref() == Some("token")
            && (resource.resource.resource.as_str(), resource.resource.group.as_str()) == ("serviceaccounts", "")
            && resource.version == "v1"
    };
    let is_small = request.body().size_hint().upper().is_some_and(|size| size <= MAX_REQUEST);
    *request.method() == Method::POST
        && parsed.resource().is_some_and(asks)
        && parsed.forward.query().is_none()
        && is_small
        && !request.headers().contains_key(header::CONTENT_ENCODING)
}

/// Forwards a TokenRequest, or replays the answer to an earlier one.
pub(crate) async fn respond(offline: &Offline, forward: ForwardRequest<'_>) -> Response<ResponseBody> {
    let ForwardRequest { request, asked, .. } = forward;
    let CallerRequest { parsed, caller, component, started, .. } = asked;
    let encoding = Encoding::for_errors(request.headers());
    let meter = Meter::new(offline.handlers.metrics.clone(), "forward", *started);
    let path = parsed.forward.clone();
    let response = exchange(offline, request, parsed, caller).await.unwrap_or_else(|error| {
        let error = error.with_outage(&offline.handlers.outage);
        offline.handlers.failures.warn(
            "cannot forward token request",
            (&path, component),
            Some(error.code().as_u16()),
            &error,
        );
        error.response(encoding)
    });
    meter.attach(response)
}

async fn exchange(
    offline: &Offline,
    request: http::Request<RequestBody>,
    parsed: &RequestInfo,
    caller: &Caller,
) -> Result<Response<ResponseBody>, StatusError> {
    let identity = caller.identity();
    let (mut parts, body) = request.into_parts();
    let body = body.collect().await.map_err(StatusError::RequestBody)?.to_bytes();
    let asked = body_document(&parts.headers, &body);
    let owner = offline.handlers.access.known_owner(caller).await;
    let key = asked.as_ref().and_then(|asked| key(owner, &parts.headers, caller, parsed, asked));
    if !offline.handlers.upstream.is_reachable()
        && let Some(response) = replay(offline, caller, key.as_ref()).await
    {
        return Ok(response);
    }
    headers::prepare_request(&mut parts.headers, identity);
    let path = parsed.forward.clone();
    let answered_by = AnsweredBy::Server;
    let head = RequestHead { method: parts.method, path, headers: parts.headers, answered_by };
    let body = Full::new(body).map_err(|never| match never {}).boxed_unsync();
    let response = match offline.handlers.upstream.send(identity, Purpose::Short, head, body).await {
        Ok(response) => response,
        Err(error) => {
            let replayed = match offline.handlers.upstream.is_failing() {
                true => replay(offline, caller, key.as_ref()).await,
                false => None,
            };
            return replayed.ok_or(StatusError::Upstream(error));
        }
    };
    let (mut parts, body) = response.into_parts();
    headers::prepare_response(&mut parts);
    if matches!(parts.status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN | StatusCode::NOT_FOUND)
        && let Some(key) = &key
    {
        offline.answers.forget(key);
    }
    let is_small = body.size_hint().upper().is_none_or(|size| size <= LIMIT as u64);
    let (Some(key), StatusCode::CREATED, true) = (key, parts.status, is_small) else {
        return Ok(Response::from_parts(parts, forward::unchanged(body)));
    };
    let body = http_body_util::Limited::new(forward::unchanged(body), LIMIT).collect().await;
    let body = body.map_err(|error| StatusError::InvalidResponse(error.to_string()))?.to_bytes();
    if let Some(asked) = asked {
        remember(offline, key, &parts, (parsed, &asked), &body).await;
    }
    Ok(Response::from_parts(parts, full(body)))
}

/// The remembered answer, while its token is valid, for a credential that the API server has accepted.
async fn replay(offline: &Offline, caller: &Caller, key: Option<&AnswerKey>) -> Option<Response<ResponseBody>> {
    let answer = offline.answers.get(key?).await?;
    if !offline.handlers.access.is_accepted(caller).await {
        return None;
    }
    offline.handlers.metrics.offline_response();
    Some(answer.response())
}

/// Remembers an answer until its token expires.
async fn remember(
    offline: &Offline,
    key: AnswerKey,
    parts: &http::response::Parts,
    (parsed, asked): (&RequestInfo, &Document),
    body: &Bytes,
) {
    let Some(Issued { token, expires, audiences }) = issued(&parts.headers, body) else {
        tracing::debug!("answer to a token request cannot be read, it is not remembered");
        return;
    };
    if let Some((account, bound)) = account(parsed).zip(bound(asked)) {
        // A token of another audience is for another server.
        if asked_audiences(asked).is_some_and(|asked| asked.is_empty()) {
            let audiences: Vec<_> = audiences.iter().map(String::as_str).collect();
            let [kind, _, name, uid] = &bound;
            let bound = [kind.as_str(), name, uid];
            offline
                .handlers
                .access
                .note_issued(&key.owner, IssuedToken { token: &token, account, bound, audiences: &audiences })
                .await;
        }
    }
    offline.answers.put(&AnswerKey { expires, ..key }, Answer::of(parts, body.clone(), expires));
}

/// The namespace and the name of the service account.
fn account(parsed: &RequestInfo) -> Option<(&str, &str)> {
    let resource = parsed.resource()?;
    resource.namespace.as_deref().zip(resource.name.as_deref())
}

/// A token that the API server has issued.
struct Issued {
    token: String,
    expires: SystemTime,
    /// Sorted.
    audiences: Vec<String>,
}

fn issued(headers: &HeaderMap, body: &Bytes) -> Option<Issued> {
    let document = body_document(headers, body)?;
    let text = |at: Path| Some(document.text(&at).ok()??.into_owned());
    let expires: jiff::Timestamp = text(path!("status.expirationTimestamp"))?.parse().ok()?;
    let audiences = asked_audiences(&document)?;
    Some(Issued { token: text(path!("status.token"))?, expires: expires.into(), audiences })
}

/// The audiences of a TokenRequest, sorted; `None` if they cannot be read.
fn asked_audiences(document: &Document) -> Option<Vec<String>> {
    let audiences = document.column(&path!("spec.audiences[*]")).ok()?;
    let mut audiences: Vec<_> = audiences.iter().flatten().map(ToString::to_string).collect();
    audiences.sort_unstable();
    Some(audiences)
}

/// Kind, apiVersion, name and uid of the bound object; empty where there is none. `None` if they cannot be read.
fn bound(document: &Document) -> Option<[String; 4]> {
    let text = |at: Path| Some(document.text(&at).ok()?.map(|text| text.into_owned()).unwrap_or_default());
    Some([
        text(path!("spec.boundObjectRef.kind"))?,
        text(path!("spec.boundObjectRef.apiVersion"))?,
        text(path!("spec.boundObjectRef.name"))?,
        text(path!("spec.boundObjectRef.uid"))?,
    ])
}

/// What the answer depends on; `None` if the request cannot be read.
fn key(
    owner: Owner,
    headers: &HeaderMap,
    caller: &Caller,
    parsed: &RequestInfo,
    asked: &Document,
) -> Option<AnswerKey> {
    let mut hash = Sha256::new();
    hash_part(&mut hash, caller.key().as_bytes());
    hash_part(&mut hash, parsed.forward.path().as_bytes());
    hash_part(&mut hash, &serde_json::to_vec(&asked_audiences(asked)?).ok()?);
    for value in bound(asked)? {
        hash_part(&mut hash, value.as_bytes());
    }
    let accepted = Accepted::negotiate(headers, true, &Query::default(), Verb::Create).media_type.encoding;
    hash_part(&mut hash, if accepted == Encoding::Json { b"json" } else { b"protobuf" });
    let name = format!("token/{}", hash_text(hash));
    Some(AnswerKey { name, owner, confidential: true, expires: clock::now(), interval: Duration::ZERO })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use weir_document::TypeMeta;
    use weir_document::protobuf::{Envelope, from_json};
    use weir_kube::Identity;

    use super::*;

    fn encoded(object: &Value, encoding: Encoding) -> (HeaderMap, Bytes) {
        let headers = HeaderMap::from_iter([
            (header::CONTENT_TYPE, encoding.content_type(Verb::Create)),
            (header::ACCEPT, encoding.content_type(Verb::Create)),
        ]);
        let type_meta = TypeMeta { api_version: "authentication.k8s.io/v1".into(), kind: "TokenRequest".into() };
        let body = match encoding {
            Encoding::Json => object.to_string().into(),
            Encoding::Protobuf => Envelope::seal(&type_meta, &from_json(&type_meta, &object.to_string()).unwrap()),
        };
        (headers, body)
    }

    fn request(audiences: &[&str], pod: &str) -> Value {
        json!({
            "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "metadata": {},
            "spec": {
                "audiences": audiences, "expirationSeconds": 3607,
                "boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": pod, "uid": format!("{pod}-uid")}
            }
        })
    }

    fn name(object: &Value, encoding: Encoding, identity: Identity, account: &str) -> String {
        let path = format!("/api/v1/namespaces/a/serviceaccounts/{account}/token");
        let parsed = RequestInfo::parse(&Method::POST, &path.parse().unwrap()).unwrap();
        let (headers, body) = encoded(object, encoding);
        let caller = Caller::of(identity, &headers);
        key(Owner::Node, &headers, &caller, &parsed, &body_document(&headers, &body).unwrap()).unwrap().name
    }

    #[test]
    fn an_answer_belongs_to_user_service_account_audiences_bound_object_and_encoding() {
        let plain = || name(&request(&["x", "y"], "p"), Encoding::Protobuf, Identity::Node, "b");
        assert_eq!(plain(), name(&request(&["y", "x"], "p"), Encoding::Protobuf, Identity::Node, "b"));
        for other in [
            name(&request(&["x"], "p"), Encoding::Protobuf, Identity::Node, "b"),
            name(&request(&["x", "y"], "q"), Encoding::Protobuf, Identity::Node, "b"),
            name(&request(&["x", "y"], "p"), Encoding::Json, Identity::Node, "b"),
            name(&request(&["x", "y"], "p"), Encoding::Protobuf, Identity::Client, "b"),
            name(&request(&["x", "y"], "p"), Encoding::Protobuf, Identity::Node, "c"),
        ] {
            assert_ne!(plain(), other);
        }
    }

    #[test]
    fn token_and_expiry_are_read_in_both_encodings() {
        let answer = json!({
            "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "metadata": {"name": "b"},
            "spec": {"audiences": ["x"]},
            "status": {"token": "abc", "expirationTimestamp": "2026-11-22T13:00:00Z"}
        });
        for encoding in [Encoding::Json, Encoding::Protobuf] {
            let (headers, body) = encoded(&answer, encoding);
            let Issued { token, expires, audiences } = issued(&headers, &body).unwrap();
            let expected: jiff::Timestamp = "2026-11-22T13:00:00Z".parse().unwrap();
            assert_eq!((token.as_str(), expires, audiences), ("abc", expected.into(), vec!["x".to_owned()]));
        }
    }

    #[test]
    fn what_cannot_be_read_has_no_key() {
        let (headers, _) = encoded(&json!({}), Encoding::Protobuf);
        for body in [&b""[..], b"{", b"k8s\0\xff"] {
            let asked = body_document(&headers, &Bytes::from_static(body));
            assert!(asked.is_none_or(|asked| asked_audiences(&asked).is_none() || bound(&asked).is_none()));
        }
    }
}
