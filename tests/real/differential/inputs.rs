//! Inputs that two parsers are likely to read otherwise: odd white space, repeated headers, escapes, boundaries of lengths.

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
            5 if random.one_in(8) => header(random, &mut request, name, &random_value(&value)),
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

/// What is left of a value of which only the odd half is sent.
fn random_value(value: &[u8]) -> Vec<u8> {
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
        header(random, request, random_case(upgrade.len(), "Upgrade"), upgrade.as_bytes());
        header(random, request, random_case(connection.len(), "Connection"), connection.as_bytes());
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

fn random_case(n: usize, name: &'static str) -> &'static str {
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
            true => header(random, request, name, &random_bytes(user)),
            false => header(random, request, name, user.as_bytes()),
        }
    }
}

fn random_bytes(user: &str) -> Vec<u8> {
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

/// A collection and whether its kind is in a namespace.
const COLLECTIONS: &[(&str, &str)] = &[
    ("/api/v1", "pods"),
    ("/api/v1", "services"),
    ("/api/v1", "namespaces"),
    ("/api/v1", "nodes"),
    ("/api/v1", "secrets"),
    ("/api/v1", "configmaps"),
    ("/api/v1", "events"),
    ("/api/v1", "replicationcontrollers"),
    ("/apis/batch/v1", "jobs"),
    ("/apis/discovery.k8s.io/v1", "endpointslices"),
    ("/apis/example.com/v1", "things"),
    ("/apis/apps.openyurt.io/v1beta2", "nodepools"),
];
const NAMES: &[&str] = &[
    "a",
    "b",
    "watch",
    "proxy",
    "namespaces",
    "status",
    "finalize",
    "pods",
    "%61",
    "a%2Fb",
    "..",
    "a.b",
    "a:b",
    "%25",
    "a%20b",
    "\u{fc}",
    "",
];
const KEYS: &[&str] = &[
    "watch",
    "watch",
    "limit",
    "timeoutSeconds",
    "resourceVersion",
    "resourceVersionMatch",
    "continue",
    "sendInitialEvents",
    "allowWatchBookmarks",
    "Watch",
    "pretty",
    "w%61tch",
    "",
];
const VALUES: &[&str] = &[
    "",
    "0",
    "1",
    "true",
    "false",
    "FALSE",
    "fal\u{17f}e",
    "7",
    "-1",
    "+7",
    "007",
    "1_0",
    "x",
    "Exact",
    "NotOlderThan",
    "exact",
    "9223372036854775807",
    "9223372036854775808",
    "18446744073709551615",
    "18446744073709551616",
    "1.5",
    " 1",
    "1;",
    "%zz",
    "0x10",
    "9223372036",
    "9223372037",
];

/// Bytes of a request for a resource, with odd options.
pub(super) fn resource(random: &mut Random) -> Vec<u8> {
    let method = random.pick(&[
        "GET", "GET", "GET", "GET", "GET", "GET", "GET", "GET", "HEAD", "DELETE", "POST", "PUT", "PATCH", "OPTIONS",
        "FOO",
    ]);
    let (prefix, resource) = random.pick(COLLECTIONS);
    let mut path = prefix.to_owned();
    path += match random.below(20) {
        0..4 => "/watch",
        4 => random.pick(&["/proxy", "/", "/watch/watch", "//"]),
        _ => "",
    };
    if random.one_in(2) {
        path += &format!("/namespaces/{}", name(random));
    }
    path += "/";
    path += if random.one_in(20) { random.pick(NAMES) } else { resource };
    for _ in 0..random.below(10).saturating_sub(6) {
        path += &format!("/{}", name(random));
    }
    path += if random.one_in(20) { "/" } else { "" };
    let mut query = String::new();
    for n in 0..random.below(5) {
        query += if n == 0 { "?" } else { "&" };
        query += &parameter(random);
    }
    let mut target = path.into_bytes();
    target.extend(query.bytes());
    if random.one_in(30) {
        random.mutate(&mut target);
    }
    [method.as_bytes(), b" ", &target, b" HTTP/1.1\r\nHost: x\r\n\r\n"].concat()
}

fn parameter(random: &mut Random) -> String {
    match random.below(4) {
        0 => format!("labelSelector={}", encoded(random, &label_selector_of)),
        1 => format!("fieldSelector={}", encoded(random, &field_selector_of)),
        _ => {
            let key = random.pick(KEYS);
            let value = if random.one_in(4) { random.pick(VALUES) } else { usual(random, key) };
            let value = if random.one_in(4) { value.to_owned() } else { escaped(value) };
            if random.one_in(12) { key.to_owned() } else { format!("{key}={value}") }
        }
    }
}

fn name(random: &mut Random) -> &'static str {
    if random.one_in(3) { random.pick(NAMES) } else { "a" }
}

