//! The state of a client of filtered lists and watches when filters, or the values that they look up, change.

use std::sync::atomic::{AtomicBool, Ordering};

use weir_document::{Document, Path};

use super::*;
use weir_runtime::{Failure, FailureClass, Outcome};

fn kind_of(document: &Document) -> String {
    document.text(&Path::parse("spec.type").unwrap()).unwrap().unwrap_or_default().into_owned()
}

/// Hides LoadBalancer Services.
fn hide_load_balancers() -> Script {
    Script::new(|document| if kind_of(document) == "LoadBalancer" { Outcome::Hidden } else { Outcome::Unchanged })
}

pub(super) async fn filtered() -> (ProxyFixture, Script) {
    let fixture = fixture().await;
    let script = hide_load_balancers();
    fixture.filter("*/services", &script);
    fixture.service("a", "ClusterIP");
    fixture.service("b", "LoadBalancer");
    fixture.service("c", "ClusterIP");
    (fixture, script)
}

/// The next events of a watch.
async fn next(events: &mut EventReader, count: usize) -> Vec<String> {
    let mut next = Vec::new();
    for _ in 0..count {
        next.push(events.next_summary().await);
    }
    next
}

#[tokio::test]
async fn an_open_watch_goes_on_after_a_changed_lookup_and_the_next_one_begins_with_the_present_state() {
    let (fixture, script) = filtered().await;
    fixture.stamped().await;
    let (_, list) = fixture.json("/api/v1/services").await;
    assert_eq!(names(&list), ["a", "c"]);
    let path = format!("/api/v1/services?watch=1&resourceVersion={}", version(&list));
    let mut events = fixture.watch(&path).await;
    fixture.service("d", "ClusterIP");
    assert_eq!(events.next_summary().await, "ADDED d");
    script.change();
    fixture.service("e", "ClusterIP");
    assert_eq!(events.next_summary().await, "ADDED e", "the outcomes are the same");
    // The earlier list was filtered by another chain version.
    let mut events = fixture.watch(&path).await;
    assert_eq!(next(&mut events, 5).await, ["MODIFIED a", "DELETED b", "MODIFIED c", "ADDED d", "ADDED e"]);
    let list = fixture.settle("/api/v1/services").await;
    let mut events = fixture.watch(&format!("/api/v1/services?watch=1&resourceVersion={}", version(&list))).await;
    fixture.service("f", "ClusterIP");
    assert_eq!(events.next_summary().await, "ADDED f");
}

#[tokio::test]
async fn what_a_failure_policy_shows_is_corrected_in_open_watches_and_for_who_continues() {
    let fixture = fixture().await;
    let fails = Arc::new(AtomicBool::new(true));
    let filter = fails.clone();
    let script =
        Script::new(move |document| match (kind_of(document) == "LoadBalancer", filter.load(Ordering::Relaxed)) {
            (true, true) => {
                Outcome::Failed(Failure { filter: "fails".into(), class: FailureClass::Trap, message: "boom".into() })
            }
            (true, false) => Outcome::Hidden,
            (false, _) => Outcome::Unchanged,
        });
    fixture.filter("*/services", &script.ignoring_failures());
    fixture.service("a", "ClusterIP");
    fixture.stamped().await;
    let watch = async |list: &Value| {
        fixture.watch(&format!("/api/v1/services?watch=1&resourceVersion={}", version(list))).await
    };
    let (_, empty) = fixture.json("/api/v1/services").await;
    let mut open = watch(&empty).await;
    fixture.service("b", "LoadBalancer");
    assert_eq!(open.next_summary().await, "ADDED b", "the policy shows it");
    fixture.service("c", "ClusterIP");
    assert_eq!(open.next_summary().await, "ADDED c");
    let (_, list) = fixture.json("/api/v1/services").await;
    assert_eq!(names(&list), ["a", "b", "c"]);
    fails.store(false, Ordering::Relaxed);
    assert_eq!(open.next_summary().await, "DELETED b");
    assert_eq!(next(&mut watch(&list).await, 3).await, ["MODIFIED a", "DELETED b", "MODIFIED c"]);
    // Objects that were shown with verdicts are not shown again.
    let list = fixture.settle("/api/v1/services").await;
    let mut events = watch(&list).await;
    fixture.service("d", "ClusterIP");
    assert_eq!(events.next_summary().await, "ADDED d");
}

