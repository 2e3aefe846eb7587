//! Reads from views in other forms than the store's, compared with what the API server answers to the same request.

use super::*;

const SERVICES: &str = "/api/v1/services";
const METADATA: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
const METADATA_LIST: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
const PROTOBUF_METADATA: &str = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";

async fn cached() -> ProxyFixture {
    let fixture = fixture_with(|setup| setup.cached = vec!["services".parse().unwrap()]).await;
    for name in ["a", "b"] {
        fixture.service(name, "ClusterIP");
    }
    fixture
}

async fn body(fixture: &ProxyFixture, path: &str, accept: &str) -> Bytes {
    let response = fixture.send(path, &[("accept", accept)]).await;
    assert_eq!(response.status(), StatusCode::OK, "{path}");
    response.into_body().collect().await.unwrap().to_bytes()
}

fn json(body: &Bytes) -> Value {
    serde_json::from_slice(body).unwrap()
}

/// How many lists have reached the API server.
fn lists(fixture: &ProxyFixture) -> usize {
    let requests = fixture.server.requests();
    requests.iter().filter(|request| request.path == SERVICES && !request.query.contains("watch=")).count()
}

#[tokio::test]
async fn a_list_of_metadata_from_a_view_is_what_the_api_server_answers() {
    let fixture = cached().await;
    let cached = json(&body(&fixture, &format!("{SERVICES}?resourceVersion=0"), METADATA_LIST).await);
    let before = lists(&fixture);
    assert_eq!(before, 1, "the reflector's");
    let direct = json(&body(&fixture, SERVICES, METADATA_LIST).await);
    assert_eq!(lists(&fixture), before + 1);
    assert_eq!(cached, direct);
    assert_eq!(cached["kind"], "PartialObjectMetadataList");
    assert_eq!(names(&cached), ["a", "b"]);
}

#[tokio::test]
async fn the_items_of_a_protobuf_list_of_metadata_are_what_the_api_server_answers() {
    let fixture = cached().await;
    let cached = body(&fixture, &format!("{SERVICES}?resourceVersion=0"), PROTOBUF_METADATA).await;
    let direct = body(&fixture, SERVICES, PROTOBUF_METADATA).await;
    assert_eq!(protobuf_items(&cached), protobuf_items(&direct));
    assert_eq!(protobuf_items(&cached).len(), 2);
}

#[tokio::test]
async fn a_watch_of_metadata_from_a_view_sends_metadata() {
    let fixture = cached().await;
    let list = json(&body(&fixture, &format!("{SERVICES}?resourceVersion=0"), METADATA_LIST).await);
    let path = format!("{SERVICES}?watch=1&allowWatchBookmarks=true&resourceVersion={}", version(&list));
    let response = fixture.send(&path, &[("accept", METADATA)]).await;
    let mut events = EventReader { body: response.into_body(), rest: Vec::new() };
    fixture.service("c", "ClusterIP");
    let event = events.next().await.unwrap();
    let object = &event["object"];
    assert_eq!((&event["type"], &object["metadata"]["name"]), (&json!("ADDED"), &json!("c")));
    assert_eq!((&object["kind"], &object["apiVersion"]), (&json!("PartialObjectMetadata"), &json!("meta.k8s.io/v1")));
    assert_eq!(object.get("spec"), None);
}
