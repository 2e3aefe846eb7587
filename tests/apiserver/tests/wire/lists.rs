//! get and list: shape, selectors, pages, versions, gzip.

use std::io::Read;

use http::StatusCode;
use serde_json::json;
use weir_apiserver::{ApiServer, Gzip};

use crate::client::{Client, pool, service, services, start};

const SERVICES: &str = "/api/v1/services";

#[tokio::test]
async fn items_of_built_in_kinds_have_no_kind_and_objects_do() {
    let (server, client) = start().await;
    let version = server.store().put(service("web", json!({}))).unwrap();
    let list = client.get(SERVICES).await.json();
    assert_eq!(list["kind"], "ServiceList");
    assert_eq!(list["metadata"]["resourceVersion"], version.to_string());
    assert!(list["items"][0].get("kind").is_none() && list["items"][0].get("apiVersion").is_none());
    let object = client.get("/api/v1/namespaces/default/services/web").await.json();
    assert_eq!((&object["kind"], &object["apiVersion"]), (&json!("Service"), &json!("v1")));
    assert_eq!(object["metadata"]["resourceVersion"], version.to_string());
    assert!(object["metadata"]["uid"].is_string() && object["metadata"]["creationTimestamp"].is_string());
}

#[tokio::test]
async fn lists_of_crds_have_their_kind_after_their_items() {
    let (server, client) = start().await;
    server.store().put(pool("hz", &[])).unwrap();
    let list = client.get("/apis/apps.openyurt.io/v1beta2/nodepools").await;
    let value = list.json();
    let keys: Vec<&String> = value.as_object().unwrap().keys().collect();
    assert_eq!(keys, ["apiVersion", "items", "kind", "metadata"]);
    assert_eq!(value["items"][0]["kind"], "NodePool");
    assert_eq!(value["items"][0]["apiVersion"], "apps.openyurt.io/v1beta2");
}

#[tokio::test]
async fn a_list_of_one_namespace_has_only_its_objects() {
    let (server, client) = start().await;
    server.store().put(service("a", json!({}))).unwrap();
    let mut other = service("b", json!({}));
    other["metadata"]["namespace"] = "kube-system".into();
    server.store().put(other).unwrap();
    assert_eq!(client.get(SERVICES).await.names(), ["a", "b"]);
    assert_eq!(client.get("/api/v1/namespaces/kube-system/services").await.names(), ["b"]);
    assert_eq!(client.get("/api/v1/namespaces/kube/services").await.names().len(), 0);
}

#[tokio::test]
async fn selectors_narrow_a_list() {
    let (server, client) = start().await;
    server.store().put(service("a", json!({"app": "dns"}))).unwrap();
    server.store().put(service("b", json!({"app": "web"}))).unwrap();
    server.store().put(service("c", json!({}))).unwrap();
    for (query, names) in [
        ("labelSelector=app%3Ddns", vec!["a"]),
        ("labelSelector=app+in+(dns,web)", vec!["a", "b"]),
        ("labelSelector=!app", vec!["c"]),
        ("fieldSelector=metadata.name%3Db", vec!["b"]),
        ("fieldSelector=metadata.name!=b,spec.type=ClusterIP", vec!["a", "c"]),
    ] {
        assert_eq!(client.get(&format!("{SERVICES}?{query}")).await.names(), names, "{query}");
    }
    assert_eq!(client.get(&format!("{SERVICES}?labelSelector=a+b")).await.status, StatusCode::BAD_REQUEST);
}

#[tokio::test]
async fn later_pages_come_from_the_state_of_the_first() {
    let (server, client) = start().await;
    services(&server, 5);
    let first = client.get(&format!("{SERVICES}?limit=2")).await;
    let meta = first.json()["metadata"].clone();
    assert_eq!(first.names(), ["s0000", "s0001"]);
    assert_eq!(meta["remainingItemCount"], 3);

    server.store().delete("v1", "Service", "default", "s0002").unwrap();
    server.store().put(service("s0003", json!({"changed": "yes"}))).unwrap();
    server.store().put(service("s0009", json!({}))).unwrap();

    let token = meta["continue"].as_str().unwrap();
    let second = client.get(&format!("{SERVICES}?limit=2&continue={token}")).await;
    assert_eq!(second.names(), ["s0002", "s0003"]);
    assert!(second.json()["items"][1]["metadata"]["labels"].get("changed").is_none());
    assert_eq!(second.json()["metadata"]["resourceVersion"], meta["resourceVersion"]);
    let token = second.json()["metadata"]["continue"].as_str().unwrap().to_owned();
    let third = client.get(&format!("{SERVICES}?limit=2&continue={token}")).await;
    assert_eq!(third.names(), ["s0004"]);
    assert!(third.json()["metadata"].get("continue").is_none());
}

