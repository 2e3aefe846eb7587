//! Selects the credential that a request has upstream: the client's own, the daemon's with impersonation of a verified client
//! certificate's user, or the node credential.
//!
//! The node credential is for components of the node. Other programs can reach the loopback port, too, so Weir checks:
//!
//! - the uid of the client process, because hostNetwork pods share the loopback interface;
//! - the Host header, because a web page can make its own host name resolve to this port (DNS rebinding);
//! - the headers that browsers add to requests of web pages.

pub(super) mod acceptance;
mod access;
mod attributes;
pub(super) mod grants;
pub(super) mod kinds;
pub(super) mod outcome;
mod permits;
pub(super) mod reviews;
mod self_review;

use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri};

use self::access::Review;
use self::reviews::ReviewKey;
use super::Proxy;
use super::credential::{Caller, has_credential, impersonates};
use super::respond::StatusError;
use crate::named_host::{NamedHost, authorities};
use weir_front::{Peer, Subject};
use weir_kube::RequestInfo;
use weir_upstream::Identity;

const IMPERSONATE_USER: HeaderName = HeaderName::from_static("impersonate-user");
const IMPERSONATE_GROUP: HeaderName = HeaderName::from_static("impersonate-group");

impl Proxy {
    /// Selects the credential of a request, and sets the impersonation headers. Cancel-safe.
    ///
    /// # Errors
    /// The client has no right to any credential.
    pub(super) async fn identify<B>(
        &self,
        request: &mut Request<B>,
        parsed: &RequestInfo,
        peer: &Peer,
    ) -> Result<Caller, StatusError> {
        if has_credential(request.headers()) {
            return Ok(Caller::of(Identity::Client, request.headers()));
        }
        if let Some(subject) = peer.subject().map_err(StatusError::Certificate)? {
            if impersonates(request.headers()) {
                return Err(StatusError::Impersonation("the user of the client certificate"));
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
            return Err(StatusError::Uid);
        }
        // Without its impersonation the request would have more rights than it asks for.
        if impersonates(request.headers()) {
            return Err(StatusError::Impersonation("the node"));
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
    ) -> Result<(), StatusError> {
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
            false => Err(StatusError::Forbidden { user: subject.user.clone(), action: review.to_string() }),
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
fn check_not_web_page(uri: &Uri, headers: &HeaderMap) -> Result<(), StatusError> {
    if let Some(host) = authorities(uri, headers).find(|host| !is_loopback(host)) {
        return Err(StatusError::Host(host.chars().filter(|c| !c.is_control()).take(100).collect()));
    }
    for name in ["origin", "sec-fetch-site"] {
        if headers.contains_key(name) {
            return Err(StatusError::Page(name));
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
