//! Modules that misbehave. Each is contained, logged by name and counted by fault class. Other filters and clients are
//! unaffected.

use serde_json::json;
use weir_apiserver::ApiServer;
use weir_tests::daemon::{Daemon, Setup};
use weir_tests::guests::hostile;

use super::{NO_LOAD_BALANCERS, edge, service};

const SERVICES: &str = "/api/v1/services";

/// The guest and its fault class.
const GUESTS: &[(&str, &str)] = &[
    ("endless-loop", "time"),
    ("memory-growth", "memory"),
    ("wasi-handles", "memory"),
    ("deep-recursion", "stack"),
    ("huge-result", "trap"),
    ("bad-handle", "trap"),
    ("exit", "exit"),
    ("undeclared-lookup", "trap"),
];

fn filters(guest: &str, policy: &str) -> String {
    format!(
        "filters:
  - {{name: {guest}, module: {guest}.wasm, match: ['victim/services'], failurePolicy: {policy}}}
  - {{name: discardcloudservice, module: discardcloudservice.wasm, match: ['*/services']}}
"
    )
}

/// A hostile guest for the client `victim`, and a good filter for all clients.
async fn beside_a_good_one(server: &ApiServer, guest: &str, policy: &str) -> Daemon {
    Setup::new(server.url())
        .filters(&filters(guest, policy))
        .module(guest, &hostile(guest))
        .bundled("discardcloudservice")
        .start_ready()
        .await
}

#[tokio::test]
async fn each_hostile_module_is_contained_and_logged_by_name() {
    for (guest, class) in GUESTS {
        let server = edge().await;
        let weir = beside_a_good_one(&server, guest, "Fail").await;
        let victim = weir.client("victim").get(SERVICES).await;
        assert_eq!(victim.status, 500, "{guest}: {}", victim.text());
        assert!(victim.text().contains(guest), "{guest}: {}", victim.text());
        let line = weir.logged("filter failed on an object").await;
        assert_eq!(line["fields"]["filter"], *guest);
        assert_eq!(line["fields"]["class"], *class, "{guest}: {line}");
        let series = format!("weir_filter_failures_total{{filter=\"{guest}\",class=\"{class}\"}}");
        assert!(weir.metric(&series).await >= 1.0, "{guest}");
        assert!(weir.filter(guest).await["lastError"].as_str().unwrap().starts_with(class), "{guest}");
        // Another client of the same daemon and the other filter are unaffected.
        assert_eq!(weir.client("kube-proxy").names(SERVICES).await, ["dashboard", "kubernetes", "web"], "{guest}");
    }
}

#[tokio::test]
async fn the_failure_policy_decides_the_outcome_of_the_object() {
    let server = edge().await;
    for (policy, names) in [("Ignore", vec!["dashboard", "kubernetes", "web"]), ("Hide", vec![])] {
        let weir = beside_a_good_one(&server, "bad-handle", policy).await;
        assert_eq!(weir.client("victim").names(SERVICES).await, names, "{policy}");
    }
}

#[tokio::test]
async fn a_watch_under_fail_ends_with_an_error_event_that_names_the_filter() {
    let server = edge().await;
    let weir = beside_a_good_one(&server, "bad-handle", "Fail").await;
    let mut events = weir.client("victim").watch(&format!("{SERVICES}?watch=true")).await;
    let event = events.next().await;
    assert_eq!((event["type"].as_str(), event["object"]["code"].as_u64()), (Some("ERROR"), Some(500)));
    assert!(event["object"]["message"].as_str().unwrap().contains("bad-handle"), "{event}");
    assert_eq!(events.try_next().await, Ok(None));
}

#[tokio::test]
async fn the_breaker_opens_and_calls_stop() {
    let server = edge().await;
    for n in 0..20 {
        let mut service = service(&format!("s-{n}"), "ClusterIP");
        service["metadata"]["namespace"] = json!(format!("ns-{}", n % 4));
        server.store().put(service).unwrap();
    }
    let weir = beside_a_good_one(&server, "endless-loop", "Ignore").await;
    assert_eq!(weir.client("victim").names(SERVICES).await.len(), 23);
    weir.logged("failed too often").await;
    let calls = weir.metric("weir_filter_failures_total{filter=\"endless-loop\",class=\"time\"}").await;
    let spared = weir.metric("weir_filter_failures_total{filter=\"endless-loop\",class=\"breaker-open\"}").await;
    assert!((5.0..24.0).contains(&calls) && spared > 0.0, "{calls} calls, {spared} spared");
    assert_eq!(weir.filter("endless-loop").await["state"], "suspended");
    let series = "weir_filter_breaker_open{filter=\"endless-loop\"}";
    assert_eq!(weir.metric(series).await, 1.0);
    // Who takes the filter out has done what the alert asks for.
    let from = weir.log_length();
    weir.put_filters(NO_LOAD_BALANCERS);
    weir.logged_after(from, "filter set activated").await;
    assert_eq!(weir.metric(series).await, 0.0);
}

