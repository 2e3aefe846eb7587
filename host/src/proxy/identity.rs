//! The identity that a request travels under: the client's own credential as it is, the user of a verified client
//! certificate by impersonation, or the node credential.
//!
//! The node credential is for the node's own components. A process with another uid does not get it: a hostNetwork pod
//! reaches the loopback port, too. Nor does a web page through a browser: the request's Host must be a loopback name (a
//! name of the page's own server could resolve to this port), and the request must not come from a page.

mod access;
pub(super) mod reviews;
mod self_review;

use std::net::IpAddr;

use http::uri::Authority;
use http::{HeaderMap, HeaderName, HeaderValue, Request, header};

use self::access::Review;
use super::Proxy;
use super::headers::brings_credential;
use super::respond::Refusal;
use super::server::certificate::Subject;
use super::server::listener::Peer;
use weir_kube::RequestInfo;
use weir_upstream::Identity;

const IMPERSONATE_USER: HeaderName = HeaderName::from_static("impersonate-user");
const IMPERSONATE_GROUP: HeaderName = HeaderName::from_static("impersonate-group");

impl Proxy {
    /// Decides, and sets the headers accordingly. Cancel-safe.
    ///
    /// # Errors
    /// The refusal to be answered.
    pub(super) async fn identify<B>(
        &self,
        request: &mut Request<B>,
        parsed: &RequestInfo,
        peer: &Peer,
    ) -> Result<Identity, Refusal> {
        if brings_credential(request.headers()) {
            return Ok(Identity::Client);
        }
        if let Some(subject) = &peer.certificate {
            let claims = request.headers().keys().any(|name| name.as_str().starts_with("impersonate-"));
            if claims {
                return Err(Refusal::Impersonation);
            }
            self.review(subject, request.method(), parsed).await?;
            impersonate(request.headers_mut(), subject);
            return Ok(Identity::Impersonated);
        }
        if !self.upstream.has_node_credential() || !peer.address.ip().to_canonical().is_loopback() {
            return Ok(Identity::Client);
        }
        let authority = request.uri().authority().map(Authority::as_str);
        is_from_this_node(authority, request.headers())?;
        if !peer.uid().await.is_some_and(|uid| self.node_credential_uids.contains(&uid)) {
            return Err(Refusal::Uid);
        }
        Ok(Identity::Node)
    }

    /// Whether the API server lets the certificate's user do this. The server decides again when it sees whom the daemon
    /// impersonates; this keeps the daemon's own right to impersonate out of the reach of those who have none here.
    async fn review(&self, subject: &Subject, method: &http::Method, parsed: &RequestInfo) -> Result<(), Refusal> {
        let review = Review::new(subject, method, parsed);
        match self.reviews.answer(review.question(), review.ask(&self.client)).await? {
            true => Ok(()),
            false => Err(Refusal::Forbidden { user: subject.user.clone(), asked: review.to_string() }),
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

/// Checks that a request without a credential comes from a program of this node, as far as its headers show.
fn is_from_this_node(authority: Option<&str>, headers: &HeaderMap) -> Result<(), Refusal> {
    let hosts = headers.get_all(header::HOST).iter().map(|value| value.to_str().unwrap_or_default());
    if let Some(host) = hosts.chain(authority).find(|host| !is_loopback(host)) {
        return Err(Refusal::Host(host.chars().filter(|c| !c.is_control()).take(100).collect()));
    }
    for name in ["origin", "sec-fetch-site"] {
        if headers.contains_key(name) {
            return Err(Refusal::Page(name));
        }
    }
    Ok(())
}

/// Whether a host, with or without a port, is one that leads nowhere but here.
fn is_loopback(authority: &str) -> bool {
    let Ok(authority) = authority.parse::<Authority>() else { return false };
    let host = authority.host();
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    match address {
        Ok(address) => address.to_canonical().is_loopback(),
        Err(_) => host.trim_end_matches('.').eq_ignore_ascii_case("localhost"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn local(authority: Option<&str>, pairs: &[(&str, &str)]) -> bool {
        let headers = pairs.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect();
        is_from_this_node(authority, &headers).is_ok()
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
            assert!(!local(Some("localhost"), &[("host", host)]), "both names count: {host}");
        }
        assert!(!local(Some("evil.example"), &[("host", "localhost")]));
        assert!(local(None, &[]), "no browser leaves it out");
    }

    #[test]
    fn a_page_in_a_browser_gets_no_node_credential() {
        for name in ["origin", "sec-fetch-site"] {
            assert!(!local(None, &[("host", "localhost"), (name, "null")]), "{name}");
        }
    }
}
