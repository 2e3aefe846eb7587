//! What Weir learns from the credential of a request without verifying it: a key that distinguishes clients, and the claims
//! of a token.
//!
//! Weir grants nothing for a claim. It compares credentials by their hash and never keeps one.

mod token_subject;

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::header::{self, HeaderMap, HeaderValue};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use sha2::{Digest as _, Sha256};
use weir_upstream::Identity;

pub(super) use self::token_subject::token_subject;

/// Longer tokens are not parsed.
const MAX_TOKEN: usize = 16 << 10;

/// Hashes everything that identifies the user of a request: its credential and the user that it impersonates.
pub(super) fn hash_user(hash: &mut Sha256, identity: Identity, headers: &HeaderMap) {
    hash.update([identity as u8]);
    let mut identifying: Vec<_> = headers
        .iter()
        .filter(|(name, _)| {
            *name == header::AUTHORIZATION
                || *name == header::SEC_WEBSOCKET_PROTOCOL
                || name.as_str().starts_with("impersonate-")
        })
        .collect();
    // Stable: the order of a header's values is kept.
    identifying.sort_by_key(|(name, _)| name.as_str());
    for (name, value) in identifying {
        hash_part(hash, name.as_str().as_bytes());
        hash_part(hash, value.as_bytes());
    }
}

/// The owner of the credential that a client sends itself, as a hash: the same for each renewal of a token. `None` without a
/// credential, or if it impersonates somebody.
pub(super) fn credential_owner(headers: &HeaderMap) -> Option<Arc<str>> {
    let is_own = headers.contains_key(header::AUTHORIZATION) && !impersonates(headers);
    is_own.then(|| token_user(headers).unwrap_or_else(|| user(Identity::Client, headers)).into())
}

/// The user of a request: its credential, as a hash.
pub(super) fn user(identity: Identity, headers: &HeaderMap) -> String {
    let mut hash = Sha256::new();
    hash_user(&mut hash, identity, headers);
    hash_text(hash)
}

/// The user whom the subject of a request's token names, as a hash; `None` without a subject, or if the request impersonates
/// somebody.
pub(super) fn token_user(headers: &HeaderMap) -> Option<String> {
    let subject = headers.get(header::AUTHORIZATION).and_then(token_subject).filter(|_| !impersonates(headers))?;
    let mut hash = Sha256::new();
    hash.update(b"subject");
    hash.update(subject);
    Some(hash_text(hash))
}

/// Whether a request asks to impersonate somebody.
pub(super) fn impersonates(headers: &HeaderMap) -> bool {
    headers.keys().any(|name| name.as_str().starts_with("impersonate-"))
}

/// Hashes a part so that its boundary counts, too.
pub(super) fn hash_part(hash: &mut Sha256, part: &[u8]) {
    hash.update((part.len() as u64).to_le_bytes());
    hash.update(part);
}

/// The hash as text.
pub(super) fn hash_text(hash: Sha256) -> String {
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The claims of an Authorization header that carries a JSON Web Token. They are not verified.
pub(super) fn token_claims<T: DeserializeOwned>(value: &HeaderValue) -> Option<T> {
    let text = value.to_str().ok().filter(|text| text.len() <= MAX_TOKEN)?;
    let (scheme, token) = text.split_once(' ')?;
    let mut parts = token.trim().split('.');
    let (_, payload, _, None) = (parts.next()?, parts.next()?, parts.next()?, parts.next()) else { return None };
    if !scheme.eq_ignore_ascii_case("bearer") {
        return None;
    }
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(payload).ok()?).ok()
}

/// When the token of a request expires, as far as it says so.
pub(super) fn token_expiry(headers: &HeaderMap) -> Option<SystemTime> {
    #[derive(Deserialize)]
    struct Expiry {
        exp: f64,
    }
    let Expiry { exp } = token_claims(headers.get(header::AUTHORIZATION)?)?;
    SystemTime::UNIX_EPOCH.checked_add(Duration::try_from_secs_f64(exp).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect()
    }

    fn user(identity: Identity, pairs: &[(&'static str, &str)]) -> String {
        super::user(identity, &headers(pairs))
    }

    #[test]
    fn each_user_has_a_key_of_its_own() {
        let users = [
            user(Identity::Client, &[]),
            user(Identity::Node, &[]),
            user(Identity::Client, &[("authorization", "Bearer a")]),
            user(Identity::Client, &[("authorization", "Bearer b")]),
            user(Identity::Client, &[("sec-websocket-protocol", "base64url.bearer.authorization.k8s.io.YQ")]),
            user(Identity::Client, &[("authorization", "Bearer a"), ("impersonate-user", "bob")]),
            user(Identity::Impersonated, &[("impersonate-user", "bob")]),
            user(Identity::Impersonated, &[("impersonate-user", "bob"), ("impersonate-group", "a")]),
        ];
        let distinct: std::collections::BTreeSet<_> = users.iter().collect();
        assert_eq!(distinct.len(), users.len());
        assert_eq!(users[0], user(Identity::Client, &[("accept", "application/json")]));
    }

    #[test]
    fn a_token_says_when_it_expires() {
        let token = |claims: &str| format!("Bearer e30.{}.x", URL_SAFE_NO_PAD.encode(claims));
        let expiry = |value: &str| token_expiry(&headers(&[("authorization", value)]));
        let at = |seconds| Some(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds));
        assert_eq!(expiry(&token(r#"{"exp":1700000000}"#)), at(1_700_000_000));
        for bad in ["opaque", "Bearer opaque", "Bearer a.b.c", "Basic e30.e30.x"] {
            assert_eq!(expiry(bad), None, "{bad}");
        }
        for bad in [r#"{"exp":-1}"#, r#"{"exp":1e300}"#, r#"{"exp":"soon"}"#, "{}"] {
            assert_eq!(expiry(&token(bad)), None, "{bad}");
        }
    }
}
