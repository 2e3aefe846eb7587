//! Access reviews, and a policy enforced on some requests.

use http::StatusCode;
use serde_json::{Value, json};
use weir_apiserver::{ApiServer, Enforce};

use crate::client::{Client, services};

const REVIEWS: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";

fn review(verb: &str, resource: &str) -> Value {
    json!({
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": {"verb": verb, "resource": resource, "namespace": "default"}},
    })
}

#[tokio::test]
async fn reviews_follow_the_policy_and_the_callers_token() {
    let server = ApiServer::builder().token("t1", "alice", &["team"]).start().await.unwrap();
    let alice = Client::of(&server).header("authorization", "Bearer t1");
    let anybody = Client::of(&server);
    assert_eq!(alice.post(REVIEWS, &review("list", "services")).await.json()["status"]["allowed"], true);
    server
        .set_policy(|request| request.user.name == "alice" && request.verb == "list" && request.namespace == "default");
    assert_eq!(alice.post(REVIEWS, &review("list", "services")).await.json()["status"]["allowed"], true);
    assert_eq!(alice.post(REVIEWS, &review("delete", "services")).await.json()["status"]["allowed"], false);
    assert_eq!(anybody.post(REVIEWS, &review("list", "services")).await.json()["status"]["allowed"], false);

    let mut other = review("list", "services");
    other["kind"] = "SubjectAccessReview".into();
    other["spec"]["user"] = "alice".into();
    let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
    assert_eq!(anybody.post(path, &other).await.json()["status"]["allowed"], true);

    let own = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let answer = alice.post("/apis/authentication.k8s.io/v1/selfsubjectreviews", &own).await;
    assert_eq!(
        answer.json()["status"]["userInfo"],
        json!({"username": "alice", "groups": ["team", "system:authenticated"]})
    );
    assert_eq!(alice.get(REVIEWS).await.status, StatusCode::METHOD_NOT_ALLOWED);
}

#[tokio::test]
async fn an_impersonated_user_is_the_caller() {
    let server = ApiServer::builder().start().await.unwrap();
    let client = Client::of(&server).header("impersonate-user", "bob").header("impersonate-group", "ops");
    let own = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let answer = client.post("/apis/authentication.k8s.io/v1/selfsubjectreviews", &own).await;
    assert_eq!(
        answer.json()["status"]["userInfo"],
        json!({"username": "bob", "groups": ["ops", "system:authenticated"]})
    );
}

#[tokio::test]
async fn the_policy_is_enforced_on_the_selected_requests() {
    let server = ApiServer::builder().start().await.unwrap();
    services(&server, 1);
    server.set_policy(|request| request.resource != "services");
    let proxy = Client::of(&server).header("user-agent", "kube-proxy/v1.34.0");
    let other = Client::of(&server).header("authorization", "Bearer t2");
    assert_eq!(proxy.get("/api/v1/services").await.status, StatusCode::OK);

    server.enforce(Enforce::UserAgent("kube-proxy/".into()));
    let refused = proxy.get("/api/v1/services").await;
    assert_eq!((refused.status, refused.reason().as_str()), (StatusCode::FORBIDDEN, "Forbidden"));
    assert_eq!(
        refused.json()["message"],
        "services is forbidden: User \"nameless\" cannot list resource \"services\" in API group \"\" at the cluster scope"
    );
    assert_eq!(proxy.get("/api/v1/pods").await.status, StatusCode::OK);
    assert_eq!(proxy.get("/api").await.status, StatusCode::OK);
    assert_eq!(other.get("/api/v1/services").await.status, StatusCode::OK);

    server.enforce(Enforce::Token("t2".into()));
    assert_eq!(other.get("/api/v1/services").await.status, StatusCode::FORBIDDEN);
    assert_eq!(proxy.get("/api/v1/services").await.status, StatusCode::OK);
    server.enforce(Enforce::Everybody);
    assert_eq!(proxy.get("/api/v1/services").await.status, StatusCode::FORBIDDEN);
}

#[tokio::test]
async fn a_name_in_a_field_selector_is_authorized_as_the_name() {
    let server = ApiServer::builder().start().await.unwrap();
    server.set_policy(|request| request.name == "mine");
    server.enforce(Enforce::Everybody);
    let client = Client::of(&server);
    assert_eq!(client.get("/api/v1/nodes?fieldSelector=metadata.name%3Dmine").await.status, StatusCode::OK);
    assert_eq!(client.get("/api/v1/nodes").await.status, StatusCode::FORBIDDEN);
}

#[tokio::test]
async fn unknown_tokens_get_401_where_only_known_ones_are_taken() {
    let server = ApiServer::builder().token("t1", "alice", &[]).known_tokens_only().start().await.unwrap();
    let known = Client::of(&server).header("authorization", "Bearer t1");
    let unknown = Client::of(&server).header("authorization", "Bearer t2");
    assert_eq!(known.get("/api/v1/services").await.status, StatusCode::OK);
    let refused = unknown.get("/api/v1/services").await;
    assert_eq!((refused.status, refused.reason().as_str()), (StatusCode::UNAUTHORIZED, "Unauthorized"));
}
