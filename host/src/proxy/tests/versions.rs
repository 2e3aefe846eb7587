//! The versions from which a filtered watch continues: above the stamp of the present chain version it gets the events, else the
//! present state first.

use http_body_util::Full;

use super::*;
use weir_runtime::Outcome;

const SERVICES: &str = "/api/v1/namespaces/default/services";

fn keep() -> Script {
    Script::new(|_| Outcome::Unchanged)
}

async fn filtered() -> (ProxyFixture, Script) {
    let fixture = fixture().await;
    let script = keep();
    fixture.filter("*/services", &script);
    fixture.service("a", "ClusterIP");
    (fixture, script)
}

fn service(name: &str, text: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": "default"},
        "spec": {"ports": [{"port": 80}], "externalName": text}
    })
}

impl ProxyFixture {
    /// Sends a write; returns the status and the object of the response.
    async fn send_write(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &Value,
    ) -> (StatusCode, Value) {
        let client = Client::builder(TokioExecutor::new()).build_http::<Full<Bytes>>();
        let request = Request::builder().method(method).uri(format!("{}{path}", self.url));
        let request = request.header("user-agent", "kube-proxy/v1.34.0");
        let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
        let request = request.body(Full::new(body.to_string().into())).unwrap();
        let (parts, body) = client.request(request).await.unwrap().into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        (parts.status, serde_json::from_slice(&body).unwrap())
    }

    async fn create(&self, name: &str) -> Value {
        let (status, object) =
            self.send_write("POST", SERVICES, &[("content-type", "application/json")], &service(name, "")).await;
        assert_eq!(status, StatusCode::CREATED, "{object}");
        object
    }

    async fn patch(&self, name: &str, text: &str) -> Value {
        let kind = [("content-type", "application/strategic-merge-patch+json")];
        let patch = json!({"spec": {"externalName": text}});
        let (status, object) = self.send_write("PATCH", &format!("{SERVICES}/{name}"), &kind, &patch).await;
        assert_eq!(status, StatusCode::OK, "{object}");
        object
    }

    /// The stamp of the filters in force is known, and the API server is above it.
    pub(super) async fn stamped(&self) {
        self.json("/api/v1/services").await;
        self.server.store().advance();
    }

    async fn watch_from(&self, path: &str, from: &Value) -> EventReader {
        self.watch(&format!("{path}?watch=1&resourceVersion={}", version(from))).await
    }
}

#[tokio::test]
async fn a_watch_starts_at_the_version_of_a_created_object() {
    let (fixture, _script) = filtered().await;
    fixture.stamped().await;
    let created = fixture.create("b").await;
    let mut events = fixture.watch_from("/api/v1/services", &created).await;
    fixture.service("c", "ClusterIP");
    assert_eq!(events.next_summary().await, "ADDED c");
}

#[tokio::test]
async fn a_watch_starts_at_the_version_of_an_update_or_of_a_get() {
    let (fixture, _script) = filtered().await;
    fixture.stamped().await;
    let patched = fixture.patch("a", "x").await;
    let mut events = fixture.watch_from(SERVICES, &patched).await;
    fixture.service("b", "ClusterIP");
    assert_eq!(events.next_summary().await, "ADDED b");
    let (_, read) = fixture.json(&format!("{SERVICES}/b")).await;
    let mut events = fixture.watch_from("/api/v1/services", &read).await;
    fixture.service("c", "ClusterIP");
    assert_eq!(events.next_summary().await, "ADDED c");
}

#[tokio::test]
async fn a_watch_starts_at_the_version_of_a_list_of_another_shape() {
    let (fixture, _script) = filtered().await;
    fixture.stamped().await;
    let (_, list) = fixture.json("/api/v1/services").await;
    let mut events = fixture.watch_from(SERVICES, &list).await;
    fixture.service("b", "ClusterIP");
    assert_eq!(events.next_summary().await, "ADDED b");
}

#[tokio::test]
async fn an_update_without_an_effect_does_not_make_older_versions_known() {
    let (fixture, _script) = filtered().await;
    let (_, old) = fixture.json(&format!("{SERVICES}/a")).await;
    fixture.service("b", "ClusterIP");
    let unchanged = fixture.patch("a", "").await;
    let unchanged = fixture.patch("a", unchanged["spec"]["externalName"].as_str().unwrap_or_default()).await;
    assert!(version(&unchanged).parse::<u64>().unwrap() >= version(&old).parse().unwrap());
    let mut events = fixture.watch_from(SERVICES, &old).await;
    assert_eq!((events.next_summary().await, events.next_summary().await), ("ADDED b".into(), "MODIFIED a".into()));
}

