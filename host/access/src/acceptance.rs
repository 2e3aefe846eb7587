//! Which credentials the API server accepts, and whose they are.
//!
//! A credential counts as accepted only after a SelfSubjectReview, sent with exactly its bytes, that names a user of the group
//! `system:authenticated`: other answers of 2xx are for clients without a credential, too. The user and uid that it names own
//! the credential. While no API server can be reached, what one said before holds; and a token that came through Weir in the
//! answer to a TokenRequest for the API server itself is the service account's, as other tokens of the same pod are.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use weir_kube::Identity;

use bytes::Bytes;
use http::StatusCode;
use http::uri::PathAndQuery;
use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use moka::future::Cache;
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, timeout};

use super::self_review::{ReviewResponse, ask};
use crate::Access;
use crate::caller::{Account, Caller, IssuedToken, hash_of, issued_claims, token_hash};
use weir_process::ledger::Owner;

const PATH: PathAndQuery = PathAndQuery::from_static("/apis/authentication.k8s.io/v1/selfsubjectreviews");
/// The group of all users that the API server has authenticated.
const AUTHENTICATED: &str = "system:authenticated";
/// Where a service account's token names its pod.
const POD_UID: &str = "authentication.kubernetes.io/pod-uid";
/// How long an accepted credential is not asked for again, and how long one that is not.
const ACCEPTED: Duration = Duration::from_secs(300);
const REFUSED: Duration = Duration::from_secs(5);
/// The timeout of a review.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The most credentials in memory. Those beyond are asked for again.
const CAPACITY: u64 = 4096;

/// The API server's answers about credentials in the last minutes.
#[derive(Debug)]
pub(crate) struct Acceptances {
    known: Cache<Arc<str>, CachedAuthentication>,
    /// How often all was forgotten. Earlier questions do not count, whenever they are answered.
    forgotten: AtomicU64,
}

impl Acceptances {
    /// Ends all of them.
    pub(crate) fn forget(&self) {
        self.forgotten.fetch_add(1, Ordering::AcqRel);
        self.known.invalidate_all();
    }

    fn forgotten(&self) -> u64 {
        self.forgotten.load(Ordering::Acquire)
    }
}

/// The answer for one credential; an error expires at once.
#[derive(Debug, Clone)]
struct CachedAuthentication {
    authentication: Authentication,
    until: Instant,
    /// How often all had been forgotten when it was asked.
    forgotten: u64,
}

#[derive(Debug, Clone)]
enum Authentication {
    Accepted(Arc<Account>),
    /// It is not valid, or of nobody.
    Refused,
    /// The API server gave no answer, or does not know the question.
    Unknown,
}

/// A token that a TokenRequest through Weir has issued for the API server itself.
#[derive(Debug, Serialize, Deserialize)]
struct IssuedRow {
    account: Account,
    /// The service account, the bound object and the audiences: equal for each renewal of one client's token.
    lineage: String,
}

/// The claims of a token that the API server has just issued.
#[derive(Deserialize)]
struct IssuedClaims {
    exp: f64,
    #[serde(rename = "kubernetes.io")]
    kubernetes: KubernetesClaim,
}

#[derive(Deserialize)]
struct KubernetesClaim {
    serviceaccount: Uid,
}

#[derive(Deserialize)]
struct Uid {
    uid: String,
}

impl Default for Acceptances {
    fn default() -> Self {
        let known = Cache::builder().max_capacity(CAPACITY).time_to_live(ACCEPTED).build();
        Self { known, forgotten: AtomicU64::new(0) }
    }
}

impl Access {
    /// Asks the API server whose credential a caller has, unless that is known. Returns whether it may be valid: a token that
    /// the API server refuses gets nothing from a view. Cancel-safe.
    pub async fn authenticate(&self, caller: &Caller) -> bool {
        if caller.identity() != Identity::Client || caller.account().is_some() {
            return true;
        }
        match self.authentication(caller).await {
            Authentication::Accepted(account) => caller.set_account(account),
            Authentication::Refused => return !caller.has_token(),
            Authentication::Unknown => {}
        }
        true
    }

