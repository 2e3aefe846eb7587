//! Objects of a view on which a filter fails: their last good outcome stands in.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;

use tokio::sync::Notify;
use weir_runtime::{Failure, FailureClass};

use super::super::caches::metrics;
use super::*;

/// A filter of kube-proxy's Services that fails on some of them, and is held on one of them.
#[derive(Clone, Default)]
struct Failing {
    names: Arc<Mutex<Vec<String>>>,
    /// Services with this type are hidden.
    hides: Arc<AtomicBool>,
    /// The filter waits for this on the Service `b`, once.
    gate: Arc<Mutex<Option<mpsc::Receiver<()>>>>,
    /// It has begun to.
    waits: Arc<Notify>,
}

impl Failing {
    fn on(&self, names: &[&str]) {
        *self.names.lock().unwrap() = names.iter().map(|name| (*name).to_owned()).collect();
    }

    fn outcome(&self, document: &Document) -> Outcome {
        let name = document.name().unwrap().into_owned();
        if self.names.lock().unwrap().contains(&name) {
            return Outcome::Failed(Failure {
                filter: "fails".into(),
                class: FailureClass::Trap,
                message: "boom".into(),
            });
        }
        let gate = if name == "b" { self.gate.lock().unwrap().take() } else { None };
        if let Some(gate) = gate {
            self.waits.notify_one();
            gate.recv().unwrap();
        }
        let kind = document.text(&Path::parse("spec.type").unwrap()).unwrap().unwrap_or_default().into_owned();
        let hides = self.hides.load(Ordering::Relaxed) && kind == "LoadBalancer";
        if hides { Outcome::Hidden } else { Outcome::Unchanged }
    }
}

async fn failing() -> (ProxyFixture, Script, Failing) {
    failing_with(|script| script).await
}

async fn failing_with(policy: impl FnOnce(Script) -> Script) -> (ProxyFixture, Script, Failing) {
    let fixture = fixture_with(|setup| setup.cached = vec!["services".parse().unwrap()]).await;
    let failing = Failing::default();
    let filter = failing.clone();
    let script = policy(Script::new(move |document| filter.outcome(document)));
    fixture.filter("kube-proxy/services", &script);
    for name in ["a", "b"] {
        fixture.service(name, "ClusterIP");
    }
    (fixture, script, failing)
}

/// The next event that is not a bookmark: its type, name and resourceVersion.
async fn change(events: &mut EventReader) -> (String, u64) {
    loop {
        let event = events.next().await.unwrap();
        let metadata = &event["object"]["metadata"];
        let (kind, version) = (event["type"].as_str().unwrap(), metadata["resourceVersion"].as_str());
        if kind != "BOOKMARK" {
            let text = format!("{kind} {}", metadata["name"].as_str().unwrap_or_default());
            return (text, version.unwrap_or("0").parse().unwrap());
        }
    }
}

fn degraded(fixture: &ProxyFixture) -> (Value, bool) {
    let registry = metrics(fixture);
    let is_counted = registry.lines().any(|line| line == "weir_cache_degraded_objects{resource=\"services\"} 1");
    (fixture.caches.to_json()["stores"][0]["views"][0]["degraded"].take(), is_counted)
}

#[tokio::test]
async fn the_last_good_outcome_stands_in_until_the_filter_recovers() {
    let (fixture, _script, failing) = failing().await;
    let list = informer_list(&fixture).await;
    let good = fixture.server.store().revision();
    let before = versions(&list);
    let mut events = informer_watch(&fixture, version(&list)).await;
    failing.on(&["a"]);
    fixture.service("a", "NodePort");
    let changed = fixture.server.store().revision();
    fixture.service("c", "ClusterIP");
    assert_eq!(change(&mut events).await.0, "ADDED c", "the state of `a` that stands in is not sent again");
    assert_eq!(degraded(&fixture), (json!(1), true));
    let list = informer_list(&fixture).await;
    assert_eq!(versions(&list)[..2], before, "at {good}");
    assert_eq!(list["items"][0]["spec"]["type"], "ClusterIP");
    // A client that lists now gets the state later, although its list has a newer version.
    let mut late = informer_watch(&fixture, version(&list)).await;
    failing.on(&[]);
    for events in [&mut events, &mut late] {
        assert_eq!(change(events).await, ("MODIFIED a".to_owned(), changed));
    }
    assert_eq!(degraded(&fixture), (json!(0), false));
    assert_eq!(informer_list(&fixture).await["items"][0]["spec"]["type"], "NodePort");
}

