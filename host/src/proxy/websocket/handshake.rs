//! The opening handshake of a WebSocket (RFC 6455, section 4.2), accepted and refused as by kube-apiserver.
//!
//! kube-apiserver also refuses a handshake without an `Origin` that is a URL. That protects nothing, and Weir does not. A request
//! without a credential must not have an `Origin` at all: see [`weir_access`].

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::header::{self, HeaderMap, HeaderValue};
use http::{Method, Request, StatusCode, Version};
use ring::digest::{Context, SHA1_FOR_LEGACY_USE_ONLY};
use weir_kube::{RequestInfo, Verb, is_websocket};

use weir_access::{WebSocketCredential, WebSocketCredentialError, is_token_protocol};

/// What is hashed with the key of the client, for every server.
const KEY_SUFFIX: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// Why a WebSocket cannot be opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum HandshakeError {
    /// 400: the request has no key.
    #[error("the header Sec-WebSocket-Key is missing")]
    Key,
    /// 400, with the one version that is spoken.
    #[error("the header Sec-WebSocket-Version is not 13")]
    Version,
    /// 400: more than one sub-protocol, of which a watch has none.
    #[error("the header Sec-WebSocket-Protocol names several protocols")]
    Protocols,
    /// 401: the sub-protocol of the token is malformed.
    #[error(transparent)]
    Credential(#[from] WebSocketCredentialError),
}

/// A request for a WebSocket.
pub(crate) struct Handshake {
    /// As the API server reads it, before the hop-by-hop headers are removed.
    credential: WebSocketCredential,
}

/// What the response to a handshake says.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Accepted {
    /// The proof that the key was read.
    pub(super) key: HeaderValue,
    /// The sub-protocol that the client has named, if any.
    pub(super) protocol: Option<HeaderValue>,
}

impl HandshakeError {
    /// The HTTP status code.
    pub(crate) fn code(self) -> StatusCode {
        match self {
            Self::Key | Self::Version | Self::Protocols => StatusCode::BAD_REQUEST,
            Self::Credential(_) => StatusCode::UNAUTHORIZED,
        }
    }
}

impl Handshake {
    /// Returns the handshake of a request with all its headers; `None` if it asks for no watch over a WebSocket. HTTP/2 has no
    /// `Upgrade`.
    pub(crate) fn of<B>(request: &Request<B>, parsed: &RequestInfo) -> Option<Self> {
        // A stream below the old path prefix `watch/` is none.
        let is_watch =
            parsed.resource().is_some_and(|resource| resource.verb == Verb::Watch && !resource.may_upgrade());
        let opens = is_watch
            && *request.method() == Method::GET
            && request.version() == Version::HTTP_11
            && is_websocket(request.headers());
        opens.then(|| Self { credential: WebSocketCredential::read(request.headers()) })
    }

    /// Accepts the handshake, and makes of the headers, hop-by-hop ones removed, those of a plain watch: nothing else asks upstream for a WebSocket, and
    /// frames have no content encoding. A token from a sub-protocol becomes a header, because without the upgrade the API
    /// server reads no sub-protocol.
    ///
    /// # Errors
    /// It is malformed.
    pub(super) fn accept(self, headers: &mut HeaderMap) -> Result<Accepted, HandshakeError> {
        let key = headers.get(header::SEC_WEBSOCKET_KEY).filter(|key| !key.is_empty()).ok_or(HandshakeError::Key)?;
        let key = accept_key(key.as_bytes());
        if headers.get(header::SEC_WEBSOCKET_VERSION).is_none_or(|version| version != "13") {
            return Err(HandshakeError::Version);
        }
        let protocol = protocol(headers)?;
        self.credential.put(headers)?;
        for name in [
            header::SEC_WEBSOCKET_KEY,
            header::SEC_WEBSOCKET_VERSION,
            header::SEC_WEBSOCKET_PROTOCOL,
            header::SEC_WEBSOCKET_EXTENSIONS,
        ] {
            headers.remove(name);
        }
        headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        Ok(Accepted { key, protocol })
    }
}

/// The proof that a server has read the client's key.
fn accept_key(key: &[u8]) -> HeaderValue {
    let mut hash = Context::new(&SHA1_FOR_LEGACY_USE_ONLY);
    hash.update(key);
    hash.update(KEY_SUFFIX);
    // base64 is valid in a header.
    HeaderValue::from_str(&STANDARD.encode(hash.finish())).unwrap_or(HeaderValue::from_static(""))
}

