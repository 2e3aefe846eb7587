//! Statuses as clients get them.

use std::sync::Arc;

use serde_json::{Value, json};

use super::*;
use weir_runtime::FailureClass;

fn status(error: &StatusError) -> Value {
    serde_json::to_value(error.status()).unwrap()
}

#[test]
fn a_hidden_object_gets_the_message_of_the_api_server() {
    let error =
        StatusError::NotFound { resource: GroupResource::new("endpointslices", "discovery.k8s.io"), name: "a".into() };
    assert_eq!(
        status(&error),
        json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": "endpointslices.discovery.k8s.io \"a\" not found", "reason": "NotFound",
            "details": {"name": "a", "group": "discovery.k8s.io", "kind": "endpointslices"}, "code": 404
        })
    );
}

#[test]
fn a_failure_names_its_filter() {
    let failure = Failure { filter: Arc::from("topology"), class: FailureClass::Trap, message: Arc::from("boom") };
    let status = status(&StatusError::Filter(failure));
    assert_eq!((&status["code"], &status["reason"]), (&json!(500), &json!("InternalError")));
    assert!(status["message"].as_str().unwrap().contains("topology"));
}

#[test]
fn an_outage_is_503_without_retry_after_and_says_since_when() {
    let source = UpstreamError::Unresponsive { servers: "a:6443".to_owned() };
    let error = StatusError::Offline { since: "2026-01-02T03:04:05Z".parse().unwrap(), grace: None, source };
    assert_eq!(error.code(), StatusCode::SERVICE_UNAVAILABLE);
    assert!(error.to_string().starts_with("the API server cannot be reached since 2026-01-02T03:04:05Z: "));
    assert!(!error.response(Encoding::Json).headers().contains_key(header::RETRY_AFTER));
    assert_eq!(status(&error)["details"], Value::Null);
}

/// client-go retries only what has the header. The details are for clients that read the body.
#[test]
fn the_header_retry_after_is_that_of_the_details() {
    let version = StatusError::TooLargeVersion { version: 2, current: 1 };
    for (error, expected) in [
        (StatusError::Starting, Some("1")),
        (version, Some("1")),
        (AccessError::Review("timeout".to_owned()).into(), None),
        (StatusError::Method, None),
    ] {
        let response = error.response(Encoding::Json);
        let header = response.headers().get(header::RETRY_AFTER).map(|value| value.to_str().unwrap());
        assert_eq!(header, expected, "{error}");
        let seconds = status(&error)["details"]["retryAfterSeconds"].as_u64().map(|seconds| seconds.to_string());
        assert_eq!(header, seconds.as_deref(), "{error}");
    }
}

#[test]
fn an_expired_watch_ends_with_a_410_error_event() {
    let event: Value = serde_json::from_slice(&StatusError::Expired("a filter changed").event(Encoding::Json)).unwrap();
    assert_eq!(event["type"], "ERROR");
    assert_eq!((&event["object"]["code"], &event["object"]["reason"]), (&json!(410), &json!("Expired")));
}

#[test]
fn a_status_is_the_same_in_protobuf_and_json() {
    let failure = Failure { filter: Arc::from("topology"), class: FailureClass::Trap, message: Arc::from("boom") };
    let named = StatusError::NotFound { resource: GroupResource::new("services", ""), name: "a".into() };
    for error in
        [StatusError::Starting, StatusError::Filter(failure), named, StatusError::Expired("x"), StatusError::OldClient]
    {
        let (encoding, body) = encode(&error.status(), Encoding::Protobuf);
        assert_eq!(encoding, Encoding::Protobuf);
        let envelope = Envelope::open(body).unwrap();
        let document =
            weir_document::Document::protobuf(envelope.object(), Arc::new(envelope.type_meta().clone())).unwrap();
        let decoded: Value = serde_json::from_str(&document.to_json().unwrap()).unwrap();
        assert_eq!(decoded, status(&error));
    }
}
