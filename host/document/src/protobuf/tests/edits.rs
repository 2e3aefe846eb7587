//! Edits keep all other bytes, unknown fields, identity and guards.

use super::*;
use crate::{Error, Path, Rows, Value};

const SLICE: &str = r#"{"metadata":{"name":"a","labels":{"x":"1"}},"addressType":"IPv4","endpoints":[{"addresses":["10.0.0.1"],"nodeName":"n1","conditions":{"ready":true}},{"addresses":["10.0.0.2","10.0.0.3"],"conditions":{}},{"addresses":["10.0.0.4"],"nodeName":"n2","conditions":{}}],"ports":[{"name":"http","port":80}]}"#;

fn slice() -> Document {
    document(&type_meta("discovery.k8s.io/v1", "EndpointSlice"), SLICE)
}

fn path(expression: &str) -> Path {
    Path::parse(expression).unwrap()
}

/// Returns the object with an unknown field (number 4000) in itself, in its metadata and in each endpoint.
fn with_unknown_fields() -> Document {
    let plain = slice();
    let mut out = Vec::new();
    let mut records = wire::Records::new(plain.bytes(), 0..plain.bytes().len());
    while let Some(record) = records.next().unwrap() {
        let bytes = &plain.bytes()[record.value.clone()];
        if record.number == 1 || record.number == 2 {
            let mut inner = bytes.to_vec();
            wire::put_bytes(4000, b"new", &mut inner);
            wire::put_bytes(record.number, &inner, &mut out);
        } else {
            out.extend_from_slice(&plain.bytes()[record.whole()]);
        }
    }
    wire::put_number(4000, 7, &mut out);
    Document::protobuf(out.into(), type_meta("discovery.k8s.io/v1", "EndpointSlice")).unwrap()
}

fn unknown(document: &Document) -> usize {
    let mut tag = Vec::new();
    wire::put_varint(4000 << 3 | 2, &mut tag);
    document.bytes().windows(tag.len()).filter(|window| *window == tag).count()
}

#[test]
fn unknown_fields_survive_edits_and_are_invisible() {
    let mut object = with_unknown_fields();
    assert_eq!(object.to_json().unwrap(), slice().to_json().unwrap());
    assert_eq!(unknown(&object), 4);
    object.retain(&path("endpoints[*]"), &Rows::from_bits(&[0b101])).unwrap();
    object.set(&path("endpoints[*].zone"), &Value::Text("z".repeat(300))).unwrap();
    object.set(&path("metadata.annotations.a"), &Value::Text("b".into())).unwrap();
    assert_eq!(unknown(&object), 3);
    assert_eq!(object.column(&path("endpoints[*].nodeName")).unwrap().text, "n1n2");
    let json = object.to_json().unwrap();
    object.replace(&json.replace("IPv4", "IPv6")).unwrap();
    // The elements of a replaced list lose their unknown fields. The object and its metadata keep theirs.
    assert_eq!(unknown(&object), 1);
    assert!(object.bytes().ends_with(&{
        let mut last = Vec::new();
        wire::put_number(4000, 7, &mut last);
        last
    }));
}

