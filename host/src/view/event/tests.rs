//! What clients get of an event, and what its encoded forms count.

use serde_json::{Value, json};
use weir_document::protobuf::FrameSplitter;
use weir_kube::MetaVersion;
use weir_store::cache::Object;

use super::*;

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
    Arc::new(ViewObject { source, outcome })
}

/// The annotation and the version that a client gets.
fn encoded(event: &ViewEvent, event_type: EventType, encoding: Encoding, transform: Transform) -> (String, String) {
    let bytes = event.encode(event_type, &format(), encoding, transform).unwrap();
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

#[test]
fn a_change_without_a_version_deletes_the_old_state_and_adds_the_new_one_in_every_form() {
    let frames = FrameBytes::new(WatchMemory::new(1 << 20));
    let cause = Cause::Refiltered { stamp: 9 };
    let event = |old, new| ViewEvent::new(7, 7, cause, Some(service(5, old)), Some(service(5, new)), &frames);
    let (changed, shown) = (event(Some("old"), Some("new")), event(None, Some("new")));
    assert!(changed.keeps_version() && shown.keeps_version());
    for encoding in [Encoding::Json, Encoding::Protobuf] {
        for transform in [Transform::None, Transform::Metadata(MetaVersion::V1)] {
            let of = |event: &ViewEvent, event_type| encoded(event, event_type, encoding, transform);
            let state = |text: &str| (text.to_owned(), "5".to_owned());
            assert_eq!(of(&changed, EventType::Deleted), state("old"), "{encoding:?} {transform:?}");
            assert_eq!(of(&changed, EventType::Added), state("new"), "{encoding:?} {transform:?}");
            assert_eq!(of(&shown, EventType::Deleted), state("new"), "the state before is not known");
        }
    }
}

#[test]
fn an_event_of_the_api_server_or_a_newer_object_has_a_version_of_its_own() {
    let frames = FrameBytes::new(WatchMemory::new(1 << 20));
    let (old, new) = (Some(service(5, Some("old"))), Some(service(7, Some("new"))));
    let upstream = ViewEvent::new(5, 7, Cause::Upstream, old.clone(), new.clone(), &frames);
    let late = ViewEvent::new(7, 7, Cause::Refiltered { stamp: 7 }, old, new, &frames);
    assert!(!upstream.keeps_version() && !late.keeps_version());
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
