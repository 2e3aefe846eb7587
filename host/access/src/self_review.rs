//! Asks the API server whether a client may read what a view would answer: a SelfSubjectAccessReview, made with the
//! client's own credential.

use bytes::Bytes;
use http::header::{self, HeaderValue};
use http::uri::PathAndQuery;
use http::{Method, StatusCode};
use http_body_util::{BodyExt as _, Full, Limited};
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec};
use serde::de::DeserializeOwned;
use tower::BoxError;
use weir_kube::{Identity, RequestInfo};
use weir_upstream::{AnsweredBy, Purpose, RequestHead, Upstream, set_user_agent};

use super::attributes::{attributes, covered_by, question};
use super::reviews::ReviewKey;
use crate::Access;
use crate::caller::Caller;
use crate::error::AccessError;

const PATH: PathAndQuery = PathAndQuery::from_static("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews");
/// The largest answer.
const MAX_ANSWER: usize = 256 << 10;

/// The API server's answer to a review that a client's own credential asks for.
pub(super) enum ReviewResponse<T> {
    Review(T),
    /// 401 or 403: the credential is not valid, or may not even ask; or 404: this API server has no such review.
    Refused(StatusCode),
}

impl Access {
    /// Whether the API server lets the client read what it asks for.
    ///
    /// A review of a certificate's user was made already, when the request was identified. While no API server can be reached,
    /// what it allowed before holds, and so it does until the API server has answered anything since the start.
    ///
    /// # Errors
    /// The API server gives no answer.
    pub(super) async fn may_read(&self, caller: &Caller, request: &RequestInfo) -> Result<bool, AccessError> {
        let Some(resource) = request.resource().filter(|_| caller.identity() != Identity::Impersonated) else {
            return Ok(true);
        };
        let asked = attributes(&Method::GET, resource);
        if !self.upstream.has_answered() && self.was_granted(caller, &asked).await {
            return Ok(true);
        }
        let answer = self.may(caller, &asked).await;
        let is_final = answer.is_ok() || !self.upstream.is_failing();
        match !is_final && self.was_granted(caller, &asked).await {
            true => Ok(true),
            false => answer,
        }
    }

    /// Asks whether a caller may do something, and remembers the answer.
    ///
    /// # Errors
    /// The API server gives no answer.
    pub(super) async fn may(&self, caller: &Caller, asked: &ResourceAttributes) -> Result<bool, AccessError> {
        let key = ReviewKey {
            owner: caller.owner(),
            credential: caller.key().clone(),
            name: question(caller.key(), asked),
            expires: caller.expires(),
        };
        let sent = async {
            let rows = self.grants.forgotten();
            let answer = ask::<SelfSubjectAccessReview>(&self.upstream, caller, PATH, review(asked)?).await?;
            let review = match answer {
                ReviewResponse::Review(review) => review,
                ReviewResponse::Refused(StatusCode::UNAUTHORIZED) => {
                    self.revoke(caller).await;
                    return Ok(false);
                }
                ReviewResponse::Refused(_) => return Ok(false),
            };
            let allowed = review.status.is_some_and(|status| status.allowed && status.denied != Some(true));
            // Another cluster may have its file now.
            if rows == self.grants.forgotten() {
                self.note_permission(caller, asked, allowed).await;
            }
            Ok(allowed)
        };
        self.read_reviews.get_or_send(&key, sent).await
    }

