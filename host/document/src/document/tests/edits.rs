//! The effects of edits, and the edits that are refused.

use super::*;

fn edited(before: &str, edit: impl FnOnce(&mut Document) -> Result<(), Error>) -> String {
    let mut document = document(before);
    edit(&mut document).unwrap();
    assert_eq!(document.is_edited(), json(&document) != before);
    json(&document)
}

fn set(before: &str, expression: &str, value: &Value) -> String {
    edited(before, |document| document.set(&path(expression), value))
}

#[test]
fn set_replaces_in_every_row_and_keeps_the_rest() {
    assert_eq!(set(r#"{ "b" : 1 , "a":{"x" :"o"}}"#, "a.x", &text("n\"")), r#"{ "b" : 1 , "a":{"x" :"n\""}}"#);
    assert_eq!(set(r#"{"a":[{"x":1},{"x":2}]}"#, "a[*].x", &Value::Boolean(true)), r#"{"a":[{"x":true},{"x":true}]}"#);
    assert_eq!(set(r#"{"a":[1,2]}"#, "a[*]", &Value::Null), r#"{"a":[null,null]}"#);
    assert_eq!(set(r#"{"a":[1,2]}"#, "a[1]", &Value::Number("-1e5".into())), r#"{"a":[1,-1e5]}"#);
    assert_eq!(set(r#"{"a":[]}"#, "a", &Value::Json(" [ {} ] ".into())), r#"{"a":[ {} ]}"#);
}

#[test]
fn set_makes_missing_objects_but_never_elements() {
    assert_eq!(set("{}", "a.b", &text("x")), r#"{"a":{"b":"x"}}"#);
    assert_eq!(set("{ }", "a", &text("x")), r#"{"a":"x" }"#);
    assert_eq!(set(r#"{"z":1 }"#, "a.b['c.d']", &text("x")), r#"{"z":1,"a":{"b":{"c.d":"x"}} }"#);
    assert_eq!(set(r#"{"a":null}"#, "a.b.c", &text("x")), r#"{"a":{"b":{"c":"x"}}}"#);
    assert_eq!(
        set(r#"{"a":[{},{"b":null},{"b":{"d":1}},null]}"#, "a[*].b.c", &text("x")),
        r#"{"a":[{"b":{"c":"x"}},{"b":{"c":"x"}},{"b":{"d":1,"c":"x"}},{"b":{"c":"x"}}]}"#
    );
    for untouched in [r#"{"b":1}"#, r#"{"a":[]}"#, r#"{"a":null}"#, r#"{"a":{}}"#] {
        assert_eq!(set(untouched, "a[*].b", &text("x")), untouched);
        assert_eq!(set(untouched, "a[0].b", &text("x")), untouched);
        assert_eq!(set(untouched, "a[0]", &text("x")), untouched);
    }
    assert_eq!(set("{}", "a.b[0].c", &text("x")), "{}");
    let mut other = document(r#"{"a":"text"}"#);
    assert!(matches!(other.set(&path("a.b"), &text("x")), Err(Error::NotAnObject { .. })));
    assert!(!other.is_edited());
}

#[test]
fn setting_an_equal_value_edits_nothing() {
    for (before, value) in [
        (r#"{"a": "x\/\u0079"}"#, text("x/y")),
        (r#"{"a":1.0}"#, Value::Number("1.0".into())),
        (r#"{"a":{"b":1}}"#, Value::Json(r#" {"b":1} "#.into())),
        (r#"{"a":{"b":1,"c":[ ]}}"#, Value::Json(r#"{"c":[],"b":1}"#.into())),
        (r#"{"a":null}"#, Value::Null),
    ] {
        assert_eq!(set(before, "a", &value), before);
    }
    assert_ne!(set(r#"{"a":1.0}"#, "a", &Value::Number("1".into())), r#"{"a":1.0}"#);
}

#[test]
fn set_rows_edits_the_rows_whose_bit_is_one() {
    let rows = |before: &str, bits: &[u8]| {
        edited(before, |document| document.set_rows(&path("a[*].x"), &Rows::from_bits(bits), &Value::Null))
    };
    assert_eq!(rows(r#"{"a":[{},{"x":1},{"x":2}]}"#, &[0b101]), r#"{"a":[{"x":null},{"x":1},{"x":null}]}"#);
    assert_eq!(rows(r#"{"a":[{},{"x":1}]}"#, &[0b1111_1100]), r#"{"a":[{},{"x":1}]}"#);
    let mut three = document(r#"{"a":[{},{},{}]}"#);
    let selections = [Rows::from_bits(&[]), Rows::from_bits(&[1, 1]), [true; 2].into_iter().collect()];
    for rows in selections.into_iter().chain([[true; 4].into_iter().collect()]) {
        let error = three.set_rows(&path("a[*].x"), &rows, &Value::Null).unwrap_err();
        assert!(matches!(error, Error::Rows { rows: 3, selected: 0 | 16 | 2 | 4 }), "{error}");
        assert!(matches!(three.retain(&path("a[*]"), &rows), Err(Error::Rows { .. })));
        assert!(matches!(three.remove_rows(&path("a[*]"), &rows), Err(Error::Rows { .. })));
    }
    assert!(!three.is_edited());
    assert!(three.set_rows(&path("none[*].x"), &Rows::default(), &Value::Null).is_ok());
    three.set_rows(&path("b"), &[true].into_iter().collect(), &Value::Null).unwrap();
    assert_eq!(json(&three), r#"{"a":[{},{},{}],"b":null}"#);
}

#[test]
fn remove_takes_the_comma_along() {
    let remove = |before: &str, expression: &str| {
        let mut document = document(before);
        let count = document.remove(&path(expression)).unwrap();
        assert_eq!(document.is_edited(), count > 0);
        (count, json(&document))
    };
    assert_eq!(remove(r#"{"a":1,"b":2}"#, "a"), (1, r#"{"b":2}"#.into()));
    assert_eq!(remove(r#"{"a":1, "b":2}"#, "b"), (1, r#"{"a":1}"#.into()));
    assert_eq!(remove(r#"{ "a" : null }"#, "a"), (1, "{  }".into()));
    assert_eq!(remove(r#"{"a":{"b":2}}"#, "a.x"), (0, r#"{"a":{"b":2}}"#.into()));
    assert_eq!(
        remove(r#"{"a":[{"x":1,"y":2},{"y":1},{"x":3}]}"#, "a[*].x"),
        (2, r#"{"a":[{"y":2},{"y":1},{}]}"#.into())
    );
    assert_eq!(remove(r#"{"a":[1,2,3]}"#, "a[1]"), (1, r#"{"a":[1,3]}"#.into()));
    assert_eq!(remove(r#"{"a":[1,2,3]}"#, "a[3]"), (0, r#"{"a":[1,2,3]}"#.into()));
    assert_eq!(remove(r#"{"a":[1,2,3]}"#, "a[*]"), (3, r#"{"a":[]}"#.into()));
    assert_eq!(remove(r#"{"a":[[1,2],[3]]}"#, "a[*][0]"), (2, r#"{"a":[[2],[]]}"#.into()));
}

#[test]
fn remove_rows_removes_where_the_bit_is_one() {
    let mut ports = document(r#"{"p":[{"n":1},{"m":2},{"n":3}]}"#);
    assert_eq!(ports.remove_rows(&path("p[*].n"), &Rows::from_bits(&[0b110])).unwrap(), 1);
    assert_eq!(json(&ports), r#"{"p":[{"n":1},{"m":2},{}]}"#);
    assert_eq!(ports.remove_rows(&path("p[*]"), &Rows::from_bits(&[0b101])).unwrap(), 2);
    assert_eq!(json(&ports), r#"{"p":[{"m":2}]}"#);
}

#[test]
fn retain_cuts_the_rows_whose_bit_is_zero() {
    let retain = |before: &str, expression: &str, keep: &[u8]| {
        edited(before, |document| document.retain(&path(expression), &Rows::from_bits(keep)))
    };
    assert_eq!(retain(r#"{"a":[0, 1, 2, 3]}"#, "a[*]", &[0b1010]), r#"{"a":[1, 3]}"#);
    assert_eq!(retain(r#"{"a":[0,1,2,3]}"#, "a[*].any.thing", &[0b0101]), r#"{"a":[0,2]}"#);
    assert_eq!(retain(r#"{"a":[0,1,2]}"#, "a[*]", &[0b001]), r#"{"a":[0]}"#);
    assert_eq!(retain(r#"{"a":[ 0,1 ]}"#, "a[*]", &[0]), r#"{"a":[  ]}"#);
    assert_eq!(retain(r#"{"a":[0,1]}"#, "a[*]", &[0b11]), r#"{"a":[0,1]}"#);
    assert_eq!(
        retain(r#"{"a":[{"b":[1,2]},{},{"b":[3]}]}"#, "a[*].b[*].c", &[0b010]),
        r#"{"a":[{"b":[2]},{},{"b":[]}]}"#
    );
    assert!(matches!(document("{}").retain(&path("a"), &Rows::from_bits(&[])), Err(Error::NoWildcard { .. })));
}

#[test]
fn retain_in_removes_values_that_are_not_in_the_set() {
    let texts: crate::StringSet = ["a", "7", "[1]", "\u{e9}"].into_iter().collect();
    let retain =
        |before: &str, expression: &str| edited(before, |document| document.retain_in(&path(expression), &texts));
    assert_eq!(
        retain(r#"{"a":[{"x":"a"}, {"x":"b"}, {}, {"x":null}, {"x":7}]}"#, "a[*].x"),
        r#"{"a":[{"x":"a"}, {"x":7}]}"#
    );
    assert_eq!(retain(r#"{"a":["\u0061","\u00e9","A",[1],[ 1]]}"#, "a[*]"), r#"{"a":["\u0061","\u00e9",[1]]}"#);
    assert_eq!(
        retain(r#"{"a":[{"b":[{"x":"a"},{}]},{},{"b":[{}]}]}"#, "a[*].b[*].x"),
        r#"{"a":[{"b":[{"x":"a"}]},{},{"b":[]}]}"#
    );
    assert_eq!(retain(r#"{"a":["a","a"]}"#, "a[*]"), r#"{"a":["a","a"]}"#);
    let mut untouched = document(r#"{"a":["a"],"kind":"a"}"#);
    untouched.retain_in(&path("a[*]"), &texts).unwrap();
    untouched.retain_in(&path("none[*].x"), &texts).unwrap();
    assert!(!untouched.is_edited());
    assert!(matches!(untouched.retain_in(&path("a"), &texts), Err(Error::NoWildcard { .. })));
    assert!(matches!(untouched.retain_in(&path("kind"), &texts), Err(Error::NoWildcard { .. })));
    let protected = path("metadata.ownerReferences[*].name");
    assert!(matches!(untouched.retain_in(&protected, &texts), Err(Error::Protected { .. })));
    assert_eq!(untouched.read_only().retain_in(&path("a[*]"), &texts), Err(Error::ReadOnly));
    for bad in [r#"{"a":["a",]}"#, r#"{"a":["\q"]}"#, r#"{"a":[{"x":"a","x":"a"}]}"#] {
        let at = path(if bad.contains('x') { "a[*].x" } else { "a[*]" });
        let mut bad = document(bad);
        assert!(bad.retain_in(&at, &texts).is_err() && !bad.is_edited());
    }
}

#[test]
fn append_adds_to_every_row_and_makes_the_array() {
    let append = |before: &str, expression: &str| {
        edited(before, |document| document.append(&path(expression), &Value::Number("9".into())))
    };
    assert_eq!(append(r#"{"a":[]}"#, "a"), r#"{"a":[9]}"#);
    assert_eq!(append(r#"{"a":[ 1 ]}"#, "a"), r#"{"a":[ 1,9 ]}"#);
    assert_eq!(append(r#"{"a":null}"#, "a"), r#"{"a":[9]}"#);
    assert_eq!(append("{}", "a.b"), r#"{"a":{"b":[9]}}"#);
    assert_eq!(append(r#"{"a":[{"b":[1]},{},{"b":null}]}"#, "a[*].b"), r#"{"a":[{"b":[1,9]},{"b":[9]},{"b":[9]}]}"#);
    assert!(matches!(document(r#"{"a":{}}"#).append(&path("a"), &Value::Null), Err(Error::NotAnArray { .. })));
}

#[test]
fn reads_see_edits_and_checkpoints_undo_them() {
    let before = r#"{"metadata":{"name":"a"},"spec":{"ports":[{"p":1},{"p":2}]}}"#;
    let mut service = document(before);
    let start = service.checkpoint();
    service.retain(&path("spec.ports[*]"), &Rows::from_bits(&[0b10])).unwrap();
    let middle = service.checkpoint();
    service.set(&path("spec.ports[*].p"), &text("x")).unwrap();
    assert_eq!(cells(&service, "spec.ports[*].p"), some(&["x"]));
    service.restore(middle);
    assert_eq!(cells(&service, "spec.ports[*].p"), some(&["2"]));
    assert!(service.is_edited());
    service.restore(start);
    assert!(!service.is_edited());
    assert_eq!(json(&service), before);
}

#[test]
fn no_edit_changes_the_identity() {
    let mut object =
        document(r#"{"kind":"A","apiVersion":"v1","metadata":{"name":"a","labels":{"x":"1"},"ownerReferences":[{}]}}"#);
    for expression in [
        "kind",
        "apiVersion",
        "$",
        "metadata",
        "metadata.uid",
        "metadata.labels['x']",
        "metadata.labels.new",
        "metadata['name']",
        "metadata.ownerReferences[0].x",
    ] {
        let at = path(expression);
        assert!(matches!(object.set(&at, &text("x")), Err(Error::Protected { .. })), "{expression}");
        assert!(matches!(object.remove(&at), Err(Error::Protected { .. })), "{expression}");
        assert!(matches!(object.append(&at, &text("x")), Err(Error::Protected { .. })), "{expression}");
        assert!(
            matches!(object.set_rows(&at, &Rows::from_bits(&[1]), &text("x")), Err(Error::Protected { .. })),
            "{expression}"
        );
    }
    assert!(object.retain(&path("metadata.ownerReferences[*]"), &Rows::from_bits(&[0])).is_err());
    object.set(&path("metadata.annotations.a"), &text("x")).unwrap();
}

#[test]
fn replace_keeps_the_identity_and_compares_values_not_spellings() {
    let before = r#"{"metadata":{"name":"a","labels":{"x":"1","y":"2"}},"spec":1}"#;
    let replace = |next: &str| {
        let mut object = document(before).with_type(Arc::new(service()));
        object.replace(next).map(|()| (object.is_edited(), json(&object)))
    };
    let good = r#"{ "kind":"Service","metadata":{"labels":{"y":"2","\u0078":"1"},"name":"\u0061"},"spec":2}"#;
    assert_eq!(replace(good).unwrap(), (true, good.into()));
    assert_eq!(replace(before).unwrap(), (false, before.into()));
    let typed = document(before).with_type(Arc::new(service())).to_json().unwrap();
    assert_eq!(replace(&typed).unwrap(), (false, before.into()));
    for bad in [
        r#"{"metadata":{"name":"b","labels":{"x":"1","y":"2"}}}"#,
        r#"{"metadata":{"name":"a","labels":{"x":"1"}}}"#,
        r#"{"metadata":{"name":"a","labels":{"x":"1","y":"2"},"uid":"u"}}"#,
        r#"{"kind":"Pod","metadata":{"name":"a","labels":{"x":"1","y":"2"}}}"#,
        "{}",
    ] {
        assert!(matches!(replace(bad), Err(Error::Protected { .. })), "{bad}");
    }
    for broken in ["", "[]", "{", r#"{"a":[1,]}"#, r#"{"a":"\ud800"}"#] {
        assert!(matches!(replace(broken), Err(Error::InvalidValue { .. })), "{broken}");
    }
    assert!(replace(r#"{"metadata":{"name":"a","labels":{"x":"1","y":"2"}},"metadata":{}}"#).is_err());
}

#[test]
fn guards_refuse_like_protected_fields() {
    let guards: Arc<[Path]> = Arc::new([path("spec.containers[*].image"), path("spec.hostNetwork")]);
    let before = r#"{"spec":{"containers":[{"image":"i","env":[]},{"image":"j"}]}}"#;
    let mut pod = document(before).with_guards(guards);
    assert!(pod.set(&path("spec.containers[0].image"), &text("x")).is_err());
    assert!(pod.set(&path("spec.hostNetwork"), &Value::Boolean(true)).is_err());
    assert!(pod.retain(&path("spec.containers[*].env"), &Rows::from_bits(&[1])).is_err());
    assert!(pod.append(&path("spec.containers"), &Value::Json("{}".into())).is_err());
    assert!(pod.replace(r#"{"spec":{"containers":[{"image":"i"},{"image":"k"}]}}"#).is_err());
    assert!(pod.replace(r#"{"spec":{"containers":[{"image":"i"}]}}"#).is_err());
    assert!(!pod.is_edited());
    pod.append(&path("spec.containers[*].env"), &Value::Json("{}".into())).unwrap();
    pod.replace(r#"{"spec":{"containers":[{"image":"i"},{"image":"j"}],"x":1}}"#).unwrap();
}

#[test]
fn read_only_documents_refuse_every_edit() {
    let mut object = document(r#"{"a":[1]}"#).read_only();
    let at = path("a[*]");
    assert_eq!(object.set(&at, &Value::Null), Err(Error::ReadOnly));
    assert_eq!(object.set_rows(&at, &Rows::from_bits(&[1]), &Value::Null), Err(Error::ReadOnly));
    assert_eq!(object.remove(&at), Err(Error::ReadOnly));
    assert_eq!(object.remove_rows(&at, &Rows::from_bits(&[1])), Err(Error::ReadOnly));
    assert_eq!(object.retain(&at, &Rows::from_bits(&[1])), Err(Error::ReadOnly));
    assert_eq!(object.append(&path("a"), &Value::Null), Err(Error::ReadOnly));
    assert_eq!(object.replace("{}"), Err(Error::ReadOnly));
    assert_eq!(cells(&object, "a[*]"), some(&["1"]));
}

#[test]
fn values_of_an_edit_are_validated() {
    let mut object = document("{}");
    for value in [
        Value::Number("01".into()),
        Value::Number("".into()),
        Value::Number("1 ".into()),
        Value::Number("null".into()),
        Value::Number("1".repeat(65)),
        Value::Json("".into()),
        Value::Json("{".into()),
        Value::Json("1 2".into()),
        Value::Json("[".repeat(512) + &"]".repeat(512)),
    ] {
        assert!(matches!(object.set(&path("a"), &value), Err(Error::InvalidValue { .. })), "{value:?}");
        assert!(object.append(&path("a"), &value).is_err(), "{value:?}");
    }
    assert!(!object.is_edited());
    // At the maximum depth, the object can still be read.
    object.set(&path("a"), &Value::Json("[".repeat(511) + &"]".repeat(511))).unwrap();
    assert!(object.text(&path("a")).is_ok());
    assert!(object.replace(&object.to_json().unwrap()).is_ok());
}

#[test]
fn an_edit_cannot_exceed_the_size_limit() {
    let rows = vec!["{}"; 2000].join(",");
    let mut object = document(&format!("{{\"a\":[{rows}]}}"));
    let value = text(&"x".repeat(100_000));
    assert!(matches!(object.set(&path("a[*].b"), &value), Err(Error::TooLarge { .. })));
    assert!(!object.is_edited());
}
