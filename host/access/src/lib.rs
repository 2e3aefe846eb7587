//! Whose credential a request has upstream, and who may read what.
//!
//! [`Access::identify`] selects the credential of a request: the client's own, the daemon's with impersonation of a verified client
//! certificate's user, or the node credential. It makes the one [`Caller`] by which everything that outlives the request knows who
//! sent it. [`Access::permit`] reviews a read that a view may serve. What the API server has said of credentials and permissions
//! holds for the time without one ([`Outage`]).
//!
//! ```text
//! identify ─► subject_review ─► attributes        permits ─► acceptance, self_review ─► attributes
//!                   reviews (for minutes), grants (for an outage), outcome (what answers to clients say), kinds (ahead)
//! ```
//!
//! The node credential is for components of the node. Other programs can reach the loopback port, too, so Weir checks:
//!
//! - the uid of the client process, because hostNetwork pods share the loopback interface;
//! - the Host header, because a web page can make its own host name resolve to this port (DNS rebinding);
//! - the headers that browsers add to requests of web pages.

mod acceptance;
mod answered_by;
mod attributes;
mod caller;
mod error;
mod grants;
mod kinds;
mod outage;
mod outcome;
mod owner;
mod permits;
mod reviews;
mod self_review;
mod subject_review;

use std::sync::Arc;

use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri};

use self::acceptance::Acceptances;
use self::caller::impersonates;
pub use self::caller::{
    Caller, IssuedToken, WebSocketCredential, WebSocketCredentialError, has_credential, hash_part, hash_text,
    is_token_protocol,
};
pub use self::error::AccessError;
use self::grants::Grants;
use self::kinds::KindReviews;
pub use self::outage::{Outage, OutageStatus};
pub use self::outcome::Outcome;
use self::reviews::ReviewCache;
use self::reviews::ReviewKey;
use self::subject_review::Review;
use weir_front::{Peer, Subject};
use weir_kube::{Identity, RequestInfo};
use weir_upstream::{Tasks, Upstream};
use weir_view::Views;
use weir_wire::named_host::{NamedHost, authorities};

const IMPERSONATE_USER: HeaderName = HeaderName::from_static("impersonate-user");
const IMPERSONATE_GROUP: HeaderName = HeaderName::from_static("impersonate-group");

/// Whose requests get which credential, and who may read what.
pub struct Access {
    upstream: Arc<Upstream>,
    /// The client for the daemon's own requests.
    client: kube::Client,
    /// The uids of the processes whose requests get the node credential.
    node_credential_uids: Vec<u32>,
    /// The service accounts of the node's own components, as `namespace/name`.
    node_service_accounts: Vec<String>,
    /// Whose credentials the API server has accepted.
    accepted: Acceptances,
    /// The permissions for the time without an API server.
    grants: Grants,
    /// What was asked about the permissions of clients.
    kind_reviews: KindReviews,
    /// Whether the users of client certificates may send requests.
    reviews: ReviewCache,
    /// Whether clients may read what views serve.
    read_reviews: ReviewCache,
    /// `None`: every read goes upstream.
    views: Option<Arc<Views>>,
    tasks: Tasks,
}

/// The parts of the daemon that decide with [`Access`].
pub struct AccessParts {
    /// The API servers.
    pub upstream: Arc<Upstream>,
    /// The time without them.
    pub outage: Arc<Outage>,
    /// What may be read from memory, and the file in which permissions outlive the process.
    pub views: Option<Arc<Views>>,
    /// The uids of the processes whose requests get the node credential.
    pub node_credential_uids: Vec<u32>,
    /// The service accounts of the node's own components, as `namespace/name`.
    pub node_service_accounts: Vec<String>,
    /// Where requests of its own run, which no client waits for.
    pub tasks: Tasks,
}

impl Access {
    /// Creates it. Nothing is known of any client yet.
    #[must_use]
    pub fn new(parts: AccessParts) -> Arc<Self> {
        let AccessParts { upstream, outage, views, node_credential_uids, node_service_accounts, tasks } = parts;
        let disk = views.as_ref().and_then(|views| views.disk());
        Arc::new(Self {
            client: upstream.client(),
            upstream,
            node_credential_uids,
            node_service_accounts,
            accepted: Acceptances::default(),
            grants: Grants::new(disk, outage),
            kind_reviews: KindReviews::default(),
            reviews: ReviewCache::for_certificates(),
            read_reviews: ReviewCache::for_reads(),
            views,
            tasks,
        })
    }

    /// Whether a caller is a component of the node.
    pub fn is_node_component(&self, caller: &Caller) -> bool {
        caller.is_node_component(&self.node_service_accounts)
    }

    /// Forgets credentials and permissions: they turn out to be of another cluster.
    pub fn forget(&self) {
        // Rows first: permissions that come from now on are written, because no row has them.
        self.grants.forget();
        self.accepted.forget();
        self.reviews.forget();
        self.read_reviews.forget();
    }

