//! Request and response headers: strips hop-by-hop headers, and prepares the headers of each request and response.

use http::Version;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::response::Parts;
use weir_kube::Identity;

const HOP_BY_HOP: [HeaderName; 7] = [
    header::CONNECTION,
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];

/// Headers that `Connection` must not name. Weir sets them, or its decisions depend on them.
const END_TO_END: [HeaderName; 10] = [
    header::ACCEPT,
    header::ACCEPT_ENCODING,
    header::AUTHORIZATION,
    header::CONTENT_ENCODING,
    header::CONTENT_LENGTH,
    header::CONTENT_TYPE,
    header::HOST,
    header::ORIGIN,
    header::SEC_WEBSOCKET_PROTOCOL,
    header::USER_AGENT,
];
/// Prefixes of such headers.
const END_TO_END_PREFIXES: [&str; 4] = ["impersonate-", "x-remote-", "x-forwarded-", "sec-fetch-"];

/// `Connection` names a header that is not hop-by-hop.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the Connection header names {0}, which is not a hop-by-hop header")]
pub struct NotHopByHop(String);

/// Removes the hop-by-hop headers of a client's request and returns the protocol that it asks to upgrade to, if any.
///
/// Call it before any decision by a header, and before setting one. Otherwise a client could make Weir remove a header that
/// Weir has set, such as `Connection: impersonate-user`.
///
/// # Errors
/// `Connection` names a header that Weir sets or that its decisions depend on.
pub fn take_hop_by_hop(headers: &mut HeaderMap) -> Result<Option<HeaderValue>, NotHopByHop> {
    for value in headers.get_all(header::CONNECTION) {
        // hyper does not read such a value as a list of tokens.
        let text = value.to_str().map_err(|_| NotHopByHop("bytes that are not ASCII".to_owned()))?;
        if let Some(name) = text.split(',').map(str::trim).find(|token| is_end_to_end(token)) {
            return Err(NotHopByHop(name.to_ascii_lowercase()));
        }
    }
    let protocol = upgrade(headers);
    strip_hop_by_hop(headers);
    Ok(protocol)
}

fn is_end_to_end(token: &str) -> bool {
    let token = token.to_ascii_lowercase();
    END_TO_END.iter().any(|name| name.as_str() == token)
        || END_TO_END_PREFIXES.iter().any(|prefix| token.starts_with(prefix))
}

/// Returns the protocol to upgrade to, if both `Connection` and `Upgrade` ask for it.
#[must_use]
fn upgrade(headers: &HeaderMap) -> Option<HeaderValue> {
    let asked = tokens(headers, &header::CONNECTION).any(|token| token.eq_ignore_ascii_case("upgrade"));
    headers.get(header::UPGRADE).filter(|_| asked).cloned()
}

/// Removes hop-by-hop headers (RFC 9110, section 7.6.1), including those that `Connection` names.
fn strip_hop_by_hop(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = tokens(headers, &header::CONNECTION).filter_map(|token| token.parse().ok()).collect();
    for name in named.iter().chain(&HOP_BY_HOP) {
        headers.remove(name);
    }
    headers.remove("keep-alive");
    headers.remove("proxy-connection");
}

/// Prepares a client's headers for the API server, after [`take_hop_by_hop`].
///
/// Removes `X-Remote-*`, with which an authenticating front proxy names a user. With the node credential, it also removes
/// the client's impersonation headers.
pub fn prepare_request(headers: &mut HeaderMap, identity: Identity) {
    headers.remove(header::HOST);
    // hyper answers `100 Continue` itself.
    headers.remove(header::EXPECT);
    let removed: Vec<HeaderName> = headers
        .keys()
        .filter(|name| {
            let name = name.as_str();
            name.starts_with("x-remote-")
                || (identity == Identity::Node
                    && (name.starts_with("impersonate-") || name.starts_with("x-forwarded-")))
        })
        .cloned()
        .collect();
    for name in removed {
        headers.remove(name);
    }
}

