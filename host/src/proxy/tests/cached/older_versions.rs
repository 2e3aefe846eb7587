//! Watches from versions that their client did not list, or that a view does not reach back to.

use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::watch;

use super::*;

#[tokio::test]
async fn a_watch_continues_from_the_version_of_a_get() {
    let (fixture, _script, _) = cached().await;
    informer_list(&fixture).await;
    fixture.service("d", "ClusterIP");
    let (_, object) = fixture.json("/api/v1/namespaces/default/services/d").await;
    fixture.service("e", "ClusterIP");
    let mut events = informer_watch(&fixture, version(&object)).await;
    assert_eq!(events.next_summary().await, "ADDED e");
}

#[tokio::test]
async fn a_watch_from_before_the_view_gets_the_whole_state_and_what_was_deleted_since_then() {
    let (fixture, script, hidden) = cached().await;
    fixture.service("gone", "ClusterIP");
    let before = fixture.server.store().revision();
    fixture.service("d", "ClusterIP");
    fixture.server.store().delete("v1", "Service", "default", "gone").unwrap();
    fixture.service("e", "LoadBalancer");
    informer_list(&fixture).await;
    let mut events = informer_watch(&fixture, &before.to_string()).await;
    // What the client holds is not known. In the order of versions, so that it can be cut off at any time. What the events
    // before the view showed may be out of date.
    let state = ["MODIFIED a", "DELETED b", "MODIFIED c", "ADDED d", "MODIFIED d", "DELETED gone", "DELETED e"];
    for expected in state.into_iter().chain(["BOOKMARK "]) {
        assert_eq!(events.next_summary().await, expected);
    }
    fixture.service("f", "ClusterIP");
    assert_eq!(events.next_summary().await, "ADDED f");
    hidden.lock().unwrap().push("ClusterIP".to_owned());
    script.change();
    assert_eq!(events.next_summary().await, "DELETED a", "it follows the view now");
}

#[tokio::test]
async fn a_watch_from_before_the_view_gets_each_event_once_if_its_chain_has_shown_all_of_them() {
    let (fixture, _script, _) = cached().await;
    // The list goes upstream, and tells since when the chain version is in force.
    let (_, list) = fixture.json(SERVICES).await;
    assert_eq!(names(&list), ["a", "c"]);
    fixture.service("d", "ClusterIP");
    let start = fixture.server.store().revision();
    fixture.service("e", "ClusterIP");
    informer_list(&fixture).await;
    let mut events = informer_watch(&fixture, &start.to_string()).await;
    assert_eq!(events.next_summary().await, "ADDED e", "from the API server");
    fixture.service("f", "ClusterIP");
    fixture.service("g", "ClusterIP");
    assert_eq!(events.next_summary().await, "ADDED f", "nothing is sent again");
    assert_eq!(events.next_summary().await, "ADDED g");
}

#[tokio::test]
async fn a_watch_from_before_the_view_ends_where_an_object_becomes_hidden() {
    let (fixture, _script, _) = cached().await;
    fixture.json(SERVICES).await;
    fixture.service("d", "ClusterIP");
    let start = fixture.server.store().revision();
    fixture.service("e", "ClusterIP");
    fixture.service("d", "LoadBalancer");
    informer_list(&fixture).await;
    let mut events = informer_watch(&fixture, &start.to_string()).await;
    // A deletion of d would have to name the ports that the client was shown.
    let reason = loop {
        let event = events.next().await.expect("an ERROR event");
        if event["type"] == "ERROR" {
            break event["object"]["reason"].clone();
        }
    };
    assert_eq!(reason, json!("Expired"));
}

