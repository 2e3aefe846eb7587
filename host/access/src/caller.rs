//! The caller of a request. The one place of the proxy that reads a client's credential.
//!
//! A [`Caller`] is made once for each request. Weir verifies no credential: what it knows of one is what the API server said of
//! exactly these bytes (`access/src/acceptance.rs`). Claims grant nothing; `exp` only shortens what was accepted. Weir
//! compares credentials by their hash, and never keeps one.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use sha2::{Digest as _, Sha256};
use weir_kube::{Credential, CredentialError, Identity, Token, node_of_user};

use weir_wire::headers::credential_headers;

/// The prefix of the WebSocket sub-protocol in which a browser sends a bearer token.
const TOKEN_PROTOCOL: &str = "base64url.bearer.authorization.k8s.io.";
/// Longer tokens are not parsed.
const MAX_TOKEN: usize = 16 << 10;

/// The caller of a request. Clones share it.
#[derive(Clone)]
pub struct Caller(Arc<Parts>);

#[derive(Clone)]
struct Parts {
    identity: Identity,
    /// A hash of all that identifies the user: the credential as the API server takes it, and the impersonated user.
    key: Arc<str>,
    /// A hash of the bearer token alone.
    token: Option<Arc<str>>,
    /// When the token says that it expires.
    expires: Option<SystemTime>,
    impersonates: bool,
    /// The headers with which Weir sends requests of its own for this caller.
    headers: HeaderMap,
    /// The account that the API server named for the credential, once it did.
    account: OnceLock<Arc<Account>>,
}

/// The account of a credential, as the API server names it.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, Deserialize)]
pub(crate) struct Account {
    /// The user name.
    pub(crate) user: String,
    /// The user's uid. Empty if it has none.
    #[serde(default)]
    pub(crate) uid: String,
    /// The uid of the pod that a service account's token is bound to.
    #[serde(default)]
    pub(crate) pod: String,
}

/// The fields of a TokenRequest's answer about the issued token, apart from the token's claims.
pub struct IssuedToken<'a> {
    /// The token.
    pub token: &'a str,
    /// The namespace and the name of the service account.
    pub account: (&'a str, &'a str),
    /// Kind, name and uid of the bound object.
    pub bound: [&'a str; 3],
    /// What the API server filled in, because the request named none: its own. Sorted.
    pub audiences: &'a [&'a str],
}

impl Account {
    /// Whether it is one of these service accounts (`namespace/name`).
    pub(crate) fn is_one_of(&self, service_accounts: &[String]) -> bool {
        let named = self.user.strip_prefix("system:serviceaccount:").and_then(|named| named.split_once(':'));
        named.is_some_and(|named| service_accounts.iter().any(|known| known.split_once('/') == Some(named)))
    }

    /// A hash of user and uid.
    fn owner(&self) -> Arc<str> {
        hash_of("owner", &[&self.user, &self.uid]).into()
    }
}

impl Caller {
    /// Returns the caller of a request. `headers` are the client's, after the identity was selected.
    pub fn of(identity: Identity, headers: &HeaderMap) -> Self {
        let impersonates = impersonates(headers);
        let is_own = identity == Identity::Client;
        let credential = Credential::of(headers);
        let own = credential.token().filter(|_| is_own).map(Token::as_bytes);
        // Of two tokens nobody knows which one counts: their client is neither that of one of them nor the one without.
        let (token, second) = match &credential {
            Credential::Either { bearer, websocket } if is_own => (Some(bearer.as_bytes()), Some(websocket.as_bytes())),
            _ => (own, None),
        };
        let mut hash = Sha256::new();
        hash_user(&mut hash, identity, token, headers);
        if let Some(second) = second {
            hash_part(&mut hash, second);
        }
        Self(Arc::new(Parts {
            identity,
            key: hash_text(hash).into(),
            expires: [token, second].into_iter().flatten().filter_map(expiry).min(),
            token: own.map(token_hash),
            impersonates: is_own && impersonates,
            headers: credential_headers(headers, identity),
            account: OnceLock::new(),
        }))
    }

    /// The same credential, of which the API server has said nothing.
    pub(crate) fn without_account(&self) -> Self {
        Self(Arc::new(Parts { account: OnceLock::new(), ..Parts::clone(&self.0) }))
    }

    /// Returns the caller that delegated a credential.
    pub(crate) fn of_delegated(credential: &HeaderMap) -> Self {
        Self::of(Identity::Client, credential)
    }

    /// The credential that its requests have upstream.
    pub fn identity(&self) -> Identity {
        self.0.identity
    }

    /// The name of exactly this credential: a hash.
    pub fn key(&self) -> &Arc<str> {
        &self.0.key
    }