/// A value that the server can parse.
fn usual(random: &mut Random, key: &str) -> &'static str {
    match key {
        "limit" | "timeoutSeconds" | "resourceVersion" => random.pick(&["0", "1", "7", "500"]),
        "resourceVersionMatch" => random.pick(&["Exact", "NotOlderThan"]),
        "continue" => random.pick(&["", "x"]),
        _ => random.pick(&["true", "1", "0", "false", ""]),
    }
}

fn encoded(random: &mut Random, of: &dyn Fn(&mut Random) -> String) -> String {
    let text = of(random);
    if random.one_in(10) { text } else { escaped(&text) }
}

fn escaped(text: &str) -> String {
    text.bytes()
        .map(|byte| if byte.is_ascii_alphanumeric() { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect()
}

/// A label selector that is odd, or none.
pub(super) fn label_selector(random: &mut Random) -> Vec<u8> {
    label_selector_of(random).into_bytes()
}

/// The same of fields.
pub(super) fn field_selector(random: &mut Random) -> Vec<u8> {
    field_selector_of(random).into_bytes()
}

fn label_selector_of(random: &mut Random) -> String {
    const KEYS: &[&str] =
        &["app", "a", "in", "notin", "x.io/in", "A-", "-a", "a/b/c", "/a", "X.io/a", "a_.b", "\u{e4}", ""];
    const OPERATORS: &[&str] = &["=", "==", "!=", ">", "<", " in ", " notin ", " = ", "===", "!", "", "=!", "in"];
    const OPERANDS: &[&str] = &[
        "",
        "a",
        "1",
        "-1",
        "007",
        "9223372036854775807",
        "9223372036854775808",
        "(a,b)",
        "(a, b,a)",
        "()",
        "(,)",
        "(,,)",
        "(a,,)",
        "(a,,,)",
        "(,,a)",
        "(a",
        "a)",
        "in",
        "notin",
        "a-",
        "a b",
        "a/b",
        "\u{a0}",
    ];
    const SOUP: &[&str] = &[
        ",", ",", "(", ")", "=", "!", ">", "<", " ", "\t", "\n", "\r", "\0", "\u{a0}", "\x0b", "a", "b", "in", "notin",
        "1", "x/y",
    ];
    if random.one_in(3) {
        return random
            .pick(&["a", "!a", "a=b", "a==b,b!=c", "a in (b,c)", "a notin (b), c", "", "x.io/in>1", "a<7,in in (in)"])
            .to_owned();
    }
    if random.one_in(3) {
        return (0..random.below(13)).map(|_| random.pick(SOUP)).collect();
    }
    let mut text = String::new();
    for n in 0..=random.below(4) {
        text += if n == 0 { "" } else { random.pick(&[",", ",", ", ", " ,", ",,"]) };
        text += if random.one_in(6) { "!" } else { "" };
        text += random.pick(KEYS);
        if random.one_in(15) {
            text += &"a".repeat(60 + random.below(6));
        }
        text += random.pick(OPERATORS);
        text += random.pick(OPERANDS);
        if random.one_in(15) {
            text += &"b".repeat(60 + random.below(6));
        }
    }
    text
}

fn field_selector_of(random: &mut Random) -> String {
    const FIELDS: &[&str] = &[
        "metadata.name",
        "metadata.name",
        "metadata.namespace",
        "spec.nodeName",
        "status.phase",
        "type",
        "spec.clusterIP",
        "spec.hostNetwork",
        " metadata.name",
        "metadata.name ",
        "",
        "x",
        "spec.unschedulable",
        "a\\,b",
    ];
    const OPERATORS: &[&str] = &["=", "=", "==", "!=", "!==", "===", "!", "", " = ", "=!"];
    const OPERANDS: &[&str] = &[
        "a", "b", "", "a\\,b", "a\\=b", "a\\\\", "a\\", "\\a", "a=b", "a!b", " a", "o\ne", "a/b", "..", "%", "\u{fc}",
        "\0",
    ];
    const SOUP: &[&str] = &[",", ",", "=", "=", "!", "\\", "\\", " ", "\n", "a", "metadata.name", "b"];
    if random.one_in(3) {
        let usual = [
            "metadata.name=a",
            "metadata.name==a,metadata.name=b",
            "metadata.namespace!=a",
            "metadata.name=a\\,b",
            "",
            ",",
        ];
        return random.pick(&usual).to_owned();
    }
    if random.one_in(3) {
        return (0..random.below(11)).map(|_| random.pick(SOUP)).collect();
    }
    let mut text = String::new();
    for n in 0..=random.below(3) {
        text += if n == 0 { "" } else { random.pick(&[",", ",", ",,", "\\,"]) };
        text += random.pick(FIELDS);
        text += random.pick(OPERATORS);
        text += random.pick(OPERANDS);
    }
    text
}
