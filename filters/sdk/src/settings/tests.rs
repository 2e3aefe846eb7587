use std::collections::BTreeMap;

use serde::Deserialize;

use super::parse;

#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
struct Settings {
    node_pool: Option<String>,
    addresses: Vec<String>,
    port: u16,
    nested: Option<Box<Settings>>,
    mode: Mode,
    ratio: f64,
    map: BTreeMap<String, i8>,
}

#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
enum Mode {
    #[default]
    Drop,
    Keep {
        at_most: u8,
    },
}

#[derive(Debug, Deserialize)]
struct Loose {
    name: String,
}

fn message(json: &str) -> String {
    parse::<Settings>(json).expect_err("refused").to_string()
}

#[test]
fn a_refusal_begins_with_the_key() {
    for (json, start) in [
        (r#"{"nodePool": 5}"#, "nodePool: invalid type: integer `5`, expected a string"),
        ("{\n  \"addresses\": [],\n  \"nodePool\": true}", "nodePool: invalid type: boolean `true`"),
        (r#"{"addresses": ["a", "b", 7], "nodePool": "x"}"#, "addresses[2]: invalid type"),
        (r#"{"addresses": "a"}"#, "addresses: invalid type: string `a`, expected a list"),
        (r#"{"addresses": {"x": []}}"#, "addresses: invalid type: an object"),
        (r#"{"nested": {"nodePool": []}}"#, "nested.nodePool: invalid type: a list"),
        (r#"{"nested": {}, "pool\"": 1}"#, "pool\": unknown field `pool\"`"),
        (r#"{"nodepool": "x"}"#, "nodepool: unknown field `nodepool`, expected one of `nodePool`"),
        (r#"{"port": 70000}"#, "port: invalid value: integer `70000`, expected a whole number from 0 to 65535"),
        (r#"{"port": 1.5}"#, "port: invalid type: a fraction, expected a whole number from 0 to 65535"),
        (r#"{"port": null}"#, "port: invalid type: null"),
        (r#"{"mode": "other"}"#, "mode: unknown value `other`, expected `drop` or `keep`"),
        (r#"{"mode": {"keep": {}}}"#, "mode.keep: missing field `at_most`"),
        (r#"{"map": {"a": 1, "b": 300}}"#, "map.b: invalid value: integer `300`"),
        (r#"{"port": 1, "port": 2}"#, "port: duplicate field `port`"),
        ("[]", "settings: invalid type: a list, expected an object"),
        ("7", "settings: invalid type: integer `7`"),
        ("{", "settings: "),
        ("", "settings: "),
        ("{} {}", "settings: "),
        (r#"{"port": 01}"#, "port: not JSON at byte 10"),
        (r#"{"nodePool": "a"#, "nodePool: not JSON at byte 15"),
        ("{\"nodePool\": \"a\nb\"}", "nodePool: not JSON at byte 15"),
        (r#"{"nodePool": "\ud800"}"#, "nodePool: not JSON"),
        (r#"{"nodePool": "\x"}"#, "nodePool: not JSON"),
        (r#"{"port": 1,}"#, "settings: not JSON"),
        (r#"{"addresses": ["a",]}"#, "addresses[1]: not JSON"),
        (r#"{"addresses": ["a" "b"]}"#, "addresses: not JSON"),
    ] {
        let message = message(json);
        assert!(message.starts_with(start), "{json} gave {message}");
    }
    // The keys of an enum's own map are fields of the variant.
    assert!(message(r#"{"mode": {"keep": {"at_most": "x"}}}"#).starts_with("mode.keep.at_most: invalid type"));
}

#[test]
fn valid_settings_are_accepted() {
    let settings: Settings = parse(
        r#" {"nodePool": "a\n\u00e4\ud83d\ude00\/", "nested": {"addresses": ["b", "ü"]}, "port": 65535, "ratio": -1.5e1,
             "mode": {"keep": {"at_most": 255}}, "map": {"x": -3}} "#,
    )
    .expect("taken");
    assert_eq!(settings.node_pool.as_deref(), Some("a\nä😀/"));
    assert_eq!(settings.nested.expect("there").addresses, ["b", "ü"]);
    assert_eq!((settings.port, settings.ratio, settings.mode), (65535, -15.0, Mode::Keep { at_most: 255 }));
    assert_eq!(settings.map, BTreeMap::from([("x".to_owned(), -3)]));
    assert_eq!(parse::<Settings>(r#"{"nodePool": null}"#).expect("taken"), Settings::default());
}

#[test]
fn ignored_fields_are_skipped_completely() {
    let loose: Loose = parse(r#"{"x": [1.5, {"y": ["]"]}, null, -0.1e+3, true], "name": "n"}"#).expect("taken");
    assert_eq!(loose.name, "n");
}

#[test]
fn depth_is_bounded() {
    let json = format!("{{\"x\": {}", "[".repeat(100_000));
    assert!(parse::<Loose>(&json).expect_err("refused").to_string().ends_with("nested too deep"));
}
