//! Asks the API server whether a client may read what a view would answer: a SelfSubjectAccessReview, made with the
//! client's own credential.

use std::time::SystemTime;

use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderValue};
use http::uri::PathAndQuery;
use http::{Method, StatusCode};
use http_body_util::{BodyExt as _, Full, Limited};
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec};
use sha2::{Digest as _, Sha256};
use tower::BoxError;
use weir_kube::RequestInfo;
use weir_upstream::{AnsweredBy, Identity, Purpose, RequestHead, Upstream};

use super::access::attributes;
use super::reviews::ReviewKey;
use crate::proxy::Proxy;
use crate::proxy::credential::{hash_text, token_expiry, token_user, user};
use crate::proxy::headers::credential_headers;
use crate::proxy::respond::StatusError;

const PATH: PathAndQuery = PathAndQuery::from_static("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews");
/// The largest answer.
const MAX_ANSWER: usize = 256 << 10;

impl Proxy {
    /// Whether the API server lets the client read what it asks for. `headers` are the client's, as they would go upstream.
    ///
    /// A review of an impersonated user was made already, when the request was identified. While no API server can be reached,
    /// what it allowed before holds, and so it does until the API server has answered anything since the start.
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
        let user = user(identity, headers);
        // A renewed token has the permissions of its predecessor, unless it impersonates somebody.
        let subject = token_user(headers);
        let key = ReviewKey {
            owner: subject.as_ref().unwrap_or(&user).as_str().into(),
            name: question(&user, &body),
            alias: subject.as_ref().map(|subject| question(subject, &body)),
            expires: token_expiry(headers),
        };
        if !self.upstream.has_answered()
            && self.was_granted(&user, subject.as_deref(), &body, attributes.clone()).await?
        {
            return Ok(true);
        }
        let sent = async {
            let answer = ask(&self.upstream, identity, headers, body.clone()).await?;
            // A credential that is not valid proves nothing about the user whom it names.
            if let (ReviewAnswer::Denied, Some(alias)) = (answer, &key.alias) {
                self.read_reviews.revoke(alias).await;
            }
            if answer == ReviewAnswer::Allowed {
                self.note_credential(&user, key.expires).await;
            }
            Ok(answer == ReviewAnswer::Allowed)
        };
        let answer = self.read_reviews.get_or_send(&key, sent).await;
        let is_final = answer.is_ok() || !self.upstream.is_failing();
        match !is_final && self.was_granted(&user, subject.as_deref(), &body, attributes).await? {
            true => Ok(true),
            false => answer,
        }
    }

    /// Whether a user, or the subject of its token, had the permission to read, itself or as part of a wider one.
    async fn was_granted(
        &self,
        user: &str,
        subject: Option<&str>,
        body: &[u8],
        attributes: ResourceAttributes,
    ) -> Result<bool, StatusError> {
        // Who may list a whole collection has seen each of its objects.
        let mut reviews = vec![body.to_vec()];
        for wider in wider(attributes) {
            reviews.push(review(wider)?);
        }
        let accepted = self.is_credential_known(user).await;
        for user in std::iter::once(user).chain(subject.filter(|_| accepted)) {
            for review in &reviews {
                if self.read_reviews.is_granted(&question(user, review)).await {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    /// Notes that the API server has accepted a user's credential: it is authenticated while no API server can be reached.
    pub(in crate::proxy) async fn note_credential(&self, user: &str, expires: Option<SystemTime>) {
        // Flash wears.
        if !self.is_credential_known(user).await {
            self.read_reviews.grant(user, expires).await;
        }
    }

    /// Whether the API server has accepted or issued a user's credential within the offline grace.
    pub(in crate::proxy) async fn is_credential_known(&self, user: &str) -> bool {
        self.read_reviews.is_granted(user).await
    }

    /// Notes that the API server has issued a token: it proves its subject while no API server can be reached.
    pub(in crate::proxy) async fn note_issued(&self, token: &str) {
        let Ok(value) = HeaderValue::try_from(format!("Bearer {token}")) else { return };
        let headers = HeaderMap::from_iter([(header::AUTHORIZATION, value)]);
        if let Some(expires) = token_expiry(&headers) {
            self.read_reviews.grant(&user(Identity::Client, &headers), Some(expires)).await;
        }
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

/// All that the answer depends on.
fn question(user: &str, review: &[u8]) -> String {
    let mut hash = Sha256::new();
    hash.update(user);
    hash.update(review);
    hash_text(hash)
}

/// The API server's answer to a review.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ReviewAnswer {
    Allowed,
    Denied,
    /// The credential is not valid, or may not even ask. Its own request gets the API server's answer.
    NotAnswered,
}

async fn ask(
    upstream: &Upstream,
    identity: Identity,
    headers: &HeaderMap,
    review: Vec<u8>,
) -> Result<ReviewAnswer, StatusError> {
    let mut sent = credential_headers(headers, identity);
    sent.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    sent.insert(header::ACCEPT, HeaderValue::from_static("application/json"));
    let head = RequestHead { method: Method::POST, path: PATH, headers: sent, answered_by: AnsweredBy::Server };
    let body = Full::new(Bytes::from(review)).map_err(|never| -> BoxError { match never {} }).boxed_unsync();
    let answer = upstream.send(identity, Purpose::Short, head, body).await?;
    if matches!(answer.status(), StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) {
        return Ok(ReviewAnswer::NotAnswered);
    }
    let status = answer.status();
    let body = Limited::new(answer.into_body(), MAX_ANSWER).collect().await;
    let body = body.map_err(|error| StatusError::Review(error.to_string()))?.to_bytes();
    let review: SelfSubjectAccessReview = match status.is_success() {
        true => serde_json::from_slice(&body).map_err(|error| StatusError::Review(error.to_string()))?,
        false => return Err(StatusError::Review(format!("the API server answers {status}"))),
    };
    let allowed = review.status.is_some_and(|status| status.allowed && status.denied != Some(true));
    Ok(if allowed { ReviewAnswer::Allowed } else { ReviewAnswer::Denied })
}
