//! The rules of watch frames.

use super::{EventType, Frame, FrameSplitter, event, with_type_meta};
use crate::{SplitError, TypeMeta};
use bytes::Bytes;

fn frames(body: &[u8], chunk: usize, limit: usize) -> Result<Vec<Frame>, SplitError> {
    let mut splitter = FrameSplitter::with_limit(limit);
    let mut frames = Vec::new();
    for chunk in body.chunks(chunk) {
        splitter.push(Bytes::copy_from_slice(chunk));
        while let Some(frame) = splitter.next()? {
            frames.push(frame);
        }
    }
    splitter.finish();
    while let Some(frame) = splitter.next()? {
        frames.push(frame);
    }
    Ok(frames)
}

#[test]
fn frames_are_the_same_at_any_chunk_boundaries() {
    let body = "{\"type\":\"ADDED\",\"object\":{\"a\":\"}\\\"\"}}\n {\"object\": {} , \"type\":\"DELET\\u0045D\"}{\"type\":\"BOOKMARK\",\"x\":1,\"object\":{}}\r\n";
    for chunk in [1, 2, 5, 64, 1000] {
        let frames = frames(body.as_bytes(), chunk, 1000).unwrap();
        let events: Vec<_> = frames.iter().map(|frame| frame.event).collect();
        assert_eq!(events, [EventType::Added, EventType::Deleted, EventType::Bookmark]);
        let objects: Vec<_> = frames.iter().map(|frame| frame.object_bytes()).collect();
        assert_eq!(objects, ["{\"a\":\"}\\\"\"}", "{}", "{}"]);
        assert_eq!(frames[1].line(), "{\"object\": {} , \"type\":\"DELET\\u0045D\"}\n");
    }
}

#[test]
fn a_frame_may_begin_in_the_usual_form_and_continue_in_another() {
    let body = "{\"type\":\"MODIFIED\",\"object\":{\"a\":1},\"x\":[2]}\n{\"type\":\"DELETED\",\"object\":{\"b\":[\"}\"]} }{\"type\":\"ADDED\",\"object\":{}}";
    for chunk in 1..body.len() {
        let frames = frames(body.as_bytes(), chunk, 1000).unwrap();
        let events: Vec<_> = frames.iter().map(|frame| (frame.event, frame.object_bytes())).collect();
        let expected =
            [(EventType::Modified, "{\"a\":1}"), (EventType::Deleted, "{\"b\":[\"}\"]}"), (EventType::Added, "{}")];
        assert_eq!(events, expected.map(|(event, object)| (event, Bytes::from(object))), "{chunk}");
        assert!(frames.iter().all(|frame| frame.document().keys(&crate::Path::parse("$").unwrap()).is_ok()));
    }
}

#[test]
fn a_frame_leaves_as_it_came() {
    let body = b"{\"type\":\"ADDED\",\"object\":{}}\n";
    let frame = frames(body, 1000, 1000).unwrap().remove(0);
    assert_eq!(frame.bytes, body.as_slice());
    assert_eq!(frame.line().as_ptr(), frame.bytes.as_ptr());
    let alone = frames(&body[..body.len() - 1], 1000, 1000).unwrap().remove(0);
    assert_eq!(alone.line(), body.as_slice());
    assert_eq!(event(EventType::Added, b"{}"), body.as_slice());
}

#[test]
fn a_frame_is_returned_before_its_newline_arrives() {
    let mut splitter = FrameSplitter::new();
    splitter.push("{\"type\":\"ERROR\",\"object\":{}}");
    assert_eq!(splitter.next().unwrap().unwrap().event, EventType::Error);
    splitter.push("\n");
    assert_eq!(splitter.next(), Ok(None));
    splitter.finish();
    assert_eq!(splitter.next(), Ok(None));
}

#[test]
fn an_invalid_event_is_an_error() {
    for body in [
        "[]",
        "x",
        "{}",
        "{\"type\":\"ADDED\"}",
        "{\"object\":{}}",
        "{\"type\":\"NEW\",\"object\":{}}",
        "{\"type\":1,\"object\":{}}",
        "{\"type\":\"ADDED\",\"object\":[]}",
        "{\"type\":\"ADDED\",\"object\":{}",
        "{\"type\":\"ADDED\",\"object\":{]}}",
        "{\"type\":\"ADDED\",\"type\":\"ADDED\",\"object\":{}}",
        "{\"type\":\"ADDED\",\"object\":{},\"\\u006fbject\":{}}",
        "{\"type\":\"ADDED\",\"object\":{},}",
        "{\"type\":\"ADDED\" \"object\":{}}",
    ] {
        assert!(frames(body.as_bytes(), 1, 1000).is_err(), "{body}");
        assert!(frames(body.as_bytes(), 1000, 1000).is_err(), "{body}");
    }
    assert_eq!(frames(b"{\"a\":", 10, 1000).unwrap_err(), SplitError::Truncated);
    assert_eq!(frames(b"{\"type\":\"ADDED\"}", 10, 1000).unwrap_err(), SplitError::Missing { key: "object" });
}

#[test]
fn a_frame_over_the_limit_is_an_error() {
    let body = format!("{{\"type\":\"ADDED\",\"object\":{{\"a\":\"{}\"}}}}", "x".repeat(100));
    for chunk in [1, 1000] {
        assert_eq!(frames(body.as_bytes(), chunk, 90).unwrap_err(), SplitError::TooLarge { limit: 90 });
        assert!(frames(body.as_bytes(), chunk, 200).is_ok());
    }
}

#[test]
fn missing_type_meta_is_inserted_and_existing_stays() {
    let service = TypeMeta { api_version: "v1".into(), kind: "Service".into() };
    let with = |object: &'static str| with_type_meta(&Bytes::from_static(object.as_bytes()), &service).unwrap();
    assert_eq!(with("{}"), r#"{"kind":"Service","apiVersion":"v1"}"#);
    assert_eq!(with(r#" { "a":1}"#), r#" {"kind":"Service","apiVersion":"v1", "a":1}"#);
    assert_eq!(with(r#"{"a":1,"kind":"Pod"}"#), r#"{"apiVersion":"v1","a":1,"kind":"Pod"}"#);
    assert_eq!(with(r#"{"apiVersion":null,"kind":null}"#), r#"{"apiVersion":"v1","kind":"Service"}"#);
    assert_eq!(with(r#"{"kind":null}"#), r#"{"apiVersion":"v1","kind":"Service"}"#);
    let whole = Bytes::from_static(br#"{"k\u0069nd":"Pod","apiVersion":"v2"}"#);
    assert_eq!(with_type_meta(&whole, &service).unwrap().as_ptr(), whole.as_ptr());
    assert!(with_type_meta(&Bytes::from_static(b"[]"), &service).is_err());
    assert!(with_type_meta(&Bytes::from_static(br#"{"kind":"a","kind":"b"}"#), &service).is_err());
}

/// A quadratic algorithm would take hours here.
#[test]
fn tiny_chunks_take_linear_time() {
    let long = format!("{{\"type\":\"ADDED\",\"object\":{{\"a\":\"{}\"}}}}", "x".repeat(1 << 20));
    let blank = format!("{}{{\"type\":\"ADDED\",\"object\":{{}}}}", "\n".repeat(1 << 20));
    for body in [long, blank] {
        assert_eq!(frames(body.as_bytes(), 1, 2 << 20).unwrap().len(), 1);
    }
}