#[tokio::test]
async fn only_a_bookmark_is_ahead_of_the_view_of_a_quiet_resource() {
    let (fixture, script, hidden) = cached().await;
    let before = fixture.server.store().revision();
    fixture.service("d", "ClusterIP");
    let (_, list) = fixture.json(SERVICES).await;
    assert_eq!(names(&list), ["a", "c", "d"]);
    let shown = fixture.server.store().revision();
    fixture.service("e", "ClusterIP");
    // Other resources change. The reflector's next BOOKMARK is a minute away.
    fixture.server.store().advance();
    informer_list(&fixture).await;
    fixture.server.store().advance();
    let mut unknown = informer_watch(&fixture, &before.to_string()).await;
    for expected in
        ["MODIFIED a", "DELETED b", "MODIFIED c", "ADDED d", "MODIFIED d", "ADDED e", "MODIFIED e", "BOOKMARK "]
    {
        assert_eq!(unknown.next_summary().await, expected);
    }
    let mut known = informer_watch(&fixture, &shown.to_string()).await;
    assert_eq!(known.next_summary().await, "ADDED e");
    assert_eq!(known.next_summary().await, "BOOKMARK ");
    hidden.lock().unwrap().push("ClusterIP".to_owned());
    script.change();
    assert_eq!(unknown.next_summary().await, "DELETED a");
    assert_eq!(known.next_summary().await, "DELETED a", "it follows the view now");
}

#[tokio::test]
async fn a_watch_from_a_version_that_the_reflector_jumped_over_does_not_miss_deletions() {
    let (fixture, _script, _) = cached().await;
    informer_list(&fixture).await;
    // The reflector lists again, and never learns of the Service.
    stop_reflector(&fixture).await;
    fixture.service("short-lived", "ClusterIP");
    let held = fixture.server.store().revision();
    fixture.server.store().delete("v1", "Service", "default", "short-lived").unwrap();
    fixture.service("d", "ClusterIP");
    let newest = fixture.server.store().revision();
    fixture.server.compact();
    fixture.server.clear_hook();
    let list = format!("{SERVICES}?resourceVersion={newest}&resourceVersionMatch=NotOlderThan");
    while fixture.json(&list).await.0 != StatusCode::OK {}
    let watch = format!("{SERVICES}?watch=1&allowWatchBookmarks=true&timeoutSeconds=5&resourceVersion={held}");
    let answer = read(&fixture, &watch, &[]).await;
    let events: Vec<Value> = serde_json::Deserializer::from_slice(&answer).into_iter().map(Result::unwrap).collect();
    let reason = events.first().map(|event| event.get("object").unwrap_or(event)["reason"].clone());
    assert_eq!((events.len(), reason), (1, Some(json!("Expired"))), "{events:?}");
}

#[tokio::test]
async fn a_client_that_is_cut_off_amid_the_whole_state_has_got_everything_up_to_its_version() {
    let (fixture, _script, _) = cached().await;
    let list = informer_list(&fixture).await;
    fixture.service("a", "ClusterIP");
    // This client has listed nothing.
    let path = format!("{SERVICES}?watch=1&allowWatchBookmarks=true&labelSelector=!none&resourceVersion=");
    let mut events = fixture.watch(&format!("{path}{}", version(&list))).await;
    for expected in ["MODIFIED a", "DELETED b", "MODIFIED c"] {
        assert_eq!(events.next_summary().await, expected);
    }
    let last = events.next().await.unwrap();
    assert_eq!((&last["type"], &last["object"]["metadata"]["name"]), (&json!("MODIFIED"), &json!("a")));
    drop(events);
    let mut events = fixture.watch(&format!("{path}{}", version(&last["object"]))).await;
    fixture.service("d", "ClusterIP");
    assert_eq!(events.next_summary().await, "ADDED d");
}

#[tokio::test]
async fn a_client_that_is_ahead_of_a_quiet_view_learns_of_changed_outcomes() {
    let (fixture, script, hidden) = cached().await;
    informer_list(&fixture).await;
    // Other resources change. The latest list has a version that no event of this resource tells.
    fixture.server.store().advance();
    let (_, list) = fixture.json(SERVICES).await;
    let mut events = informer_watch(&fixture, version(&list)).await;
    hidden.lock().unwrap().push("ClusterIP".to_owned());
    script.change();
    assert_eq!(events.next_summary().await, "DELETED a");
    assert_eq!(events.next_summary().await, "DELETED c");
}