#[test]
fn edits_that_change_nothing_leave_every_byte() {
    let mut object = with_unknown_fields();
    let before = object.bytes().clone();
    object.set(&path("addressType"), &Value::Text("IPv4".into())).unwrap();
    object.set(&path("ports[*].port"), &Value::Number("80".into())).unwrap();
    object.set(&path("endpoints[0].conditions"), &Value::Json(r#"{ "ready" : true }"#.into())).unwrap();
    object.set(&path("endpoints[1].nodeName"), &Value::Null).unwrap();
    object.set(&path("metadata.generation"), &Value::Number("0".into())).unwrap();
    object.retain(&path("endpoints[*].nodeName"), &Rows::from_bits(&[0b111])).unwrap();
    assert_eq!(object.remove(&path("endpoints[*].zone")).unwrap(), 0);
    assert_eq!(object.remove_rows(&path("endpoints[*].nodeName"), &Rows::from_bits(&[0b010])).unwrap(), 0);
    object.replace(&object.to_json().unwrap()).unwrap();
    assert!(!object.is_edited());
    assert_eq!(object.bytes().as_ptr(), before.as_ptr());
}

/// Go always writes such messages. Other writers omit them.
#[test]
fn an_edit_creates_no_message_that_reads_like_a_missing_one() {
    let mut service = document(&type_meta("v1", "Service"), r#"{"metadata":{"name":"a"}}"#);
    assert!(service.to_json().unwrap().ends_with(r#""spec":{},"status":{"loadBalancer":{}}}"#));
    service.set(&path("spec.healthCheckNodePort"), &Value::Number("0".into())).unwrap();
    service.set(&path("spec.type"), &Value::Null).unwrap();
    service.set(&path("status.loadBalancer.ingress"), &Value::Null).unwrap();
    service.set(&path("status.loadBalancer"), &Value::Json("{}".into())).unwrap();
    assert!(!service.is_edited());
    service.set(&path("spec.sessionAffinityConfig.clientIP"), &Value::Null).unwrap();
    assert!(service.to_json().unwrap().contains(r#""spec":{"sessionAffinityConfig":{}}"#));
}

#[test]
fn lengths_of_every_level_grow_and_shrink() {
    let mut pod = document(
        &type_meta("v1", "Pod"),
        r#"{"spec":{"volumes":[{"name":"v","configMap":{"name":"c"}}],"containers":[{"name":"c","env":[{"name":"e"}]}]}}"#,
    );
    let before = pod.to_json().unwrap();
    for length in [0, 1, 100, 126, 127, 128, 129, 16_000, 16_383, 16_384, 20_000, 5] {
        let value = "x".repeat(length);
        pod.set(&path("spec.containers[0].env[0].value"), &Value::Text(value.clone())).unwrap();
        assert_eq!(pod.text(&path("spec.containers[0].env[0].value")).unwrap().unwrap_or_default(), value);
        pod.set(&path("spec.volumes[*].configMap.name"), &Value::Text(value.clone())).unwrap();
        assert_eq!(pod.text(&path("spec.volumes[0].configMap.name")).unwrap().unwrap_or_default(), value);
    }
    pod.remove(&path("spec.containers[*].env[*].value")).unwrap();
    pod.set(&path("spec.volumes[*].configMap.name"), &Value::Text("c".into())).unwrap();
    assert_eq!(pod.to_json().unwrap(), before);
}

/// The value of such an entry is a message of its own, whose length changes too.
#[test]
fn lengths_around_a_list_in_a_map_grow_and_shrink() {
    let csr = type_meta("certificates.k8s.io/v1", "CertificateSigningRequest");
    let text = r#"{"metadata":{"name":"a"},"spec":{"request":"AAEC","extra":{"k":["a","b","c"],"l":["d"]}}}"#;
    let at = path("spec.extra['k'][1]");
    for length in [0, 1, 100, 127, 128, 20_000] {
        let (mut csr, mut json) = (document(&csr, text), Document::json(text.into()));
        let value = Value::Text("x".repeat(length));
        csr.set(&at, &value).unwrap();
        json.set(&at, &value).unwrap();
        let all = path("spec.extra['k'][*]");
        assert_eq!(csr.column(&all).unwrap(), json.column(&all).unwrap(), "{length}");
        assert_eq!(csr.remove(&at).unwrap(), 1);
        assert_eq!(csr.column(&all).unwrap().iter().collect::<Vec<_>>(), [Some("a"), Some("c")]);
        csr.retain(&all, &Rows::from_bits(&[0b10])).unwrap();
        assert_eq!(csr.column(&all).unwrap().text, "c");
        assert_eq!(csr.text(&path("spec.extra['l'][0]")).unwrap().as_deref(), Some("d"));
    }
}

/// As in JSON. Edits of values inside JSON text are refused, but there is nothing to remove.
#[test]
fn a_removal_that_finds_nothing_in_json_text_is_no_error() {
    let of = type_meta("v1", "Service");
    let text = r#"{"metadata":{"managedFields":[{"fieldsV1":{"f:spec":{"x":[1]}}}]}}"#;
    let mut service = document(&of, text);
    assert_eq!(service.remove(&path("metadata.managedFields[*].fieldsV1['f:none']")).unwrap(), 0);
    let found = path("metadata.managedFields[*].fieldsV1['f:spec'].x[*]");
    assert_eq!(service.remove_rows(&found, &Rows::from_bits(&[0])).unwrap(), 0);
    assert!(matches!(service.remove(&found), Err(Error::NotInSchema { .. })));
    assert!(!service.is_edited());
}

#[test]
fn identity_guards_and_read_only_hold_as_in_json() {
    let mut object = slice().with_guards(Arc::new([path("ports[*].port")]));
    for expression in ["metadata.name", "metadata.labels['x']", "metadata", "kind", "$", "ports[0].port", "ports"] {
        assert!(matches!(object.set(&path(expression), &Value::Null), Err(Error::Protected { .. })), "{expression}");
        assert!(matches!(object.remove(&path(expression)), Err(Error::Protected { .. })), "{expression}");
    }
    let json = object.to_json().unwrap();
    for (from, to) in [
        ("\"name\":\"a\"", "\"name\":\"b\""),
        ("\"x\":\"1\"", "\"y\":\"1\""),
        ("80", "81"),
        ("EndpointSlice", "Service"),
    ] {
        let other = json.replace(from, to);
        assert!(matches!(object.replace(&other), Err(Error::Protected { .. })), "{to}");
    }
    assert!(!object.is_edited());
    let mut looked_up = slice().read_only();
    assert_eq!(looked_up.set(&path("addressType"), &Value::Null), Err(Error::ReadOnly));
    assert_eq!(looked_up.replace("{}"), Err(Error::ReadOnly));
}

#[test]
fn checkpoints_bring_the_bytes_back() {
    let mut object = slice();
    let before = object.bytes().clone();
    let start = object.checkpoint();
    object.retain(&path("endpoints[*]"), &Rows::from_bits(&[0])).unwrap();
    assert_eq!(object.lengths(&path("endpoints[*]")).unwrap(), [0]);
    assert_eq!(object.get(&path("endpoints")).unwrap(), Some(Value::Null));
    object.restore(start);
    assert_eq!((object.bytes(), object.is_edited()), (&before, false));
}

#[test]
fn edits_that_protobuf_cannot_encode_are_refused() {
    let mut object = slice();
    let mut set = |expression: &str, value: Value| object.set(&path(expression), &value);
    assert!(matches!(set("nothing", Value::Null), Err(Error::NotInSchema { .. })));
    assert!(matches!(set("endpoints[*].nothing.x", Value::Null), Err(Error::NotInSchema { .. })));
    assert!(matches!(set("addressType", Value::Boolean(true)), Err(Error::InvalidValue { .. })));
    assert!(matches!(set("ports[*].port", Value::Number("1.5".into())), Err(Error::InvalidValue { .. })));
    assert!(matches!(set("ports[*].port", Value::Number("2147483648".into())), Err(Error::InvalidValue { .. })));
    assert!(matches!(set("ports[*]", Value::Json(r#"{"nothing":1}"#.into())), Err(Error::InvalidValue { .. })));
    assert!(matches!(set("addressType.x", Value::Null), Err(Error::NotAnObject { .. })));
    assert!(matches!(object.append(&path("addressType"), &Value::Null), Err(Error::NotAnArray { .. })));
    assert!(!object.is_edited());
    let failure =
        r#"{"kind":"Status","status":"Failure","message":"no","reason":"NotFound","details":{"name":"a"},"code":404}"#;
    let status = document(&type_meta("v1", "Status"), failure);
    assert_eq!(status.text(&path("code")).unwrap().as_deref(), Some("404"));
    let pool = type_meta("apps.openyurt.io/v1beta2", "NodePool");
    assert!(matches!(super::super::from_json(&pool, "{}"), Err(Error::NoSchema { .. })));
    assert!(Document::protobuf(Bytes::new(), type_meta("apps.openyurt.io/v1beta2", "NodePool")).is_none());
}

/// Go writes a zero time as an empty message if the field is not a pointer.
#[test]
fn a_zero_time_is_null_or_left_out() {
    let mut metadata = Vec::new();
    wire::put_bytes(8, &[], &mut metadata);
    let mut event = Vec::new();
    wire::put_bytes(1, &metadata, &mut event);
    wire::put_bytes(2, &[], &mut event);
    let event = Document::protobuf(event.into(), type_meta("events.k8s.io/v1", "Event")).unwrap();
    assert_eq!(event.get(&path("metadata.creationTimestamp")).unwrap(), None);
    assert_eq!(event.get(&path("eventTime")).unwrap(), Some(Value::Null));
    assert_eq!(event.text(&path("eventTime")).unwrap(), None);
}

#[test]
fn an_edit_cannot_exceed_the_size_limit() {
    let endpoints = vec![r#"{"addresses":["1"]}"#; 2000].join(",");
    let type_meta = type_meta("discovery.k8s.io/v1", "EndpointSlice");
    let mut object = document(&type_meta, &format!("{{\"endpoints\":[{endpoints}]}}"));
    let value = Value::Text("x".repeat(100_000));
    assert!(matches!(object.set(&path("endpoints[*].zone"), &value), Err(Error::TooLarge { .. })));
    assert!(!object.is_edited());
}

#[test]
fn a_replacement_contains_the_type_as_in_json() {
    let type_meta = type_meta("v1", "ConfigMap");
    let text = r#"{"kind":"ConfigMap","apiVersion":"v1","data":{"a":"b"}}"#;
    for (object, binary) in
        [(document(&type_meta, text), true), (Document::json(text.into()).with_rules(&IDENTITY), false)]
    {
        for (by, taken) in [
            (r#"{"data":{}}"#, false),
            (r#"{"kind":"Secret","apiVersion":"v1"}"#, false),
            (r#"{"kind":"ConfigMap","apiVersion":"v1","data":{"c":"d"}}"#, true),
        ] {
            let mut object = object.clone();
            assert_eq!(object.is_protobuf(), binary);
            assert_eq!(object.replace(by).is_ok(), taken, "{by}");
        }
    }
}
