//! The credential that kube-apiserver takes from the headers of a request.
//!
//! A proxy that reads a token where kube-apiserver reads none trusts claims that nobody has verified. So this is the only
//! parser of credentials, byte by byte the one of `k8s.io/apiserver`: `authentication/request/bearertoken`, then
//! `authentication/request/websocket`, in the order of `authentication/request/union`. `make differential` compares it with
//! the original. A header value is bytes, not text. kube-apiserver knows no Basic authentication: such a request is
//! anonymous.
//!
//! Client certificates are no part of this: they belong to the connection.

use std::fmt;

use base64::Engine as _;
use base64::alphabet::URL_SAFE;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use http::header::{self, HeaderMap, HeaderValue};

use crate::go_text::{equal_fold, trim_space};

/// The WebSocket sub-protocol that carries a token.
const BEARER_PROTOCOL: &[u8] = b"base64url.bearer.authorization.k8s.io.";

/// Go's `base64.RawURLEncoding`: without padding, and whatever the bits are that the last digit has too many.
const RAW_URL: GeneralPurpose = GeneralPurpose::new(
    &URL_SAFE,
    GeneralPurposeConfig::new()
        .with_decode_allow_trailing_bits(true)
        .with_decode_padding_mode(DecodePaddingMode::RequireNone),
);

/// What kube-apiserver takes for the credential of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Credential {
    /// None: the request is anonymous, whatever its `Authorization` header looks like.
    None,
    /// This token, and nothing else. The API server refuses the request if the token is not valid.
    Token(Token),
    /// Two tokens. The API server takes the second one if it refuses the first. The response does not show which one it
    /// accepted: remember nothing.
    Either {
        /// The token of the `Authorization` header.
        bearer: Token,
        /// The token of the WebSocket sub-protocol.
        websocket: Token,
    },
    /// A WebSocket sub-protocol that carries no proper token. The API server responds with 401.
    Malformed(CredentialError),
}

/// A bearer token, verified by nobody. Its `Debug` hides it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(Box<[u8]>);

/// Why the API server refuses a WebSocket sub-protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CredentialError {
    /// Two sub-protocols carry a token.
    #[error("two WebSocket sub-protocols carry a token")]
    Several,
    /// The token is not base64url without padding.
    #[error("the token of the WebSocket sub-protocol is not base64url")]
    Encoding,
    /// The decoded token is not UTF-8.
    #[error("the token of the WebSocket sub-protocol is not UTF-8")]
    NotText,
    /// The token's sub-protocol is the only one, so that the server could not answer with another.
    #[error("the WebSocket sub-protocol of the token is the only one")]
    Alone,
}

impl Credential {
    /// Returns the credential of a request as kube-apiserver parses it.
    #[must_use]
    pub fn of(headers: &HeaderMap) -> Self {
        let bearer = headers.get(header::AUTHORIZATION).and_then(bearer);
        match (bearer, websocket(headers)) {
            (None, Ok(None)) => Self::None,
            (Some(bearer), Ok(Some(websocket))) => Self::Either { bearer, websocket },
            // The server reads the sub-protocols only after it has refused the bearer token: 401 either way.
            (Some(token), Ok(None) | Err(_)) | (None, Ok(Some(token))) => Self::Token(token),
            (None, Err(error)) => Self::Malformed(error),
        }
    }

    /// The token that alone decides the user of the request.
    #[must_use]
    pub fn token(&self) -> Option<&Token> {
        match self {
            Self::Token(token) => Some(token),
            Self::None | Self::Either { .. } | Self::Malformed(_) => None,
        }
    }
}

impl Token {
    /// The bytes that the API server verifies. They may not be UTF-8.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl From<&[u8]> for Token {
    fn from(bytes: &[u8]) -> Self {
        Self(bytes.into())
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Token({} bytes)", self.0.len())
    }
}

/// Whether the API server takes a request for one that opens a WebSocket, and reads a token from its sub-protocols:
/// `wsstream.IsWebSocketRequest`. The method does not matter.
#[must_use]
pub fn is_websocket(headers: &HeaderMap) -> bool {
    let upgrades = |value: &HeaderValue| value.as_bytes().windows(7).any(|word| word.eq_ignore_ascii_case(b"upgrade"));
    headers.get(header::UPGRADE).is_some_and(|value| equal_fold(value.as_bytes(), "websocket"))
        && headers.get_all(header::CONNECTION).iter().any(upgrades)
}

/// The token of the first `Authorization` header: the second word, if the first is `Bearer`. Two spaces make an empty word.
fn bearer(value: &HeaderValue) -> Option<Token> {
    let mut words = trim_space(value.as_bytes()).splitn(3, |byte| *byte == b' ');
    let (scheme, token) = (words.next()?, words.next()?);
    (scheme.eq_ignore_ascii_case(b"bearer") && !token.is_empty()).then(|| Token::from(token))
}

