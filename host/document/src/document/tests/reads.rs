//! The results of reads.

use super::*;

const SLICE: &str = r#"{"kind":"EndpointSlice","apiVersion":"discovery.k8s.io/v1","metadata":{"name":"a","namespace":"n","labels":{"l/x":"1"},
 "annotations":{"a":"","b":"\u00fc"}},"endpoints":[{"addresses":["1","2"],"nodeName":"x","n":1.50},{"addresses":[]},{"nodeName":null,"n":true,
 "addresses":["3"]}],"ports":null}"#;

#[test]
fn common_reads_return_their_values() {
    let slice = document(SLICE);
    assert_eq!(slice.api_version().unwrap(), "discovery.k8s.io/v1");
    assert_eq!(slice.kind().unwrap(), "EndpointSlice");
    assert_eq!(slice.name().unwrap(), "a");
    assert_eq!(slice.namespace().unwrap().as_deref(), Some("n"));
    assert_eq!(slice.label("l/x").unwrap().as_deref(), Some("1"));
    assert_eq!(slice.label("l").unwrap(), None);
    assert_eq!(slice.annotation("a").unwrap().as_deref(), Some(""));
    assert_eq!(slice.annotation("b").unwrap().as_deref(), Some("ü"));
    let bare = document("{}");
    assert_eq!(bare.name().unwrap(), "");
    assert_eq!(bare.namespace().unwrap(), None);
    assert_eq!(bare.annotation("b").unwrap(), None);
}

