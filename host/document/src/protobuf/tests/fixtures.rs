//! One object of every kind, encoded by the Go types in JSON and protobuf.

use super::*;
use base64::{Engine, engine::general_purpose::STANDARD};

fn each(mut check: impl FnMut(Arc<TypeMeta>, Bytes, &str)) {
    let text = include_str!("../../../tests/protobuf/objects.txt");
    let mut count = 0;
    for line in text.lines() {
        let words: Vec<_> = line.splitn(4, ' ').collect();
        let bytes = STANDARD.decode(words[2]).unwrap();
        check(type_meta(words[0], words[1]), bytes.into(), words[3]);
        count += 1;
    }
    assert!(count > 60);
}

#[test]
fn every_kind_reads_as_the_json_of_the_go_types() {
    each(|type_meta, bytes, json| {
        let document = Document::protobuf(bytes, type_meta.clone()).unwrap();
        assert_eq!(document.to_json().unwrap(), json, "{type_meta:?}");
    });
}

#[test]
fn every_kind_is_encoded_so_that_it_reads_the_same() {
    each(|type_meta, _, json| assert_eq!(document(&type_meta, json).to_json().unwrap(), json, "{type_meta:?}"));
}

#[test]
fn a_replacement_by_its_own_json_changes_nothing() {
    each(|type_meta, bytes, json| {
        let mut document = Document::protobuf(bytes.clone(), type_meta).unwrap();
        document.replace(json).unwrap();
        assert_eq!(document.bytes(), &bytes);
        assert!(!document.is_edited());
    });
}

/// Applied to the JSON of the Go types, the test's own model of JSON changes nothing.
#[test]
fn the_model_leaves_the_json_of_the_go_types_alone() {
    each(|type_meta, _, json| {
        let value: serde_json::Value = serde_json::from_str(json).unwrap();
        assert_eq!(normal::object(&type_meta, &value), value, "{type_meta:?}");
    });
}
