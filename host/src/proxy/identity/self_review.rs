//! Asks the API server whether a client may read what a view would answer: a SelfSubjectAccessReview, made with the
//! client's own credential.

use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderValue};
use http::uri::PathAndQuery;
use http::{Method, StatusCode};
use http_body_util::{BodyExt as _, Full, Limited};
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec};
use sha2::{Digest as _, Sha256};
use tower::BoxError;
use weir_kube::RequestInfo;
use weir_upstream::{Identity, Purpose, RequestHead, Upstream};

use super::access::attributes;
use crate::proxy::Proxy;
use crate::proxy::headers::prepare_request;
use crate::proxy::respond::StatusError;

const PATH: PathAndQuery = PathAndQuery::from_static("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews");
/// The largest answer.
const MAX_ANSWER: usize = 256 << 10;

impl Proxy {
    /// Whether the API server lets the client read what it asks for. `headers` are the client's, as they would go upstream.
    ///
    /// A review of an impersonated user was made already, when the request was identified.
    ///
    /// # Errors
    /// The API server gives no answer.
    pub(in crate::proxy) async fn may_read(
        &self,
        identity: Identity,
        headers: &HeaderMap,
        request: &RequestInfo,
    ) -> Result<bool, StatusError> {
        let Some(asked) = request.resource().filter(|_| identity != Identity::Impersonated) else { return Ok(true) };
        let attributes = attributes(&Method::GET, request, asked);
        let body = review(attributes.clone())?;
        let answer = ask(&self.upstream, identity, headers, body.clone());
        let answer = self.read_reviews.get_or_send(question(identity, headers, &body), answer).await;
        if answer.is_ok() {
            return answer;
        }
        // Who may list a whole collection has seen each of its objects.
        for wider in wider(attributes) {
            if self.read_reviews.is_granted(&question(identity, headers, &review(wider)?)).await {
                return Ok(true);
            }
        }
        answer
    }
}

/// The body of a review.
fn review(attributes: ResourceAttributes) -> Result<Vec<u8>, StatusError> {
    let spec =
        SelfSubjectAccessReviewSpec { resource_attributes: Some(attributes), ..SelfSubjectAccessReviewSpec::default() };
    let review = SelfSubjectAccessReview { spec, ..SelfSubjectAccessReview::default() };
    serde_json::to_vec(&review).map_err(|error| StatusError::Review(error.to_string()))
}

/// Lists of the collection and of the whole resource, which include a read.
fn wider(read: ResourceAttributes) -> [ResourceAttributes; 2] {
    let collection = ResourceAttributes {
        verb: Some("list".to_owned()),
        name: Some(String::new()),
        field_selector: None,
        label_selector: None,
        ..read
    };
    [collection.clone(), ResourceAttributes { namespace: Some(String::new()), ..collection }]
}

/// All that the answer depends on; the credential only as a hash.
fn question(identity: Identity, headers: &HeaderMap, review: &[u8]) -> String {
    let mut hash = Sha256::new();
    hash.update([identity as u8]);
    for (name, value) in headers {
        if *name == header::AUTHORIZATION || name.as_str().starts_with("impersonate-") {
            for part in [name.as_str().as_bytes(), value.as_bytes()] {
                hash.update((part.len() as u64).to_le_bytes());
                hash.update(part);
            }
        }
    }
    hash.update(review);
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

async fn ask(
    upstream: &Upstream,
    identity: Identity,
    headers: &HeaderMap,
    review: Vec<u8>,
) -> Result<bool, StatusError> {
    let own = |name: &str| name == header::AUTHORIZATION.as_str() || name.starts_with("impersonate-");
    let mut sent: HeaderMap = headers
        .iter()
        .filter(|(name, _)| own(name.as_str()))
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    prepare_request(&mut sent, identity);
    sent.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    sent.insert(header::ACCEPT, HeaderValue::from_static("application/json"));
    let head = RequestHead { method: Method::POST, path: PATH, headers: sent };
    let body = Full::new(Bytes::from(review)).map_err(|never| -> BoxError { match never {} }).boxed_unsync();
    let answer = upstream.send(identity, Purpose::Short, head, body).await?;
    // 401 and 403: the credential is not valid, or may not even ask. Its own request gets the API server's answer.
    if matches!(answer.status(), StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) {
        return Ok(false);
    }
    let status = answer.status();
    let body = Limited::new(answer.into_body(), MAX_ANSWER).collect().await;
    let body = body.map_err(|error| StatusError::Review(error.to_string()))?.to_bytes();
    let review: SelfSubjectAccessReview = match status.is_success() {
        true => serde_json::from_slice(&body).map_err(|error| StatusError::Review(error.to_string()))?,
        false => return Err(StatusError::Review(format!("the API server answers {status}"))),
    };
    Ok(review.status.is_some_and(|status| status.allowed && status.denied != Some(true)))
}
