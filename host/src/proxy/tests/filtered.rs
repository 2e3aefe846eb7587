//! What a client of filtered lists and watches holds, when the filters change under it.

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

async fn filtered() -> (Rig, Script) {
    let rig = rig().await;
    let script = hide_load_balancers();
    rig.filter("*/services", &script);
    rig.service("a", "ClusterIP");
    rig.service("b", "LoadBalancer");
    rig.service("c", "ClusterIP");
    (rig, script)
}

#[tokio::test]
async fn a_changed_lookup_ends_the_watch_once_and_a_fresh_list_settles_it() {
    let (rig, script) = filtered().await;
    let (_, list) = rig.json("/api/v1/services").await;
    assert_eq!(names(&list), ["a", "c"]);
    let path = format!("/api/v1/services?watch=1&resourceVersion={}", version(&list));
    let mut events = rig.watch(&path).await;
    rig.service("d", "ClusterIP");
    assert_eq!(events.told().await, "ADDED d");
    script.change();
    assert_eq!(events.told().await, "ERROR 410");
    assert_eq!(events.next().await, None);
    // The list under the old state does not excuse a watch now, at whatever version.
    assert_eq!(rig.watch(&path).await.told().await, "ERROR 410");
    let (_, list) = rig.json("/api/v1/services").await;
    let mut events = rig.watch(&format!("/api/v1/services?watch=1&resourceVersion={}", version(&list))).await;
    rig.service("e", "ClusterIP");
    assert_eq!(events.told().await, "ADDED e");
}

#[tokio::test]
async fn what_was_hidden_is_known_over_the_end_of_a_watch() {
    let (rig, _script) = filtered().await;
    let (_, list) = rig.json("/api/v1/services").await;
    let mut events = rig.watch(&format!("/api/v1/services?watch=1&resourceVersion={}", version(&list))).await;
    rig.service("d", "ClusterIP");
    let last = events.next().await.unwrap();
    drop(events);
    rig.server.open_watches().wait_for(|open| *open == 0).await.unwrap();
    rig.service("b", "LoadBalancer");
    rig.service("b", "ClusterIP");
    let from = last["object"]["metadata"]["resourceVersion"].as_str().unwrap();
    let mut events = rig.watch(&format!("/api/v1/services?watch=1&resourceVersion={from}")).await;
    assert_eq!(events.told().await, "ADDED b");
}

#[tokio::test]
async fn the_pages_of_a_list_are_one_list_for_the_watch_that_follows() {
    let (rig, _script) = filtered().await;
    let mut path = "/api/v1/services?limit=1".to_owned();
    let mut seen = Vec::new();
    let last = loop {
        let (_, page) = rig.json(&path).await;
        seen.extend(names(&page).into_iter().map(str::to_owned));
        match page["metadata"]["continue"].as_str() {
            Some(token) if !token.is_empty() => path = format!("/api/v1/services?limit=1&continue={token}"),
            _ => break page,
        }
    };
    assert_eq!(seen, ["a", "c"]);
    let mut events = rig.watch(&format!("/api/v1/services?watch=1&resourceVersion={}", version(&last))).await;
    rig.service("b", "LoadBalancer");
    rig.service("b", "ClusterIP");
    assert_eq!(events.told().await, "ADDED b");
}

#[tokio::test]
async fn a_list_whose_pages_fell_on_both_sides_of_a_change_is_listed_again() {
    let (rig, script) = filtered().await;
    let (_, page) = rig.json("/api/v1/services?limit=2").await;
    script.change();
    let token = page["metadata"]["continue"].as_str().unwrap();
    let (_, page) = rig.json(&format!("/api/v1/services?limit=2&continue={token}")).await;
    let mut events = rig.watch(&format!("/api/v1/services?watch=1&resourceVersion={}", version(&page))).await;
    assert_eq!(events.told().await, "ERROR 410");
}

#[tokio::test]
async fn a_client_with_filtered_state_lists_again_once_when_nothing_matches_any_more() {
    let (rig, _script) = filtered().await;
    let (_, list) = rig.json("/api/v1/services").await;
    let path = format!("/api/v1/services?watch=1&resourceVersion={}", version(&list));
    let mut events = rig.watch(&path).await;
    rig.no_filters();
    assert_eq!(events.told().await, "ERROR 410");
    rig.server.open_watches().wait_for(|open| *open == 0).await.unwrap();
    assert_eq!(rig.watch(&path).await.told().await, "ERROR 410");
    let (_, list) = rig.json("/api/v1/services").await;
    assert_eq!(names(&list), ["a", "b", "c"]);
    let mut events = rig.watch(&format!("/api/v1/services?watch=1&resourceVersion={}", version(&list))).await;
    rig.service("d", "ClusterIP");
    assert_eq!(events.told().await, "ADDED d");
}

#[tokio::test]
async fn a_swap_that_leaves_the_chain_alone_leaves_its_watches_alone() {
    let (rig, script) = filtered().await;
    let mut events = rig.watch("/api/v1/services?watch=1").await;
    assert_eq!((events.told().await, events.told().await), ("ADDED a".into(), "ADDED c".into()));
    rig.filter("*/services", &script);
    rig.service("d", "ClusterIP");
    assert_eq!(events.told().await, "ADDED d");
}

#[tokio::test]
async fn an_object_that_failed_a_list_late_fails_its_retry_early_until_it_passes() {
    let rig = rig().await;
    let failing = Arc::new(AtomicBool::new(true));
    let fails = failing.clone();
    rig.filter(
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
        rig.server.store().put(object).unwrap();
    }
    let answer = rig.send("/api/v1/configmaps", &[]).await;
    assert_eq!(answer.status(), StatusCode::OK);
    answer.into_body().collect().await.expect_err("the body is aborted, never closed");

    rig.server.clear_requests();
    let (status, refusal) = rig.json("/api/v1/configmaps").await;
    assert_eq!((status, &refusal["reason"]), (StatusCode::INTERNAL_SERVER_ERROR, &json!("InternalError")));
    let asked: Vec<_> = rig.server.requests().into_iter().map(|request| request.path).collect();
    assert_eq!(asked, ["/api/v1/namespaces/default/configmaps/z"]);

    failing.store(false, Ordering::Relaxed);
    let (status, list) = rig.json("/api/v1/configmaps").await;
    assert_eq!(status, StatusCode::OK);
    assert!(names(&list).contains(&"z"));
}

#[tokio::test]
async fn a_failing_chain_ends_a_watch_with_an_error_event_but_swallows_no_deletion() {
    let rig = rig().await;
    let failing = Arc::new(AtomicBool::new(false));
    let fails = failing.clone();
    rig.filter(
        "*/services",
        &Script::new(move |_| {
            if fails.load(Ordering::Relaxed) {
                Outcome::Failed(Failure { filter: "f".into(), class: FailureClass::Time, message: "slow".into() })
            } else {
                Outcome::Unchanged
            }
        }),
    );
    rig.service("a", "ClusterIP");
    let mut events = rig.watch("/api/v1/services?watch=1").await;
    assert_eq!(events.told().await, "ADDED a");
    failing.store(true, Ordering::Relaxed);
    rig.server.store().delete("v1", "Service", "default", "a").unwrap();
    assert_eq!(events.told().await, "DELETED a");
    rig.service("b", "ClusterIP");
    assert_eq!(events.told().await, "ERROR 500");
    assert_eq!(events.next().await, None);
    assert_eq!(rig.json("/api/v1/services").await.0, StatusCode::INTERNAL_SERVER_ERROR);
}