#[test]
fn columns_have_a_cell_for_every_row() {
    let slice = document(SLICE);
    assert_eq!(cells(&slice, "endpoints[*].nodeName"), [Some("x".into()), None, None]);
    assert_eq!(cells(&slice, "endpoints[*].n"), [Some("1.50".into()), None, Some("true".into())]);
    assert_eq!(cells(&slice, "endpoints[*].addresses[*]"), some(&["1", "2", "3"]));
    assert_eq!(cells(&slice, "endpoints[*].addresses"), some(&[r#"["1","2"]"#, "[]", r#"["3"]"#]));
    assert_eq!(cells(&slice, "endpoints[*].addresses[0]"), [Some("1".into()), None, Some("3".into())]);
    assert_eq!(cells(&slice, "ports[*].port"), []);
    assert_eq!(cells(&slice, "metadata[*]"), []);
    assert_eq!(cells(&slice, "nothing[*]"), []);
    assert_eq!(cells(&slice, "metadata.name"), some(&["a"]));
    assert_eq!(cells(&slice, "metadata.nothing"), [None]);
    assert_eq!(cells(&slice, "ports"), [None]);
    assert_eq!(cells(&slice, "$"), some(&[SLICE]));
}

#[test]
fn lengths_map_inner_rows_to_outer_rows() {
    let slice = document(SLICE);
    let lengths = |expression| slice.lengths(&path(expression)).unwrap();
    assert_eq!(lengths("endpoints[*].addresses[*]"), [2, 0, 1]);
    assert_eq!(lengths("endpoints[*].addresses[*].x"), [2, 0, 1]);
    assert_eq!(lengths("endpoints[*].nodeName"), [3]);
    assert_eq!(lengths("ports[*]"), [0]);
    assert_eq!(lengths("nothing[*]"), [0]);
    assert!(lengths("nothing[*].x[*]").is_empty());
    assert!(lengths("endpoints").is_empty());
}

#[test]
fn one_value_is_typed_and_wildcards_are_refused() {
    let odd = document(r#"{"n":-0.10e+2,"t":"a\nb","j":{"x":[1]},"z":null,"b":false}"#);
    let get = |expression| odd.get(&path(expression)).unwrap();
    assert_eq!(get("n"), Some(Value::Number("-0.10e+2".into())));
    assert_eq!(get("t"), Some(text("a\nb")));
    assert_eq!(get("j"), Some(Value::Json(r#"{"x":[1]}"#.into())));
    assert_eq!(get("j.x[0]"), Some(Value::Number("1".into())));
    assert_eq!(get("z"), Some(Value::Null));
    assert_eq!(get("b"), Some(Value::Boolean(false)));
    assert_eq!(get("z.y"), None);
    assert_eq!(get("j.x[1]"), None);
    assert_eq!(get("j[0]"), None);
    assert_eq!(odd.text(&path("z")).unwrap(), None);
    assert_eq!(odd.text(&path("t")).unwrap().as_deref(), Some("a\nb"));
    for error in [odd.get(&path("j.x[*]")).unwrap_err(), odd.text(&path("j.x[*]")).unwrap_err()] {
        assert!(matches!(error, Error::Wildcard { .. }));
    }
}

#[test]
fn keys_come_in_document_order() {
    let slice = document(SLICE);
    assert_eq!(slice.keys(&path("metadata.annotations")).unwrap(), ["a", "b"]);
    assert_eq!(slice.keys(&path("$")).unwrap(), ["kind", "apiVersion", "metadata", "endpoints", "ports"]);
    assert_eq!(slice.keys(&path("ports")).unwrap(), [""; 0]);
    assert_eq!(slice.keys(&path("nothing")).unwrap(), [""; 0]);
    assert!(document(r#"{"a":{"x":1,"\u0078":2}}"#).keys(&path("a")).is_err());
}

#[test]
fn a_repeated_key_on_the_walked_path_is_an_error_however_it_is_spelt() {
    for bytes in [
        r#"{"metadata":{"name":"a","n\u0061me":"b"}}"#,
        r#"{"metadata":{"name":"a"},"metadata":{}}"#,
        r#"{"metadata":{"name":"a"},"m\u0065tadata":null}"#,
    ] {
        assert!(matches!(document(bytes).name(), Err(Error::DuplicateKey { .. })), "{bytes}");
    }
    let elsewhere = document(r#"{"metadata":{"name":"a"},"spec":{"x":1,"x":2,"l":[{"y":1,"y":2}]}}"#);
    assert_eq!(elsewhere.name().unwrap(), "a");
    assert!(elsewhere.text(&path("spec.x")).is_err());
    assert!(elsewhere.column(&path("spec.l[*].y")).is_err());
    assert!(document(r#"{"metadata":{"labels":{"a":"1","a":"1"}}}"#).label("a").is_err());
}

#[test]
fn values_on_the_path_are_validated_and_others_are_not() {
    let broken = document("{\"a\":\"\\x\",\"b\":\"\u{1}\",\"c\":[1,,],\"d\":\"\\ud800\",\"e\":[nope],\"f\":1}");
    for expression in ["a", "b", "c", "d", "e", "c[*]", "e[0]"] {
        assert!(broken.column(&path(expression)).is_err(), "{expression}");
    }
    assert_eq!(broken.text(&path("f")).unwrap().as_deref(), Some("1"));
    let invalid = Document::json(Bytes::from_static(b"{\"a\":\"\xff\",\"b\":{\"\xff\":1},\"c\":1}"));
    assert!(invalid.text(&path("a")).is_err());
    assert!(invalid.text(&path("b")).is_err());
    assert!(invalid.to_json().is_err());
    assert_eq!(invalid.text(&path("c")).unwrap().as_deref(), Some("1"));
}

#[test]
fn an_invalid_object_is_an_error_of_every_read() {
    for bytes in
        ["", " ", "[]", "null", "\"a\"", "{", "{}}", "{} x", "{\"a\":1", "{\"a\" 1}", "{\"a\":[}]}", "{\"a\":tru}"]
    {
        let document = document(bytes);
        assert!(document.name().is_err(), "{bytes}");
        assert!(document.column(&path("x[*]")).is_err(), "{bytes}");
        assert!(document.fingerprint(&path("x")).is_err(), "{bytes}");
        assert!(document.to_json().is_err(), "{bytes}");
    }
}

#[test]
fn items_of_a_typed_list_have_the_type_of_the_list() {
    let item = document(r#"{"metadata":{"name":"a"}}"#).with_type(Arc::new(service()));
    assert_eq!(item.api_version().unwrap(), "v1");
    assert_eq!(item.kind().unwrap(), "Service");
    assert_eq!(item.get(&path("kind")).unwrap(), Some(text("Service")));
    assert_eq!(item.text(&path("$.apiVersion")).unwrap().as_deref(), Some("v1"));
    assert_eq!(cells(&item, "kind"), some(&["Service"]));
    assert_eq!(item.keys(&path("$")).unwrap(), ["metadata", "apiVersion", "kind"]);
    assert_eq!(item.to_json().unwrap(), r#"{"kind":"Service","apiVersion":"v1","metadata":{"name":"a"}}"#);
    assert_eq!(json(&item), r#"{"metadata":{"name":"a"}}"#);
    let spelt = document(r#"{"kind":"Service"}"#);
    assert_eq!(item.fingerprint(&path("kind")).unwrap(), spelt.fingerprint(&path("kind")).unwrap());
    let own = document(r#"{"kind":"Pod","apiVersion":null}"#).with_type(Arc::new(service()));
    assert_eq!(own.kind().unwrap(), "Pod");
    assert_eq!(own.api_version().unwrap(), "v1");
    assert_eq!(own.to_json().unwrap(), r#"{"kind":"Pod","apiVersion":"v1"}"#);
}

#[test]
fn fingerprints_follow_the_values_of_all_rows() {
    let of = |json: &str, expression: &str| document(json).fingerprint(&path(expression)).unwrap();
    assert_eq!(of(r#"{"a":["x","y"],"b":1}"#, "a[*]"), of(r#"{"b":2, "a": ["x" ,"\u0079"]}"#, "a[*]"));
    let different = [
        of(r#"{"a":["x","y"]}"#, "a[*]"),
        of(r#"{"a":["xy"]}"#, "a[*]"),
        of(r#"{"a":["x","y",null]}"#, "a[*]"),
        of(r#"{"a":[]}"#, "a[*]"),
        of(r#"{"a":["1"]}"#, "a[*]"),
        of(r#"{"a":[1]}"#, "a[*]"),
    ];
    for (i, one) in different.iter().enumerate() {
        assert!(!different[i + 1..].contains(one), "{i}");
    }
    assert_eq!(of("{}", "a"), of(r#"{"b":1}"#, "a"));
    assert_ne!(of("{}", "a"), of(r#"{"a":""}"#, "a"));
}
