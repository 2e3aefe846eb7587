//! Each promise is broken once, and reported.

use serde_json::{Value, json};

use super::{Event, History, Promise, Session, Step, Viewer, Violation, at_version};

fn object(name: &str, version: u64, tier: &str) -> Value {
    json!({"metadata": {"namespace": "default", "name": name, "resourceVersion": version.to_string(), "labels": {"tier": tier}}})
}

/// Writes of two objects that enter and leave the selection of `tier=a`.
fn history() -> History {
    let mut history = History::default();
    for (name, version, tier) in
        [("one", 2, "a"), ("two", 3, "a"), ("one", 5, "a"), ("one", 6, "b"), ("one", 8, "a"), ("three", 9, "a")]
    {
        history.put(object(name, version, tier));
    }
    history.delete(11, "default/two");
    history.put(object("three", 12, "a"));
    history.put(object("two", 13, "a"));
    history
}

fn viewer() -> Viewer {
    Viewer {
        name: "informer".to_owned(),
        shows: Box::new(|object| object["metadata"]["labels"]["tier"] == "a"),
        form: Value::clone,
    }
}

fn event(event_type: &str, object: Value) -> Event {
    Event { event_type: event_type.to_owned(), object }
}

fn bookmark(version: u64) -> Event {
    event("BOOKMARK", json!({"metadata": {"resourceVersion": version.to_string()}}))
}

fn list(version: u64, items: &[Value]) -> Step {
    Step::List { version, items: items.to_vec() }
}

/// The list at version 3.
fn listed() -> Step {
    list(3, &[object("one", 2, "a"), object("two", 3, "a")])
}

/// All events after version 3.
fn events() -> Vec<Event> {
    vec![
        event("MODIFIED", object("one", 5, "a")),
        event("DELETED", object("one", 6, "a")),
        event("ADDED", object("one", 8, "a")),
        event("ADDED", object("three", 9, "a")),
        event("DELETED", object("two", 11, "a")),
        event("MODIFIED", object("three", 12, "a")),
        event("ADDED", object("two", 13, "a")),
    ]
}

fn check(steps: Vec<Step>) -> Vec<Violation> {
    history().check(&viewer(), &Session { steps })
}

fn broken(violations: &[Violation]) -> Vec<Promise> {
    let mut promises: Vec<_> = violations.iter().map(|violation| violation.promise).collect();
    promises.sort();
    promises.dedup();
    promises
}

/// The promises that a watch from version 3 breaks.
fn watched(events: Vec<Event>) -> Vec<Promise> {
    broken(&check(vec![listed(), Step::Watch { after: Some(3), events }]))
}

#[test]
fn a_watch_that_keeps_all_promises_has_no_violation() {
    let mut all = events();
    all.insert(2, bookmark(7));
    all.push(bookmark(20));
    assert_eq!(watched(all), []);
    // Cut off after any event, and continued from it or from a bookmark.
    for cut in 1..events().len() {
        let (first, second) = (events()[..cut].to_vec(), events()[cut..].to_vec());
        let after = super::version(&first[cut - 1].object);
        let steps = vec![
            listed(),
            Step::Watch { after: Some(3), events: first },
            Step::Watch { after: Some(after), events: second },
        ];
        assert_eq!(check(steps), [], "cut after {cut} events");
    }
}

#[test]
fn a_version_that_goes_down_is_reported() {
    let mut all = events();
    all.swap(2, 3);
    assert_eq!(watched(all), [Promise::Ordered]);
}

#[test]
fn an_event_that_is_sent_twice_is_reported() {
    let mut all = events();
    all.insert(3, all[2].clone());
    assert_eq!(watched(all), [Promise::Unique]);
}

#[test]
fn an_event_that_is_missing_within_a_watch_is_reported() {
    let mut all = events();
    all.remove(4);
    assert_eq!(watched(all), [Promise::Reliable]);
}

