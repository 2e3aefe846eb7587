//! What a watch from each version gets, event by event.

use std::sync::Arc;

use crate::machine::{Begin, CatchUpError, Changed, Frame, ViewCore, ViewWatch};
use weir_store::StoreKey;

use super::objects::{Label, Obj, Out};

const ALL: Label = Label(false);

fn object(version: u64, out: Out) -> Arc<Obj> {
    Arc::new(Obj { version, content: 2, out, shown: version })
}

fn key(name: &str) -> StoreKey {
    StoreKey::new("", name)
}

fn put(name: &str, version: u64, out: Out) -> Changed<Obj> {
    Changed { version, key: Some(key(name)), new: Some(object(version, out)), is_list: false, memo: () }
}

/// Began at version 5 with `a`, and `b`, which is hidden; `c` came at 6, `a` changed at 7, and `d` came and went.
fn view() -> ViewCore<Obj> {
    let mut view = ViewCore::new(100);
    view.reset(5, [(key("a"), object(3, Out::Same)), (key("b"), object(4, Out::Hidden))].into_iter().collect());
    let deleted = Changed { version: 9, key: Some(key("d")), new: None, is_list: false, memo: () };
    view.apply([put("c", 6, Out::Same), put("a", 7, Out::Edited), put("d", 8, Out::Same), deleted]);
    view
}

fn text(frame: &Frame<Obj>) -> String {
    match frame {
        Frame::Added { object, .. } => format!("ADDED {}", object.shown),
        Frame::Modified { object, .. } => format!("MODIFIED {}", object.shown),
        Frame::Deleted { object, version, .. } => {
            format!("DELETED {} at {}", object.shown, version.unwrap_or(object.shown))
        }
        Frame::Bookmark(version) => format!("BOOKMARK {version}"),
        Frame::InitialEnd(version) => format!("END {version}"),
        Frame::Failed(object) => format!("FAILED {}", object.shown),
        Frame::Uncertain => "UNCERTAIN".to_owned(),
    }
}

/// All that a watch sends now.
fn sent(watch: &mut ViewWatch<Obj>, view: &ViewCore<Obj>, last: u64) -> Vec<String> {
    let mut frames = Vec::new();
    while watch.step(|from, limit| Ok((view.events_from(from, limit)?, last)), 2, &ALL, &mut frames).unwrap() {}
    frames.iter().map(text).collect()
}

fn after(view: &ViewCore<Obj>, version: u64, last: u64) -> ViewWatch<Obj> {
    match ViewWatch::after(view, version, last, &ALL) {
        Begin::Watch(watch) | Begin::Below(watch) => watch,
        other => panic!("{version}: {other:?}"),
    }
}

#[test]
fn a_version_above_the_view_waits() {
    assert!(matches!(ViewWatch::after(&view(), 10, u64::MAX, &ALL), Begin::Ahead));
}

#[test]
fn above_the_stamp_the_events_follow_and_not_above_it_the_present_state() {
    let view = view();
    assert_eq!(sent(&mut after(&view, 6, 5), &view, 5), ["MODIFIED 7", "ADDED 8", "DELETED 8 at 9"]);
    let state = [
        "DELETED 4 at 6", // b, which is hidden.
        "MODIFIED 6",     // c has not changed since.
        "DELETED 8 at 6", // d, of the client's future.
        "BOOKMARK 6",
        "MODIFIED 7",
        "BOOKMARK 9",
    ];
    assert_eq!(sent(&mut after(&view, 6, 6), &view, 6), state);
    assert_eq!(sent(&mut after(&view, 9, 8), &view, 8), [""; 0]);
}

#[test]
fn below_the_history_the_events_of_the_api_server_come_between() {
    let mut view = view();
    let mut watch = after(&view, 4, 4);
    assert_eq!(
        sent(&mut watch, &view, 4),
        ["DELETED 4 at 4", "BOOKMARK 4"],
        "what changed since comes from the API server"
    );
    assert!(watch.is_catching_up() && watch.catch_up().is_some_and(|catch_up| catch_up.to == 5));
    assert_eq!(watch.caught_up(&view, 4, &ALL), Ok(()));
    assert_eq!(sent(&mut watch, &view, 4), ["ADDED 6", "MODIFIED 7", "ADDED 8", "DELETED 8 at 9"]);
    let mut late = after(&view, 4, 3);
    assert!(late.is_catching_up(), "the client lacks nothing that has no version");
    let objects = view.objects().clone();
    view.jump(12, objects, || ());
    assert_eq!(late.caught_up(&view, 3, &ALL), Err(CatchUpError::Evicted));
}

/// A client at version 5 was shown `a` as it was at 3, or, if it was cut off amid what is sent again, as it was at 7.
#[test]
fn where_a_deletion_would_carry_one_of_several_states_the_client_lists() {
    let mut view = view();
    let deleted = |version| Changed { version, key: Some(key("a")), new: None, is_list: false, memo: () };
    view.apply([deleted(10)]);
    assert!(matches!(ViewWatch::after(&view, 5, 8, &ALL), Begin::Uncertain));
    assert!(matches!(ViewWatch::after(&view, 4, 8, &ALL), Begin::Uncertain), "below the history, too");
    assert_eq!(sent(&mut after(&view, 7, 8), &view, 8)[..2], ["DELETED 4 at 7", "MODIFIED 6"]);
    assert!(sent(&mut after(&view, 7, 8), &view, 8).contains(&"DELETED 7 at 7".to_owned()), "it holds the only one");
    assert_eq!(sent(&mut after(&view, 9, 8), &view, 8), ["DELETED 7 at 10"], "it was not cut off there");
}

#[test]
fn a_watch_that_begins_with_all_objects_gets_them_in_the_order_of_versions() {
    let view = view();
    assert_eq!(sent(&mut ViewWatch::all(&view), &view, u64::MAX), ["ADDED 6", "ADDED 7", "END 9"]);
    assert_eq!(sent(&mut ViewWatch::now(&view), &view, u64::MAX), [""; 0]);
}

#[test]
fn a_change_publishes_its_difference_and_a_bookmark_and_one_that_changes_nothing_is_silent() {
    let mut view = view();
    let mut watch = after(&view, 9, 8);
    view.take([(key("b"), object(4, Out::Same), ()), (key("c"), object(6, Out::Hidden), ())]);
    assert_eq!(sent(&mut watch, &view, u64::MAX), ["ADDED 4", "DELETED 6 at 6", "BOOKMARK 9"]);
    view.take([(key("b"), object(4, Out::Same), ())]);
    assert_eq!((sent(&mut watch, &view, u64::MAX), view.taken()), (Vec::new(), 3));
}

#[test]
fn a_list_of_the_store_sends_its_deletions_first_at_the_version_of_before() {
    let mut view = view();
    let mut watch = after(&view, 9, 8);
    let objects =
        [(key("a"), object(11, Out::Hidden)), (key("b"), object(4, Out::Hidden)), (key("e"), object(10, Out::Same))];
    view.jump(12, objects.into_iter().collect(), || ());
    assert_eq!(sent(&mut watch, &view, 8), ["DELETED 7 at 9", "DELETED 6 at 9", "ADDED 10"]);
    assert_eq!((watch.bookmark(&view), view.start()), (Some(12), 12));
    assert!(matches!(ViewWatch::after(&view, 11, 8, &ALL), Begin::Below(_)));
}
