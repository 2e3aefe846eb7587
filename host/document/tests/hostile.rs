//! Input that no API server sends. Each case gives an error or a result, in bounded memory, and never a panic.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a panic in a test helper fails the test")]

use bytes::Bytes;
use std::sync::Arc;
use weir_document::{
    Document, Error, Path, SplitError, TypeMeta, Value,
    json::{self, FrameSplitter},
    list::{Piece, Split, split},
    protobuf::{self, Envelope},
};

const DEPTH: usize = 10_000;
const LIMIT: usize = 1 << 20;

fn path(text: &str) -> Path {
    Path::parse(text).unwrap()
}

fn type_meta(kind: &str) -> TypeMeta {
    TypeMeta { api_version: "v1".into(), kind: kind.into() }
}

fn service(bytes: Vec<u8>) -> Document {
    Document::protobuf(bytes.into(), Arc::new(type_meta("Service"))).unwrap()
}

fn record(number: u8, value: &[u8]) -> Vec<u8> {
    let mut out = vec![number << 3 | 2];
    let mut length = value.len();
    while length >= 0x80 {
        out.push(length as u8 | 0x80);
        length >>= 7;
    }
    out.push(length as u8);
    out.extend_from_slice(value);
    out
}

/// Returns the sizes of the items, or the error.
fn items(splitter: impl Split, chunks: impl IntoIterator<Item = Bytes>) -> Result<Vec<usize>, SplitError> {
    let mut sizes = Vec::new();
    split(splitter, chunks, |piece| {
        if let Piece::Batch(batch) = piece {
            sizes.extend(batch.items.iter().map(|item| item.len()));
        }
        Ok::<_, SplitError>(())
    })?;
    Ok(sizes)
}

#[test]
fn ten_thousand_levels_of_json_are_an_error_of_what_reads_them_and_of_nothing_else() {
    for (open, close) in [("{\"a\":", "}"), ("[", "]")] {
        let nest = format!("{{\"a\":{}1{}}}", open.repeat(DEPTH), close.repeat(DEPTH));
        let mut document = Document::json(nest.clone().into());
        assert!(matches!(document.get(&path("a")), Err(Error::TooDeep { .. })));
        assert_eq!(document.text(&path("b")), Ok(None));
        assert!(document.fingerprint(&path("a")).is_err());
        assert!(document.replace(&nest.replace('1', "2")).is_err());
        assert_eq!(document.bytes(), &nest);
        let list = Bytes::from(format!("{{\"items\":[{nest},{{}}]}}"));
        assert_eq!(items(json::ListSplitter::new(), [list]), Ok(vec![nest.len(), 2]));
        let mut frames = FrameSplitter::new();
        frames.push(format!("{{\"type\":\"ADDED\",\"object\":{nest}}}\n"));
        assert!(frames.next().unwrap().is_some());
        // Writing it into an object is refused too.
        let mut document = Document::json("{}".into());
        assert!(document.set(&path("a"), &Value::Json(nest)).is_err());
        assert!(!document.is_edited());
    }
}

#[test]
fn ten_thousand_levels_of_messages_are_read_along_the_path_only() {
    let nest = (0..DEPTH).fold(Vec::new(), |inner, _| record(1, &inner));
    let mut document = service(nest.clone());
    let _ = (document.name().is_ok(), document.to_json().is_ok(), document.column(&path("spec.ports[*].name")).is_ok());
    let _ = document.set(&path("spec.type"), &Value::Text("ClusterIP".into()));
    // An unknown field is not parsed.
    let known = record(1, &record(1, b"name"));
    let document = service([known, record(15, &nest)].concat());
    assert_eq!(document.name().unwrap(), "name");
    let list = Envelope::seal(&type_meta("ServiceList"), &record(2, &nest));
    assert_eq!(items(protobuf::ListSplitter::new(), [list]), Ok(vec![nest.len()]));
}

#[test]
fn text_that_is_not_utf_8_is_an_error_where_it_is_read() {
    let document = Document::json(Bytes::from_static(b"{\"a\":\"\xff\",\"b\":\"x\",\"c\":[\"\xc0\xaf\"]}"));
    assert!(document.text(&path("a")).is_err());
    assert!(document.column(&path("c[*]")).is_err());
    assert_eq!(document.text(&path("b")).unwrap().unwrap(), "x");
    let document = service(record(1, &[record(1, b"\xff"), record(3, b"x")].concat()));
    assert!(document.name().is_err());
    assert_eq!(document.namespace().unwrap().unwrap(), "x");
}