#[tokio::test]
async fn what_a_failure_policy_shows_is_filtered_again_until_there_is_a_verdict() {
    let (fixture, _script, failing) = failing_with(Script::ignoring_failures).await;
    failing.hides.store(true, Ordering::Relaxed);
    failing.on(&["a"]);
    let list = informer_list(&fixture).await;
    let mut events = informer_watch(&fixture, version(&list)).await;
    fixture.service("a", "LoadBalancer");
    let shown = change(&mut events).await;
    assert_eq!(shown.0, "MODIFIED a", "the policy shows it");
    assert_eq!(degraded(&fixture), (json!(1), true));
    let list = informer_list(&fixture).await;
    assert_eq!(names(&list), ["a", "b"]);
    let mut late = informer_watch(&fixture, version(&list)).await;
    failing.on(&[]);
    // Nothing else changes.
    for events in [&mut events, &mut late] {
        assert_eq!(change(events).await.0, "DELETED a");
    }
    assert_eq!(degraded(&fixture), (json!(0), false));
    assert_eq!(names(&informer_list(&fixture).await), ["b"]);
}

#[tokio::test]
async fn what_a_closed_view_has_shown_without_a_verdict_the_next_one_corrects() {
    let (fixture, _script, failing) = failing_with(Script::ignoring_failures).await;
    let views = fixture.caches.views.clone().unwrap();
    failing.hides.store(true, Ordering::Relaxed);
    failing.on(&["a"]);
    informer_list(&fixture).await;
    fixture.service("a", "LoadBalancer");
    let changed = fixture.server.store().revision();
    let list = loop {
        let (_, list) = fixture.json(&format!("{SERVICES}?resourceVersion={changed}")).await;
        if version(&list).parse::<u64>().unwrap() >= changed {
            break list;
        }
    };
    assert_eq!(names(&list), ["a", "b"], "the policy shows it");
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(601)).await;
    open_views::close_idle(&views).await;
    tokio::time::resume();
    assert!(views.status().iter().all(|store| store.views.is_empty()));
    failing.on(&[]);
    // Its client holds a later version than the stamp of the filters.
    let mut events = informer_watch(&fixture, version(&list)).await;
    assert_eq!(change(&mut events).await.0, "DELETED a");
}

#[tokio::test]
async fn a_view_that_opens_while_a_filter_fails_loses_no_deletion() {
    let (fixture, _script, failing) = failing().await;
    fixture.json(SERVICES).await;
    fixture.service("d", "ClusterIP");
    let held = fixture.server.store().revision();
    failing.on(&["d"]);
    let mut events = informer_watch(&fixture, &held.to_string()).await;
    fixture.server.store().delete("v1", "Service", "default", "d").unwrap();
    // The client holds d: it learns that it is gone, or that nothing can be said, and lists again.
    loop {
        match change(&mut events).await.0.as_str() {
            "DELETED d" | "ERROR " => break,
            other => assert!(other.starts_with("MODIFIED "), "{other}"),
        }
    }
}

#[tokio::test]
async fn what_a_failure_policy_has_shown_of_before_the_view_the_next_one_corrects() {
    let (fixture, _script, failing) = failing_with(Script::ignoring_failures).await;
    let views = fixture.caches.views.clone().unwrap();
    failing.hides.store(true, Ordering::Relaxed);
    fixture.stamped().await;
    let before = fixture.server.store().revision();
    fixture.service("x", "LoadBalancer");
    fixture.service("y", "ClusterIP");
    assert_eq!(names(&informer_list(&fixture).await), ["a", "b", "y"]);
    failing.on(&["x"]);
    let shown = change(&mut informer_watch(&fixture, &before.to_string()).await).await;
    assert_eq!(shown.0, "ADDED x", "the API server's event, as the policy shows it");
    failing.on(&[]);
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(601)).await;
    open_views::close_idle(&views).await;
    tokio::time::resume();
    let mut events = informer_watch(&fixture, &shown.1.to_string()).await;
    loop {
        match change(&mut events).await.0.as_str() {
            "DELETED x" => break,
            other => assert!(other.starts_with("MODIFIED "), "{other}"),
        }
    }
}

#[tokio::test]
async fn what_a_failure_policy_shows_in_a_streamed_list_is_corrected_by_the_watch_of_a_view() {
    let (fixture, _script, failing) = failing_with(Script::ignoring_failures).await;
    failing.hides.store(true, Ordering::Relaxed);
    fixture.service("a", "LoadBalancer");
    let list = informer_list(&fixture).await;
    assert_eq!(names(&list), ["b"]);
    drop(informer_watch(&fixture, version(&list)).await);
    fixture.service("c", "ClusterIP");
    fixture.stamped().await;
    // No version: the API server's list is filtered as it arrives.
    let (_, good) = fixture.json(SERVICES).await;
    failing.on(&["a"]);
    let (_, degraded) = fixture.json(SERVICES).await;
    failing.on(&[]);
    assert_eq!((names(&good), names(&degraded)), (vec!["b", "c"], vec!["a", "b", "c"]));
    assert_eq!(version(&good), version(&degraded));
    let mut events = informer_watch(&fixture, version(&degraded)).await;
    assert_eq!(change(&mut events).await.0, "DELETED a");
}