/// The credential of a client's request and the user that it impersonates, for a request of Weir's own with it.
pub fn credential_headers(headers: &HeaderMap, identity: Identity) -> HeaderMap {
    let own = |name: &str| name == header::AUTHORIZATION.as_str() || name.starts_with("impersonate-");
    let credential = headers.iter().filter(|(name, _)| own(name.as_str()));
    let mut sent = credential.map(|(name, value)| (name.clone(), value.clone())).collect();
    prepare_request(&mut sent, identity);
    sent
}

/// All headers of a client that may say whose request it is, for requests of Weir's own in its place: all but those of the form, of
/// the program and of its traces.
pub fn own_headers(headers: &HeaderMap, identity: Identity) -> HeaderMap {
    let mut own = headers.clone();
    prepare_request(&mut own, identity);
    request_form(&mut own, HeaderValue::from_static("*/*"), false);
    for name in [
        "accept",
        "accept-encoding",
        "accept-language",
        "baggage",
        "cache-control",
        "kubectl-command",
        "kubectl-session",
        "pragma",
        "traceparent",
        "tracestate",
        "user-agent",
        "x-request-id",
    ] {
        own.remove(name);
    }
    own
}

/// Marks a response whose status came from upstream, and not from Weir.
#[derive(Debug, Clone, Copy)]
pub struct FromUpstream;

/// Prepares the head of an upstream response for the client: removes hop-by-hop headers, the HTTP version, and what hyper
/// attached about the upstream connection.
pub fn prepare_response(parts: &mut Parts) {
    strip_hop_by_hop(&mut parts.headers);
    parts.version = Version::HTTP_11;
    parts.extensions.clear();
    parts.extensions.insert(FromUpstream);
}

/// Makes the headers of a read request a form that filters can process, and removes conditions and ranges.
pub fn request_form(headers: &mut HeaderMap, accept: HeaderValue, compressed: bool) {
    headers.insert(header::ACCEPT, accept);
    let encoding = if compressed { "gzip" } else { "identity" };
    headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static(encoding));
    for name in [
        header::RANGE,
        header::IF_RANGE,
        header::IF_MATCH,
        header::IF_NONE_MATCH,
        header::IF_MODIFIED_SINCE,
        header::IF_UNMODIFIED_SINCE,
        header::CONTENT_LENGTH,
        header::CONTENT_TYPE,
        header::SEC_WEBSOCKET_KEY,
        header::SEC_WEBSOCKET_VERSION,
        header::SEC_WEBSOCKET_PROTOCOL,
        header::SEC_WEBSOCKET_EXTENSIONS,
    ] {
        headers.remove(name);
    }
}

/// Adapts the headers of a response to its filtered body.
pub fn filtered_response(headers: &mut HeaderMap, content_type: HeaderValue) {
    for name in
        [header::CONTENT_LENGTH, header::CONTENT_ENCODING, header::ETAG, header::LAST_MODIFIED, header::ACCEPT_RANGES]
    {
        headers.remove(name);
    }
    headers.remove("content-digest");
    headers.insert(header::CONTENT_TYPE, content_type);
}

/// Whether the client accepts gzip.
#[must_use]
pub fn accepts_gzip(headers: &HeaderMap) -> bool {
    tokens(headers, &header::ACCEPT_ENCODING).any(|coding| {
        let mut parts = coding.split(';').map(str::trim);
        let named = parts.next().is_some_and(|name| name.eq_ignore_ascii_case("gzip") || name == "*");
        let rejected =
            |part: &str| part.strip_prefix("q=").is_some_and(|q| q.trim().parse::<f32>().is_ok_and(|q| q <= 0.0));
        named && !parts.any(rejected)
    })
}