#[test]
fn escaped_keys_equal_their_text_and_repeated_ones_are_errors() {
    let document = Document::json(r#"{"\u0061":1,"m":{"x":1,"\u0078":2}}"#.into());
    assert_eq!(document.text(&path("a")).unwrap().unwrap(), "1");
    assert!(matches!(document.text(&path("m.x")), Err(Error::DuplicateKey { .. })));
}

#[test]
fn a_number_of_a_thousand_digits_keeps_its_spelling_and_cannot_be_written() {
    let digits = "7".repeat(1000);
    let mut document = Document::json(format!("{{\"a\":{digits},\"b\":1}}").into());
    assert_eq!(document.get(&path("a")).unwrap(), Some(Value::Number(digits.clone())));
    assert!(document.set(&path("b"), &Value::Number(digits.clone())).is_err());
    document.set(&path("b"), &Value::Number("2".into())).unwrap();
    assert!(document.bytes().starts_with(format!("{{\"a\":{digits}").as_bytes()));
    let mut document = service(record(2, &[]));
    assert!(document.set(&path("spec.ports"), &Value::Json(format!("[{{\"port\":{digits}}}]"))).is_err());
    assert!(!document.is_edited());
}

#[test]
fn a_hundred_megabytes_of_white_space_end_at_the_limit() {
    let blanks = Bytes::from(vec![b' '; 64 << 10]);
    let mut taken = 0;
    let chunks = std::iter::once(Bytes::from_static(b"{\"items\":[")).chain((0..1600).map(|_| {
        taken += blanks.len();
        blanks.clone()
    }));
    let error = items(json::ListSplitter::with_limit(LIMIT), chunks);
    assert_eq!(error, Err(SplitError::TooLarge { limit: LIMIT }));
    assert!(taken <= LIMIT + 2 * blanks.len(), "{taken}");
    // Between events, white space is discarded at once.
    let mut frames = FrameSplitter::with_limit(LIMIT);
    for _ in 0..1600 {
        frames.push(blanks.clone());
        assert_eq!(frames.next(), Ok(None));
    }
    frames.push("{\"type\":\"ADDED\",\"object\":{}}");
    assert!(frames.next().unwrap().is_some());
}

#[test]
fn an_object_of_fifty_megabytes_is_accepted_or_refused_by_the_limit() {
    let size = 50 << 20;
    let text = "x".repeat(size);
    let object = format!("{{\"metadata\":{{\"name\":\"a\"}},\"data\":{{\"a\":\"{text}\"}}}}");
    let list = Bytes::from(format!("{{\"items\":[{object}]}}"));
    let chunks = |list: &Bytes| list.chunks(1 << 20).map(|chunk| list.slice_ref(chunk)).collect::<Vec<_>>();
    assert_eq!(items(json::ListSplitter::new(), chunks(&list)), Ok(vec![object.len()]));
    let limit = 32 << 20;
    assert_eq!(items(json::ListSplitter::with_limit(limit), chunks(&list)), Err(SplitError::TooLarge { limit }));
    let mut document = Document::json(object.into());
    assert_eq!(document.name().unwrap(), "a");
    document.set(&path("data['b']"), &Value::Null).unwrap();
    let message = record(2, &[record(1, b"a"), record(2, text.as_bytes())].concat());
    let list = Envelope::seal(&type_meta("ConfigMapList"), &record(2, &message));
    assert_eq!(items(protobuf::ListSplitter::new(), chunks(&list)), Ok(vec![message.len()]));
    let refused = items(protobuf::ListSplitter::with_limit(limit), chunks(&list).into_iter().take(1));
    assert_eq!(refused, Err(SplitError::TooLarge { limit }));
    let document = Document::protobuf(message.into(), Arc::new(type_meta("ConfigMap"))).unwrap();
    assert_eq!(document.text(&path("data['a']")).unwrap().unwrap().len(), size);
}
