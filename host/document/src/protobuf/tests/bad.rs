//! Malformed protobuf gives errors and never panics. A failed edit changes nothing.

use super::*;
use crate::{Path, Rows, Value};
use base64::{Engine, engine::general_purpose::STANDARD};
use proptest::prelude::*;

const PATHS: [&str; 12] = [
    "$",
    "metadata.name",
    "metadata.annotations['a']",
    "metadata.managedFields[*].fieldsV1['f:spec']",
    "metadata.creationTimestamp",
    "spec.ports[*].targetPort",
    "spec.containers[*].resources.limits['a']",
    "spec.volumes[*].configMap.name",
    "endpoints[*].addresses[*]",
    "subsets[*].addresses[0].targetRef.name",
    "data['a']",
    "spec.template.spec.containers[*].env[*].value",
];

fn fixtures() -> Vec<(Arc<TypeMeta>, Vec<u8>)> {
    let line = |line: &str| {
        let words: Vec<_> = line.splitn(4, ' ').collect();
        (type_meta(words[0], words[1]), STANDARD.decode(words[2]).unwrap())
    };
    include_str!("../../../tests/protobuf/objects.txt").lines().map(line).collect()
}

fn everything(mut document: Document) {
    let _ = document.to_json();
    let _ = document.name();
    let _ = document.label("a");
    for expression in PATHS {
        let path = Path::parse(expression).unwrap();
        let _ = document.lengths(&path);
        let _ = document.keys(&path);
        let _ = document.fingerprint(&path);
        let _ = document.text(&path);
        let rows = document.column(&path).map_or(0, |column| column.len());
        let selected: Rows<'_> = (0..rows).map(|row| [0, 2, 5, 7].contains(&(row % 8))).collect();
        for kind in 0..5 {
            let before = document.bytes().clone();
            let failed = match kind {
                0 => document.set(&path, &Value::Text("new".into())).is_err(),
                1 => document.set_rows(&path, &selected, &Value::Null).is_err(),
                2 => document.remove_rows(&path, &selected).is_err(),
                3 => document.retain(&path, &selected).is_err(),
                _ => document.append(&path, &Value::Text("new".into())).is_err(),
            };
            assert!(!failed || document.bytes() == &before);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(1500) })]

    #[test]
    fn damaged_objects_never_panic(
        which in any::<prop::sample::Index>(),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<Option<u8>>()), 1..6),
    ) {
        let all = fixtures();
        let (type_meta, mut bytes) = all[which.index(all.len())].clone();
        for (at, byte) in damage {
            let at = at.index(bytes.len().max(1));
            match (byte, bytes.get_mut(at)) {
                (Some(byte), Some(slot)) => *slot = byte,
                _ => bytes.truncate(at.max(1)),
            }
        }
        everything(Document::protobuf(bytes.into(), type_meta).unwrap());
    }

    #[test]
    fn random_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
        for kind in ["Pod", "Service", "ConfigMap"] {
            everything(Document::protobuf(bytes.clone().into(), type_meta("v1", kind)).unwrap());
        }
        let mut body = super::super::MAGIC.to_vec();
        body.extend_from_slice(&bytes);
        let mut splitter = super::super::ListSplitter::with_limit(1 << 16);
        splitter.push(body);
        while let Ok(Some(_)) = splitter.next() {}
        let mut splitter = super::super::FrameSplitter::with_limit(1 << 16);
        splitter.push(bytes);
        while let Ok(Some(_)) = splitter.next() {}
    }
}

#[test]
fn an_invalid_message_is_an_error_of_every_read() {
    for bad in [&[0x0a][..], &[0x0b], &[0x0a, 0x7f], &[0x08, 0xff], &[0x07, 1]] {
        let document = Document::protobuf(Bytes::copy_from_slice(bad), type_meta("v1", "Service")).unwrap();
        assert!(document.name().is_err(), "{bad:?}");
        assert!(document.kind().is_err(), "{bad:?}");
        assert!(document.to_json().is_err(), "{bad:?}");
        assert!(document.column(&Path::parse("x[*]").unwrap()).is_err(), "{bad:?}");
    }
}

#[test]
fn a_repeated_field_on_the_walked_path_is_an_error() {
    let mut bytes = message(&type_meta("v1", "Service"), r#"{"metadata":{"name":"a"}}"#).to_vec();
    bytes.extend(bytes.clone());
    let document = Document::protobuf(bytes.into(), type_meta("v1", "Service")).unwrap();
    assert!(matches!(document.name(), Err(crate::Error::DuplicateKey { .. })));
    assert_eq!(document.kind().unwrap(), "Service");
}
