//! What clients get of an event, and what its encoded forms count.

use serde_json::{Value, json};
use weir_document::protobuf::FrameSplitter;
use weir_kube::MetaVersion;
use weir_store::StoreKey;
use weir_store::cache::Object;

use super::*;
use crate::memo::{EventMemo, FrameBytes};
use crate::object::ViewOutcome;
use crate::watch_memory::WatchMemory;

fn format() -> ObjectFormat {
    let type_meta = Arc::new(TypeMeta { api_version: "v1".into(), kind: "Service".into() });
    ObjectFormat { encoding: Encoding::Protobuf, type_meta }
}

/// A Service of this version, which clients see with this annotation.
fn service(version: u64, shown: Option<&str>) -> Arc<ViewObject> {
    let bytes = |text: &str| {
        let metadata = json!({"name": "a", "resourceVersion": version.to_string(), "annotations": {"shown": text}});
        let object = json!({"apiVersion": "v1", "kind": "Service", "metadata": metadata});
        protobuf::from_json(&format().type_meta, &object.to_string()).unwrap()
    };
    let source = Arc::new(Object { key: StoreKey::new("", "a"), version, bytes: bytes("source") });
    let outcome = shown.map_or(ViewOutcome::Hidden, |text| ViewOutcome::Edited(bytes(text)));
    Arc::new(ViewObject { source, outcome, stands_in: false })
}

/// The annotation and the version that a client gets.
fn encoded(of: EncodedAs<'_>, encoding: Encoding, transform: Transform) -> (String, String) {
    let event_type = of.event_type;
    let bytes = encode(of, &format(), encoding, transform).unwrap();
    let object = match encoding {
        Encoding::Json => {
            let mut value: Value = serde_json::from_slice(&bytes).unwrap();
            assert_eq!(value["type"], event_type.as_str());
            value["object"].take()
        }
        Encoding::Protobuf => {
            let mut splitter = FrameSplitter::new();
            splitter.push(bytes);
            let frame = splitter.next().unwrap().unwrap();
            assert_eq!(frame.event, event_type);
            let envelope = Envelope::open(frame.object_bytes()).unwrap();
            let document = Document::protobuf(envelope.object(), Arc::new(envelope.type_meta().clone())).unwrap();
            serde_json::from_str(&document.to_json().unwrap()).unwrap()
        }
    };
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    (text(&object["metadata"]["annotations"]["shown"]), text(&object["metadata"]["resourceVersion"]))
}

fn event(old: Option<&str>, new: Option<&str>, memory: &WatchMemory) -> ViewEvent {
    let (key, memo) = (Some(StoreKey::new("", "a")), EventMemo::new(&FrameBytes::new(memory.clone())));
    let (old, new) = (Some(service(5, old)), Some(service(5, new)));
    ViewEvent { version: 7, cause: crate::machine::Cause::Change, key, old, new, memo }
}

#[test]
fn an_event_is_encoded_once_in_every_form_and_a_deletion_carries_the_version_that_it_has() {
    let memory = WatchMemory::new(1 << 20);
    let event = event(Some("old"), Some("new"), &memory);
    for encoding in [Encoding::Json, Encoding::Protobuf] {
        for transform in [Transform::None, Transform::Metadata(MetaVersion::V1)] {
            for (event_type, object, version, expected) in [
                (EventType::Deleted, &event.old, Some(9), ("old", "9")),
                (EventType::Added, &event.new, None, ("new", "5")),
                (EventType::Modified, &event.new, None, ("new", "5")),
            ] {
                let object = object.as_deref().unwrap();
                let of = EncodedAs { event_type, object, version, event: Some(&event) };
                for _ in 0..2 {
                    let (shown, version) = encoded(of, encoding, transform);
                    assert_eq!((shown.as_str(), version.as_str()), expected, "{encoding:?} {transform:?}");
                }
            }
        }
    }
    let used = (1 << 20) - memory.limit(0);
    assert!(used > 0);
    drop(event);
    assert_eq!(memory.limit(0), 1 << 20, "what was encoded counts as long as the event lives");
}

/// Their selectors match one of both states each.
#[test]
fn the_deletions_of_two_states_of_an_object_do_not_stand_for_each_other() {
    let event = event(Some("old"), None, &WatchMemory::new(1 << 20));
    for (object, expected) in [(&event.new, "source"), (&event.old, "old"), (&event.new, "source")] {
        let object = object.as_deref().unwrap();
        let of = EncodedAs { event_type: EventType::Deleted, object, version: Some(9), event: Some(&event) };
        assert_eq!(encoded(of, Encoding::Json, Transform::None), (expected.to_owned(), "9".to_owned()));
    }
}

#[test]
fn the_deletion_of_what_nobody_saw_carries_the_object_as_it_is() {
    let hidden = service(5, None);
    let of = EncodedAs { event_type: EventType::Deleted, object: &hidden, version: Some(7), event: None };
    assert_eq!(encoded(of, Encoding::Json, Transform::None), ("source".to_owned(), "7".to_owned()));
}

#[test]
fn bytes_use_the_memory_of_watches_until_they_were_sent() {
    let memory = WatchMemory::new(1 << 20);
    let frames = FrameBytes::new(memory.clone());
    let chunk = frames.count(vec![7; 1000].into());
    let rest = chunk.slice(500..);
    drop(chunk);
    assert_eq!((frames.get(), memory.limit(0)), (1000, (1 << 20) - 1000));
    assert_eq!(rest[..], [7; 500]);
    drop(rest);
    assert_eq!((frames.get(), memory.limit(0)), (0, 1 << 20));
}