#[tokio::test]
async fn an_expired_continue_token_returns_an_inconsistent_one() {
    let (server, client) = start().await;
    services(&server, 3);
    let token = client.get(&format!("{SERVICES}?limit=1")).await.json()["metadata"]["continue"].clone();
    server.store().delete("v1", "Service", "default", "s0001").unwrap();
    server.compact();
    let expired = client.get(&format!("{SERVICES}?limit=1&continue={}", token.as_str().unwrap())).await;
    assert_eq!((expired.status, expired.reason().as_str()), (StatusCode::GONE, "Expired"));
    let other = expired.json()["metadata"]["continue"].as_str().unwrap().to_owned();
    assert_eq!(client.get(&format!("{SERVICES}?limit=1&continue={other}")).await.names(), ["s0002"]);
    assert_eq!(client.get(&format!("{SERVICES}?continue=garbage")).await.status, StatusCode::BAD_REQUEST);
}

#[tokio::test]
async fn list_versions_follow_the_api_concepts() {
    let (server, client) = start().await;
    services(&server, 2);
    let old = server.store().revision();
    services(&server, 3);
    let ask = async |query: String| client.get(&format!("{SERVICES}?{query}")).await;
    assert_eq!(ask("resourceVersion=0&limit=1".into()).await.names().len(), 3);
    assert_eq!(ask(format!("resourceVersion={old}")).await.names().len(), 3);
    assert_eq!(ask(format!("resourceVersion={old}&resourceVersionMatch=NotOlderThan")).await.names().len(), 3);
    let exact = ask(format!("resourceVersion={old}&resourceVersionMatch=Exact")).await;
    assert_eq!(exact.names().len(), 2);
    assert_eq!(exact.json()["metadata"]["resourceVersion"], old.to_string());
    assert_eq!(ask(format!("resourceVersion={old}&limit=5")).await.names().len(), 2);

    let ahead = ask("resourceVersion=999999".into()).await;
    assert_eq!((ahead.status, ahead.reason().as_str()), (StatusCode::GATEWAY_TIMEOUT, "Timeout"));
    assert_eq!(ahead.json()["details"]["causes"][0]["reason"], "ResourceVersionTooLarge");
    let ahead = client.get("/api/v1/namespaces/default/services/s0000?resourceVersion=999999").await;
    assert_eq!(ahead.status, StatusCode::GATEWAY_TIMEOUT);

    server.compact();
    let gone = ask(format!("resourceVersion={old}&resourceVersionMatch=Exact")).await;
    assert_eq!((gone.status, gone.reason().as_str()), (StatusCode::GONE, "Expired"));
    assert_eq!(ask("resourceVersion=x".into()).await.status, StatusCode::BAD_REQUEST);
    assert_eq!(ask("resourceVersionMatch=Exact".into()).await.status, StatusCode::UNPROCESSABLE_ENTITY);
}

#[tokio::test]
async fn a_missing_object_is_not_found_by_name_and_kind() {
    let (_server, client) = start().await;
    let answer = client.get("/apis/apps.openyurt.io/v1beta2/nodepools/hz").await;
    assert_eq!(answer.status, StatusCode::NOT_FOUND);
    let status = answer.json();
    assert_eq!(status["message"], "nodepools.apps.openyurt.io \"hz\" not found");
    assert_eq!(status["details"], json!({"name": "hz", "group": "apps.openyurt.io", "kind": "nodepools"}));
}

#[tokio::test]
async fn large_responses_are_gzipped_for_clients_that_accept_it() {
    let (server, client) = start().await;
    services(&server, 2000);
    let plain = client.get(SERVICES).await;
    assert!(plain.bytes.len() > 128 * 1024);
    assert!(!plain.headers.contains_key("content-encoding"));
    let client = client.header("accept-encoding", "gzip");
    let packed = client.get(SERVICES).await;
    assert_eq!(packed.headers["content-encoding"], "gzip");
    let mut bytes = Vec::new();
    flate2::read::GzDecoder::new(packed.bytes.as_ref()).read_to_end(&mut bytes).unwrap();
    assert_eq!(bytes, plain.bytes);

    let small = client.get("/api/v1/namespaces/default").await;
    assert!(!small.headers.contains_key("content-encoding"));
    server.set_gzip(Gzip::Always);
    let small = client.get("/api/v1/namespaces/default").await;
    assert_eq!(small.headers["content-encoding"], "gzip");
    server.set_gzip(Gzip::Never);
    assert!(!client.get(SERVICES).await.headers.contains_key("content-encoding"));
}

#[tokio::test]
async fn http2_by_prior_knowledge_gets_the_same_answers() {
    let server = ApiServer::builder().start().await.unwrap();
    services(&server, 100);
    let one = Client::of(&server).get(SERVICES).await;
    let two = Client::http2(&server).get(SERVICES).await;
    assert_eq!(one.bytes, two.bytes);
    assert_eq!(server.requests().last().unwrap().version, http::Version::HTTP_2);
}

#[tokio::test]
async fn head_is_a_get_without_its_body() {
    let (server, client) = start().await;
    services(&server, 1);
    let answer = client.send(http::Method::HEAD, SERVICES, "", "").await;
    assert_eq!(answer.status, StatusCode::OK);
    assert!(answer.bytes.is_empty());
}
