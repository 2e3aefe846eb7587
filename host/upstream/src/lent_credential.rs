//! The credential of a client, lent for as long as one of its requests is open.
//!
//! What a client reads with its own credential is shared by all its requests: one reflector reads it once. The reflector has
//! no credential of its own for that, and Weir keeps none of a client. It pauses while no request of the client is open.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use http::uri::PathAndQuery;
use http::{HeaderValue, StatusCode};
use tokio::sync::{mpsc, watch};

/// What the API server has refused to a lent credential: that concerns this credential, and no other one of the same client.
#[derive(Debug)]
pub struct Refusal {
    /// The `Authorization` header that was sent.
    pub authorization: HeaderValue,
    /// What was asked for.
    pub path: PathAndQuery,
    /// 401 or 403.
    pub status: StatusCode,
}

/// Where refusals go. What one refused that finds no room is asked for again.
pub type RefusalSender = mpsc::Sender<Refusal>;

/// Returns a channel for refusals.
#[must_use]
pub fn refusals() -> (RefusalSender, mpsc::Receiver<Refusal>) {
    mpsc::channel(64)
}

/// The credential that the open requests of one client lend.
#[derive(Clone)]
pub struct LentCredential(Arc<watch::Sender<Loans>>);

/// The `Authorization` headers of the open requests, in the order of their arrival.
#[derive(Default)]
struct Loans {
    last: u64,
    refusals: u64,
    open: BTreeMap<u64, Loan>,
}

struct Loan {
    authorization: HeaderValue,
    /// When the API server has refused it, if it has since it accepted it.
    refused: Option<u64>,
}

/// Lends the credential of a request until it is dropped.
#[must_use = "the credential is lent until the loan is dropped"]
pub struct CredentialLoan {
    credential: LentCredential,
    id: u64,
}

impl Default for LentCredential {
    fn default() -> Self {
        Self(Arc::new(watch::Sender::new(Loans::default())))
    }
}

impl LentCredential {
    /// Lends the value of a request's `Authorization` header.
    pub fn lend(&self, mut authorization: HeaderValue) -> CredentialLoan {
        authorization.set_sensitive(true);
        let mut id = 0;
        self.0.send_modify(|loans| {
            loans.last += 1;
            id = loans.last;
            let same = loans.open.values().find(|loan| loan.authorization == authorization);
            let refused = same.and_then(|loan| loan.refused);
            loans.open.insert(id, Loan { authorization, refused });
        });
        CredentialLoan { credential: self.clone(), id }
    }

    /// The newest credential, because an older one may have expired since its request began. If the API server has refused all of
    /// them, the one whose turn it is. `None` while nobody lends one.
    #[must_use]
    pub fn newest(&self) -> Option<HeaderValue> {
        let loans = self.0.borrow();
        let accepted = loans.open.values().rfind(|loan| loan.refused.is_none());
        accepted.or_else(|| loans.open.values().min_by_key(|loan| loan.refused)).map(|loan| loan.authorization.clone())
    }

    /// Notes whether the API server has refused a credential that was lent.
    pub(crate) fn note(&self, authorization: &HeaderValue, refused: bool) {
        // Nobody waits for that.
        self.0.send_if_modified(|loans| {
            loans.refusals += u64::from(refused);
            let refused = refused.then_some(loans.refusals);
            let same = loans.open.values_mut().filter(|loan| loan.authorization == authorization);
            same.for_each(|loan| loan.refused = refused);
            false
        });
    }

    /// Whether a request of the client is open.
    #[must_use]
    pub fn is_lent(&self) -> bool {
        !self.0.borrow().open.is_empty()
    }

    /// Whether anybody else has a clone: a loan, or who sends with it.
    #[must_use]
    pub fn is_used(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }

    /// Waits until a request of the client is open. Cancel-safe.
    pub async fn until_lent(&self) {
        // The sender lives as long as `self`.
        let _ = self.0.subscribe().wait_for(|loans| !loans.open.is_empty()).await;
    }

    /// Waits until no open request lends this one, although others may be lent: nothing goes on with it then. Cancel-safe.
    pub async fn until_returned(&self, authorization: &HeaderValue) {
        // The sender lives as long as `self`.
        let _ = self.0.subscribe().wait_for(|loans| loans.is_returned(authorization)).await;
    }

    /// Whether no open request lends this one.
    #[must_use]
    pub fn is_returned(&self, authorization: &HeaderValue) -> bool {
        self.0.borrow().is_returned(authorization)
    }
}

impl Loans {
    fn is_returned(&self, authorization: &HeaderValue) -> bool {
        self.open.values().all(|loan| loan.authorization != authorization)
    }
}

impl Drop for CredentialLoan {
    fn drop(&mut self) {
        self.credential.0.send_modify(|loans| {
            loans.open.remove(&self.id);
        });
    }
}

impl fmt::Debug for LentCredential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LentCredential").field("open", &self.0.borrow().open.len()).finish()
    }
}

impl fmt::Debug for CredentialLoan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CredentialLoan").field("id", &self.id).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn a_credential_is_lent_while_a_request_is_open_and_the_newest_counts() {
        let credential = LentCredential::default();
        assert!(!credential.is_lent() && credential.newest().is_none());
        let first = credential.lend(HeaderValue::from_static("Bearer old"));
        let second = credential.lend(HeaderValue::from_static("Bearer new"));
        credential.until_lent().await;
        assert_eq!(credential.newest().unwrap(), "Bearer new");
        credential.note(&HeaderValue::from_static("Bearer new"), true);
        assert_eq!(credential.newest().unwrap(), "Bearer old", "the other one was refused");
        let again = credential.lend(HeaderValue::from_static("Bearer new"));
        assert_eq!(credential.newest().unwrap(), "Bearer old", "it is the same");
        credential.note(&HeaderValue::from_static("Bearer old"), true);
        assert_eq!(credential.newest().unwrap(), "Bearer new", "all were refused");
        credential.note(&HeaderValue::from_static("Bearer new"), true);
        assert_eq!(credential.newest().unwrap(), "Bearer old", "in turn");
        credential.note(&HeaderValue::from_static("Bearer new"), false);
        assert_eq!(credential.newest().unwrap(), "Bearer new");
        drop(second);
        let returned = HeaderValue::from_static("Bearer new");
        assert_eq!(credential.until_returned(&returned).now_or_never(), None, "another request has the same");
        drop(again);
        credential.until_returned(&returned).await;
        assert_eq!(credential.newest().unwrap(), "Bearer old");
        drop(first);
        credential.until_returned(&HeaderValue::from_static("Bearer old")).await;
        assert!(credential.newest().is_none());
    }

    #[test]
    fn a_credential_is_never_printed() {
        let credential = LentCredential::default();
        let loan = credential.lend(HeaderValue::from_static("Bearer secret"));
        assert!(!format!("{credential:?} {loan:?} {:?}", credential.newest()).contains("secret"));
    }
}
