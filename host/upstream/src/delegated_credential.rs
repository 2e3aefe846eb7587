//! The credential of a client, delegated to a reflector while one of the client's requests is open.
//!
//! All requests of a client share one reflector, which lists and watches each resource once. It has no credential of its own, and
//! Weir stores none of a client, so that the reflector pauses while no request of the client is open.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use http::uri::PathAndQuery;
use http::{HeaderMap, StatusCode};
use tokio::sync::{mpsc, watch};

/// A read that the API server refused to a delegated credential. It concerns this credential alone, not others of the client.
#[derive(Debug)]
pub struct Refusal {
    /// The headers of the credential that was sent.
    pub credential: Arc<HeaderMap>,
    /// The path of the request.
    pub path: PathAndQuery,
    /// 401 or 403.
    pub status: StatusCode,
}

/// Sends refusals. A refusal is dropped while the channel is full: the next read is refused again.
pub type RefusalSender = mpsc::Sender<Refusal>;

/// Returns a channel for refusals.
#[must_use]
pub fn refusals() -> (RefusalSender, mpsc::Receiver<Refusal>) {
    mpsc::channel(64)
}

/// The credential that the open requests of one client delegate. Clones share it.
#[derive(Clone)]
pub struct DelegatedCredential(Arc<watch::Sender<OpenDelegations>>);

/// The credentials of the open requests, in the order of their arrival.
#[derive(Default)]
struct OpenDelegations {
    last: u64,
    refusals: u64,
    open: BTreeMap<u64, OpenDelegation>,
}

struct OpenDelegation {
    /// Its headers.
    credential: Arc<HeaderMap>,
    /// The number of the refusal; `None` once the API server has accepted it again.
    refused: Option<u64>,
}

/// One request's delegation of its credential, until it is dropped.
#[must_use = "the credential is delegated until the delegation is dropped"]
pub struct Delegation {
    credential: DelegatedCredential,
    id: u64,
}

impl Default for DelegatedCredential {
    fn default() -> Self {
        Self(Arc::new(watch::Sender::new(OpenDelegations::default())))
    }
}

impl DelegatedCredential {
    /// Delegates the headers in which a request has its credential.
    pub fn delegate(&self, mut credential: HeaderMap) -> Delegation {
        credential.values_mut().for_each(|value| value.set_sensitive(true));
        let (credential, mut id) = (Arc::new(credential), 0);
        self.0.send_modify(|delegations| {
            delegations.last += 1;
            id = delegations.last;
            let same = delegations.open.values().find(|open| open.credential == credential);
            let refused = same.and_then(|open| open.refused);
            delegations.open.insert(id, OpenDelegation { credential, refused });
        });
        Delegation { credential: self.clone(), id }
    }

    /// Returns the newest credential that the API server has not refused: an older one may have expired since its request
    /// began. If it has refused all of them, the one whose refusal is longest ago. `None` while no request is open.
    #[must_use]
    pub fn newest(&self) -> Option<Arc<HeaderMap>> {
        let delegations = self.0.borrow();
        let accepted = delegations.open.values().rfind(|open| open.refused.is_none());
        accepted
            .or_else(|| delegations.open.values().min_by_key(|open| open.refused))
            .map(|open| open.credential.clone())
    }

    /// Records whether the API server refused a delegated credential.
    pub(crate) fn note(&self, credential: &HeaderMap, refused: bool) {
        // No waiter depends on it.
        self.0.send_if_modified(|delegations| {
            delegations.refusals += u64::from(refused);
            let refused = refused.then_some(delegations.refusals);
            let same = delegations.open.values_mut().filter(|open| *open.credential == *credential);
            same.for_each(|open| open.refused = refused);
            false
        });
    }

    /// Whether a request of the client is open.
    #[must_use]
    pub fn is_delegated(&self) -> bool {
        !self.0.borrow().open.is_empty()
    }

    /// Whether a delegation or a client that sends with it holds a clone.
    #[must_use]
    pub fn is_used(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }

    /// Waits until a request of the client is open. Cancel-safe.
    pub async fn until_delegated(&self) {
        // The sender lives as long as `self`.
        let _ = self.0.subscribe().wait_for(|delegations| !delegations.open.is_empty()).await;
    }

    /// Waits until no open request delegates this credential, although others may be. Cancel-safe.
    pub async fn until_withdrawn(&self, credential: &HeaderMap) {
        // The sender lives as long as `self`.
        let _ = self.0.subscribe().wait_for(|delegations| delegations.is_withdrawn(credential)).await;
    }

    /// Whether no open request delegates this credential.
    #[must_use]
    pub fn is_withdrawn(&self, credential: &HeaderMap) -> bool {
        self.0.borrow().is_withdrawn(credential)
    }
}

impl OpenDelegations {
    fn is_withdrawn(&self, credential: &HeaderMap) -> bool {
        self.open.values().all(|open| *open.credential != *credential)
    }
}

impl Drop for Delegation {
    fn drop(&mut self) {
        self.credential.0.send_modify(|delegations| {
            delegations.open.remove(&self.id);
        });
    }
}

impl fmt::Debug for DelegatedCredential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DelegatedCredential").field("open", &self.0.borrow().open.len()).finish()
    }
}

impl fmt::Debug for Delegation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Delegation").field("id", &self.id).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    fn bearer(token: &str) -> HeaderMap {
        HeaderMap::from_iter([(http::header::AUTHORIZATION, format!("Bearer {token}").parse().unwrap())])
    }

    #[tokio::test]
    async fn a_credential_is_delegated_while_a_request_is_open_and_the_newest_counts() {
        let credential = DelegatedCredential::default();
        assert!(!credential.is_delegated() && credential.newest().is_none());
        let first = credential.delegate(bearer("old"));
        let second = credential.delegate(bearer("new"));
        credential.until_delegated().await;
        assert_eq!(*credential.newest().unwrap(), bearer("new"));
        credential.note(&bearer("new"), true);
        assert_eq!(*credential.newest().unwrap(), bearer("old"), "the other one was refused");
        let again = credential.delegate(bearer("new"));
        assert_eq!(*credential.newest().unwrap(), bearer("old"), "it is the same");
        credential.note(&bearer("old"), true);
        assert_eq!(*credential.newest().unwrap(), bearer("new"), "all were refused");
        credential.note(&bearer("new"), true);
        assert_eq!(*credential.newest().unwrap(), bearer("old"), "in turn");
        credential.note(&bearer("new"), false);
        assert_eq!(*credential.newest().unwrap(), bearer("new"));
        drop(second);
        let withdrawn = bearer("new");
        assert_eq!(credential.until_withdrawn(&withdrawn).now_or_never(), None, "another request has the same");
        drop(again);
        credential.until_withdrawn(&withdrawn).await;
        assert_eq!(*credential.newest().unwrap(), bearer("old"));
        drop(first);
        credential.until_withdrawn(&bearer("old")).await;
        assert!(credential.newest().is_none());
    }

    #[test]
    fn a_credential_is_never_printed() {
        let credential = DelegatedCredential::default();
        let delegation = credential.delegate(bearer("secret"));
        assert!(!format!("{credential:?} {delegation:?} {:?}", credential.newest()).contains("secret"));
    }
}
