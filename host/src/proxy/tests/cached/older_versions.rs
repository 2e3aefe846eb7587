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

/// As the conformance suite does it: it lists, and watches from the version of each event.
#[tokio::test]
async fn a_view_that_a_watch_opens_knows_since_when_its_filters_show_everything() {
    let (fixture, _script, _) = cached().await;
    fixture.json(SERVICES).await;
    for (name, next) in [("d", "e"), ("f", "g")] {
        fixture.service(name, "ClusterIP");
        let held = fixture.server.store().revision();
        // The first one opens the view, of whose resource nobody has written since.
        let mut events = informer_watch(&fixture, &held.to_string()).await;
        fixture.service(next, "ClusterIP");
        assert_eq!(events.next_summary().await, format!("ADDED {next}"), "its client holds what these filters show");
    }
    let (lists, watches) = upstream_reads(&fixture);
    assert_eq!((lists, watches), (2, 1), "that of the client, and the view's");
}

#[tokio::test]
async fn a_watch_from_before_the_view_gets_what_came_and_went_since_then() {
    let (fixture, script, hidden) = cached().await;
    fixture.service("gone", "ClusterIP");
    let before = fixture.server.store().revision();
    fixture.service("d", "ClusterIP");
    fixture.server.store().delete("v1", "Service", "default", "gone").unwrap();
    fixture.service("e", "LoadBalancer");
    let list = informer_list(&fixture).await;
    let mut events = informer_watch(&fixture, &before.to_string()).await;
    // The client's state is unknown.
    let held = ["a", "b", "c", "gone"];
    assert_eq!(events.held(&held, version(&list).parse().unwrap()).await, ["a", "c", "d"]);
    fixture.service("f", "ClusterIP");
    assert_eq!(events.next_summary().await, "ADDED f");
    hidden.lock().unwrap().push("ClusterIP".to_owned());
    script.change();
    assert_eq!(events.next_summary().await, "DELETED a", "it follows the view now");
}

#[tokio::test]
async fn a_watch_from_before_the_view_ends_where_an_object_becomes_hidden() {
    let (fixture, _script, _) = cached().await;
    fixture.service("d", "ClusterIP");
    let start = fixture.server.store().revision();
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
async fn a_quiet_resource_has_only_a_bookmark_where_the_history_begins() {
    let (fixture, script, hidden) = cached().await;
    let before = fixture.server.store().revision();
    fixture.service("d", "ClusterIP");
    fixture.service("e", "ClusterIP");
    // Other resources change. The reflector's next BOOKMARK is a minute away.
    fixture.server.store().advance();
    let (_, list) = fixture.json(&format!("{SERVICES}?resourceVersion=0")).await;
    fixture.server.store().advance();
    let mut events = informer_watch(&fixture, &before.to_string()).await;
    assert_eq!(events.held(&["a", "b", "c"], version(&list).parse().unwrap()).await, ["a", "c", "d", "e"]);
    hidden.lock().unwrap().push("ClusterIP".to_owned());
    script.change();
    while events.next_summary().await != "DELETED e" {}
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
    let reason = events.last().map(|event| event.get("object").unwrap_or(event)["reason"].clone());
    assert_eq!(reason, Some(json!("Expired")), "{events:?}");
}

#[tokio::test]
async fn a_client_that_is_cut_off_amid_the_present_state_has_got_everything_up_to_its_version() {
    let (fixture, script, hidden) = cached().await;
    let list = informer_list(&fixture).await;
    let mut other = informer_watch(&fixture, version(&list)).await;
    fixture.service("a", "ClusterIP");
    // The client's state is no longer known.
    hidden.lock().unwrap().push("ClusterIP".to_owned());
    script.change();
    while other.next_summary().await != "DELETED c" {}
    hidden.lock().unwrap().pop();
    script.change();
    while other.next_summary().await != "ADDED c" {}
    let mut events = informer_watch(&fixture, version(&list)).await;
    for expected in ["DELETED b", "MODIFIED c", "BOOKMARK "] {
        assert_eq!(events.next_summary().await, expected, "nothing of this raises the version");
    }
    let last = events.next().await.unwrap();
    assert_eq!((&last["type"], &last["object"]["metadata"]["name"]), (&json!("MODIFIED"), &json!("a")));
    drop(events);
    let mut events = informer_watch(&fixture, version(&last["object"])).await;
    fixture.service("d", "ClusterIP");
    while events.next_summary().await != "ADDED d" {}
}

#[tokio::test]
async fn a_client_that_is_ahead_of_a_quiet_view_learns_of_changed_outcomes() {
    let (fixture, script, hidden) = cached().await;
    informer_list(&fixture).await;
    // Other resources change. The latest list has a version that no event of this resource has.
    fixture.server.store().advance();
    let (_, list) = fixture.json(SERVICES).await;
    let mut events = informer_watch(&fixture, version(&list)).await;
    hidden.lock().unwrap().push("ClusterIP".to_owned());
    script.change();
    while events.next_summary().await != "DELETED a" {}
    while events.next_summary().await != "DELETED c" {}
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
    let mut events = informer_watch(&fixture, version(&list)).await;
    while events.next_summary().await != "DELETED b" {}
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
    // The last service shows that the view has filtered its objects again.
    hidden.lock().unwrap().push("ClusterIP".to_owned());
    script.change();
    while !names(&fixture.json(&format!("{SERVICES}?resourceVersion=0")).await.1).is_empty() {}
    fixture.server.clear_hook();
    let mut events = informer_watch(&fixture, version(&list)).await;
    let newest = version(&list).parse().unwrap();
    assert_eq!(events.held(&["a", "c", "new"], newest).await, [""; 0]);
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
    let newest = version(&list).parse().unwrap();
    assert_eq!(events.held(&["a", "new"], newest).await, ["a"]);
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