/// The token of the WebSocket sub-protocols.
fn websocket(headers: &HeaderMap) -> Result<Option<Token>, CredentialError> {
    if !is_websocket(headers) {
        return Ok(None);
    }
    let values = headers.get_all(header::SEC_WEBSOCKET_PROTOCOL).iter();
    let protocols = values.flat_map(|value| value.as_bytes().split(|byte| *byte == b',')).map(trim_space);
    let (mut token, mut has_other) = (None, false);
    for protocol in protocols {
        let Some(encoded) = protocol.strip_prefix(BEARER_PROTOCOL) else {
            has_other = true;
            continue;
        };
        if token.is_some() {
            return Err(CredentialError::Several);
        }
        let decoded = RAW_URL.decode(encoded).map_err(|_| CredentialError::Encoding)?;
        token = Some(String::from_utf8(decoded).map_err(|_| CredentialError::NotText)?);
    }
    match token {
        Some(token) if !token.is_empty() && !has_other => Err(CredentialError::Alone),
        token => Ok(token.filter(|token| !token.is_empty()).map(|token| Token::from(token.as_bytes()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(pairs: &[(&'static str, &[u8])]) -> Credential {
        let pair = |(name, value): &(&'static str, &[u8])| {
            (header::HeaderName::from_static(name), HeaderValue::from_bytes(value).unwrap())
        };
        let mut headers = HeaderMap::new();
        for (name, value) in pairs.iter().map(pair) {
            headers.append(name, value);
        }
        Credential::of(&headers)
    }

    fn token(text: &str) -> Credential {
        Credential::Token(Token::from(text.as_bytes()))
    }

    fn websocket(protocols: &[u8]) -> Credential {
        of(&[("upgrade", b"WebSocket"), ("connection", b"x, Upgrade"), ("sec-websocket-protocol", protocols)])
    }

    #[test]
    fn the_bearer_token_is_the_second_word() {
        for (value, expected) in [
            (&b"Bearer a.b.c"[..], token("a.b.c")),
            (b"bEARER a", token("a")),
            ("\u{a0}Bearer a\u{3000}".as_bytes(), token("a")),
            (b"Bearer OPAQUE x.claims.y", token("OPAQUE")),
            (b"Bearer a\tb", token("a\tb")),
            (b"Bearer a,", token("a,")),
            (b"Bearer \ta", token("\ta")),
            (b"Bearer  a", Credential::None),
            (b"Bearer\ta", Credential::None),
            (b"Bearer", Credential::None),
            (b"Bearer ", Credential::None),
            (b"", Credential::None),
            (b"Basic YTpi", Credential::None),
            (b"Negotiate x", Credential::None),
            (b"Bearer: a", Credential::None),
            (b"\xa0Bearer a", Credential::None),
        ] {
            assert_eq!(of(&[("authorization", value)]), expected, "{}", value.escape_ascii());
        }
        assert_eq!(of(&[("authorization", b"Bearer \xff")]), Credential::Token(Token::from(&b"\xff"[..])));
        assert_eq!(of(&[("authorization", b"Basic x"), ("authorization", b"Bearer a")]), Credential::None);
        assert_eq!(of(&[("authorization", b"Bearer a"), ("authorization", b"Bearer b")]), token("a"));
    }

    #[test]
    fn a_token_of_a_sub_protocol_counts_only_where_a_websocket_opens() {
        const YQ: &[u8] = b"base64url.bearer.authorization.k8s.io.YQ, channel.k8s.io";
        assert_eq!(websocket(YQ), token("a"));
        for headers in [
            &[("sec-websocket-protocol", YQ)][..],
            &[("upgrade", b"websocket"), ("sec-websocket-protocol", YQ)],
            &[("connection", b"upgrade"), ("sec-websocket-protocol", YQ)],
            &[("upgrade", b"SPDY/3.1"), ("connection", b"upgrade"), ("sec-websocket-protocol", YQ)],
            &[
                ("upgrade", b"h2c"),
                ("upgrade", b"websocket"),
                ("connection", b"upgrade"),
                ("sec-websocket-protocol", YQ),
            ],
        ] {
            assert_eq!(of(headers), Credential::None, "{headers:?}");
        }
    }

    #[test]
    fn sub_protocols_are_parsed_as_the_api_server_parses_them() {
        let protocol = |text: &str| text.replace('@', "base64url.bearer.authorization.k8s.io.").into_bytes();
        for (protocols, expected) in [
            ("x,@YQ", token("a")),
            ("@YR,x", token("a")),
            ("@YQ,", token("a")),
            ("\u{a0}@YQ\u{2003},x", token("a")),
            ("@,x", Credential::None),
            ("@", Credential::None),
            ("@@YQ,x", Credential::Malformed(CredentialError::Encoding)),
            ("@,@YQ", Credential::Malformed(CredentialError::Several)),
            ("@YQ,@YQ", Credential::Malformed(CredentialError::Several)),
            ("@YQ==,x", Credential::Malformed(CredentialError::Encoding)),
            ("@Y,x", Credential::Malformed(CredentialError::Encoding)),
            ("@Y+,x", Credential::Malformed(CredentialError::Encoding)),
            ("@_w,x", Credential::Malformed(CredentialError::NotText)),
            ("@YQ", Credential::Malformed(CredentialError::Alone)),
            ("BASE64url.bearer.authorization.k8s.io.YQ,x", Credential::None),
        ] {
            assert_eq!(websocket(&protocol(protocols)), expected, "{protocols}");
        }
    }

    #[test]
    fn of_two_tokens_the_accepted_one_is_unknown() {
        let with = |protocol: &[u8]| {
            of(&[
                ("authorization", b"Bearer a"),
                ("upgrade", b"websocket"),
                ("connection", b"upgrade"),
                ("sec-websocket-protocol", protocol),
            ])
        };
        let both = with(b"x,base64url.bearer.authorization.k8s.io.Yg");
        let (bearer, websocket) = (Token::from(&b"a"[..]), Token::from(&b"b"[..]));
        assert_eq!((both.token(), &both), (None, &Credential::Either { bearer, websocket }));
        assert_eq!(with(b"base64url.bearer.authorization.k8s.io.Yg"), token("a"), "a malformed one never counts");
        assert_eq!(format!("{:?}", token("secret")), "Token(Token(6 bytes))");
    }
}