    async fn authentication(&self, caller: &Caller) -> Authentication {
        // At the start, and while no API server can be reached, what one said before holds.
        if (!self.upstream.has_answered() || !self.upstream.is_reachable())
            && let Some(account) = self.accepted_before(caller).await
        {
            return Authentication::Accepted(account);
        }
        if !self.upstream.is_reachable() {
            return Authentication::Unknown;
        }
        let forgotten = self.accepted.forgotten();
        let is_expired = |known: &CachedAuthentication| known.until <= Instant::now() || known.forgotten != forgotten;
        // The futures of requests upstream are large, and moka keeps several copies of them on the stack.
        let asked = self
            .accepted
            .known
            .entry(caller.key().clone())
            .or_insert_with_if(Box::pin(self.ask_account(caller)), is_expired);
        let known = asked.await.into_value();
        // A request that comes while another cluster's answer is on its way does not get it.
        let authentication = if known.forgotten < forgotten { Authentication::Unknown } else { known.authentication };
        match authentication {
            Authentication::Unknown if self.upstream.is_failing() => {
                self.accepted_before(caller).await.map_or(Authentication::Unknown, Authentication::Accepted)
            }
            authentication => authentication,
        }
    }

    async fn ask_account(&self, caller: &Caller) -> CachedAuthentication {
        let (forgotten, rows) = (self.accepted.forgotten(), self.grants.forgotten());
        let body = serde_json::to_vec(&SelfSubjectReview::default()).unwrap_or_default();
        let answer = timeout(TIMEOUT, ask::<SelfSubjectReview>(&self.upstream, caller, PATH, body)).await;
        let (authentication, lifetime) = match answer {
            Ok(Ok(ReviewResponse::Review(review))) => match account(review) {
                Some(account) => (Authentication::Accepted(Arc::new(account)), ACCEPTED),
                None => (Authentication::Refused, REFUSED),
            },
            Ok(Ok(ReviewResponse::Refused(StatusCode::UNAUTHORIZED))) => {
                self.end(caller).await;
                (Authentication::Refused, REFUSED)
            }
            Ok(Ok(ReviewResponse::Refused(_))) => (Authentication::Unknown, REFUSED),
            Ok(Err(error)) => {
                tracing::debug!(%error, "the API server does not say whose credential a client has");
                (Authentication::Unknown, Duration::ZERO)
            }
            Err(_) => (Authentication::Unknown, Duration::ZERO),
        };
        if let Authentication::Accepted(account) = &authentication {
            let row = serde_json::to_vec(&**account).unwrap_or_default();
            // Whose share it counts in.
            caller.set_account(account.clone());
            if !caller.impersonates() && rows == self.grants.forgotten() {
                self.grants.put(&self.owner(caller), &accepted(caller), Bytes::from(row), caller.expires()).await;
            }
        }
        CachedAuthentication { authentication, until: Instant::now() + lifetime, forgotten }
    }

    /// The account that an API server named for exactly this credential, or for which it issued this token.
    async fn accepted_before(&self, caller: &Caller) -> Option<Arc<Account>> {
        if let Some(row) = self
            .grants
            .get(&accepted(caller), caller.expires(), |row| self.is_of_node(serde_json::from_slice(row)))
            .await
        {
            return serde_json::from_slice(&row).ok().map(Arc::new);
        }
        self.issued(caller).await.map(|issued| Arc::new(issued.account))
    }

    /// Whether the API server has accepted or issued exactly this credential, within the offline grace. Of one that impersonates
    /// nothing is kept: it ends with the token, whose other uses have other names.
    pub async fn is_accepted(&self, caller: &Caller) -> bool {
        caller.identity() != Identity::Client || self.accepted_before(caller).await.is_some()
    }

    async fn issued(&self, caller: &Caller) -> Option<IssuedRow> {
        let is_lasting = |row: &[u8]| self.is_of_node(serde_json::from_slice(row).map(|row: IssuedRow| row.account));
        let row = self.grants.get(&issued(caller.token()?), caller.expires(), is_lasting).await?;
        serde_json::from_slice(&row).ok()
    }

    /// Whether a row is about a component of the node, whose permissions have no grace.
    fn is_of_node(&self, account: serde_json::Result<Account>) -> bool {
        account.is_ok_and(|account| account.is_one_of(&self.node_service_accounts))
    }