    /// Selects the credential of a request, and sets the impersonation headers. Cancel-safe.
    ///
    /// # Errors
    /// The client has no right to any credential.
    pub async fn identify<B>(
        &self,
        request: &mut Request<B>,
        parsed: &RequestInfo,
        peer: &Peer,
    ) -> Result<Caller, AccessError> {
        if has_credential(request.headers()) {
            return Ok(Caller::of(Identity::Client, request.headers()));
        }
        if let Some(subject) = peer.subject().map_err(AccessError::Certificate)? {
            if impersonates(request.headers()) {
                return Err(AccessError::Impersonation("the user of the client certificate"));
            }
            impersonate(request.headers_mut(), subject);
            let caller = Caller::of(Identity::Impersonated, request.headers());
            self.review(&caller, subject, request.method(), parsed).await?;
            return Ok(caller);
        }
        if !self.upstream.has_node_credential() || !peer.address.ip().to_canonical().is_loopback() {
            return Ok(Caller::of(Identity::Client, request.headers()));
        }
        check_not_web_page(request.uri(), request.headers())?;
        if !peer.uid().is_some_and(|uid| self.node_credential_uids.contains(&uid)) {
            return Err(AccessError::Uid);
        }
        // Without its impersonation the request would have more rights than it asks for.
        if impersonates(request.headers()) {
            return Err(AccessError::Impersonation("the node"));
        }
        Ok(Caller::of(Identity::Node, request.headers()))
    }

    /// Checks by a SubjectAccessReview that the certificate's user may send this request.
    ///
    /// The API server authorizes the impersonated request as well. This check keeps users without the permission from making
    /// the daemon impersonate at all. Until the API server has answered anything since the start, a permission of before the start
    /// is enough, as it is while no API server can be reached.
    async fn review(
        &self,
        caller: &Caller,
        subject: &Subject,
        method: &Method,
        parsed: &RequestInfo,
    ) -> Result<(), AccessError> {
        let review = Review::new(subject, method, parsed);
        let key =
            ReviewKey { owner: caller.owner(), credential: caller.key().clone(), name: review.key(), expires: None };
        if !self.upstream.has_answered() && self.holds_offline(caller, &review, method).await {
            return Ok(());
        }
        let sent = async {
            let allowed = review.send(&self.client).await?;
            if let Some(asked) = review.attributes() {
                self.note_permission(caller, asked, allowed).await;
            }
            Ok(allowed)
        };
        let allowed = match self.reviews.get_or_send(&key, sent).await {
            Err(_) if self.upstream.is_failing() && self.holds_offline(caller, &review, method).await => true,
            result => result?,
        };
        match allowed {
            true => Ok(()),
            false => Err(AccessError::Forbidden { user: subject.user.clone(), action: review.to_string() }),
        }
    }

    /// Whether a certificate's user may send a request while no API server can be reached.
    async fn holds_offline(&self, caller: &Caller, review: &Review, method: &Method) -> bool {
        match review.attributes() {
            Some(asked) => self.was_granted(caller, asked).await,
            // Of all that is no resource, only discovery is remembered. Every authenticated user may read it, and a certificate
            // authenticates without the API server, too.
            None => *method == Method::GET,
        }
    }
}

fn impersonate(headers: &mut HeaderMap, subject: &Subject) {
    let value = |text: &str| HeaderValue::from_str(text).ok();
    headers.remove(&IMPERSONATE_USER);
    headers.remove(&IMPERSONATE_GROUP);
    if let Some(user) = value(&subject.user) {
        headers.insert(IMPERSONATE_USER, user);
    }
    for group in subject.groups.iter().filter_map(|group| value(group)) {
        headers.append(IMPERSONATE_GROUP, group);
    }
}

/// Checks by its headers that a request without a credential was not sent by a web page.
fn check_not_web_page(uri: &Uri, headers: &HeaderMap) -> Result<(), AccessError> {
    if let Some(host) = authorities(uri, headers).find(|host| !is_loopback(host)) {
        return Err(AccessError::Host(host.chars().filter(|c| !c.is_control()).take(100).collect()));
    }
    for name in ["origin", "sec-fetch-site"] {
        if headers.contains_key(name) {
            return Err(AccessError::Page(name));
        }
    }
    Ok(())
}

/// Whether an authority is a loopback address or `localhost`, with or without a port.
fn is_loopback(authority: &str) -> bool {
    NamedHost::parse(authority).is_some_and(|host| match host {
        NamedHost::Address(address) => address.to_canonical().is_loopback(),
        NamedHost::Name(_) => host.is("localhost"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn local(authority: Option<&str>, pairs: &[(&str, &str)]) -> bool {
        let headers = pairs.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect();
        let uri = authority.map_or(Uri::from_static("/"), |authority| {
            Uri::builder().scheme("http").authority(authority).path_and_query("/").build().unwrap()
        });
        check_not_web_page(&uri, &headers).is_ok()
    }

    #[test]
    fn the_node_credential_needs_a_loopback_host() {
        for host in
            ["127.0.0.1:10261", "127.9.9.9", "localhost", "LOCALHOST:1", "localhost.", "[::1]:80", "[::ffff:127.0.0.1]"]
        {
            assert!(local(None, &[("host", host)]) && local(Some(host), &[]), "{host}");
        }
        for host in ["evil.example", "10.0.0.1", "localhost.evil.example", "127.0.0.1.evil.example", "", "[::2]", "a b"]
        {
            assert!(!local(None, &[("host", host)]), "{host}");
            assert!(!local(Some("localhost"), &[("host", host)]), "both are checked: {host}");
        }
        assert!(!local(Some("evil.example"), &[("host", "localhost")]));
        assert!(local(None, &[]), "every browser sends a Host");
    }

    #[test]
    fn a_web_page_gets_no_node_credential() {
        for name in ["origin", "sec-fetch-site"] {
            assert!(!local(None, &[("host", "localhost"), (name, "null")]), "{name}");
        }
    }
}
