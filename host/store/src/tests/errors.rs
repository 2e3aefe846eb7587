//! Failures: how they are reported, retried and recovered from.

use std::time::Duration;

use serde_json::json;
use weir_apiserver::{Action, ApiServer, End, Enforce};
use weir_spec::LookupSpec;
use weir_upstream::Connectivity;

use super::*;

#[tokio::test]
async fn a_forbidden_list_names_the_missing_rule_and_recovers_without_a_restart() {
    let cluster = cluster().await;
    cluster.put(node("n1"));
    cluster.api.set_policy(|attributes| attributes.resource != "nodes");
    cluster.api.enforce(Enforce::Everybody);
    let lookup = LookupSpec::all("nodes".parse().unwrap());
    let handle = cluster.reflectors.open(&lookup);
    let error = within(handle.synced()).await.unwrap_err();
    let expected = r#"listing nodes is forbidden: its reader needs a rule with apiGroups [""], resources ["nodes"], verbs ["list", "watch"]"#;
    // The API server has answered in protobuf.
    let answered = r#"(API server: nodes is forbidden: User "nameless" cannot list resource "nodes" in API group "" at the cluster scope)"#;
    assert_eq!(error.to_string(), format!("{expected} {answered}"));
    let seen = handle.state();
    cluster.api.enforce(Enforce::Nobody);
    let state = within(handle.state_after(&seen)).await;
    assert_eq!(state, ReflectorState { synced: true, error: None });
    assert_eq!(names(&cluster.reflectors.snapshot(), &lookup), ["n1"]);
}

/// Of a pod that watches with its own token, or of kubelet, it is not the daemon's credential.
#[tokio::test]
async fn a_rejected_credential_is_that_of_the_reader() {
    let cluster = cluster().await;
    cluster.api.on_request(|_| Action::json(401, r#"{"kind":"Status","code":401,"message":"Unauthorized"}"#));
    let error =
        within(cluster.reflectors.open(&LookupSpec::all("services".parse().unwrap())).synced()).await.unwrap_err();
    let expected = "listing services failed: the API server rejects its reader's credential (API server: Unauthorized)";
    assert_eq!(error.to_string(), expected);
}

#[tokio::test]
async fn an_invalid_response_is_an_error_and_never_an_empty_list() {
    for garbage in [
        r#"{"kind":"ServiceList"}"#,
        r#"{"items":[{}],"metadata":{"resourceVersion":"1"}}"#,
        "{\"items\":[",
        "x",
        r#"{"items":[]}"#,
    ] {
        let cluster = cluster().await;
        cluster.put(service("a", json!({})));
        cluster.api.on_request(move |_| Action::json(200, garbage));
        let lookup = LookupSpec::all("services".parse().unwrap());
        let handle = cluster.reflectors.open(&lookup);
        let state = within(handle.state_after(&ReflectorState::default())).await;
        assert!(
            matches!(state, ReflectorState { synced: false, error: Some(ReflectorError::InvalidResponse { .. }) }),
            "{garbage}: {state:?}"
        );
        cluster.api.clear_hook();
        within(handle.synced()).await.unwrap();
        assert_eq!(names(&cluster.reflectors.snapshot(), &lookup), ["a"]);
    }
}

#[tokio::test]
async fn an_unavailable_server_is_retried_and_the_reason_is_reported() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let reflectors = reflectors_of(&format!("http://{address}"));
    let handle = reflectors.open(&LookupSpec::all("services".parse().unwrap()));
    let state = within(handle.state_after(&ReflectorState::default())).await;
    assert!(
        matches!(&state.error, Some(error @ ReflectorError::Unavailable { .. }) if !error.needs_operator_action()),
        "{state:?}"
    );
    let _api = ApiServer::builder().address(address).start().await.unwrap();
    within(handle.synced()).await.unwrap();
}

#[tokio::test]
async fn restored_connectivity_ends_a_delay() {
    let api = ApiServer::builder().start().await.unwrap();
    let connectivity = Connectivity::default();
    let patient = ReflectorTiming { rediscovery: Duration::from_secs(3600), ..TIMING };
    let reflectors = reflectors_with(StoresFixture {
        url: api.url().to_owned(),
        connectivity: connectivity.clone(),
        timing: Some(patient),
        ..StoresFixture::default()
    });
    let mut lookup = LookupSpec::all("widgets.example.org".parse().unwrap());
    lookup.optional = true;
    let handle = reflectors.open(&lookup);
    within(handle.synced()).await.unwrap();
    let mut requests = api.request_count();
    let count_before = *requests.borrow_and_update();
    connectivity.record_failure();
    connectivity.record_success();
    within(requests.wait_for(|count| *count > count_before)).await.unwrap();
}

#[tokio::test]
async fn objects_are_kept_while_the_server_is_unavailable() {
    let cluster = cluster().await;
    cluster.put(service("a", json!({})));
    let lookup = LookupSpec::all("services".parse().unwrap());
    let handle = cluster.open(&lookup).await;
    cluster.watching(1).await;
    let seen = handle.state();
    cluster.api.on_request(|_| Action::json(503, r#"{"kind":"Status","code":503,"message":"etcd is away"}"#));
    cluster.api.close_watches(End::Abort);
    let state = within(handle.state_after(&seen)).await;
    assert!(state.synced && state.error.unwrap().to_string().contains("503: etcd is away"));
    assert_eq!(names(&cluster.reflectors.snapshot(), &lookup), ["a"]);
    assert_eq!(within(handle.synced()).await, Ok(()));
}

#[tokio::test]
async fn without_a_server_a_reflector_reports_an_error() {
    let reflectors = without_a_server();
    let error = reflectors.open(&LookupSpec::all("services".parse().unwrap())).synced().await.unwrap_err();
    assert_eq!(error.to_string(), "listing services failed: no API server is configured");
}