    /// The subjects whose permissions a caller has: exactly its credential, and the line of tokens that it was issued in.
    pub(super) async fn subjects(&self, caller: &Caller) -> (Arc<str>, Option<String>) {
        (caller.key().clone(), self.issued(caller).await.map(|issued| issued.lineage))
    }

    /// Ends all that was remembered of a credential, because the API server has answered it by 401.
    pub(crate) async fn revoke(&self, caller: &Caller) {
        if caller.identity() != Identity::Client {
            return;
        }
        self.accepted.known.invalidate(caller.key()).await;
        self.end(caller).await;
    }

    /// Asks again whose credential a caller has: something answered it by 401 that may not be the authentication.
    pub(crate) async fn ask_again(&self, caller: &Caller) {
        if caller.identity() == Identity::Client {
            self.accepted.known.invalidate(caller.key()).await;
            self.authentication(caller).await;
        }
    }

    /// Of garbage nothing is known, and nothing is ended: clients send as much of it as they like.
    async fn end(&self, caller: &Caller) {
        let names = [Some(accepted(caller)), caller.token().map(|token| issued(token))];
        for name in names.into_iter().flatten() {
            if self.grants.get(&name, None, |_| true).await.is_some() {
                self.read_reviews.end(caller.key()).await;
                self.grants.remove(&name).await;
            }
        }
    }

    /// Notes that the API server has issued a token for itself. A token that names no service account or no bound object has no
    /// line: its own SelfSubjectReview names its account.
    pub async fn note_issued(&self, owner: &Owner, issued_token: IssuedToken<'_>) {
        let IssuedToken { token, account: (namespace, name), bound, audiences } = issued_token;
        let [kind, _, bound_uid] = bound;
        let Some(claims) = issued_claims::<IssuedClaims>(token.as_bytes()).filter(|_| !bound_uid.is_empty()) else {
            return;
        };
        let Ok(lifetime) = Duration::try_from_secs_f64(claims.exp) else { return };
        let Some(expires) = std::time::SystemTime::UNIX_EPOCH.checked_add(lifetime) else { return };
        let account = Account {
            user: format!("system:serviceaccount:{namespace}:{name}"),
            uid: claims.kubernetes.serviceaccount.uid,
            pod: if kind == "Pod" { bound_uid.to_owned() } else { String::new() },
        };
        let mut parts = vec![account.user.as_str(), &account.uid];
        parts.extend(bound);
        parts.extend(audiences);
        let row = IssuedRow { lineage: hash_of("lineage", &parts), account };
        let row = serde_json::to_vec(&row).unwrap_or_default();
        self.grants.put(owner, &issued(&token_hash(token.as_bytes())), Bytes::from(row), Some(expires)).await;
    }
}

/// The account of a review, if the API server has authenticated it.
fn account(review: SelfSubjectReview) -> Option<Account> {
    let info = review.status?.user_info?;
    let is_authenticated = info.groups.unwrap_or_default().iter().any(|group| group == AUTHENTICATED);
    let user = info.username.filter(|_| is_authenticated)?;
    let pod = info.extra.and_then(|mut extra| extra.remove(POD_UID)).and_then(|values| values.into_iter().next());
    Some(Account { user, uid: info.uid.unwrap_or_default(), pod: pod.unwrap_or_default() })
}

fn accepted(caller: &Caller) -> String {
    format!("accepted/{}", caller.key())
}

fn issued(token: &str) -> String {
    format!("issued/{token}")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_users_that_the_api_server_has_authenticated_have_an_account() {
        let of = |info: serde_json::Value| {
            account(serde_json::from_value(json!({"metadata": {}, "status": {"userInfo": info}})).unwrap())
        };
        let found = of(json!({"username": "a", "uid": "u", "groups": ["b", AUTHENTICATED], "extra": {POD_UID: ["p"]}}));
        assert_eq!(found, Some(Account { user: "a".into(), uid: "u".into(), pod: "p".into() }));
        let anonymous = json!({"username": "system:anonymous", "groups": ["system:unauthenticated"]});
        for info in [anonymous, json!({"username": "a"}), json!({"groups": [AUTHENTICATED]}), json!({})] {
            assert_eq!(of(info.clone()), None, "{info}");
        }
        assert_eq!(account(SelfSubjectReview::default()), None);
    }
}