#[tokio::test]
async fn what_a_failure_policy_shows_in_a_get_is_corrected_by_the_watch_that_continues_from_it() {
    let fixture = fixture().await;
    let fails = Arc::new(AtomicBool::new(true));
    let filter = fails.clone();
    let script = Script::new(move |_| match filter.load(Ordering::Relaxed) {
        true => Outcome::Failed(Failure { filter: "fails".into(), class: FailureClass::Trap, message: "boom".into() }),
        false => Outcome::Hidden,
    });
    fixture.filter("*/services", &script.ignoring_failures());
    fixture.stamped().await;
    fixture.service("a", "ClusterIP");
    let (status, shown) = fixture.json("/api/v1/namespaces/default/services/a").await;
    assert_eq!(status, StatusCode::OK);
    fails.store(false, Ordering::Relaxed);
    let mut events = fixture.watch(&format!("/api/v1/services?watch=1&resourceVersion={}", version(&shown))).await;
    assert_eq!(events.next_summary().await, "DELETED a");
}

#[tokio::test]
async fn an_object_that_is_hidden_and_shown_between_two_watches_is_added() {
    let (fixture, _script) = filtered().await;
    fixture.stamped().await;
    let (_, list) = fixture.json("/api/v1/services").await;
    let mut events = fixture.watch(&format!("/api/v1/services?watch=1&resourceVersion={}", version(&list))).await;
    fixture.service("d", "ClusterIP");
    let last = events.next().await.unwrap();
    drop(events);
    fixture.server.open_watches().wait_for(|open| *open == 0).await.unwrap();
    fixture.service("b", "LoadBalancer");
    fixture.service("b", "ClusterIP");
    let from = last["object"]["metadata"]["resourceVersion"].as_str().unwrap();
    let mut events = fixture.watch(&format!("/api/v1/services?watch=1&resourceVersion={from}")).await;
    assert_eq!(events.next_summary().await, "ADDED b");
}

#[tokio::test]
async fn a_watch_continues_from_a_paged_list() {
    let (fixture, _script) = filtered().await;
    fixture.stamped().await;
    let mut path = "/api/v1/services?limit=1".to_owned();
    let mut seen = Vec::new();
    let last = loop {
        let (_, page) = fixture.json(&path).await;
        seen.extend(names(&page).into_iter().map(str::to_owned));
        match page["metadata"]["continue"].as_str() {
            Some(token) if !token.is_empty() => path = format!("/api/v1/services?limit=1&continue={token}"),
            _ => break page,
        }
    };
    assert_eq!(seen, ["a", "c"]);
    let mut events = fixture.watch(&format!("/api/v1/services?watch=1&resourceVersion={}", version(&last))).await;
    fixture.service("b", "LoadBalancer");
    fixture.service("b", "ClusterIP");
    assert_eq!(events.next_summary().await, "ADDED b");
}

#[tokio::test]
async fn a_watch_after_a_change_between_two_pages_begins_with_the_present_state() {
    let (fixture, script) = filtered().await;
    let (_, page) = fixture.json("/api/v1/services?limit=2").await;
    script.change();
    let token = page["metadata"]["continue"].as_str().unwrap();
    let (_, page) = fixture.json(&format!("/api/v1/services?limit=2&continue={token}")).await;
    let mut events = fixture.watch(&format!("/api/v1/services?watch=1&resourceVersion={}", version(&page))).await;
    assert_eq!(next(&mut events, 3).await, ["MODIFIED a", "DELETED b", "MODIFIED c"]);
}

#[tokio::test]
async fn a_client_gets_what_was_hidden_when_no_filter_matches_any_more() {
    let (fixture, _script) = filtered().await;
    fixture.stamped().await;
    let (_, list) = fixture.json("/api/v1/services").await;
    let path = format!("/api/v1/services?watch=1&resourceVersion={}", version(&list));
    let mut events = fixture.watch(&path).await;
    fixture.no_filters();
    assert_eq!(events.next_summary().await, "ADDED b");
    assert_eq!(next(&mut fixture.watch(&path).await, 3).await, ["MODIFIED a", "MODIFIED b", "MODIFIED c"]);
    fixture.server.store().advance();
    let (_, list) = fixture.json("/api/v1/services").await;
    assert_eq!(names(&list), ["a", "b", "c"]);
    let mut events = fixture.watch(&format!("/api/v1/services?watch=1&resourceVersion={}", version(&list))).await;
    fixture.service("d", "ClusterIP");
    assert_eq!(events.next_summary().await, "ADDED d");
}

