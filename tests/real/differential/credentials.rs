//! Inputs that two parsers are likely to read otherwise: credentials with odd white space, repeated headers, escapes.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use super::random::Random;

const SPACES: &[&str] = &[
    " ", "  ", "\t", " \t", "\u{a0}", "\u{85}", "\u{3000}", "\u{2028}", "\u{200b}", "\u{feff}", "\u{1680}", "\u{2003}",
    "\u{180e}", "\u{202f}", ",", "",
];
/// Few: one of them, and hyper refuses the request.
const CONTROLS: &[&str] = &["\x0b", "\x0c", "\0", "\r", "\n", "\r\n ", "\r\n\t", "\x7f"];
const TOKENS: &[&str] =
    &["e30.e30.x", "OPAQUE", "a", "a==", "a,b", "\"a\"", "\u{fc}", "Bearer", "", "a\tb", "a\u{a0}b"];
const SCHEMES: &[&str] = &[
    "Bearer",
    "Bearer",
    "Bearer",
    "Bearer",
    "Bearer",
    "Bearer",
    "Bearer",
    "bearer",
    "BEARER",
    "bEaReR",
    "bearer",
    "BEARER",
    "bEaReR",
    "Bearer:",
    "Bearerr",
    "Beare",
    "Basic",
    "Negotiate",
    "",
    "Bea\u{17f}er",
    "\u{feff}Bearer",
];
const AUTHORIZATION: &[&str] = &[
    "Authorization",
    "Authorization",
    "Authorization",
    "Authorization",
    "Authorization",
    "Authorization",
    "Authorization",
    "Authorization",
    "Authorization",
    "authorization",
    "authorization",
    "authorization",
    "authorization",
    "AUTHORIZATION",
    "authoriZation",
    "Authorization ",
    " Authorization",
    "Authorization\t",
    "Proxy-Authorization",
    "Authorization_",
];
const UPGRADES: &[&str] = &[
    "websocket",
    "websocket",
    "WebSocket",
    "WEBSOCKET",
    "web\u{17f}ocket",
    "websoc\u{212a}et",
    "websocket, h2c",
    "h2c",
    " websocket ",
    "\u{a0}websocket",
    "SPDY/3.1",
    "",
];
const CONNECTIONS: &[&str] = &[
    "Upgrade",
    "upgrade",
    "UPGRADE",
    "keep-alive, Upgrade",
    "close, upgrade",
    "xUpgradex",
    "keep-alive",
    "close",
    "\u{a0}upgrade",
    "upgra de",
    "",
];
const PREFIXES: &[&str] = &[
    "base64url.bearer.authorization.k8s.io.",
    "base64url.bearer.authorization.k8s.io.",
    "base64url.bearer.authorization.k8s.io.",
    "Base64url.bearer.authorization.k8s.io.",
    "base64url.bearer.authorization.k8s.io",
    "base64.bearer.authorization.k8s.io.",
];
const PROTOCOLS: &[&str] = &["channel.k8s.io", "v5.channel.k8s.io", "x", "", "base64.channel.k8s.io"];
const IMPERSONATE: &[&str] = &[
    "Impersonate-User",
    "Impersonate-User",
    "Impersonate-User",
    "Impersonate-User",
    "impersonate-user",
    "IMPERSONATE-USER",
    "Impersonate-User ",
    "Impersonate-Uid",
    "Impersonate-UID",
    "Impersonate-Group",
    "impersonate-group",
    "Impersonate-Extra-scopes",
    "impersonate-extra-acme.com%2Fa",
    "Impersonate-Extra-%zz",
    "Impersonate-Extra-a%",
    "Impersonate-Extra-",
    "Impersonate-Extra-%c3%a4",
    "Impersonate-Extra-%FF%00",
    "Impersonate-Extra-A%41+b",
    "Impersonate-Extra",
    "Impersonate_User",
    "Impersonate-Foo",
];
const USERS: &[&str] = &[
    "bob",
    "system:serviceaccount:ns:name",
    "system:serviceaccount:ns:",
    "system:serviceaccount:NS:a:b",
    "",
    "a b",
    "\u{fc}",
    "system:masters",
    "system:anonymous",
    "a,b",
];

