//! Inputs that two parsers are likely to read otherwise: paths and options of requests.

use super::random::Random;
use super::selectors::{field_selector_of, label_selector_of};

/// The collections of a resource.
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
