use weir_yaml::testing::random_texts;

use super::with_addresses;

fn edited(config: &str) -> String {
    with_addresses(config, &["10.0.0.0/8".to_owned(), "fd00::/8".to_owned()]).expect("edited")
}

const VALUE: &str = r#"["10.0.0.0/8", "fd00::/8"]"#;

/// Each text with an old value, and the same text after the edit, with `@` for the new value.
const FORMS: &[(&str, &str)] = &[
    // null in all spellings, with comments after it
    ("a: 1\nnodePortAddresses: null\nb: 2\n", "a: 1\nnodePortAddresses: @\nb: 2\n"),
    ("nodePortAddresses: ~ # all\n", "nodePortAddresses: @ # all\n"),
    ("nodePortAddresses:\nb: 2\n", "nodePortAddresses: @\nb: 2\n"),
    ("nodePortAddresses:   # none yet\n\n# next\nb: 2\n", "nodePortAddresses: @   # none yet\n\n# next\nb: 2\n"),
    ("nodePortAddresses:", "nodePortAddresses: @"),
    // scalars that kube-proxy would reject
    ("nodePortAddresses: 10.0.0.0/8\n", "nodePortAddresses: @\n"),
    ("nodePortAddresses: \"a # b\" # c\n", "nodePortAddresses: @ # c\n"),
    ("nodePortAddresses:\n  null # c\nb: 1\n", "nodePortAddresses: @\n  # c\nb: 1\n"),
    // block scalars, which end where their text does
    ("nodePortAddresses:\n- >-\n  10.0.0.0/8\nmode: ipvs\nb: 1\n", "nodePortAddresses: @\nmode: ipvs\nb: 1\n"),
    (
        "nodePortAddresses:\n- | # a > b |\n\n  x # y\n\n# next\nb: 1\n",
        "nodePortAddresses: @\n# a > b |\n\n\n# next\nb: 1\n",
    ),
    ("\u{feff}mode: x\n", "\u{feff}mode: x\nnodePortAddresses: @\n"),
    // no node yet
    ("--- # c\n", "--- # c\nnodePortAddresses: @\n"),
    ("%YAML 1.2\n---\n", "%YAML 1.2\n---\nnodePortAddresses: @\n"),
    // flow style, in one line and in several
    ("nodePortAddresses: []\n", "nodePortAddresses: @\n"),
    ("nodePortAddresses: [ 'a', \"]\", b ]   # c\nb: [1]\n", "nodePortAddresses: @   # c\nb: [1]\n"),
    (
        "nodePortAddresses: [ # first\n  10.0.0.0/8, # office\n\n  # the lab\n  192.168.0.0/16\n] # last\nb: 1\n",
        "nodePortAddresses: @ # first\n  # office\n\n  # the lab\n# last\nb: 1\n",
    ),
    ("nodePortAddresses:\n  [a,\n  b]\nb: 1\n", "nodePortAddresses: @\nb: 1\n"),
    // block style, indented and not indented
    ("nodePortAddresses:\n- 10.0.0.0/8\n- \"fd00::/8\"\nb: 1\n", "nodePortAddresses: @\nb: 1\n"),
    (
        "nodePortAddresses: # c\n  # before\n  - 10.0.0.0/8 # office\n  -\n    x\n\n  # after\nb: 1\n",
        "nodePortAddresses: @ # c\n  # before\n  # office\n\n  # after\nb: 1\n",
    ),
    ("nodePortAddresses:\n- a\n- b", "nodePortAddresses: @\n"),
    ("nodePortAddresses:\n-\n- # c\nb: 1\n", "nodePortAddresses: @\n# c\nb: 1\n"),
    ("nodePortAddresses: \"a\n\n  # b\n  c\" # d\nb: 1\n", "nodePortAddresses: @\n  # d\nb: 1\n"),
    // forms of the key
    ("\"nodePortAddresses\": []\n", "\"nodePortAddresses\": @\n"),
    ("'nodePortAddresses' : []\n", "'nodePortAddresses' : @\n"),
    ("nodePortAddresses  :\t[]\n", "nodePortAddresses  : @\n"),
    // positions of the key
    ("---\n  a: 1\n  nodePortAddresses: []\n  b: 1\n", "---\n  a: 1\n  nodePortAddresses: @\n  b: 1\n"),
    ("a: 1\r\nnodePortAddresses: []\r\nb: 1\r\n", "a: 1\r\nnodePortAddresses: @\r\nb: 1\r\n"),
    ("a:\n  nodePortAddresses: []\nnodePortAddresses: null\n", "a:\n  nodePortAddresses: []\nnodePortAddresses: @\n"),
    ("nodePortAddresses: []\n---\nnodePortAddresses: [x]\n", "nodePortAddresses: @\n---\nnodePortAddresses: [x]\n"),
    ("# nodePortAddresses: [x]\nnodePortAddresses: []\n", "# nodePortAddresses: [x]\nnodePortAddresses: @\n"),
    // missing
    ("a: 1\nb: 2\n", "a: 1\nb: 2\nnodePortAddresses: @\n"),
    ("a: 1\nb: 2", "a: 1\nb: 2\nnodePortAddresses: @\n"),
    ("  a: 1\r\n", "  a: 1\r\n  nodePortAddresses: @\r\n"),
    ("a: 1\n...\n", "a: 1\nnodePortAddresses: @\n...\n"),
    ("a: 1\n---\nb: 1\n", "a: 1\nnodePortAddresses: @\n---\nb: 1\n"),
    ("a: |\n  nodePortAddresses: []\n", "a: |\n  nodePortAddresses: []\nnodePortAddresses: @\n"),
    ("nodePortAddressesX: []\n", "nodePortAddressesX: []\nnodePortAddresses: @\n"),
    // a last text that the line break of a new last key would change
    ("a: |\n  x", "nodePortAddresses: @\na: |\n  x"),
    ("\u{feff}  b: 1\r\n  a: >+\r\n    x", "\u{feff}  nodePortAddresses: @\r\n  b: 1\r\n  a: >+\r\n    x"),
    ("# c\n&x a: |+\n  x\n ", "# c\nnodePortAddresses: @\n&x a: |+\n  x\n "),
    ("a: |\n  x\nb: y", "a: |\n  x\nb: y\nnodePortAddresses: @\n"),
    // anchors and aliases that stay, or go together
    ("a: &x 1\nnodePortAddresses: [*x]\nb: *x\n", "a: &x 1\nnodePortAddresses: @\nb: *x\n"),
    ("nodePortAddresses: [&x a, *x]\nb: &x 1\nc: *x\n", "nodePortAddresses: @\nb: &x 1\nc: *x\n"),
    (
        "a: {nodePortAddresses: &x 1}\nnodePortAddresses: []\nb: *x\n",
        "a: {nodePortAddresses: &x 1}\nnodePortAddresses: @\nb: *x\n",
    ),
    ("a: &k nodePortAddresses\n*k : []\n", "a: &k nodePortAddresses\n*k : @\n"),
    ("", "nodePortAddresses: @\n"),
    ("# nothing\n", "# nothing\nnodePortAddresses: @\n"),
    // a mapping in flow style, such as JSON
    (r#"{"mode":"","nodePortAddresses":null,"b":[1]}"#, r#"{"mode":"","nodePortAddresses":@,"b":[1]}"#),
    ("{\n\t\"nodePortAddresses\": [\"a]}\", \"b\"]\n}\n", "{\n\t\"nodePortAddresses\": @\n}\n"),
    (
        "{\n  \"a\": {\"nodePortAddresses\": []}\n}\n",
        "{\n  \"a\": {\"nodePortAddresses\": []}, \"nodePortAddresses\": @\n}\n",
    ),
    (r#"{"a":"nodePortAddresses: \"}"}"#, r#"{"a":"nodePortAddresses: \"}", "nodePortAddresses": @}"#),
    ("{}", r#"{"nodePortAddresses": @}"#),
    ("  { }\n", "  {\"nodePortAddresses\": @ }\n"),
    ("{a: 1, }\n", "{a: 1, \"nodePortAddresses\": @ }\n"),
    ("{a: it's, # }\n b: 'x''}', c}\n", "{a: it's, # }\n b: 'x''}', c, \"nodePortAddresses\": @}\n"),
    ("{a: 1 # c, }\n}\n", "{a: 1, \"nodePortAddresses\": @ # c, }\n}\n"),
    // what YAML 1.1 reads otherwise: a comma after a colon or a tag, and a tab before a comment of a block
    ("{a: {b: [c]}, d: }\n", "{a: {b: [c]}, d: , \"nodePortAddresses\": @ }\n"),
    ("{d: !!str # c\n}\n", "{d: !!str , \"nodePortAddresses\": @ # c\n}\n"),
    ("nodePortAddresses: [\n\t# c\n\t\n \ta # d\n]\nb: 1\n", "nodePortAddresses: @\n# c\n\n # d\nb: 1\n"),
    ("{nodePortAddresses: , b: 1}\n", "{nodePortAddresses: @ , b: 1}\n"),
    ("{nodePortAddresses: 10.0.0.0/8 # c\n}\n", "{nodePortAddresses: @ # c\n}\n"),
    (
        "{\n \"nodePortAddresses\": [ # c\n  \"#a\", # office\n ]\n}\n",
        "{\n \"nodePortAddresses\": @ # c\n  # office\n}\n",
    ),
    ("{nodePortAddresses: [\n  # c\n\n  a, # d\n  b ], b: 1}\n", "{nodePortAddresses: @\n  # c\n\n  # d\n  , b: 1}\n"),
    ("{nodePortAddresses: [ # c\n a ] # d\n , b: 1}\n", "{nodePortAddresses: @ # c\n # d\n , b: 1}\n"),
    ("{nodePortAddresses:\n  [\n\n  a\n  ], b: 1}\n", "{nodePortAddresses:\n  @, b: 1}\n"),
    ("---\n{'nodePortAddresses' : [a]}\n---\n{b: 1}\n", "---\n{'nodePortAddresses' : @}\n---\n{b: 1}\n"),
];

#[test]
fn only_the_value_changes_in_every_form() {
    for (before, after) in FORMS {
        assert_eq!(edited(before), after.replace('@', VALUE), "from {before:?}");
    }
}

#[test]
fn editing_an_edited_text_changes_nothing() {
    for (before, _) in FORMS {
        let once = edited(before);
        assert_eq!(edited(&once), once);
    }
}

#[test]
fn yaml_sees_the_new_value_and_all_others_as_before() {
    for (before, _) in
        FORMS.iter().filter(|(before, _)| !before.contains("---") && !before.trim_start().starts_with('#'))
    {
        let mut old: serde_json::Map<String, serde_json::Value> =
            if before.is_empty() { Default::default() } else { serde_saphyr::from_str(before).expect("YAML") };
        let new: serde_json::Map<String, serde_json::Value> = serde_saphyr::from_str(&edited(before)).expect("YAML");
        old.insert("nodePortAddresses".to_owned(), serde_json::from_str(VALUE).expect("JSON"));
        assert_eq!(new, old, "from {before:?}");
    }
}

#[test]
fn a_text_that_cannot_be_edited_is_refused_with_a_reason() {
    for (config, reason) in [
        ("[a]\n", "a list instead of a mapping"),
        ("a\n", "a text instead of a mapping"),
        ("{a: 1\n", "unclosed bracket '{' at char 0 line 1 column 1"),
        ("{", "unclosed bracket"),
        ("{a: \"x}\n", "unclosed quote"),
        ("{a: 1, ]}\n", "mismatched bracket"),
        ("{nodePortAddresses: [], nodePortAddresses: []}\n", "twice"),
        ("{nodePortAddresses: &x [a]}\n", "starts with `&`"),
        ("nodePortAddresses: []\nb: 1\nnodePortAddresses: []\n", "twice"),
        ("nodePortAddresses: [a\nb: 1\n", "line 2 column 2"),
        ("nodePortAddresses: \"a\n", "multiline quoted scalar"),
        ("nodePortAddresses: &x [a]\n", "starts with `&`"),
        ("nodePortAddresses: *x\n", "starts with `*`"),
        ("nodePortAddresses: !!seq []\n", "starts with `!`"),
        ("nodePortAddresses: |\n  a\n", "starts with `|`"),
        ("nodePortAddresses: {a: b}\n", "starts with `{`"),
        ("nodePortAddresses:\n  {a: b}\n", "starts with `{`"),
        (
            "nodePortAddresses:\n- &x a\nb: *x\n",
            "the anchor &x in the value of nodePortAddresses is used elsewhere, in line 3",
        ),
        ("{nodePortAddresses: [[&x a]], b: [*x]}\n", "the anchor &x"),
        ("b: &x 1\nnodePortAddresses:\n- &x a\nc: *x\n", "the anchor &x"),
        ("nodePortAddresses: [&x {a: b}]\n*x : 1\n", "the anchor &x"),
        ("a: &k nodePortAddresses\n*k : &x []\n", "starts with `&`"),
        ("? nodePortAddresses\n:a: []\n", "cannot edit nodePortAddresses without a value"),
        ("a: 1\rnodePortAddresses: []\n", "a line break other than"),
        ("a: 1 # b\u{85}nodePortAddresses: []\n", "a line break other than"),
    ] {
        let refusal = with_addresses(config, &["primary".to_owned()]).expect_err("refused");
        assert!(refusal.contains(reason), "{config:?} gave {refusal}");
    }
}

/// Random changes of the forms: what is edited is what YAML reads, and nothing else.
#[test]
fn a_random_text_is_edited_as_yaml_reads_it_or_refused() {
    let read = |text: &str| serde_saphyr::from_str::<serde_json::Map<String, serde_json::Value>>(text).ok();
    let mut edits = 0;
    let forms: Vec<_> = FORMS.iter().map(|(form, _)| *form).collect();
    for text in random_texts(&forms, "nodePortAddresses").take(20_000) {
        let Some(mut expected) = read(&text) else { continue };
        let Ok(new) = with_addresses(&text, &["10.0.0.0/8".to_owned(), "fd00::/8".to_owned()]) else { continue };
        expected.insert("nodePortAddresses".to_owned(), serde_json::from_str(VALUE).expect("JSON"));
        assert_eq!(read(&new), Some(expected), "from {text:?} to {new:?}");
        edits += 1;
    }
    assert!(edits > 2000, "{edits}");
}