#[tokio::test]
async fn without_a_good_outcome_lists_and_watches_fail_until_the_filter_recovers() {
    let (fixture, _script, failing) = failing().await;
    let list = informer_list(&fixture).await;
    let mut events = informer_watch(&fixture, version(&list)).await;
    failing.on(&["new"]);
    fixture.service("new", "ClusterIP");
    let error = events.next().await.unwrap();
    assert_eq!((&error["type"], &error["object"]["code"]), (&json!("ERROR"), &json!(500)));
    assert_eq!(events.next().await, None);
    let (status, error) = fixture.json(&format!("{SERVICES}?resourceVersion=0")).await;
    assert_eq!(status, StatusCode::INTERNAL_SERVER_ERROR);
    assert!(error["message"].as_str().unwrap().contains("fails"), "{error}");
    assert_eq!(degraded(&fixture), (json!(1), true));
    failing.on(&[]);
    // The client continues where it was, and the failed object is filtered again within a second.
    let mut events = loop {
        let mut events = informer_watch(&fixture, version(&list)).await;
        // The client's state is unknown since the outcome changed.
        let next = loop {
            let next = change(&mut events).await.0;
            if !next.starts_with("MODIFIED ") {
                break next;
            }
        };
        match next.as_str() {
            "ADDED new" => break events,
            other => assert_eq!(other, "ERROR "),
        }
    };
    assert_eq!(names(&informer_list(&fixture).await), ["a", "b", "new"]);
    fixture.service("c", "ClusterIP");
    assert_eq!(change(&mut events).await.0, "ADDED c");
}

/// The store may have events that the view has not applied yet.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_recovered_object_has_no_version_that_the_view_has_not_reached() {
    let (fixture, script, failing) = failing().await;
    let list = informer_list(&fixture).await;
    let mut events = informer_watch(&fixture, version(&list)).await;
    // Another view of the same store, without a filter.
    let path = format!("{}{SERVICES}?watch=1&resourceVersion={}", fixture.url, version(&list));
    let request = Request::get(path).header("user-agent", "other").body(Empty::new()).unwrap();
    let body = fixture.client.request(request).await.unwrap().into_body();
    let mut unfiltered = EventReader { body, rest: Vec::new() };
    failing.on(&["a"]);
    fixture.service("a", "NodePort");
    let reached = fixture.server.store().revision();
    fixture.service("c", "ClusterIP");
    assert_eq!(change(&mut events).await.0, "ADDED c");
    // The view filters all objects once, and is held. Meanwhile, its store moves on.
    let (open, gate) = mpsc::channel();
    *failing.gate.lock().unwrap() = Some(gate);
    script.change();
    failing.waits.notified().await;
    fixture.service("d", "ClusterIP");
    fixture.service("a", "LoadBalancer");
    while change(&mut unfiltered).await.0 != "ADDED d" {}
    assert_eq!(change(&mut unfiltered).await.0, "MODIFIED a");
    // The view filters all objects again before it follows the store.
    failing.on(&[]);
    script.change();
    open.send(()).unwrap();
    let recovered = change(&mut events).await;
    assert_eq!(recovered, ("MODIFIED a".to_owned(), reached));
    let mut continued = informer_watch(&fixture, &recovered.1.to_string()).await;
    for events in [&mut continued, &mut events] {
        while change(events).await.0 != "ADDED d" {}
        assert_eq!(change(events).await.0, "MODIFIED a");
    }
}

#[tokio::test]
async fn a_hidden_object_that_changed_while_the_filter_failed_is_shown_as_it_is() {
    let (fixture, script, failing) = failing().await;
    failing.hides.store(true, Ordering::Relaxed);
    fixture.service("a", "LoadBalancer");
    let list = informer_list(&fixture).await;
    assert_eq!(names(&list), ["b"]);
    let mut events = informer_watch(&fixture, version(&list)).await;
    failing.on(&["a"]);
    fixture.service("a", "LoadBalancer");
    let changed = fixture.server.store().revision();
    fixture.service("c", "ClusterIP");
    assert_eq!(change(&mut events).await.0, "ADDED c");
    failing.on(&[]);
    script.change();
    while degraded(&fixture).0 != 0 {
        tokio::task::yield_now().await;
    }
    failing.hides.store(false, Ordering::Relaxed);
    script.change();
    assert_eq!(change(&mut events).await, ("ADDED a".to_owned(), changed));
}