    /// Whether it sends a token of its own, for itself or to impersonate somebody.
    pub(crate) fn has_token(&self) -> bool {
        self.0.token.is_some()
    }

    /// Whether it impersonates somebody with a token of its own.
    pub(crate) fn impersonates(&self) -> bool {
        self.0.impersonates
    }

    /// The hash of its bearer token.
    pub(crate) fn token(&self) -> Option<&Arc<str>> {
        // A caller that impersonates is not the token's own user.
        self.0.token.as_ref().filter(|_| !self.0.impersonates)
    }

    /// When its credential says that it expires.
    pub fn expires(&self) -> Option<SystemTime> {
        self.0.expires
    }

    /// The headers with which Weir sends a request of its own for this caller.
    pub fn headers(&self) -> &HeaderMap {
        &self.0.headers
    }

    /// The account that the API server has named for this credential; `None` if it has not, or not yet.
    pub(crate) fn account(&self) -> Option<&Arc<Account>> {
        self.0.account.get()
    }

    /// Notes the account that the API server named for this credential.
    pub(crate) fn set_account(&self, account: Arc<Account>) {
        // The first one holds for the request.
        let _ = self.0.account.set(account);
    }

    /// Whose share its requests count in: the user that the API server named, else the credential. A caller that impersonates
    /// counts as itself, not as the user that it names.
    pub(crate) fn owner(&self) -> Arc<str> {
        match (self.account(), &self.0.token) {
            (_, Some(token)) if self.0.impersonates => hash_of("impersonates", &[token]).into(),
            (Some(account), _) => account.owner(),
            (None, _) => self.0.key.clone(),
        }
    }

    /// The owner of what is read with the credential that this client sends itself. `None` if the API server has named no
    /// account for it, or if it impersonates somebody.
    pub fn reader(&self) -> Option<Arc<str>> {
        let account = self.account().filter(|_| self.authorization().is_some())?;
        Some(account.owner())
    }

    /// The credential to delegate to reflectors of this client. `None` if it sends none in this header, or impersonates somebody.
    pub fn authorization(&self) -> Option<HeaderMap> {
        let is_own = self.0.identity == Identity::Client && !self.0.impersonates;
        let own = self.0.headers.get(header::AUTHORIZATION).filter(|_| is_own && self.0.token.is_some())?;
        Some(HeaderMap::from_iter([(header::AUTHORIZATION, own.clone())]))
    }

    /// Whether it is a component of the node: by the node credential, the certificate of a node, or a service account that
    /// `--node-service-accounts` names (`namespace/name`).
    pub(crate) fn is_node_component(&self, service_accounts: &[String]) -> bool {
        let text = |name: &str| self.0.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
        match self.0.identity {
            Identity::Node | Identity::Daemon => true,
            Identity::Impersonated => {
                let groups = self.0.headers.get_all("impersonate-group").iter();
                let groups: Vec<_> = groups.filter_map(|group| group.to_str().ok().map(str::to_owned)).collect();
                node_of_user(text("impersonate-user"), &groups).is_some()
            }
            Identity::Client => {
                let account = self.account().filter(|_| !self.0.impersonates);
                account.is_some_and(|account| account.is_one_of(service_accounts))
            }
        }
    }
}

/// Without any part of the credential.
impl fmt::Debug for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Parts { identity, account, .. } = &*self.0;
        f.debug_struct("Caller").field("identity", identity).field("account", &account.get()).finish_non_exhaustive()
    }
}

/// Whether a request has a credential of its own, which Weir passes on unchanged: also one that the API server cannot read.
#[must_use]
pub fn has_credential(headers: &HeaderMap) -> bool {
    let in_protocol = |value: &HeaderValue| {
        value.as_bytes().windows(TOKEN_PROTOCOL.len()).any(|part| part == TOKEN_PROTOCOL.as_bytes())
    };
    headers.contains_key(header::AUTHORIZATION)
        || headers.get_all(header::SEC_WEBSOCKET_PROTOCOL).iter().any(in_protocol)
}

/// The credential of a request for a WebSocket that goes upstream without its upgrade. The API server would read no token from
/// its sub-protocols then.
pub struct WebSocketCredential(Credential);

/// Why the credential of such a request is refused, as the API server would refuse it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WebSocketCredentialError {
    /// The sub-protocol of the token is malformed.
    #[error(transparent)]
    Malformed(#[from] CredentialError),
    /// The token cannot be sent in a header.
    #[error("the token of the WebSocket sub-protocol has characters that no token has")]
    Token,
}

impl WebSocketCredential {
    /// Reads it from all headers of the client, those of the upgrade included.
    pub fn read(headers: &HeaderMap) -> Self {
        Self(Credential::of(headers))
    }