fn tokens<'a>(headers: &'a HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'a str> {
    headers
        .get_all(name)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(str::trim)
        .filter(|token| !token.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&str, &str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.parse::<HeaderName>().unwrap(), value.parse().unwrap())).collect()
    }

    #[test]
    fn headers_that_connection_names_are_removed() {
        let mut map = headers(&[
            ("connection", "close, X-Secret"),
            ("x-secret", "1"),
            ("keep-alive", "5"),
            ("transfer-encoding", "chunked"),
            ("upgrade", "websocket"),
            ("te", "trailers"),
            ("warning", "299 - stays"),
        ]);
        strip_hop_by_hop(&mut map);
        assert_eq!(map, headers(&[("warning", "299 - stays")]));
    }

    #[test]
    fn connection_must_not_name_a_header_that_weir_depends_on() {
        for named in [
            "close, Impersonate-User, Impersonate-Group",
            "impersonate-extra-x",
            "AUTHORIZATION",
            "keep-alive,accept",
            "x-remote-user",
            "Host",
            "user-agent",
            "sec-websocket-protocol",
            "content-type",
        ] {
            let mut map = headers(&[("connection", named), ("impersonate-user", "a")]);
            assert!(take_hop_by_hop(&mut map).is_err(), "{named}");
        }
        let mut two = headers(&[("connection", "close"), ("connection", "impersonate-user")]);
        assert!(take_hop_by_hop(&mut two).is_err(), "every Connection header is checked");
        let mut bytes = HeaderMap::new();
        bytes.insert(header::CONNECTION, HeaderValue::from_bytes(b"\xff, impersonate-user").unwrap());
        assert!(take_hop_by_hop(&mut bytes).is_err());
        let mut usual =
            headers(&[("connection", "Upgrade, HTTP2-Settings, TE"), ("upgrade", "h2c"), ("te", "trailers")]);
        assert_eq!(take_hop_by_hop(&mut usual).unwrap().unwrap(), "h2c");
        assert!(usual.is_empty());
    }

    #[test]
    fn impersonation_headers_are_removed_with_the_node_credential() {
        let sent = [
            ("impersonate-user", "admin"),
            ("impersonate-extra-x", "1"),
            ("x-remote-user", "admin"),
            ("x-forwarded-for", "10.0.0.1"),
            ("user-agent", "kubectl"),
        ];
        let mut node = headers(&sent);
        prepare_request(&mut node, Identity::Node);
        assert_eq!(node, headers(&[("user-agent", "kubectl")]));
        let mut own = headers(&sent);
        prepare_request(&mut own, Identity::Client);
        assert!(own.contains_key("impersonate-user") && !own.contains_key("x-remote-user"));
    }

    #[test]
    fn what_may_say_whose_request_it_is_stays() {
        let form = [("accept", "a"), ("user-agent", "kubectl"), ("traceparent", "00"), ("range", "bytes=0-")];
        let own = [("authorization", "Bearer a"), ("cookie", "b"), ("impersonate-user", "c"), ("x-tenant", "d")];
        let sent = headers(&[&form[..], &own].concat());
        assert_eq!(own_headers(&sent, Identity::Client), headers(&own));
    }

    #[test]
    fn a_filtered_read_requests_one_form_without_conditions() {
        let mut map = headers(&[
            ("accept", "application/json;as=Table;v=v1;g=meta.k8s.io"),
            ("sec-websocket-key", "a"),
            ("if-none-match", "b"),
        ]);
        request_form(&mut map, HeaderValue::from_static("application/json"), false);
        assert_eq!(map, headers(&[("accept", "application/json"), ("accept-encoding", "identity")]));
    }

    #[test]
    fn gzip_is_accepted_unless_its_quality_is_zero() {
        for (accepted, taken) in [
            ("gzip", true),
            ("deflate, gzip;q=0.5", true),
            ("*", true),
            ("gzip;q=0", false),
            ("identity", false),
            ("", false),
        ] {
            assert_eq!(accepts_gzip(&headers(&[("accept-encoding", accepted)])), taken, "{accepted}");
        }
    }

    #[test]
    fn an_upgrade_needs_both_headers() {
        assert_eq!(
            upgrade(&headers(&[("connection", "keep-alive, Upgrade"), ("upgrade", "SPDY/3.1")])).unwrap(),
            "SPDY/3.1"
        );
        assert_eq!(upgrade(&headers(&[("upgrade", "websocket")])), None);
    }
}