#[test]
fn a_list_of_two_versions_is_reported() {
    for items in [
        vec![object("one", 2, "a")],
        vec![object("one", 5, "a"), object("two", 3, "a")],
        vec![object("one", 2, "a"), object("two", 3, "a"), object("three", 9, "a")],
    ] {
        assert!(broken(&check(vec![list(3, &items)])).contains(&Promise::Atomic), "{items:?}");
    }
    let mut initial = vec![event("ADDED", object("one", 2, "a")), event("ADDED", object("two", 3, "a")), bookmark(3)];
    initial[2].object["metadata"]["annotations"] = json!({"k8s.io/initial-events-end": "true"});
    let state = |events| check(vec![Step::Watch { after: None, events }]);
    assert_eq!(state(initial.iter().cloned().chain(events()).collect()), []);
    initial.remove(0);
    assert!(broken(&state(initial)).contains(&Promise::Atomic));
}

#[test]
fn a_watch_that_repeats_or_skips_what_follows_its_start_is_reported() {
    let mut repeated = events();
    repeated.insert(0, event("ADDED", object("two", 3, "a")));
    assert_eq!(watched(repeated), [Promise::Resumable]);
    let mut skipped = events();
    skipped.remove(0);
    assert_eq!(watched(skipped), [Promise::Resumable]);
}

#[test]
fn a_bookmark_before_its_events_is_reported() {
    let mut late = events();
    late.insert(3, bookmark(9));
    assert_eq!(watched(late), [Promise::Bookmarkable], "an event at the version follows");
    let mut back = events();
    back.insert(3, bookmark(4));
    assert_eq!(watched(back), [Promise::Bookmarkable], "it goes back");
    assert!(watched(vec![bookmark(5)]).contains(&Promise::Bookmarkable), "an event is missing");
}

#[test]
fn a_wrong_type_is_reported() {
    for (at, wrong) in [(0, "ADDED"), (1, "MODIFIED"), (2, "MODIFIED")] {
        let mut all = events();
        all[at].event_type = wrong.to_owned();
        assert!(watched(all).contains(&Promise::Typed), "{wrong} at {at}");
    }
}

#[test]
fn another_object_than_that_of_the_version_is_reported() {
    let mut all = events();
    all[1].object = object("one", 6, "b");
    assert_eq!(watched(all), [Promise::Exact], "a deletion carries the last state that was shown");
    let mut invented = events();
    invented.insert(1, event("MODIFIED", object("two", 6, "a")));
    assert!(watched(invented).contains(&Promise::Exact), "no write explains it");
}

#[test]
fn a_jump_is_the_difference_of_two_states_and_nothing_of_it_may_be_lost() {
    let mut history = history();
    history.jump(5, 12);
    let session = |watches: Vec<(u64, Vec<Event>)>| {
        let watches = watches.into_iter().map(|(after, events)| Step::Watch { after: Some(after), events });
        broken(&history.check(&viewer(), &Session { steps: std::iter::once(listed()).chain(watches).collect() }))
    };
    let before = event("MODIFIED", object("one", 5, "a"));
    let jump = [
        event("DELETED", at_version(&object("two", 3, "a"), 5)),
        event("MODIFIED", object("one", 8, "a")),
        event("ADDED", object("three", 12, "a")),
    ];
    let after = event("ADDED", object("two", 13, "a"));
    let all: Vec<_> = std::iter::once(&before).chain(&jump).chain([&after]).cloned().collect();
    assert_eq!(session(vec![(3, all.clone())]), []);
    assert_eq!(session(vec![(3, events())]), [], "each event by itself");
    let without = [&all[..1], &all[2..]].concat();
    assert_eq!(session(vec![(3, without)]), [Promise::Reliable]);
    let rest = events().into_iter().skip(1).collect();
    assert_eq!(
        session(vec![(3, all[..2].to_vec()), (5, rest)]),
        [],
        "cut off after the deletion, and from there by itself"
    );
    let late = vec![before, event("DELETED", at_version(&object("two", 3, "a"), 12))];
    assert!(
        session(vec![(3, late), (12, vec![after])]).contains(&Promise::Exact),
        "a client would go on after the jump"
    );
}
