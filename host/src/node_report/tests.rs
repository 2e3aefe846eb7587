//! The task with an API server in memory. `tests/behaviour/node_report.rs` covers it in the daemon.

use serde_json::Value;
use tokio::sync::broadcast;
use weir_apiserver::{ApiServer, Enforce};
use weir_upstream::{Tasks, UpstreamConfig};

use super::condition_writer::found;
use super::schedule::HEARTBEAT;
use super::*;
use crate::admin::HealthReport;
use crate::admin::status::{FilterStatus, ReloadResult};

struct Fixture {
    server: ApiServer,
    status: Arc<FilterStatus>,
    breakers: broadcast::Sender<BreakerChange>,
    tasks: Tasks,
}

async fn fixture() -> Fixture {
    let server = ApiServer::builder().record(100).start().await.unwrap();
    let node = serde_json::json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "edge-a"}});
    server.store().put(node).unwrap();
    Fixture { server, status: Arc::default(), breakers: broadcast::Sender::new(8), tasks: Tasks::default() }
}

impl Fixture {
    fn start(&self) {
        let config = UpstreamConfig::new(kube::Config::new(self.server.url().parse().unwrap()));
        let upstream = Arc::new(Upstream::new(&config, Arc::default()).unwrap());
        let sources = HealthSources::of_filters(self.status.clone());
        let report = NodeReport::new("edge-a", sources, &self.breakers, upstream, true);
        self.tasks.spawn_until_stop(report.run());
    }

    /// Waits for a request, and returns the path of each so far.
    async fn requested(&self, wanted: impl Fn(&[String]) -> bool) -> Vec<String> {
        let mut count = self.server.request_count();
        let found = async {
            loop {
                count.mark_unchanged();
                let all: Vec<_> = self
                    .server
                    .requests()
                    .iter()
                    .map(|request| format!("{} {}", request.method, request.path))
                    .collect();
                if wanted(&all) {
                    return all;
                }
                count.changed().await.unwrap();
            }
        };
        tokio::time::timeout(std::time::Duration::from_secs(30), found).await.expect("the request arrives")
    }

    fn events(&self) -> Vec<Value> {
        self.server.store().list("events.k8s.io/v1", "Event")
    }
}

fn is_patch(request: &str) -> bool {
    request == "PATCH /api/v1/nodes/edge-a/status"
}

#[tokio::test]
async fn a_breaker_that_closes_is_a_normal_event() {
    let fixture = fixture().await;
    fixture.start();
    for (filter, is_open) in [("a", true), ("a", false), ("b", true)] {
        fixture.breakers.send(BreakerChange { filter: filter.into(), is_open }).unwrap();
    }
    // The request about b is sent after those about a are answered.
    fixture.requested(|all| all.iter().filter(|request| request.starts_with("POST")).count() == 3).await;
    let mut events = fixture.events();
    events.retain(|event| event["note"].as_str().is_some_and(|note| note.starts_with("Filter a ")));
    let mut kinds: Vec<_> = events.iter().map(|event| (event["reason"].as_str(), event["type"].as_str())).collect();
    kinds.sort();
    let expected = [(Some("CircuitBreakerClosed"), Some("Normal")), (Some("CircuitBreakerOpened"), Some("Warning"))];
    assert_eq!(kinds, expected, "{events:?}");
}

#[tokio::test]
async fn the_condition_of_the_node_is_not_written_again_by_a_restarted_daemon() {
    let fixture = fixture().await;
    fixture.status.live(&[], ReloadResult::applied("f.yaml", &[]));
    fixture.start();
    fixture.requested(|all| all.iter().any(|request| is_patch(request))).await;
    // The task writes an event after the condition is written.
    fixture.breakers.send(BreakerChange { filter: "a".into(), is_open: true }).unwrap();
    fixture.requested(|all| all.iter().any(|request| request.starts_with("POST"))).await;
    fixture.tasks.drain(Duration::from_secs(10)).await;

    let node = fixture.server.store().get("v1", "Node", "", "edge-a").unwrap();
    tokio::time::pause();
    let (mut schedule, transition) = found(serde_json::from_value(node).unwrap());
    let present = FilterCondition::of(&HealthReport::of(&HealthSources::of_filters(fixture.status.clone()))).unwrap();
    assert_eq!((present.status.as_str(), present.reason.as_str()), ("True", "FiltersActive"));
    assert_eq!(schedule.shown(), Some(&present));
    assert!(transition.is_some());
    for _ in 0..4 {
        assert!(!schedule.is_due(&present));
        tokio::time::advance(HEARTBEAT / 10).await;
    }
}

#[tokio::test]
async fn a_result_before_the_start_is_an_event() {
    let fixture = fixture().await;
    let error = ReloadError { filter: None, reason: "x".to_owned() };
    fixture.status.refused(ReloadResult::refused("f.yaml", vec![error], &[]));
    fixture.start();
    fixture.requested(|all| all.iter().any(|request| request.starts_with("POST"))).await;
}

#[tokio::test]
async fn forbidden_events_are_dropped_and_the_condition_is_written_all_the_same() {
    let fixture = fixture().await;
    fixture.server.set_policy(|request| request.resource != "events");
    fixture.server.enforce(Enforce::Everybody);
    fixture.status.live(&[], ReloadResult::applied("f.yaml", &[]));
    fixture.start();
    for (events, filter) in [(1, "a"), (2, "b")] {
        fixture.breakers.send(BreakerChange { filter: filter.into(), is_open: true }).unwrap();
        let created = |all: &[String]| all.iter().filter(|request| request.starts_with("POST")).count() == events;
        fixture.requested(created).await;
    }
    fixture.requested(|all| all.iter().any(|request| is_patch(request))).await;
    assert!(fixture.events().is_empty());
}