/// Bytes of a request with odd credentials.
pub(super) fn credential(random: &mut Random) -> Vec<u8> {
    let mut request =
        random.pick(&["GET / HTTP/1.1", "GET / HTTP/1.1", "POST /a HTTP/1.1", "GET / HTTP/1.0"]).as_bytes().to_vec();
    request.extend(b"\r\nHost: x\r\n");
    let opens_websocket = random.one_in(3);
    for _ in 0..=random.below(3) {
        let value = authorization(random);
        let name = random.pick(AUTHORIZATION);
        match random.below(8) {
            0..5 => header(random, &mut request, name, &value),
            5 if random.one_in(8) => header(random, &mut request, name, &halved(&value)),
            _ => impersonate(random, &mut request),
        }
    }
    if opens_websocket {
        websocket(random, &mut request);
    }
    request.extend(b"\r\n");
    if random.one_in(12) {
        random.mutate(&mut request);
    }
    request
}

/// Mostly one space.
fn space(random: &mut Random) -> &'static str {
    match random.below(100) {
        0..70 => " ",
        70..97 => random.pick(SPACES),
        _ => random.pick(CONTROLS),
    }
}

/// Every other byte: a value of another header.
fn halved(value: &[u8]) -> Vec<u8> {
    value.iter().copied().step_by(2).collect()
}

fn authorization(random: &mut Random) -> Vec<u8> {
    let edge = |random: &mut Random| if random.one_in(4) { space(random) } else { "" };
    let mut value = edge(random).as_bytes().to_vec();
    value.extend(random.pick(SCHEMES).bytes());
    value.extend(space(random).bytes());
    match random.below(40) {
        0 => value.extend(random.bytes(40)),
        1 => value.extend(vec![b'a'; random.below(5_000)]),
        _ => value.extend(random.pick(TOKENS).bytes()),
    }
    if random.one_in(5) {
        value.extend(space(random).bytes());
        value.extend(random.pick(TOKENS).bytes());
    }
    value.extend(edge(random).bytes());
    value
}

fn websocket(random: &mut Random, request: &mut Vec<u8>) {
    for _ in 0..=usize::from(random.one_in(8)) {
        let (upgrade, connection) = (random.pick(UPGRADES), random.pick(CONNECTIONS));
        header(random, request, in_case(upgrade.len(), "Upgrade"), upgrade.as_bytes());
        header(random, request, in_case(connection.len(), "Connection"), connection.as_bytes());
    }
    for _ in 0..=usize::from(random.one_in(4)) {
        let mut value = Vec::new();
        for n in 0..random.below(4) {
            value.extend(if n > 0 { &b","[..] } else { b"" });
            value.extend(if random.one_in(3) { space(random).as_bytes() } else { b"" });
            match random.one_in(2) {
                true => value.extend(protocol_token(random)),
                false => value.extend(random.pick(PROTOCOLS).bytes()),
            }
            value.extend(if random.one_in(5) { random.pick(SPACES).as_bytes() } else { b"" });
        }
        header(random, request, "Sec-WebSocket-Protocol", &value);
    }
}

fn in_case(n: usize, name: &'static str) -> &'static str {
    match (n % 3, name) {
        (0, "Upgrade") => "UPGRADE",
        (0, _) => "connection",
        (_, name) => name,
    }
}

fn protocol_token(random: &mut Random) -> Vec<u8> {
    let bytes = if random.one_in(3) { random.bytes(8) } else { random.pick(TOKENS).as_bytes().to_vec() };
    let mut encoded = URL_SAFE_NO_PAD.encode(bytes).into_bytes();
    match random.below(12) {
        0 => encoded.push(b'='),
        1 => random.mutate(&mut encoded),
        // Bits that the last digit has too many.
        2 => {
            if let Some(last) = encoded.last_mut() {
                *last = random.pick(b"ABCDEFabcdef0189-_");
            }
        }
        _ => {}
    }
    [random.pick(PREFIXES).as_bytes(), &encoded].concat()
}

fn impersonate(random: &mut Random, request: &mut Vec<u8>) {
    for _ in 0..=random.below(3) {
        let (name, user) = (random.pick(IMPERSONATE), random.pick(USERS));
        match random.one_in(20) {
            true => header(random, request, name, &beyond_ascii(user)),
            false => header(random, request, name, user.as_bytes()),
        }
    }
}

fn beyond_ascii(user: &str) -> Vec<u8> {
    user.bytes().map(|byte| byte | 0x80).collect()
}

fn header(random: &mut Random, request: &mut Vec<u8>, name: &str, value: &[u8]) {
    let colon = match random.below(100) {
        0..8 => random.pick(&[":", ": \t", ":  "]),
        8 => " :",
        _ => ": ",
    };
    request.extend([name.as_bytes(), colon.as_bytes(), value].concat());
    request.extend(if random.one_in(150) { random.pick(&["\n", "\r", " \r\n", "\t\r\n"]) } else { "\r\n" }.bytes());
}