#[tokio::test]
async fn an_endless_module_does_not_block_other_requests() {
    let server = edge().await;
    let slow = filters("endless-loop", "Ignore").replace("failurePolicy", "limits: {time: 10s}, failurePolicy");
    let weir = Setup::new(server.url())
        .filters(&slow)
        .module("endless-loop", &hostile("endless-loop"))
        .bundled("discardcloudservice")
        .start_ready()
        .await;
    let victims: Vec<_> = (0..8)
        .map(|_| {
            let client = weir.client("victim");
            tokio::spawn(async move { client.names(SERVICES).await })
        })
        .collect();
    // All calls stay in the endless loop for seconds. Other clients get responses meanwhile.
    for _ in 0..10 {
        assert_eq!(weir.client("kube-proxy").names(SERVICES).await.len(), 3);
    }
    assert!(victims.iter().all(|victim| !victim.is_finished()), "the others did not wait for them");
    for victim in victims {
        victim.abort();
    }
}

#[tokio::test]
async fn a_stateful_module_is_detected() {
    let server = edge().await;
    let filters = "filters:\n  - {name: remembers, module: remembers.wasm, match: ['*/services']}\n";
    let weir = Setup::new(server.url()).filters(filters).module("remembers", &hostile("remembers")).start_ready().await;
    let client = weir.client("test");
    // The second call contradicts the first. Also, the daemon runs one object in 1,024 again on a new instance.
    let mut lists = 0;
    while weir.metric("weir_filter_impure_total{filter=\"remembers\"}").await < 1.0 {
        for _ in 0..64 {
            client.json(SERVICES).await;
        }
        lists += 64;
        assert!(lists < 64 * 64, "never found");
    }
    weir.logged("keeps state between objects").await;
}

#[tokio::test]
async fn the_text_of_a_module_is_bounded_and_quoted() {
    let server = edge().await;
    let weir = beside_a_good_one(&server, "bad-handle", "Fail").await;
    let answer = weir.client("victim").get(SERVICES).await;
    assert!(answer.body.len() < 4096 && !answer.text().chars().any(|letter| letter.is_control() && letter != '\n'));
}

#[tokio::test]
async fn any_failure_retires_the_instance() {
    let server = edge().await;
    let filters =
        "filters:\n  - {name: fails-once, module: fails-once.wasm, match: ['*/services'], failurePolicy: Hide}\n";
    let weir =
        Setup::new(server.url()).filters(filters).module("fails-once", &hostile("fails-once")).start_ready().await;
    // An instance that has failed once would keep every later object.
    for _ in 0..3 {
        assert_eq!(weir.client("test").names(SERVICES).await, Vec::<String>::new());
    }
}

#[tokio::test]
async fn protected_fields_are_edited_only_by_a_filter_that_declares_them() {
    let server = edge().await;
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "default"},
        "spec": {"containers": [{"name": "c", "image": "good:1"}]},
    });
    server.store().put(pod).unwrap();
    let path = "/api/v1/namespaces/default/pods/p";
    let filters = |more: &str| {
        format!("filters:\n  - {{name: edits-image, module: edits-image.wasm, match: ['*/pods']{more}}}\n")
    };
    let setup = Setup::new(server.url()).filters(&filters("")).module("edits-image", &hostile("edits-image"));
    let weir = setup.start_ready().await;
    let refused = weir.client("kubelet").get(path).await;
    assert_eq!(refused.status, 500);
    assert!(
        refused.text().contains("spec.containers[*].image") && refused.text().contains("protected"),
        "{}",
        refused.text()
    );
    let from = weir.log_length();
    weir.put_filters(&filters(", edits: ['spec.containers[*].image']"));
    weir.logged_after(from, "filter set activated").await;
    assert_eq!(weir.client("kubelet").json(path).await["spec"]["containers"][0]["image"], "evil:latest");
}

#[tokio::test]
async fn an_object_that_fails_a_filter_stays_failed_whatever_later_filters_return() {
    let server = edge().await;
    let filters = "\
filters:
  - {name: discardcloudservice, module: discardcloudservice.wasm, match: ['*/services']}
  - {name: nodeportisolation, module: nodeportisolation.wasm, match: ['*/services']}
";
    let weir = Setup::new(server.url())
        .filters(filters)
        .bundled("discardcloudservice")
        .bundled("nodeportisolation")
        .start_ready()
        .await;
    // The type occurs twice, so that the client would read another one than the filter.
    let twice = r#"{"metadata": {"name": "twice"}, "spec": {"type": "ClusterIP", "type": "LoadBalancer"}}"#;
    let good = r#"{"metadata": {"name": "good"}, "spec": {"type": "ClusterIP"}}"#;
    for items in [[twice, good], [good, twice]] {
        let list = format!(
            r#"{{"kind": "ServiceList", "apiVersion": "v1", "metadata": {{"resourceVersion": "1"}}, "items": [{}]}}"#,
            items.join(",")
        );
        server.on_request(move |request| {
            if request.target().starts_with(SERVICES) {
                weir_apiserver::Action::json(200, list.clone())
            } else {
                weir_apiserver::Action::Serve
            }
        });
        let answer = weir.client("kube-proxy").get(SERVICES).await;
        assert_eq!(answer.status, 500, "never a list without it: {}", answer.text());
        assert!(answer.text().contains("discardcloudservice"), "{}", answer.text());
    }
}