#[tokio::test]
async fn a_version_from_before_a_change_of_values_gets_the_present_state_and_one_after_it_does_not() {
    let (fixture, script) = filtered().await;
    let before = fixture.create("b").await;
    script.change();
    let mut events = fixture.watch_from(SERVICES, &before).await;
    assert_eq!((events.next_summary().await, events.next_summary().await), ("MODIFIED a".into(), "MODIFIED b".into()));
    assert_eq!(fixture.watch_from(SERVICES, &before).await.next_summary().await, "MODIFIED a");
    fixture.settle(SERVICES).await;
    let after = fixture.create("c").await;
    let mut events = fixture.watch_from(SERVICES, &after).await;
    fixture.service("d", "ClusterIP");
    assert_eq!(events.next_summary().await, "ADDED d");
}

#[tokio::test]
async fn an_informer_that_an_earlier_chain_served_gets_the_present_state_whatever_others_got() {
    let (fixture, script) = filtered().await;
    let (_, list) = fixture.json("/api/v1/services").await;
    script.change();
    // Another list of the same client has the same version, as nothing else has changed.
    let (_, other) = fixture.json(SERVICES).await;
    assert_eq!(version(&list), version(&other));
    assert_eq!(fixture.watch_from("/api/v1/services", &list).await.next_summary().await, "MODIFIED a");
}

/// A filter is added and removed again, faster than its clients notice.
#[tokio::test]
async fn what_other_filters_made_does_not_pass_for_the_work_of_the_same_ones_before() {
    let (fixture, script) = filtered().await;
    fixture.service("b", "ClusterIP");
    fixture.json("/api/v1/services").await;
    let hides = Script::new(|object| match object.name().unwrap().as_ref() {
        "a" => Outcome::Hidden,
        _ => Outcome::Unchanged,
    });
    let rule = "*/services";
    for others in [vec![hides.matching(rule), script.matching(rule)], Vec::new()] {
        let kind = if others.is_empty() { "ClusterIP" } else { "NodePort" };
        fixture.activate(FilterSet::of(others));
        let (_, same) = fixture.json("/api/v1/services").await;
        fixture.service("b", kind);
        let (_, later) = fixture.json("/api/v1/services").await;
        fixture.service("b", "LoadBalancer");
        fixture.filter(rule, &script);
        for list in [same, later] {
            assert_eq!(fixture.watch_from("/api/v1/services", &list).await.next_summary().await, "MODIFIED a");
        }
        fixture.json("/api/v1/services").await;
    }
}

#[tokio::test]
async fn an_unfiltered_watch_gets_the_present_state_when_a_filter_begins_to_match() {
    let fixture = fixture().await;
    fixture.service("a", "ClusterIP");
    let (_, list) = fixture.json("/api/v1/services").await;
    fixture.filter("*/services", &keep());
    assert_eq!(fixture.watch_from("/api/v1/services", &list).await.next_summary().await, "MODIFIED a");
}

#[tokio::test]
async fn a_version_after_the_last_filter_left_is_forwarded() {
    let (fixture, _script) = filtered().await;
    let (_, list) = fixture.json("/api/v1/services").await;
    fixture.no_filters();
    assert_eq!(fixture.watch_from("/api/v1/services", &list).await.next_summary().await, "MODIFIED a");
    let created = fixture.create("b").await;
    let mut events = fixture.watch_from("/api/v1/services", &created).await;
    fixture.service("c", "ClusterIP");
    assert_eq!(events.next_summary().await, "ADDED c");
}

#[tokio::test]
async fn a_write_of_a_client_that_accepts_one_unusual_form_gets_what_the_api_server_says() {
    const TABLE: &str = "application/json;as=Table;g=meta.k8s.io;v=v1";
    let (fixture, _script) = filtered().await;
    fixture.server.on_request(|request| {
        let accept = request.headers.get("accept").and_then(|value| value.to_str().ok());
        let refused = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 406});
        match matches!(accept, Some(TABLE | "text/html")) {
            true => weir_apiserver::Action::json(406, refused.to_string()),
            false => weir_apiserver::Action::Serve,
        }
    });
    for accept in [TABLE, "text/html"] {
        let headers = [("content-type", "application/json"), ("accept", accept)];
        let (status, _) = fixture.send_write("POST", SERVICES, &headers, &service("b", "")).await;
        assert_eq!(status, StatusCode::NOT_ACCEPTABLE, "{accept}");
    }
    let either = format!("{TABLE},application/json");
    let headers = [("content-type", "application/json"), ("accept", &either)];
    let (status, created) = fixture.send_write("POST", SERVICES, &headers, &service("b", "")).await;
    assert_eq!((status, &created["kind"]), (StatusCode::CREATED, &json!("Service")));
}