#[tokio::test]
async fn a_filter_hides_what_an_unfiltered_list_has_shown_before() {
    let fixture = fixture_with(|setup| setup.cached = vec!["services".parse().unwrap()]).await;
    fixture.service("a", "ClusterIP");
    fixture.service("b", "LoadBalancer");
    informer_list(&fixture).await;
    // Other resources change, so that the list is ahead of the view.
    fixture.server.store().advance();
    let (_, list) = fixture.json(SERVICES).await;
    assert_eq!(names(&list), ["a", "b"]);
    let script = Script::new(|document| {
        let kind = document.text(&Path::parse("spec.type").unwrap()).unwrap().unwrap_or_default().into_owned();
        if kind == "LoadBalancer" { Outcome::Hidden } else { Outcome::Unchanged }
    });
    fixture.filter("*/services", &script);
    while names(&informer_list(&fixture).await) != ["a"] {}
    let mut events = informer_watch(&fixture, version(&list)).await;
    assert_eq!(events.next_summary().await, "DELETED b");
}

#[tokio::test]
async fn what_a_list_has_shown_ahead_of_the_view_is_hidden_by_a_later_chain() {
    let (fixture, script, hidden) = cached().await;
    informer_list(&fixture).await;
    // The view does not learn of the new Service yet.
    stop_reflector(&fixture).await;
    fixture.service("new", "NodePort");
    let (_, list) = fixture.json(SERVICES).await;
    assert_eq!(names(&list), ["a", "c", "new"]);
    hidden.lock().unwrap().push("NodePort".to_owned());
    script.change();
    // The last service tells that the view has filtered its objects again.
    hidden.lock().unwrap().push("ClusterIP".to_owned());
    script.change();
    while !names(&informer_list(&fixture).await).is_empty() {}
    fixture.server.clear_hook();
    let mut events = informer_watch(&fixture, version(&list)).await;
    let mut deleted = [events.next_summary().await, events.next_summary().await, events.next_summary().await];
    deleted.sort();
    assert_eq!(deleted, ["DELETED a", "DELETED c", "DELETED new"]);
}

#[tokio::test]
async fn a_later_chain_that_changes_no_object_of_the_view_may_hide_what_a_list_has_shown() {
    let fixture = fixture_with(|setup| setup.cached = vec!["services".parse().unwrap()]).await;
    fixture.service("a", "ClusterIP");
    let (hiding, filtered) = (Arc::new(AtomicBool::new(false)), watch::Sender::new(0));
    let (hides, count) = (hiding.clone(), filtered.clone());
    let script = Script::new(move |document| {
        count.send_modify(|count| *count += 1);
        let is_new = document.name().unwrap() == "new";
        if is_new && hides.load(Ordering::Relaxed) { Outcome::Hidden } else { Outcome::Unchanged }
    });
    fixture.filter("*/services", &script);
    informer_list(&fixture).await;
    stop_reflector(&fixture).await;
    fixture.service("new", "ClusterIP");
    let (_, list) = fixture.json(SERVICES).await;
    assert_eq!(names(&list), ["a", "new"]);
    hiding.store(true, Ordering::Relaxed);
    let before = *filtered.borrow();
    script.change();
    filtered.subscribe().wait_for(|count| *count > before).await.unwrap();
    fixture.server.clear_hook();
    let mut events = informer_watch(&fixture, version(&list)).await;
    assert_eq!(events.next_summary().await, "DELETED new");
}

/// Ends the reflector's watch. It gets no other one until the hook is cleared.
async fn stop_reflector(fixture: &ProxyFixture) {
    fixture.server.on_request(|request| match request.target().contains("watch=") {
        true => Action::json(503, "{}"),
        false => Action::Serve,
    });
    fixture.server.close_watches(End::Clean);
    fixture.server.open_watches().wait_for(|open| *open == 0).await.unwrap();
}
