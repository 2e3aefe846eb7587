use super::testing::random_texts;
use super::without;

/// Each text with entries `k`, and the same text without them.
const FORMS: &[(&str, &str)] = &[
    // own lines, and lines that are shared
    ("k: /a # c\nb: 1\n", "#k: /a # c\nb: 1\n"),
    ("a:\n  k: >-\n    x\n\n    y\n  b: 1\n", "a:\n  #k: >-\n    #x\n\n    #y\n  b: 1\n"),
    ("- k: /a\n- {k: /a}\n", "- k: \"\"\n- {k: \"\"}\n"),
    ("a: 1\n---\nk: /a\n", "a: 1\n---\n#k: /a\n"),
    ("k: \"a\n \tb\n \t\n c\"\nb: 1\n", "#k: \"a\n #b\n \n #c\"\nb: 1\n"),
    ("k: !!str null\n", "#k: !!str null\n"),
    // a key that the colon does not follow in its line
    ("? k\n: /a\n", "? k\n: \"\"\n"),
    ("?\n  k\n: /a\n", "?\n  k\n: \"\"\n"),
    ("{k\n : /a}\n", "{k\n : \"\"}\n"),
    // an alias of the key is the key
    ("a: &x k\n*x : /a\n", "a: &x k\n#*x : /a\n"),
    ("{a: &x k, *x : /a}\n", "{a: &x k, *x : \"\"}\n"),
    ("a: &x k\nb: &x c\n*x : /a\nk: 1\n", "a: &x k\nb: &x c\n*x : /a\n#k: 1\n"),
    // anchors that stay, or are used in removed values alone
    ("a: &x /a\nk: *x\nb: *x\n", "a: &x /a\n#k: *x\nb: *x\n"),
    ("a:\n  k: &x /a\nb:\n  k: *x\n", "a:\n  #k: &x /a\nb:\n  #k: *x\n"),
    ("k: &x /a\nb: &x 1\nc: *x\n", "#k: &x /a\nb: &x 1\nc: *x\n"),
    ("&x k: /a\nb: *x\n", "&x k: \"\"\nb: *x\n"),
    ("a: &x\n  k: /a\n  b: 1\nc: *x\n", "a: &x\n  #k: /a\n  b: 1\nc: *x\n"),
    ("{k: &x /a}\n", "{k: &x \"\"}\n"),
];

#[test]
fn an_entry_becomes_a_comment_or_gets_an_empty_value() {
    for (before, after) in FORMS {
        let once = without(before, "k").expect("edited").expect("an entry");
        assert_eq!(once, *after, "from {before:?}");
        assert_eq!(without(&once, "k"), Ok(None), "from {before:?}");
    }
}

#[test]
fn what_has_no_such_scalar_stays() {
    for text in
        ["", "a: k\n", "k:\n", "k: &x\nb: *x\n", "k: ''\n", "k: {a: &x 1}\nb: *x\n", "a: |\n  k: 1\n", "*x : 1\n"]
    {
        assert_eq!(without(text, "k"), Ok(None), "{text:?}");
    }
}

#[test]
fn a_text_that_cannot_be_edited_is_refused_with_a_reason() {
    for (text, reason) in [
        ("a:\n  k: &p /a\nb: *p\n", "the anchor &p in the value of k is used elsewhere, in line 3"),
        ("{k: &p /a, b: *p}", "the anchor &p"),
        ("b: &p 1\nk: &p /a\nc: [*p]\n", "the anchor &p"),
        ("{k: &p /a, b: {*p : 1}}", "the anchor &p"),
        // what kube-proxy reads, but the parser does not
        ("c: {\n  b: 1,\n  k: /a }# c\n", "not YAML: line 3, column 10"),
        ("c: {k: /a}# c\n", "not YAML: line 1, column 11"),
        ("c:\n  \"k\": /a\nb: 'x\ny'\n", "line 4"),
        ("n: |\n  k: /a\nc: {}# none\n", "not YAML: line 3, column 6"),
        // line breaks of YAML 1.1
        ("x: 1\nk:\r  /a\rb: 1\n", "a line break other than"),
        ("x: 1 # c\u{85}k: /a\n", "a line break other than"),
        ("x: 1 # c\u{2028}k: /a\n", "a line break other than"),
        ("x: 1 # c\u{2029}k: /a\n", "a line break other than"),
    ] {
        let refusal = without(text, "k").expect_err("refused");
        assert!(refusal.contains(reason), "{text:?} gave {refusal}");
    }
}

/// Random changes of the forms: what is edited has no entry any more, and all others as before.
#[test]
fn a_random_text_is_edited_as_yaml_reads_it_or_refused() {
    use serde_json::Value;

    /// Without scalars of the key; a mapping without entries is null, as a block mapping of comments is.
    fn rest(value: &Value) -> Value {
        match value {
            Value::Object(entries) => {
                let others = entries.iter().filter(|(key, value)| *key != "k" || value.is_object() || value.is_array());
                let rest: serde_json::Map<_, _> = others.map(|(key, value)| (key.clone(), rest(value))).collect();
                if rest.is_empty() { Value::Null } else { Value::Object(rest) }
            }
            Value::Array(items) => items.iter().map(rest).collect(),
            scalar => scalar.clone(),
        }
    }

    let read = |text: &str| serde_saphyr::from_str::<Value>(text).ok();
    let mut edits = 0;
    let forms: Vec<_> = FORMS.iter().map(|(form, _)| *form).collect();
    for text in random_texts(&forms, "k").take(20_000) {
        let Some(old) = read(&text) else { continue };
        let Ok(Some(new)) = without(&text, "k") else { continue };
        let Some(value) = read(&new) else { panic!("not YAML any more: from {text:?} to {new:?}") };
        assert_eq!(rest(&value), rest(&old), "from {text:?} to {new:?}");
        assert_eq!(without(&new, "k"), Ok(None), "from {text:?} to {new:?}");
        edits += 1;
    }
    assert!(edits > 2000, "{edits}");
}