    /// Notes that the API server has let a caller do exactly this, or not. Nothing is kept of a credential that it has not
    /// accepted. A denial takes away what this credential has, and from no other one.
    pub(super) async fn note_permission(&self, caller: &Caller, asked: &ResourceAttributes, allowed: bool) {
        if !self.is_accepted(caller).await {
            // Its account may have gone with the former cluster's file, between its own review and this one.
            if allowed {
                self.ask_again(caller).await;
            }
            if !self.is_accepted(caller).await {
                return;
            }
        }
        let (own, line) = self.subjects(caller).await;
        let owner = self.owner(caller);
        if !allowed {
            let denied = question(&own, asked);
            if self.was_granted(caller, asked).await {
                self.grants.deny(&owner, &denied, caller.expires()).await;
            } else if covered_by(asked).iter().any(|wider| question(&own, wider) != denied) {
                self.grants.deny_ahead(&owner, &denied, caller.expires()).await;
            }
            return;
        }
        self.grants.allow(&owner, &question(&own, asked), caller.expires()).await;
        if let Some(line) = line {
            // A token that is renewed ends before the permission of its service account.
            self.grants.allow(&owner, &question(&line, asked), None).await;
        }
    }

    fn is_node(&self, caller: &Caller) -> bool {
        caller.is_node_component(&self.node_service_accounts)
    }

    /// Whether exactly this was denied to a caller.
    pub(super) async fn was_denied(&self, caller: &Caller, asked: &ResourceAttributes) -> bool {
        self.grants.answer(&question(caller.key(), asked), caller.expires(), self.is_node(caller)).await == Some(false)
    }

    /// Whether a caller had the permission, itself or as part of a wider one.
    pub(super) async fn was_granted(&self, caller: &Caller, asked: &ResourceAttributes) -> bool {
        if !self.is_accepted(caller).await {
            return false;
        }
        let (own, line) = self.subjects(caller).await;
        if self.grants.answer(&question(&own, asked), caller.expires(), self.is_node(caller)).await == Some(false) {
            return false;
        }
        for attributes in std::iter::once(asked.clone()).chain(covered_by(asked)) {
            let of = |subject: &str| question(subject, &attributes);
            // No other token of its line grants a permission that this credential was denied.
            match (self.grants.answer(&of(&own), caller.expires(), self.is_node(caller)).await, &line) {
                (Some(true), _) => return true,
                (None, Some(line))
                    if self.grants.answer(&of(line), caller.expires(), self.is_node(caller)).await == Some(true) =>
                {
                    return true;
                }
                _ => {}
            }
        }
        false
    }
}

/// The body of a review.
fn review(asked: &ResourceAttributes) -> Result<Vec<u8>, AccessError> {
    let spec = SelfSubjectAccessReviewSpec {
        resource_attributes: Some(asked.clone()),
        ..SelfSubjectAccessReviewSpec::default()
    };
    let review = SelfSubjectAccessReview { spec, ..SelfSubjectAccessReview::default() };
    serde_json::to_vec(&review).map_err(|error| AccessError::Review(error.to_string()))
}

/// Sends a review with a client's own credential.
pub(super) async fn ask<T: DeserializeOwned>(
    upstream: &Upstream,
    caller: &Caller,
    path: PathAndQuery,
    review: Vec<u8>,
) -> Result<ReviewResponse<T>, AccessError> {
    let mut headers = caller.headers().clone();
    // The API server's audit log shows that Weir asks.
    set_user_agent(&mut headers);
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(header::ACCEPT, HeaderValue::from_static("application/json"));
    let head = RequestHead { method: Method::POST, path, headers, answered_by: AnsweredBy::Server };
    let body = Full::new(Bytes::from(review)).map_err(|never| -> BoxError { match never {} }).boxed_unsync();
    let answer = upstream.send(caller.identity(), Purpose::Short, head, body).await?;
    let status = answer.status();
    if matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN | StatusCode::NOT_FOUND) {
        return Ok(ReviewResponse::Refused(status));
    }
    if !status.is_success() {
        return Err(AccessError::Review(format!("the API server answers {status}")));
    }
    let body = Limited::new(answer.into_body(), MAX_ANSWER).collect().await;
    let body = body.map_err(|error| AccessError::Review(error.to_string()))?.to_bytes();
    serde_json::from_slice(&body).map(ReviewResponse::Review).map_err(|error| AccessError::Review(error.to_string()))
}