    /// Sends a token that only a sub-protocol carries in the header instead. `headers` are without those of the upgrade.
    ///
    /// # Errors
    /// The API server would respond with 401.
    pub fn put(self, headers: &mut HeaderMap) -> Result<(), WebSocketCredentialError> {
        match self.0 {
            Credential::Malformed(error) => Err(error.into()),
            Credential::Token(token) if Credential::of(headers) == Credential::None => {
                let token = Some(token.as_bytes()).filter(|token| token.iter().all(u8::is_ascii_graphic));
                let value = token.map(|token| HeaderValue::from_bytes(&[b"Bearer ", token].concat()));
                let mut value = value.and_then(Result::ok).ok_or(WebSocketCredentialError::Token)?;
                value.set_sensitive(true);
                headers.insert(header::AUTHORIZATION, value);
                Ok(())
            }
            // The bearer token counts first. The other one is not tried after it: a caller has one credential.
            Credential::Token(_) | Credential::Either { .. } | Credential::None => Ok(()),
        }
    }
}

/// Whether a WebSocket sub-protocol carries a token.
pub fn is_token_protocol(protocol: &[u8]) -> bool {
    protocol.starts_with(TOKEN_PROTOCOL.as_bytes())
}

/// Whether a request asks to impersonate somebody.
pub(crate) fn impersonates(headers: &HeaderMap) -> bool {
    headers.keys().any(|name| name.as_str().starts_with("impersonate-"))
}

/// The hash under which a bearer token is known.
pub(crate) fn token_hash(token: &[u8]) -> Arc<str> {
    let mut hash = Sha256::new_with_prefix(b"token");
    hash_part(&mut hash, token);
    hash_text(hash).into()
}

/// The claims of a token that the API server has just issued: nobody else has touched it.
pub(crate) fn issued_claims<T: DeserializeOwned>(token: &[u8]) -> Option<T> {
    claims(token)
}

/// Hashes a part so that its boundary counts, too.
pub fn hash_part(hash: &mut Sha256, part: &[u8]) {
    hash.update((part.len() as u64).to_le_bytes());
    hash.update(part);
}

/// The hash as text.
pub fn hash_text(hash: Sha256) -> String {
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A hash of parts, as text.
pub(crate) fn hash_of(kind: &str, parts: &[&str]) -> String {
    let mut hash = Sha256::new();
    hash_part(&mut hash, kind.as_bytes());
    parts.iter().for_each(|part| hash_part(&mut hash, part.as_bytes()));
    hash_text(hash)
}

/// A hash of headers, names and values.
pub(crate) fn hash_of_headers(headers: &HeaderMap) -> Arc<str> {
    let mut hash = Sha256::new_with_prefix(b"headers");
    hash_headers(&mut hash, headers.iter().collect());
    hash_text(hash).into()
}

fn hash_headers(hash: &mut Sha256, mut headers: Vec<(&HeaderName, &HeaderValue)>) {
    // Stable: the order of a header's values is kept.
    headers.sort_by_key(|(name, _)| name.as_str());
    for (name, value) in headers {
        hash_part(hash, name.as_str().as_bytes());
        hash_part(hash, value.as_bytes());
    }
}

/// Hashes everything that identifies the user of a request: its token as the API server reads it, however it is spelt, and the
/// user that it impersonates.
fn hash_user(hash: &mut Sha256, identity: Identity, token: Option<&[u8]>, headers: &HeaderMap) {
    hash.update([identity as u8]);
    hash_part(hash, token.unwrap_or_default());
    // With the node credential these are stripped, so that they do not identify the client.
    let is_part = |name: &str| match identity {
        Identity::Node | Identity::Daemon => false,
        Identity::Impersonated | Identity::Client => name.starts_with("impersonate-"),
    };
    hash_headers(hash, headers.iter().filter(|(name, _)| is_part(name.as_str())).collect());
}

/// The claims of a JSON Web Token. They are not verified.
fn claims<T: DeserializeOwned>(token: &[u8]) -> Option<T> {
    let text = std::str::from_utf8(token).ok().filter(|text| text.len() <= MAX_TOKEN)?;
    let mut parts = text.split('.');
    let (_, payload, _, None) = (parts.next()?, parts.next()?, parts.next()?, parts.next()) else { return None };
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(payload).ok()?).ok()
}

/// When a token expires, as far as it says so.
fn expiry(token: &[u8]) -> Option<SystemTime> {
    #[derive(Deserialize)]
    struct Expiry {
        exp: f64,
    }
    let Expiry { exp } = claims(token)?;
    SystemTime::UNIX_EPOCH.checked_add(Duration::try_from_secs_f64(exp).ok()?)
}

#[cfg(test)]
mod tests;