/// The sub-protocol that the response names: the client's, if it is one only. That of a token does not count.
fn protocol(headers: &HeaderMap) -> Result<Option<HeaderValue>, HandshakeError> {
    let values = headers.get_all(header::SEC_WEBSOCKET_PROTOCOL).iter();
    let all = values.flat_map(|value| value.as_bytes().split(|byte| *byte == b',')).map(<[u8]>::trim_ascii);
    let mut named = all.filter(|protocol| !protocol.is_empty() && !is_token_protocol(protocol));
    match (named.next(), named.next()) {
        (None, _) => Ok(None),
        (Some(protocol), None) => HeaderValue::from_bytes(protocol).map(Some).map_err(|_| HandshakeError::Protocols),
        (Some(_), Some(_)) => Err(HandshakeError::Protocols),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";
    const TOKEN: &str = "base64url.bearer.authorization.k8s.io.YQ";

    fn request(path: &str, pairs: &[(&str, &str)]) -> Request<()> {
        let mut request = Request::get(path).header("upgrade", "websocket").header("connection", "Upgrade").body(());
        for (name, value) in pairs {
            let name: http::HeaderName = name.parse().unwrap();
            request.as_mut().unwrap().headers_mut().append(name, value.parse().unwrap());
        }
        request.unwrap()
    }

    fn accept(pairs: &[(&str, &str)]) -> Result<(Accepted, HeaderMap), HandshakeError> {
        let mut request = request("/api/v1/pods?watch=1", pairs);
        let parsed = RequestInfo::parse(request.method(), request.uri()).unwrap();
        let handshake = Handshake::of(&request, &parsed).unwrap();
        weir_wire::headers::take_hop_by_hop(request.headers_mut()).unwrap();
        let accepted = handshake.accept(request.headers_mut())?;
        Ok((accepted, std::mem::take(request.headers_mut())))
    }

    #[test]
    fn a_handshake_is_answered_with_the_hash_of_its_key() {
        let (accepted, _) = accept(&[("sec-websocket-key", KEY), ("sec-websocket-version", "13")]).unwrap();
        let key = HeaderValue::from_static("s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
        assert_eq!(accepted, Accepted { key, protocol: None }, "the example of RFC 6455");
    }

    #[test]
    fn a_malformed_handshake_is_refused() {
        let (key, version) = (("sec-websocket-key", KEY), ("sec-websocket-version", "13"));
        let alone = HandshakeError::Credential(weir_kube::CredentialError::Alone.into());
        for (pairs, error) in [
            (&[version][..], HandshakeError::Key),
            (&[("sec-websocket-key", ""), version], HandshakeError::Key),
            (&[key], HandshakeError::Version),
            (&[key, ("sec-websocket-version", "8")], HandshakeError::Version),
            (&[key, version, ("sec-websocket-protocol", "a, b")], HandshakeError::Protocols),
            (&[key, version, ("sec-websocket-protocol", TOKEN)], alone),
        ] {
            assert_eq!(accept(pairs).unwrap_err(), error, "{pairs:?}");
        }
    }

    #[test]
    fn only_a_get_of_a_watch_over_http_1_1_opens_one() {
        let opens = |change: fn(&mut Request<()>), path: &str| {
            let mut request = request(path, &[]);
            change(&mut request);
            let parsed = RequestInfo::parse(request.method(), request.uri()).unwrap();
            Handshake::of(&request, &parsed).is_some()
        };
        assert!(opens(|_| {}, "/api/v1/pods?watch=1") && opens(|_| {}, "/api/v1/watch/pods"));
        assert!(!opens(|_| {}, "/api/v1/pods") && !opens(|_| {}, "/api/v1/namespaces/a/pods/p/exec"));
        assert!(!opens(|request| *request.method_mut() = Method::HEAD, "/api/v1/pods?watch=1"));
        assert!(!opens(|request| *request.version_mut() = Version::HTTP_2, "/api/v1/pods?watch=1"));
        assert!(!opens(|request| *request.version_mut() = Version::HTTP_10, "/api/v1/pods?watch=1"));
        assert!(!opens(|request| drop(request.headers_mut().remove("connection")), "/api/v1/pods?watch=1"));
    }

    #[test]
    fn the_request_that_goes_upstream_is_a_plain_watch_with_the_token_in_its_header() {
        let pairs = [
            ("sec-websocket-key", KEY),
            ("sec-websocket-version", "13"),
            ("sec-websocket-extensions", "permessage-deflate"),
            ("sec-websocket-protocol", &format!("v1.example, {TOKEN}")),
            ("accept-encoding", "gzip"),
        ];
        let (accepted, headers) = accept(&pairs).unwrap();
        assert_eq!(accepted.protocol.unwrap(), "v1.example");
        assert_eq!(headers["authorization"], "Bearer a");
        assert_eq!(headers["accept-encoding"], "identity");
        assert!(headers.keys().all(|name| !name.as_str().starts_with("sec-")), "{headers:?}");
        let (_, headers) = accept(&[&pairs[..], &[("authorization", "Bearer own")]].concat()).unwrap();
        assert_eq!(headers["authorization"], "Bearer own");
        let (_, headers) = accept(&[&pairs[..], &[("authorization", "Basic YTpi")]].concat()).unwrap();
        assert_eq!(headers["authorization"], "Bearer a", "the API server knows no Basic authentication");
    }
}