/// The watch that still waits for its client, and then the one that has ended.
#[tokio::test]
async fn a_client_that_is_cut_off_gets_what_was_hidden_at_its_next_watch() {
    let (fixture, _script) = filtered().await;
    fixture.stamped().await;
    let (_, list) = fixture.json("/api/v1/services").await;
    let mut events = fixture.watch(&format!("/api/v1/services?watch=1&resourceVersion={}", version(&list))).await;
    fixture.service("d", "ClusterIP");
    let last = events.next().await.unwrap();
    fixture.no_filters();
    let from = last["object"]["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
    let path = format!("/api/v1/services?watch=1&resourceVersion={from}");
    let all = ["MODIFIED a", "MODIFIED b", "MODIFIED c", "MODIFIED d"];
    assert_eq!(next(&mut fixture.watch(&path).await, 4).await, all);
    drop(events);
    fixture.server.open_watches().wait_for(|open| *open == 0).await.unwrap();
    assert_eq!(next(&mut fixture.watch(&path).await, 4).await, all);
}

#[tokio::test]
async fn a_new_filter_set_with_the_same_chain_does_not_end_watches() {
    let (fixture, script) = filtered().await;
    let mut events = fixture.watch("/api/v1/services?watch=1").await;
    assert_eq!((events.next_summary().await, events.next_summary().await), ("ADDED a".into(), "ADDED c".into()));
    fixture.filter("*/services", &script);
    fixture.service("d", "ClusterIP");
    assert_eq!(events.next_summary().await, "ADDED d");
}

#[tokio::test]
async fn a_list_that_fails_late_is_aborted_until_the_object_passes() {
    let fixture = fixture().await;
    let failing = Arc::new(AtomicBool::new(true));
    let fails = failing.clone();
    fixture.filter(
        "*/configmaps",
        &Script::new(move |document| {
            if document.name().unwrap() == "z" && fails.load(Ordering::Relaxed) {
                Outcome::Failed(Failure { filter: "f".into(), class: FailureClass::Trap, message: "boom".into() })
            } else {
                Outcome::Unchanged
            }
        }),
    );
    for name in ["a", "b", "c", "d", "z"] {
        let object = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "default"},
            "data": {"text": "x".repeat(200 << 10)}
        });
        fixture.server.store().put(object).unwrap();
    }
    let response = fixture.send("/api/v1/configmaps", &[]).await;
    assert_eq!(response.status(), StatusCode::OK);
    response.into_body().collect().await.expect_err("the body is aborted, never closed");

    failing.store(false, Ordering::Relaxed);
    let (status, list) = fixture.json("/api/v1/configmaps").await;
    assert_eq!(status, StatusCode::OK);
    assert!(names(&list).contains(&"z"));
}

#[tokio::test]
async fn a_failing_chain_ends_a_watch_with_an_error_event_but_passes_deletions() {
    let fixture = fixture().await;
    let failing = Arc::new(AtomicBool::new(false));
    let fails = failing.clone();
    fixture.filter(
        "*/services",
        &Script::new(move |_| {
            if fails.load(Ordering::Relaxed) {
                Outcome::Failed(Failure { filter: "f".into(), class: FailureClass::Time, message: "slow".into() })
            } else {
                Outcome::Unchanged
            }
        }),
    );
    fixture.service("a", "ClusterIP");
    let mut events = fixture.watch("/api/v1/services?watch=1").await;
    assert_eq!(events.next_summary().await, "ADDED a");
    failing.store(true, Ordering::Relaxed);
    fixture.server.store().delete("v1", "Service", "default", "a").unwrap();
    assert_eq!(events.next_summary().await, "DELETED a");
    fixture.service("b", "ClusterIP");
    assert_eq!(events.next_summary().await, "ERROR 500");
    assert_eq!(events.next().await, None);
    assert_eq!(fixture.json("/api/v1/services").await.0, StatusCode::INTERNAL_SERVER_ERROR);
}
